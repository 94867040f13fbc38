//! Bad input gets a typed error that names what, where and what to do; nothing is changed and
//! nothing is lost.

use crate::prelude::*;

/// Asserts the kind and that the text has all `parts`.
fn assert_tells(error: &Error, kind: ErrorKind, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts.iter().chain(&[kind.advice()]) {
        assert!(text.contains(part), "`{part}` is missing: {text}");
    }
}

/// A closed log with one record.
fn make(path: &Path) -> Lsn {
    let wal = small().open(path).unwrap();
    let lsn = wal.commit(b"record").unwrap();
    wal.close().unwrap();
    lsn
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_append_refuses_a_too_large_record_and_reserves_nothing() {
    let (_dir, _, wal) = log_on_files(small());
    let (max, reserved) = (wal.max_record_bytes(), wal.reserved_lsn());
    let big = vec![0; max + 1];
    let half = std::io::IoSlice::new(&big[..max / 2 + 1]);
    let errors = [
        wal.append(&big).unwrap_err(),
        wal.append_tagged(1, &big).unwrap_err(),
        wal.try_append(&big).unwrap_err(),
        wal.commit(&big).unwrap_err(),
        wal.append_vectored(&[half, half]).unwrap_err(),
        wal.append_with(max + 1, |_, _| panic!("must not be called")).unwrap_err(),
        wal.append_with(usize::MAX, |_, _| panic!("must not be called")).unwrap_err(),
        wal.append_batch(&[&big]).unwrap_err(),
        wal.append_batch(&[&big[..max / 2], &big[..max / 2]]).unwrap_err(),
    ];
    for error in &errors {
        assert_tells(error, ErrorKind::TooLarge, &["bytes", &max.to_string()]);
        assert!(!error.is_retryable() && !error.is_fatal());
    }
    let empty = wal.append_batch([""; 0]).unwrap_err();
    assert_tells(&empty, ErrorKind::InvalidArgument, &["at least one record"]);
    assert_eq!(wal.reserved_lsn(), reserved);
    assert_eq!(wal.append(&big[..max]).unwrap().lsn(), reserved);
}

#[test]
fn an_empty_path_is_refused() {
    for options in [Options::new(), Options::new().open_mode(OpenMode::MustExist)] {
        let error = options.open("").unwrap_err();
        assert_tells(&error, ErrorKind::InvalidArgument, &["path", "empty"]);
    }
}

#[test]
fn a_path_that_names_a_file_or_lies_nowhere_is_refused() {
    let (dir, path) = folder();
    fs::write(&path, "a file").unwrap();
    let error = refused(&small(), &path);
    assert_tells(&error, ErrorKind::Foreign, &["file", text(&path)]);
    assert_eq!(fs::read(&path).unwrap(), b"a file");
    let nowhere = dir.path().join("not mounted").join("log");
    let error = refused(&small(), &nowhere);
    assert_tells(&error, ErrorKind::NotFound, &["does not exist", text(&nowhere)]);
    assert!(!dir.path().join("not mounted").exists());
}

#[test]
fn a_log_that_must_exist_and_does_not_is_not_made() {
    let (_dir, path) = folder();
    let error = refused(&small().open_mode(OpenMode::MustExist), &path);
    assert_tells(&error, ErrorKind::NotFound, &[text(&path), "mounted"]);
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    let error = refused(&small().open_mode(OpenMode::MustExist), &path);
    assert_tells(&error, ErrorKind::NotFound, &["empty", text(&path)]);
}

#[test]
fn a_log_that_must_be_made_and_is_there_is_left_alone() {
    let (_dir, path) = folder();
    let lsn = make(&path);
    let error = refused(&small().open_mode(OpenMode::CreateNew), &path);
    assert_tells(&error, ErrorKind::AlreadyExists, &["holds a log", text(&path)]);
    assert_eq!(small().open(&path).unwrap().get(lsn).unwrap().data(), b"record");
}

#[test]
fn a_segment_size_that_no_log_can_have_is_refused() {
    let (_dir, path) = folder();
    for bytes in [0, 1, 4096, 60 << 10, (64 << 10) + 512, 70_000, (1 << 40) + 4096, u64::MAX] {
        let error = refused(&Options::new().segment_bytes(bytes), &path);
        let value = bytes.to_string();
        assert_tells(&error, ErrorKind::InvalidArgument, &["segment_bytes", &value, "4096"]);
        assert!(!path.exists());
    }
    for bytes in [0, 5000, 1024] {
        let opened = Wal::with_store(MemStore::new(bytes), Options::new().buffer_bytes(4096));
        assert_tells(&opened.unwrap_err(), ErrorKind::InvalidArgument, &["segment_bytes"]);
    }
}

#[test]
fn each_option_out_of_its_range_is_named_with_its_value() {
    let (_dir, path) = folder();
    let cases = [
        ("buffer_bytes", "5000", small().buffer_bytes(5000)),
        ("buffer_bytes", "2048", small().buffer_bytes(2048)),
        ("buffer_bytes", "2147483648", small().buffer_bytes(2 << 30)),
        ("write_bytes", "0", small().write_bytes(0)),
        ("max_waiters", "0", small().max_waiters(0)),
        ("gather_percent", "101", small().gather_percent(101)),
        ("sync_policy", "0", small().sync_policy(SyncPolicy::Interval(Duration::ZERO))),
    ];
    for (name, value, options) in cases {
        let error = refused(&options, &path);
        assert_tells(&error, ErrorKind::InvalidArgument, &[name, value]);
        assert!(!path.exists(), "{name}");
    }
}

#[test]
fn a_foreign_folder_is_refused_and_left_as_it_is() {
    for name in ["notes.txt", "segment-00000000000000000000", "buffer", "spare-000000", ".hidden"] {
        let (_dir, path) = folder();
        fs::create_dir(&path).unwrap();
        fs::write(path.join(name), "precious").unwrap();
        for options in [
            small(),
            small().open_mode(OpenMode::MustExist),
            small().open_mode(OpenMode::CreateNew),
        ] {
            let error = refused(&options, &path);
            if name.starts_with("segment-") {
                // It may be a log that has lost its state: no other folder helps then.
                assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
                assert!(error.to_string().contains("put the file `meta` back"), "{error}");
                continue;
            }
            assert_tells(&error, ErrorKind::Foreign, &[name, text(&path)]);
        }
    }
    let (_dir, path) = folder();
    fs::create_dir(&path).unwrap();
    for meta in [String::new(), "the meta file of another program".repeat(500)] {
        fs::write(path.join("meta"), meta).unwrap();
        let error = refused(&small(), &path);
        assert_tells(&error, ErrorKind::Foreign, &["meta", text(&path)]);
        // The lock file, which comes first, makes no log of it.
        fs::write(path.join("lock"), "").unwrap();
    }
}

#[cfg(unix)]
mod read_only {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    const FOLDER: &str = "PALISADE_TEST_READ_ONLY_FOLDER";
    const NAME: &str = "api::bad_input::read_only::a_read_only_folder_is_refused_and_left_as_it_is";
    const NOBODY: u32 = 65_534;

    /// A privileged user may write everywhere: then the test runs once more as nobody.
    #[test]
    fn a_read_only_folder_is_refused_and_left_as_it_is() {
        if let Some(path) = std::env::var_os(FOLDER) {
            let error = refused(&small(), Path::new(&path));
            return assert_tells(&error, ErrorKind::PermissionDenied, &[path.to_str().unwrap()]);
        }
        let (dir, path) = folder();
        // Everybody may read it.
        small().file_mode(0o644).open(&path).unwrap().close().unwrap();
        let before = snapshot(&path);
        let set_mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        set_mode(0o555);
        let is_privileged = fs::write(path.join("probe"), "").is_ok();
        if is_privileged {
            fs::remove_file(path.join("probe")).unwrap();
            run_as_nobody(&path);
        } else {
            let error = refused(&small(), &path);
            assert_tells(&error, ErrorKind::PermissionDenied, &[text(&path)]);
        }
        set_mode(0o755);
        assert!(snapshot(&path) == before);
    }

    fn run_as_nobody(path: &Path) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME]).env(FOLDER, path).uid(NOBODY).gid(NOBODY);
        // Where nobody may not even run the program, there is nothing to be seen.
        if let Ok(output) = command.output() {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
    }
}

#[test]
fn every_call_with_an_lsn_refuses_one_that_is_no_boundary() {
    let (_dir, _, wal) = log_on_files(small());
    let first = wal.commit(&[7; 100]).unwrap();
    wal.commit(&[8; 100]).unwrap();
    let state = (wal.head_lsn(), wal.checkpoint_lsn());
    for offset in [1, 7, 8, 24, 64] {
        let lsn = first.plus(offset);
        let errors = [
            wal.get(lsn).unwrap_err(),
            wal.records_from(lsn).unwrap_err(),
            wal.tail_from(lsn).unwrap_err(),
            wal.truncate_before(lsn).unwrap_err(),
            wal.checkpoint(lsn).unwrap_err(),
        ];
        for error in &errors {
            assert_tells(error, ErrorKind::NotARecord, &[&format!("LSN {lsn}")]);
            assert_eq!(error.lsn(), Some(lsn));
        }
    }
    assert_eq!((wal.head_lsn(), wal.checkpoint_lsn()), state);
    assert_eq!(contents(&wal).len(), 2);
}

#[test]
fn an_lsn_beyond_the_end_or_below_the_head_is_refused() {
    let (_dir, _, wal) = log_on_files(small());
    let first = wal.commit(b"first").unwrap();
    let second = wal.commit(b"second").unwrap();
    let end = wal.reserved_lsn();
    for beyond in [end.plus(8), Lsn::LIMIT, Lsn::new(u64::MAX)] {
        let errors = [
            wal.get(beyond).unwrap_err(),
            wal.records_from(beyond).unwrap_err(),
            wal.tail_from(beyond).unwrap_err(),
            wal.truncate_before(beyond).unwrap_err(),
            wal.checkpoint(beyond).unwrap_err(),
            wal.wait_durable(beyond).unwrap_err(),
            wal.flush_to_os(beyond).unwrap_err(),
            wal.on_durable(beyond, |_| panic!("must not be called")).unwrap_err(),
        ];
        for error in &errors {
            let parts = [&format!("ends at LSN {end}")[..], &format!("LSN {beyond}")];
            assert_tells(error, ErrorKind::OutOfRange, &parts);
        }
    }
    assert_eq!(wal.get(end).unwrap_err().kind(), ErrorKind::NotARecord);
    assert_eq!(wal.wait_durable(end).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert!(wal.records_from(end).unwrap().next().unwrap().is_none());
    wal.truncate_before(second).unwrap();
    for error in [wal.get(first).unwrap_err(), wal.records_from(first).unwrap_err()] {
        let parts = [&format!("begins at LSN {second}")[..], &format!("LSN {first}")];
        assert_tells(&error, ErrorKind::Truncated, &parts);
    }
    assert_eq!(second, first.plus(framed_bytes(5)));
}

#[test]
fn every_call_on_a_closed_log_returns_closed_and_loses_nothing() {
    let (_dir, path, wal) = log_on_files(small());
    let lsn = wal.append(b"record").unwrap().lsn();
    wal.clone().close().unwrap();
    let after = wal.reserved_lsn();
    let errors = [
        wal.append(b"x").unwrap_err(),
        wal.try_append(b"x").unwrap_err(),
        wal.append_batch(&[b"x"]).unwrap_err(),
        wal.append_with(3, |_, _| panic!("must not be called")).unwrap_err(),
        wal.commit(b"x").unwrap_err(),
        wal.truncate_before(after).unwrap_err(),
        wal.checkpoint(after).unwrap_err(),
        wal.on_durable(lsn, |_| panic!("must not be called")).unwrap_err(),
        wal.clone().close().unwrap_err(),
    ];
    for error in &errors {
        assert_tells(error, ErrorKind::Closed, &["closed", "open it again"]);
        assert!(error.is_fatal());
    }
    wal.wait_durable(lsn).unwrap();
    wal.sync().unwrap();
    assert_eq!(wal.reserved_lsn(), after);
    assert!(format!("{wal:?}").len() < 500, "a log can be looked at");
    assert_eq!(contents(&wal), [(lsn, b"record".to_vec())], "it can still be read");
    let reopened = small().open(&path).unwrap();
    assert!(reopened.recovery_report().clean);
    assert_eq!(contents(&reopened), [(lsn, b"record".to_vec())]);
}
