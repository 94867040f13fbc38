//! `verify --deep`, `salvage` and `repair` on damaged logs: they change nothing, and nothing is
//! given up that was not named.

use std::path::PathBuf;

use palisade::{ErrorKind, Verify};
use tempfile::TempDir;

use super::*;
use crate::common::with_short_files;

type Snapshot = Vec<(String, Vec<u8>)>;

/// A closed log of several segments, and the LSNs of its records.
fn log() -> (TempDir, PathBuf, Vec<Lsn>) {
    let folder = folder();
    let path = folder.path().join("log");
    let wal = small().open(&path).unwrap();
    let record = |n: u32| n.to_le_bytes().repeat(60);
    let lsns = (0..1000).map(|n| wal.append(&record(n)).unwrap().lsn()).collect();
    wal.close().unwrap();
    (folder, path, lsns)
}

fn repair(dir: &Path, from: Lsn, more: &[&str]) -> Output {
    palisade(dir, &[&["repair", "--from", &from.to_string()], more].concat())
}

fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Expects a refusal with `part` in its text and everything in `dir` as it was.
fn refused(output: &Output, exit: i32, part: &str, dir: &Path, before: &Snapshot) {
    assert_eq!(code(output), exit, "{output:?}");
    assert!(err(output).contains(part), "`{part}` is not in {}", err(output));
    assert!(content(dir) == *before, "a refused repair changes nothing: {}", err(output));
}

#[test]
fn deep_verification_names_damaged_segments_and_changes_nothing() {
    let (_folder, dir, lsns) = log();
    let clean = palisade(&dir, &["verify", "--deep"]);
    assert_eq!(code(&clean), 0, "{clean:?}");
    assert!(out(&clean).starts_with("clean\n") && out(&clean).contains("records    1000 "));
    for index in [100, 101, 500, 900] {
        damage_record(&dir, lsns[index]);
    }
    let before = content(&dir);
    for threads in ["0", "1", "5"] {
        let deep = palisade(&dir, &["verify", "--deep", "--threads", threads]);
        assert_eq!(code(&deep), 4, "{deep:?}");
        let text = out(&deep);
        assert!(
            text.starts_with("corrupt") && text.contains(&format!("end        LSN {}", lsns[100]))
        );
        let next = format!("`palisade repair {} --from {} --dry-run`", text_of(&dir), lsns[100]);
        assert!(text.contains(&next) && !text.contains("verify --deep"), "{text}");
        for index in [100, 500, 900] {
            assert!(text.contains(&format!("bad        LSN {} ", lsns[index])), "{text}");
        }
        assert!(text.contains("records    996 still validate: `palisade salvage`"), "{text}");
    }
    assert!(content(&dir) == before);
    let shallow = palisade(&dir, &["verify"]);
    assert_eq!(code(&shallow), 4);
    assert!(out(&shallow).contains("records    100 below the first bad place ("), "{shallow:?}");
}

#[test]
fn the_proposed_repair_of_a_damaged_header_keeps_every_record() {
    let (_folder, dir, lsns) = log();
    let name = dir.join(format!("segment-{:020}", lsns[500].segment(SEGMENT)));
    let mut bytes = fs::read(&name).unwrap();
    bytes[50] ^= 1;
    fs::write(name, bytes).unwrap();
    let text = out(&palisade(&dir, &["verify", "--deep"]));
    assert!(
        text.starts_with("corrupt") && text.contains("records    1000 still validate:"),
        "{text}"
    );
    let from = text.split("--from ").nth(1).and_then(|text| text.split(' ').next()).unwrap();
    let dry = repair(&dir, Lsn::new(from.parse().unwrap()), &["--dry-run"]);
    assert!(out(&dry).contains("kept       1000 records"), "{}", out(&dry));
    assert!(out(&dry).contains("of these   0 records still validate"), "{}", out(&dry));
}

#[test]
fn a_repair_only_copies_what_is_below_the_damage() {
    let (folder, dir, lsns) = log();
    damage_record(&dir, lsns[500]);
    let before = content(&dir);
    let into = folder.path().join("repaired");

    let dry = repair(&dir, lsns[500], &["--dry-run", "--into", text_of(&into)]);
    assert_eq!(code(&dry), 0, "{dry:?}");
    let salvage = format!("`palisade salvage {} --from {}`", text_of(&dir), lsns[500]);
    assert!(out(&dry).contains(&salvage), "{}", out(&dry));
    for part in ["kept       500 records", "499 records still validate", "nothing was written"] {
        assert!(out(&dry).contains(part), "{}", out(&dry));
    }
    assert!(out(&dry).contains(&format!("given up   LSN {} to ", lsns[500])), "{}", out(&dry));
    assert!(content(&dir) == before && !into.exists());
    assert_eq!(code(&repair(&dir, lsns[500], &["--dry-run"])), 0, "no folder is needed");

    let done = repair(&dir, lsns[500], &["--into", text_of(&into)]);
    assert_eq!(code(&done), 0, "{done:?}");
    assert!(out(&done).contains("repaired   "), "{}", out(&done));
    assert!(content(&dir) == before, "the damaged log is as it was");
    assert_eq!(code(&palisade(&into, &["verify", "--deep"])), 0);
    let wal = small().verify(Verify::Full).open(&into).unwrap();
    assert!(wal.recovery_report().clean, "a repaired log is closed cleanly");
    assert_eq!(wal.recovery_report().records, 500);
    let later = wal.commit(b"later").unwrap();
    assert!(out(&done).contains(&format!("appends go on at LSN {later}")), "{}", out(&done));
    assert!(later > lsns[999]);
    wal.close().unwrap();
    let info = out(&palisade(&into, &["info"]));
    assert!(info.contains("none: the log was closed"), "{info}");
}

#[test]
fn json_is_one_object_with_the_fields_of_the_help() {
    let (folder, dir, lsns) = log();
    damage_record(&dir, lsns[500]);
    let into = folder.path().join("repaired");
    let object = |flags: &[&str]| -> Value {
        let output = repair(&dir, lsns[500], &[flags, &["--json"]].concat());
        assert_eq!(code(&output), 0, "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let dry = object(&["--dry-run"]);
    assert!(dry["into"].is_null() && !into.exists(), "{dry}");
    let done = object(&["--into", text_of(&into)]);
    assert_eq!(done["into"], text_of(&into));
    assert_eq!((&done["records"], &done["given_up_records"]), (&500.into(), &499.into()));
    assert_eq!(done["from"], lsns[500].as_u64());
    for name in ["log", "head", "end", "bytes", "given_up_to", "base", "epoch"] {
        assert_eq!(dry[name], done[name], "{name}");
    }
    is_documented("repair", [&done]);
    let wal = small().open(&into).unwrap();
    assert_eq!(wal.commit(b"later").unwrap().as_u64(), done["base"].as_u64().unwrap());
}

#[test]
fn a_repair_accepts_an_lsn_below_the_damage_and_an_empty_folder() {
    let (folder, dir, lsns) = log();
    damage_record(&dir, lsns[500]);
    let into = folder.path().join("repaired");
    fs::create_dir(&into).unwrap();
    let done = repair(&dir, lsns[200], &["--into", text_of(&into)]);
    assert_eq!(code(&done), 0, "{done:?}");
    assert!(out(&done).contains("kept       200 records"), "{}", out(&done));
    let wal = small().verify(Verify::Full).open(&into).unwrap();
    assert_eq!(wal.recovery_report().records, 200);
}

#[test]
fn a_repair_that_names_the_wrong_place_is_refused() {
    let (folder, dir, lsns) = log();
    let into = folder.path().join("repaired");
    let flags = ["--into", text_of(&into)];
    damage_record(&dir, lsns[500]);
    let before = content(&dir);
    let at = format!("(LSN {})", lsns[500]);
    for flags in [&flags[..], &["--dry-run"]] {
        refused(&repair(&dir, lsns[501], flags), 2, &at, &dir, &before);
        let advice = "; name this LSN, or that of a record below it";
        refused(&repair(&dir, lsns[501], flags), 2, advice, &dir, &before);
        refused(&repair(&dir, lsns[499].plus(8), flags), 2, "no record begins", &dir, &before);
    }
    refused(&repair(&dir, lsns[500], &[]), 2, "--into", &dir, &before);
    assert!(!into.exists(), "nothing is copied by a repair that is refused");
}

#[test]
fn a_folder_that_a_copy_must_not_go_to_is_refused() {
    let (folder, dir, lsns) = log();
    damage_record(&dir, lsns[500]);
    let before = content(&dir);
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("letter"), "mine").unwrap();
    let letter = full.join("letter");
    let inside = dir.join("repaired");
    let orphan = folder.path().join("nowhere").join("repaired");
    let cases = [
        (&full, 2, "not empty"),
        (&inside, 2, "lies in the folder that is copied"),
        (&inside.join("deeper"), 2, "lies in the folder that is copied"),
        (&letter, 2, "is no folder"),
        (&letter.join("inside"), 2, "is no folder"),
        (&dir, 2, "not empty"),
        (&orphan, 3, "nowhere"),
    ];
    for (into, exit, part) in cases {
        let output = repair(&dir, lsns[500], &["--into", text_of(into)]);
        refused(&output, exit, part, &dir, &before);
        let is_early = exit == 2;
        assert_eq!(out(&output).is_empty(), is_early, "what is kept is not announced: {output:?}");
    }
    assert_eq!(fs::read(full.join("letter")).unwrap(), b"mine");
}

/// Without the look at the limit a signal would end the process within a segment.
#[cfg(unix)]
#[test]
fn a_low_file_size_limit_is_refused_before_anything_is_copied() {
    let (folder, dir, lsns) = log();
    damage_record(&dir, lsns[500]);
    let before = content(&dir);
    let into = folder.path().join("repaired");
    let from = lsns[500].to_string();
    let args = ["repair", text_of(&dir), "--from", &from, "--into", text_of(&into)];
    let output = with_short_files(&args);
    refused(&output, 3, "RLIMIT_FSIZE", &dir, &before);
    assert!(!into.exists());
}

/// What a repair leaves that is killed before its last step, in which it writes the state.
#[test]
fn a_copy_that_was_killed_is_no_log() {
    let (folder, dir, lsns) = log();
    damage_record(&dir, lsns[500]);
    let before = content(&dir);
    let into = folder.path().join("repaired");
    let flags = ["--into", text_of(&into)];
    assert_eq!(code(&repair(&dir, lsns[500], &flags)), 0);
    fs::remove_file(into.join("meta")).unwrap();
    assert_eq!(code(&palisade(&into, &["verify"])), 4);
    assert_eq!(small().open(&into).unwrap_err().kind(), ErrorKind::Foreign);
    refused(&repair(&dir, lsns[500], &flags), 2, "not empty", &dir, &before);
    fs::remove_dir_all(&into).unwrap();
    assert_eq!(code(&repair(&dir, lsns[500], &flags)), 0);
}

#[test]
fn a_log_with_a_writer_is_not_repaired() {
    let (folder, dir, lsns) = log();
    damage_record(&dir, lsns[10]);
    let wal = small().open(&dir).unwrap();
    let into = folder.path().join("repaired");
    for flags in [&["--into", text_of(&into)][..], &["--dry-run"]] {
        let output = repair(&dir, lsns[10], flags);
        assert_eq!(code(&output), 3, "{output:?}");
        let printed = err(&output);
        assert!(printed.contains("open for writing elsewhere"), "{printed}");
        assert!(printed.contains("stop the process that has it open"), "{printed}");
    }
    assert!(!into.exists());
    drop(wal);
    let parts = ["A log that a process has open for writing is refused", "3 the log is in use"];
    has(&help("repair"), &parts);
}

#[test]
fn salvage_prints_what_validates_and_names_the_gaps() {
    let (_folder, dir, lsns) = log();
    let whole = palisade(&dir, &["salvage"]);
    assert_eq!((code(&whole), out(&whole).lines().count()), (0, 1000), "{}", err(&whole));
    damage_record(&dir, lsns[10]);
    damage_record(&dir, lsns[500]);
    let before = content(&dir);
    let output = palisade(&dir, &["salvage", "--json"]);
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert_eq!(out(&output).lines().count(), 998);
    let gap = format!("gap: LSN {} to {}\n", lsns[10], lsns[11]);
    assert!(err(&output).contains(&gap), "{}", err(&output));
    let from = lsns[500].to_string();
    let output = palisade(&dir, &["salvage", "--from", &from]);
    assert_eq!(out(&output).lines().count(), 499);
    // Within the record: the rest of it is a gap, and no other record is passed over.
    for within in [lsns[500].plus(1), lsns[500].plus(8)] {
        let output = palisade(&dir, &["salvage", "--from", &within.to_string()]);
        assert_eq!(out(&output).lines().count(), 499, "{}", err(&output));
        let gap = format!("gap: LSN {} to {}\n", lsns[500].plus(8), lsns[501]);
        assert_eq!(err(&output), gap);
    }
    assert!(content(&dir) == before);
}
