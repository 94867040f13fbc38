//! `doctor`: what it prints, what it refuses, and that it leaves nothing behind.

use std::process::Child;

use super::*;
use crate::common::{wait_until, with_short_files};

/// A folder of this name is made in the folder that is measured.
const NAME: &str = "palisade-doctor";

#[test]
fn each_way_and_workload_has_a_line_and_the_verdict_follows() {
    let folder = folder();
    fs::write(folder.path().join("mine"), "mine").unwrap();
    let output = doctor(folder.path(), &[]);
    assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
    let table = text(&output.stdout);
    let parts = [
        "256 B + fdatasync, file written before",
        "256 B + fsync",
        "\nraw sync, 1 thread ",
        "\ncommit, 1 thread ",
        "\ncommit, 8 threads ",
        "\ncommit, 64 threads ",
        "\nappend without a commit, 1 thread ",
        "\nscan, 1 thread ",
        "\n- group commit gives ",
    ];
    has(&table, &parts);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something is left");
}

#[test]
fn json_is_one_object_with_the_fields_of_the_help() {
    let folder = folder();
    let output = doctor(folder.path(), &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let workloads = report["workloads"].as_array().unwrap();
    is_documented("doctor", [&report, &report["ways"][0], &workloads[0]]);
    assert_eq!(report["ways"].as_array().unwrap().len(), 5);
    assert!(report["ways"][0]["per_s"].as_f64().unwrap() > 0.0, "{report}");
    let of = |workload: &Value| (workload["workload"].clone(), workload["threads"].clone());
    let expected = [("raw_sync", 1), ("commit", 1), ("commit", 8), ("commit", 64)];
    let expected = expected.into_iter().chain([("append", 1), ("scan", 1)]);
    let expected: Vec<_> = expected.map(|(name, threads)| (name.into(), threads.into())).collect();
    assert_eq!(workloads.iter().map(of).collect::<Vec<(Value, Value)>>(), expected);
    assert_eq!(workloads[0]["ratio"], 1.0);
    for workload in workloads {
        assert!(workload["per_s"].as_f64().unwrap() > 0.0, "{workload}");
        let is_timed = workload["workload"] == "raw_sync" || workload["workload"] == "commit";
        assert_eq!(workload["p50_us"].is_f64(), is_timed, "{workload}");
        let is_commit = workload["workload"] == "commit";
        assert_eq!(workload["records_per_sync"].is_f64(), is_commit, "{workload}");
    }
    assert!(report["verdict"].as_array().unwrap().len() >= 4, "{report}");
}

/// A kill that no handler sees is the worst case of Ctrl-C.
#[test]
fn a_doctor_that_is_killed_leaves_nothing() {
    let folder = folder();
    let mut doctor = running(folder.path());
    let buffer = log_buffer(&folder.path().join(NAME).join("log"));
    assert!(buffer.as_ref().is_none_or(|file| Path::new(file).exists()));
    doctor.kill().unwrap();
    doctor.wait().unwrap();
    wait_until("the folder is removed", || !folder.path().join(NAME).exists());
    assert!(buffer.as_ref().is_none_or(|file| !Path::new(file).exists()), "{buffer:?}");
}

#[test]
fn a_folder_with_another_running_doctor_is_refused_unchanged() {
    let folder = folder();
    let mut first = running(folder.path());
    let second = doctor(folder.path(), &[]);
    assert_eq!(code(&second), 3, "{second:?}");
    assert!(text(&second.stderr).contains("another `palisade doctor` runs"), "{second:?}");
    assert!(first.try_wait().unwrap().is_none() && folder.path().join(NAME).exists());
    first.kill().unwrap();
    first.wait().unwrap();
    wait_until("the folder is removed", || !folder.path().join(NAME).exists());
}

#[test]
fn the_folder_of_a_log_is_refused_only_while_the_log_is_open() {
    let folder = folder();
    let log = folder.path().join("log");
    let wal = Wal::open(&log).unwrap();
    let lsn = wal.commit(b"before").unwrap();
    let refused = doctor(&log, &[]);
    assert_eq!(code(&refused), 3, "{refused:?}");
    assert!(text(&refused.stderr).contains("has the log in this folder open"), "{refused:?}");
    assert!(!log.join(NAME).exists());
    wal.close().unwrap();
    drop(wal);
    assert_eq!(code(&doctor(&log, &[])), 0);
    assert_eq!(Wal::open(&log).unwrap().get(lsn).unwrap().data(), b"before");
}

#[test]
fn a_path_that_is_no_folder_or_has_leftovers_is_wrong_usage() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    for path in [&file, &folder.path().join("missing")] {
        let output = doctor(path, &[]);
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(text(&output.stderr).contains("is no folder"), "{output:?}");
    }
    let left = folder.path().join(NAME);
    fs::create_dir(&left).unwrap();
    let output = doctor(folder.path(), &[]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(text(&output.stderr).contains("if a doctor left it that was killed, remove it"));
    assert!(left.is_dir());
}

/// The log cannot be made under this limit: a failure after the folder is made.
#[cfg(unix)]
#[test]
fn a_doctor_that_fails_leaves_nothing() {
    let folder = folder();
    let output = with_short_files(&["doctor", folder.path().to_str().unwrap()]);
    assert_eq!(code(&output), 3, "{output:?}");
    assert!(text(&output.stderr).contains("RLIMIT_FSIZE"), "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn doctor(dir: &Path, flags: &[&str]) -> Output {
    palisade(dir, &[&["doctor", "--seconds", "0.05"], flags].concat())
}

/// A doctor that has its log open and does not end by itself.
fn running(dir: &Path) -> Child {
    let mut doctor =
        command(dir, &["doctor", "--seconds", "3000"]).stdout(Stdio::null()).spawn().unwrap();
    let log = dir.join(NAME).join("log");
    wait_until("the doctor has its log open", || {
        assert!(doctor.try_wait().unwrap().is_none(), "the doctor has ended");
        info(&log).is_some_and(|info| info["state"] == "open")
    });
    doctor
}

fn info(log: &Path) -> Option<Value> {
    serde_json::from_slice(&palisade(log, &["info", "--json"]).stdout).ok()
}

/// The file of the log buffer, where the system has memory for one.
fn log_buffer(log: &Path) -> Option<String> {
    info(log)?["buffer_file"].as_str().map(str::to_owned)
}
