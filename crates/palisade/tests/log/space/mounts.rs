//! An archive on a disk of its own, which is unmounted. Needs root, for mounts that no other
//! process sees.

#![expect(clippy::print_stdout, reason = "says what was skipped")]

use std::process::Command;

use crate::again::run_with_own_mounts;
use crate::prelude::*;

fn run(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output().unwrap();
    output.status.success()
}

/// Protection: nothing is archived below the mount point of a disk that is gone, by the process
/// that had it or by a later one.
#[test]
fn an_unmounted_archive_is_not_continued_below_the_mount_point() {
    let Some(path) = given_folder() else {
        let test = "space::mounts::\
                    an_unmounted_archive_is_not_continued_below_the_mount_point";
        let (_dir, path) = folder();
        if !run_with_own_mounts(test, &path) {
            println!("skipped: mounts of this process's own need root and `unshare`");
        }
        return;
    };
    let point = path.with_file_name("archive");
    let mounted = point.to_str().unwrap();
    fs::create_dir(&point).unwrap();
    assert!(run("mount", &["-t", "tmpfs", "palisade", mounted]));
    let open = || small().on_release(Archive::open(&point).unwrap()).open(&path).unwrap();
    let wal = open();
    let records = append_bytes(&wal, 0..60, 4000);
    wal.truncate_before(records[20].0).unwrap();
    assert_eq!(archived(&point).len(), 16);

    assert!(!run("umount", &[mounted]), "the archive is in use");
    assert!(run("umount", &["--lazy", mounted]));
    let mut open_log = Some(wal);
    for _ in 0..2 {
        let wal = open_log.take().unwrap_or_else(open);
        let error = wal.truncate_before(records[50].0).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*point)), "{error}");
        assert!(segment(&path, 1).exists(), "it stays in the log");
        assert_eq!(snapshot(&point).len(), 0);
    }
}
