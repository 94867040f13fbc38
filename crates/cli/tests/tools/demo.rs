//! The demo as a user runs it: real files, a real kill.

use super::*;

#[test]
fn what_was_committed_survives_two_kills() {
    demo_holds("commit", "commits/s");
}

#[test]
fn what_was_appended_survives_two_kills() {
    demo_holds("append", "appends/s");
}

fn demo_holds(promise: &str, rate: &str) {
    let folder = folder();
    let flags = ["--seconds", "0.3", "--rounds", "2", "--threads", "4", "--promise", promise];
    let output = demo(folder.path(), &[&["--dir", "log"][..], &flags].concat());
    assert_eq!(code(&output), 0, "{output:?}");
    let table = text(&output.stdout);
    has(&table, &["check held: 2 kills", "none missing", "recovered", rate]);
    assert!(!table.contains("check held: 2 kills, 0 records"), "{table}");
    assert_eq!(text(&output.stderr), "");

    let verified = palisade(&folder.path().join("log"), &["verify"]);
    assert_eq!(code(&verified), 0, "{verified:?}");
}

#[test]
fn a_folder_of_its_own_is_removed() {
    let folder = folder();
    let output = in_folder(folder.path(), &["--threads", "2", "--record-bytes", "33"]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_is_not_empty_is_left_alone() {
    let folder = folder();
    fs::write(folder.path().join("mine"), "mine").unwrap();
    let output = in_folder(folder.path(), &["--dir", "."]);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("is not empty"), "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn values_out_of_range_are_wrong_usage() {
    let folder = folder();
    for (flag, value) in [
        ("--record-bytes", "31"),
        ("--record-bytes", "4194305"),
        ("--threads", "0"),
        ("--rounds", "0"),
        ("--seconds", "0"),
        ("--seconds", "nan"),
        ("--promise", "hope"),
    ] {
        let output = demo(folder.path(), &[flag, value]);
        assert_eq!(code(&output), 2, "{flag} {value}");
        assert!(text(&output.stderr).contains(flag), "{output:?}");
    }
}

#[test]
fn sizes_that_the_log_refuses_are_wrong_usage_and_leave_nothing() {
    let folder = folder();
    let small_buffer = ["--buffer-bytes", "65536", "--record-bytes", "40000"];
    for (flags, word) in [
        (&["--segment-bytes", "5000"][..], "--segment-bytes is 5000"),
        (&["--buffer-bytes", "5000"], "--buffer-bytes is 5000"),
        (&small_buffer, "a record of 40000 bytes; at most 32744 fit"),
    ] {
        // It ends long before, when the writer does.
        let output = demo(folder.path(), &[&["--seconds", "3000"], flags].concat());
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(text(&output.stderr).contains(word), "{output:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// A short demo that runs in the folder.
pub(super) fn in_folder(dir: &Path, flags: &[&str]) -> Output {
    demo(dir, &[&["--seconds", "0.1"], flags].concat())
}

fn demo(dir: &Path, flags: &[&str]) -> Output {
    words(&["demo"]).current_dir(dir).args(flags).output().unwrap()
}
