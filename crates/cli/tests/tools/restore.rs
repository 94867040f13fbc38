//! `restore` and `backup`: the records come back with their LSNs, the sources stay as they are, and
//! what does not fit is named.

use std::path::PathBuf;

use palisade::inspect::{BufferPlace, Inspector};
use palisade::{Archive, OpenMode};
use tempfile::TempDir;

use super::*;

type Entries = Vec<(Lsn, Vec<u8>)>;

/// A log that was closed, its archive, and all of its records; the first fifty are truncated.
fn archived() -> (TempDir, PathBuf, PathBuf, Entries) {
    let folder = folder();
    let (log, archive) = (folder.path().join("log"), folder.path().join("archive"));
    let wal = small().on_release(Archive::open(&archive).unwrap()).open(&log).unwrap();
    let datas = (0..60).map(|n| vec![n; 4000]);
    let records: Entries = datas.map(|data| (wal.append(&data).unwrap().lsn(), data)).collect();
    wal.truncate_before(records[50].0).unwrap();
    wal.close().unwrap();
    (folder, log, archive, records)
}

fn contents(path: &Path) -> Entries {
    let wal = small().open_mode(OpenMode::MustExist).open(path).unwrap();
    let records = wal.records().unwrap().into_iter().map(Result::unwrap);
    records.map(|record| (record.lsn(), record.data().to_vec())).collect()
}

fn copy(command: &str, args: &[(&str, &Path)], more: &[&str]) -> Output {
    let paths = args.iter().flat_map(|(name, path)| [*name, path.to_str().unwrap()]);
    let paths = paths.filter(|word| !word.is_empty());
    words(&[command]).args(paths).args(more).output().unwrap()
}

fn outcome(output: &Output) -> (i32, String) {
    (code(output), err(output))
}

fn object(output: &Output) -> Value {
    assert_eq!(outcome(output), (0, String::new()));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn an_archive_and_a_log_are_restored_up_to_an_lsn() {
    let (folder, log, archive, records) = archived();
    let into = folder.path().join("restored");
    let before = (content(&log), content(&archive));
    let sources = [("--archive", &*archive), ("--log", &*log)];
    let dry = object(&copy("restore", &sources, &["--dry-run", "--json"]));
    assert_eq!((&dry["records"], &dry["into"]), (&60.into(), &Value::Null));
    assert!(!into.exists());
    let all = [sources[0], sources[1], ("--into", &*into)];
    let to = records[55].0.to_string();
    let restored = object(&copy("restore", &all, &["--to", &to, "--json"]));
    assert_eq!((&restored["records"], &restored["head"]), (&55.into(), &0.into()));
    assert_eq!(restored["end"], records[55].0.as_u64());
    is_documented("restore", [&restored]);
    assert_eq!(contents(&into), records[..55]);
    assert_eq!((content(&log), content(&archive)), before);

    let again = copy("restore", &all, &[]);
    assert_eq!(code(&again), 2, "{again:?}");
    fs::remove_dir_all(&into).unwrap();
    let printed = copy("restore", &[sources[0], all[2]], &["--above", "0x10000000000"]);
    let text = out(&printed);
    assert!(text.contains("records    ") && text.contains("appends begin at LSN 11005"), "{text}");
    assert!(contents(&into).len() > 40);
}

#[test]
fn what_cannot_be_restored_is_named() {
    let (folder, log, archive, records) = archived();
    let into = folder.path().join("restored");
    let sources = [("--archive", &*archive), ("--log", &*log), ("--into", &*into)];
    let to = records[20].0.plus(8).to_string();
    assert_eq!(outcome(&copy("restore", &sources, &["--to", &to])).0, 2);
    assert_eq!(outcome(&copy("restore", &[("--into", &into)], &[])).0, 2);
    let unnamed = outcome(&copy("restore", &[("--into", &into)], &[]));
    assert!(unnamed.1.contains("<--archive <DIR>|--log <DIR>>"), "{}", unnamed.1);
    fs::remove_file(archive.join(format!("segment-{:020}", 1))).unwrap();
    let (exit, text) = outcome(&copy("restore", &sources, &[]));
    assert_eq!(exit, 4, "{text}");
    assert!(text.contains("LSN 65536") && text.contains("restore up to this LSN"), "{text}");
    assert!(!into.exists());
}

#[test]
fn closed_and_crashed_logs_are_backed_up_and_open_ones_refused() {
    let (folder, log, _archive, records) = archived();
    let (closed, crashed) = (folder.path().join("closed"), folder.path().join("crashed"));
    let before = content(&log);
    let backup = object(&copy("backup", &[("", &log), ("--into", &closed)], &["--json"]));
    assert_eq!((&backup["records"], &backup["buffer_file"]), (&10.into(), &Value::Null));
    is_documented("restore", [&backup]);
    assert_eq!(content(&log), before);
    assert_eq!(contents(&closed), records[50..]);

    let wal = small().open(&log).unwrap();
    let lsn = wal.commit(b"committed").unwrap();
    let (exit, text) = outcome(&copy("backup", &[("", &log), ("--into", &crashed)], &[]));
    assert_eq!(exit, 3, "{text}");
    assert!(text.contains("Wal::backup_to") && !crashed.exists(), "{text}");
    assert_eq!(wal.backup_to(folder.path().join("open")).unwrap().records, 11);
    drop(wal);
    let output = copy("backup", &[("", &log), ("--into", &crashed)], &[]);
    assert_eq!(outcome(&output).0, 0, "{output:?}");
    let copied = contents(&crashed);
    assert_eq!((copied.len(), copied[10].0), (11, lsn));
    assert_eq!(contents(&folder.path().join("open")), copied);
}

#[test]
fn each_copy_of_a_killed_log_names_the_log_buffer_it_leaves_out() {
    let (folder, wal) = open_log(&small());
    let lsn = wal.commit(b"committed").unwrap();
    drop(wal.append(b"in the log buffer").unwrap());
    wal.abandon();
    let Ok(BufferPlace::Memory(buffer)) = Inspector::open(folder.path()).unwrap().buffer() else {
        // This system has no shared log buffer.
        return;
    };
    let copies = common::folder();
    let into = ["backup", "restore", "repair"].map(|name| copies.path().join(name));
    let end = lsn.to_string();
    let outputs = [
        copy("backup", &[("", folder.path()), ("--into", &into[0])], &["--json"]),
        copy("restore", &[("--log", folder.path()), ("--into", &into[1])], &["--json"]),
        copy("repair", &[("", folder.path()), ("--into", &into[2])], &["--from", &end, "--json"]),
    ];
    for output in outputs {
        assert_eq!(code(&output), 0, "{output:?}");
        let note = format!(
            "records that only its log buffer has are not in the copy: {}\n",
            buffer.display()
        );
        assert!(err(&output).ends_with(&note), "{output:?}");
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(object["buffer_file"], buffer.display().to_string());
    }
}

#[test]
fn a_damaged_log_is_not_backed_up() {
    let (folder, log, _archive, records) = archived();
    damage_record(&log, records[55].0);
    let into = folder.path().join("backup");
    let (exit, text) = outcome(&copy("backup", &[("", &log), ("--into", &into)], &[]));
    assert_eq!(exit, 4, "{text}");
    assert!(text.contains(&records[55].0.to_string()) && !into.exists(), "{text}");
    // There is no LSN that a backup could name.
    assert!(text.contains("`palisade repair`") && !text.contains("to restore"), "{text}");
}

#[test]
fn a_restore_without_the_meta_file_asks_for_the_archive() {
    let (folder, log, archive, records) = archived();
    fs::remove_file(log.join("meta")).unwrap();
    let into = folder.path().join("restored");
    let sources = [("--log", &*log), ("--into", &*into), ("--archive", &*archive)];
    let (exit, text) = outcome(&copy("restore", &sources[..2], &[]));
    assert_eq!(exit, 3, "{text}");
    assert!(text.contains("name the log's archive, too (--archive)"), "{text}");
    assert!(!into.exists());
    assert_eq!(outcome(&copy("restore", &sources, &[])).0, 0);
    assert_eq!(contents(&into), records);
}
