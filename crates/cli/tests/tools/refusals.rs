//! What the reading tools do with folders that hold no log, or none that can be read.

use super::*;

/// The tools that only look at a log.
const READERS: [&[&str]; 6] = [
    &["verify"],
    &["info"],
    &["map"],
    &["stat"],
    &["dump"],
    &["dump", "--follow", "--limit", "50"],
];

#[test]
fn tools_change_nothing() {
    let (folder, lsns) = written();
    damage(folder.path(), lsns[50].plus(25));
    let before = content(folder.path());
    for tool in READERS {
        palisade(folder.path(), tool);
        assert!(before == content(folder.path()), "{tool:?} changed the log");
    }
}

#[test]
fn no_log_is_an_io_failure_that_names_the_path() {
    let folder = folder();
    fs::write(folder.path().join("letter"), "not a log").unwrap();
    for tool in READERS {
        let foreign = palisade(folder.path(), tool);
        assert_eq!(code(&foreign), 3, "{foreign:?}");
        let missing = palisade(&folder.path().join("nowhere"), tool);
        assert_eq!(code(&missing), 3, "{missing:?}");
        assert!(text(&missing.stderr).contains("nowhere"), "{missing:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_log_without_any_header_is_damaged_beyond_reading() {
    let (folder, _) = written();
    for name in ["meta".into(), format!("segment-{:020}", 0)] {
        let path = folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        // Both copies of the state, and the header of the only segment.
        [100, 16_384 + 100].into_iter().for_each(|at| bytes[at] ^= 1);
        fs::write(path, bytes).unwrap();
    }
    for tool in READERS {
        let output = palisade(folder.path(), tool);
        assert_eq!(code(&output), 4, "{tool:?}: {output:?}");
        let printed = text(&output.stderr);
        assert!(printed.starts_with("palisade: "), "{output:?}");
        // The tools that read by headers do not help here.
        assert!(!printed.contains("`palisade salvage`"), "{printed}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_on_a_full_disk_is_an_io_failure_that_says_so() {
    let (folder, _) = written();
    for tool in READERS.iter().chain([&["salvage", "--json"][..], &["dump", "--json"]].iter()) {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), tool).stdout(full).output().unwrap();
        assert_eq!(code(&output), 3, "{tool:?}: {output:?}");
        let printed = text(&output.stderr);
        assert!(printed.contains("could not write to standard output"), "{tool:?}: {printed}");
    }
}

#[cfg(unix)]
#[test]
fn a_log_that_this_user_may_not_read_is_refused_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    let log = folder.path().join("log");
    write(&log);
    let set = |mode| fs::set_permissions(&log, fs::Permissions::from_mode(mode)).unwrap();
    set(0o000);
    let is_refused = fs::read_dir(&log).is_err();
    let outputs = READERS.map(|tool| palisade(&log, tool));
    set(0o700);
    for output in outputs.iter().filter(|_| is_refused) {
        // Permissions do not bind root.
        assert_eq!(code(output), 3, "{output:?}");
        assert!(text(&output.stderr).contains("grant this user access"), "{output:?}");
    }
}
