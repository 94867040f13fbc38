//! `doctor` in a folder, in a log's folder, and where there is none.

use super::*;

#[test]
fn each_way_has_a_line_and_the_verdict_follows() {
    let folder = folder();
    let output = doctor(folder.path(), &[]);
    assert_eq!(code(&output), 0, "{output:?}");
    let parts = ["256 B + fdatasync, file written before", "256 B + fsync", "\n- "];
    has(&out(&output), &parts);
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
    is_documented("doctor", [&report, &report["ways"][0]]);
    assert!(report["ways"][0]["per_s"].as_f64().unwrap() > 0.0, "{report}");
    assert!(!report["verdict"].as_array().unwrap().is_empty());
    assert_eq!(Wal::open(&log).unwrap().get(lsn).unwrap().data(), b"before");
}

#[test]
fn a_folder_that_is_not_there_is_wrong_usage() {
    let folder = folder();
    let output = doctor(&folder.path().join("missing"), &[]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(err(&output).contains("is no folder"));
}

fn doctor(dir: &Path, flags: &[&str]) -> Output {
    palisade(dir, &[&["doctor", "--seconds", "0.05"], flags].concat())
}
