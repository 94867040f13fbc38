//! Two mount namespaces that share `/dev/shm`, as two containers of one pod do: each sees folders
//! that the other does not.
//!
//! The tests need root. Each starts this program again in a mount namespace of its own, whose
//! `/dev/shm` is a tmpfs of its own. So nothing of the machine's changes.

use std::process::Command;

use crate::prelude::*;

/// Names the part of a test that a process runs.
const PART: &str = "PALISADE_TEST_PART";

/// Runs part `$1` of the test with the folder `$2`.
const PART_OF: &str = r#"part() {
    PALISADE_TEST_PART=$1 PALISADE_TEST_FOLDER=$2 "$PROGRAM" --exact "$TEST" --nocapture
}
"#;

/// A memory file system of the test's own, and an inner namespace in which `$LOGS` is empty.
const TWO_NAMESPACES: &str = r#"
mount -t tmpfs tmpfs /dev/shm
part write "$LOGS/log"
unshare --mount sh -ec "$PART_OF"'
    mount -t tmpfs tmpfs "$LOGS"
    part other "$LOGS/other"'
part damage "$LOGS/log"
"#;

/// As some containers have it: the file is on a tmpfs, so the file system has the right name.
const FILE_IN_PLACE_OF_THE_FOLDER: &str = r#"
mount -t tmpfs tmpfs /dev
touch /dev/shm
part heap "$LOGS/log"
"#;

/// Runs `script` in a mount namespace, which runs so many parts of this test. `run` gets the name
/// and the folder of each.
fn in_a_namespace(script: &str, parts: usize, run: impl FnOnce(&str, &Path)) {
    if let (Some(part), Some(path)) = (std::env::var_os(PART), given_folder()) {
        return run(part.to_str().unwrap(), &path);
    }
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", script]);
        command
    };
    match unshare("mount -t tmpfs tmpfs /dev/shm").output() {
        Ok(output) if output.status.success() => {}
        refused => return say(&format!("skipped, it needs a mount namespace: {refused:?}")),
    }
    let (dir, _) = folder();
    let test = thread::current().name().unwrap().to_owned();
    let mut command = unshare(&format!("{PART_OF}{script}"));
    command.env("LOGS", dir.path().join("logs")).env("TEST", test).env("PART_OF", PART_OF);
    fs::create_dir(dir.path().join("logs")).unwrap();
    let output = command.env("PROGRAM", std::env::current_exe().unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {text}", output.status);
    assert_eq!(text.matches("1 passed").count(), parts, "{text}");
}

/// Protection: the marks of a log whose folder another process does not see. They alone prove the
/// last sync of a log on the heap that nobody closed or dropped.
#[test]
fn an_open_in_another_namespace_keeps_the_marks_of_unseen_logs() {
    in_a_namespace(TWO_NAMESPACES, 3, |part, path| match part {
        "write" => {
            let wal = heap().open(path).unwrap();
            wal.commit(&record(0, 100)).unwrap();
            wal.commit(&record(1, 100)).unwrap();
            wal.abandon();
            let buffer = Inspector::open(path).unwrap().buffer().unwrap();
            assert!(matches!(buffer, palisade::inspect::BufferPlace::Marks(_)), "{buffer:?}");
        }
        "other" => {
            let wal = small().open(path).unwrap();
            assert!(wal.stats().appends_survive_kill, "both use the same /dev/shm");
        }
        _ => {
            // A byte of the record that was acknowledged last.
            let (file, last) = (segment(path, 0), record(1, 100));
            let bytes = fs::read(&file).unwrap();
            let at = bytes.windows(last.len()).position(|window| window == last).unwrap();
            flip(&file, at as u64);
            let error = heap().open(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
    });
}

/// Protection: what is no folder has no log buffer, so none is missed.
#[test]
fn a_file_in_place_of_the_buffer_folder_means_a_heap_buffer() {
    in_a_namespace(FILE_IN_PLACE_OF_THE_FOLDER, 1, |_, path| {
        let wal = small().open(path).unwrap();
        assert!(!wal.stats().appends_survive_kill);
        let error = small().buffer(BufferKind::Mapped).open(path.with_file_name("b")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    });
}
