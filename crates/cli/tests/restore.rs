//! `restore` and `backup`: the records come back with their LSNs, the sources stay as they are, and
//! what does not fit is named.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use palisade::{Archive, Lsn, OpenMode, Options};
use serde_json::Value;
use tempfile::TempDir;

type Entries = Vec<(Lsn, Vec<u8>)>;

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10)
}

/// A log that was closed, its archive, and all of its records; the first fifty are truncated.
fn archived() -> (TempDir, PathBuf, PathBuf, Entries) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (log, archive) = (folder.path().join("log"), folder.path().join("archive"));
    let wal = options().on_release(Archive::open(&archive).unwrap()).open(&log).unwrap();
    let datas = (0..60).map(|n| vec![n; 4000]);
    let records: Entries = datas.map(|data| (wal.append(&data).unwrap().lsn(), data)).collect();
    wal.truncate_before(records[50].0).unwrap();
    wal.close().unwrap();
    (folder, log, archive, records)
}

fn contents(path: &Path) -> Entries {
    let wal = options().open_mode(OpenMode::MustExist).open(path).unwrap();
    let records = wal.records().unwrap().into_iter().map(Result::unwrap);
    records.map(|record| (record.lsn(), record.data().to_vec())).collect()
}

fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn palisade(command: &str, args: &[(&str, &Path)], more: &[&str]) -> Output {
    let mut run = Command::new(env!("CARGO_BIN_EXE_palisade"));
    run.arg(command);
    for (name, path) in args {
        if !name.is_empty() {
            run.arg(name);
        }
        run.arg(path);
    }
    run.args(more).output().unwrap()
}

fn outcome(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

fn object(output: &Output) -> Value {
    assert_eq!(outcome(output), (0, String::new()));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each field of the object is in the help, where it is documented.
fn is_documented(command: &str, object: &Value) {
    let help = palisade(command, &[], &["--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    for name in object.as_object().unwrap().keys() {
        assert!(help.contains(name), "{name} is not in {help}");
    }
}

#[test]
fn an_archive_and_a_log_are_restored_up_to_an_lsn() {
    let (folder, log, archive, records) = archived();
    let into = folder.path().join("restored");
    let before = (files(&log), files(&archive));
    let sources = [("--archive", &*archive), ("--log", &*log)];
    let dry = object(&palisade("restore", &sources, &["--dry-run", "--json"]));
    assert_eq!((&dry["records"], &dry["into"]), (&60.into(), &Value::Null));
    assert!(!into.exists());
    let all = [sources[0], sources[1], ("--into", &*into)];
    let to = records[55].0.to_string();
    let restored = object(&palisade("restore", &all, &["--to", &to, "--json"]));
    assert_eq!((&restored["records"], &restored["head"]), (&55.into(), &0.into()));
    assert_eq!(restored["end"], records[55].0.as_u64());
    is_documented("restore", &restored);
    assert_eq!(contents(&into), records[..55]);
    assert_eq!((files(&log), files(&archive)), before);

    let again = palisade("restore", &all, &[]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    fs::remove_dir_all(&into).unwrap();
    let printed = palisade("restore", &[sources[0], all[2]], &["--above", "0x10000000000"]);
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.contains("records    ") && text.contains("appends begin at LSN 11005"), "{text}");
    assert!(contents(&into).len() > 40);
}

#[test]
fn what_cannot_be_restored_is_named() {
    let (folder, log, archive, records) = archived();
    let into = folder.path().join("restored");
    let sources = [("--archive", &*archive), ("--log", &*log), ("--into", &*into)];
    let to = records[20].0.plus(8).to_string();
    assert_eq!(outcome(&palisade("restore", &sources, &["--to", &to])).0, 2);
    assert_eq!(outcome(&palisade("restore", &[("--into", &into)], &[])).0, 2);
    let unnamed = outcome(&palisade("restore", &[("--into", &into)], &[]));
    assert!(unnamed.1.contains("<--archive <DIR>|--log <DIR>>"), "{}", unnamed.1);
    fs::remove_file(archive.join(format!("segment-{:020}", 1))).unwrap();
    let (exit, text) = outcome(&palisade("restore", &sources, &[]));
    assert_eq!(exit, 4, "{text}");
    assert!(text.contains("LSN 65536") && text.contains("restore up to this LSN"), "{text}");
    assert!(!into.exists());
}

#[test]
fn a_closed_and_a_crashed_log_are_backed_up_and_an_open_one_is_refused() {
    let (folder, log, _archive, records) = archived();
    let (closed, crashed) = (folder.path().join("closed"), folder.path().join("crashed"));
    let before = files(&log);
    let backup = object(&palisade("backup", &[("", &log), ("--into", &closed)], &["--json"]));
    assert_eq!((&backup["records"], &backup["buffer_file"]), (&10.into(), &Value::Null));
    is_documented("restore", &backup);
    assert_eq!(files(&log), before);
    assert_eq!(contents(&closed), records[50..]);

    let wal = options().open(&log).unwrap();
    let lsn = wal.commit(b"committed").unwrap();
    let (exit, text) = outcome(&palisade("backup", &[("", &log), ("--into", &crashed)], &[]));
    assert_eq!(exit, 3, "{text}");
    assert!(text.contains("Wal::backup_to") && !crashed.exists(), "{text}");
    assert_eq!(wal.backup_to(folder.path().join("open")).unwrap().records, 11);
    drop(wal);
    let output = palisade("backup", &[("", &log), ("--into", &crashed)], &[]);
    assert_eq!(outcome(&output).0, 0, "{output:?}");
    let copied = contents(&crashed);
    assert_eq!((copied.len(), copied[10].0), (11, lsn));
    assert_eq!(contents(&folder.path().join("open")), copied);
}

#[test]
fn a_damaged_log_is_not_backed_up() {
    let (folder, log, _archive, records) = archived();
    let name = log.join(format!("segment-{:020}", records[55].0.segment(64 << 10)));
    let mut bytes = fs::read(&name).unwrap();
    bytes[(4096 + records[55].0.as_u64() % (64 << 10)) as usize + 50] ^= 1;
    fs::write(name, bytes).unwrap();
    let into = folder.path().join("backup");
    let (exit, text) = outcome(&palisade("backup", &[("", &log), ("--into", &into)], &[]));
    assert_eq!(exit, 4, "{text}");
    assert!(text.contains(&records[55].0.to_string()) && !into.exists(), "{text}");
    // There is no LSN that a backup could name.
    assert!(text.contains("`palisade repair`") && !text.contains("to restore"), "{text}");
}

#[test]
fn a_restore_of_a_log_without_its_meta_file_asks_for_the_archive() {
    let (folder, log, archive, records) = archived();
    fs::remove_file(log.join("meta")).unwrap();
    let into = folder.path().join("restored");
    let sources = [("--log", &*log), ("--into", &*into), ("--archive", &*archive)];
    let (exit, text) = outcome(&palisade("restore", &sources[..2], &[]));
    assert_eq!(exit, 3, "{text}");
    assert!(text.contains("name the log's archive, too (--archive)"), "{text}");
    assert!(!into.exists());
    assert_eq!(outcome(&palisade("restore", &sources, &[])).0, 0);
    assert_eq!(contents(&into), records);
}
