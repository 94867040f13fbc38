//! `doctor` in a folder, in a log's folder, and where there is none.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use palisade::Wal;
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn each_way_has_a_line_and_the_verdict_follows() {
    let folder = folder();
    let output = doctor(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["256 B + fdatasync, file written before", "256 B + fsync", "\n- "] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a probe's file is left");
}

#[test]
fn json_is_one_object_and_a_log_in_the_folder_stays_as_it_is() {
    let folder = folder();
    let log = folder.path().join("log");
    let lsn = Wal::open(&log).unwrap().commit(b"before").unwrap();
    let output = doctor(&log, &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ways"].as_array().unwrap().len(), 5);
    let help = Command::new(env!("CARGO_BIN_EXE_palisade")).args(["doctor", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    for object in [&report, &report["ways"][0]] {
        for name in object.as_object().unwrap().keys() {
            assert!(help.contains(name), "{name} is not in {help}");
        }
    }
    assert!(report["ways"][0]["per_s"].as_f64().unwrap() > 0.0, "{report}");
    assert!(!report["verdict"].as_array().unwrap().is_empty());
    assert_eq!(Wal::open(&log).unwrap().get(lsn).unwrap().data(), b"before");
}

#[test]
fn a_folder_that_is_not_there_is_wrong_usage() {
    let folder = folder();
    let output = doctor(&folder.path().join("missing"), &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("is no folder"));
}

fn doctor(dir: &Path, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["doctor", "--seconds", "0.05"])
        .args(flags)
        .arg(dir)
        .output()
        .unwrap()
}

/// On the disk of the build: a sync on tmpfs says nothing.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
