//! Limits that the system sets to a process: file descriptors, the length of files, and memory.
//! Each test runs a part of itself in a process of its own, which lowers its limits.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::prelude::*;

/// More than the segments hold that are made ahead.
const ENOUGH: u64 = 20_000;
/// The file of a segment of 64 KiB.
const SEGMENT_FILE_BYTES: u64 = 4096 + (64 << 10);

fn lower(resource: Resource, to: u64) -> Rlimit {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), ..before }).unwrap();
    before
}

/// Without threads that would write to what has become too long.
fn options() -> Options {
    heap().zero_fill(false)
}

fn assert_names_the_limit(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
}

fn commit_until_refused(wal: &Wal, from: u64) -> (u64, palisade::Error) {
    let refused = |number: u64| Some((number, wal.commit(&record(number, 240)).err()?));
    (from..from + ENOUGH).find_map(refused).expect("the limit has to show")
}

/// Protection: what could not be opened was not written to either.
#[test]
fn a_lack_of_file_descriptors_is_temporary_and_poisons_nothing() {
    in_a_process(|path| {
        let wal = options().open(path).unwrap();
        let mut next = 0;
        for _ in 0..3 {
            // What is open stays so.
            let before = lower(Resource::Nofile, 0);
            let (refused, error) = commit_until_refused(&wal, next);
            assert_eq!(error.kind(), ErrorKind::NoFiles, "{error}");
            assert!(error.is_shortage() && !error.is_fatal(), "{error}");
            assert_eq!(wal.sync().unwrap_err().kind(), ErrorKind::NoFiles);
            setrlimit(Resource::Nofile, before).unwrap();
            // A commit that failed may have appended its record.
            wal.sync().unwrap();
            next = numbers(&wal).len() as u64;
            assert!(next >= refused, "{next} records, {refused} were acknowledged");
            wal.commit(&record(next, 240)).unwrap();
            next += 1;
        }
        assert_eq!(numbers(&wal), all(next));
        wal.close().unwrap();
    });
}

/// Protection: a truncation of the suffix needs the buffer's file once there is no way back.
#[test]
fn a_truncation_that_lacks_a_file_descriptor_changes_nothing() {
    in_a_process(|path| {
        let wal = options().open(path).unwrap();
        let kept = wal.commit(&record(0, 240)).unwrap();
        wal.commit(&record(1, 240)).unwrap();
        // One more each time, until there are enough.
        for limit in 0.. {
            let before = lower(Resource::Nofile, limit);
            let truncated = wal.truncate_after(kept);
            setrlimit(Resource::Nofile, before).unwrap();
            let Err(error) = truncated else { break };
            assert_eq!(error.kind(), ErrorKind::NoFiles, "{limit}: {error}");
            assert_eq!(numbers(&wal), [0, 1], "{limit}");
            wal.sync().unwrap();
        }
        assert_eq!(numbers(&wal), [0]);
    });
}

/// Protection: a write beyond the limit would end the process, so none is begun.
#[test]
fn a_file_size_limit_is_an_error_and_does_not_end_the_process() {
    in_a_process(|path| {
        let parent = path.parent().unwrap();
        let empty = parent.join("empty");
        std::fs::create_dir(&empty).unwrap();
        let refused = |path: &Path| {
            let error = options().open(path).unwrap_err();
            assert_names_the_limit(&error);
        };
        let wal = options().open(path).unwrap();
        let kept = wal.commit(&record(0, 240)).unwrap();
        wal.commit(&record(1, 240)).unwrap();
        // While it is open: a segment that does not fit is not made.
        let before = lower(Resource::Fsize, SEGMENT_FILE_BYTES - 1);
        assert_eq!(wal.truncate_after(kept).unwrap_err().kind(), ErrorKind::NoSpace);
        setrlimit(Resource::Fsize, before).unwrap();
        wal.truncate_after(kept).unwrap();
        wal.close().unwrap();
        // At an open, of this log and of a new one.
        for limit in [SEGMENT_FILE_BYTES - 1, 8192, 0] {
            let before = lower(Resource::Fsize, limit);
            refused(path);
            refused(&parent.join("new"));
            assert!(!parent.join("new").exists(), "nothing was made");
            refused(&empty);
            assert!(snapshot(&empty).is_empty(), "nothing was made in it");
            setrlimit(Resource::Fsize, before).unwrap();
        }
        assert_eq!(numbers(&options().open(path).unwrap()), [0]);
    });
}

/// Protection: the log buffer and the space that is reserved are files, too, and longer than a
/// segment.
#[test]
fn a_file_size_limit_bounds_the_log_buffer_and_the_reserve() {
    in_a_process(|path| {
        let options = Options::new().segment_bytes(64 << 10).buffer_bytes(1 << 20);
        let before = lower(Resource::Fsize, SEGMENT_FILE_BYTES);
        let error = options.clone().buffer(BufferKind::Mapped).open(path).unwrap_err();
        assert_names_the_limit(&error);
        let in_memory = options.open_on(Arc::new(MemDisk::new()), "/log").unwrap();
        let wal = options.open(path).unwrap();
        for wal in [&in_memory, &wal] {
            assert!(!wal.stats().appends_survive_kill, "the ring is on the heap");
        }
        // The thread of the store reserves space and fills segments with zeros meanwhile.
        let reserved = || std::fs::metadata(path.join("reserve")).map_or(0, |found| found.len());
        let start = Instant::now();
        let mut next = 0;
        while reserved() == 0 || next < ENOUGH {
            assert!(start.elapsed() < PATIENCE, "no space is reserved");
            wal.append(&record(next, 240)).unwrap();
            next += 1;
            if next.is_multiple_of(1000) {
                wal.sync().unwrap();
            }
        }
        assert_eq!(reserved(), SEGMENT_FILE_BYTES, "as much as the limit lets it");
        wal.close().unwrap();
        setrlimit(Resource::Fsize, before).unwrap();
        let wal = options.open(path).unwrap();
        assert!(wal.recovery_report().clean);
        assert_eq!(numbers(&wal), all(next));
    });
}

/// Protection: an open that has to move the end of the log into new files, under a limit that has
/// been lowered since they were made.
#[test]
fn a_file_size_limit_refuses_a_recovery_and_changes_nothing() {
    in_a_process(|path| {
        let wal = options().open(path).unwrap();
        for number in 0..1000 {
            wal.commit(&record(number, 240)).unwrap();
        }
        let (_dir, copy) = copy_as_killed(path);
        let files = snapshot(&copy);
        for limit in [SEGMENT_FILE_BYTES - 1, 8192, 0] {
            let before = lower(Resource::Fsize, limit);
            let error = options().open(&copy).unwrap_err();
            setrlimit(Resource::Fsize, before).unwrap();
            assert_names_the_limit(&error);
            assert!(snapshot(&copy) == files, "{limit}: it is as it was");
        }
        let wal = options().open(&copy).unwrap();
        assert_eq!(numbers(&wal), all(1000));
    });
}

/// Protection: the open has to return an error, lose no record and let the log be opened again.
#[test]
#[cfg(target_os = "linux")]
fn an_open_without_memory_for_the_log_buffer_loses_nothing() {
    const BUFFER_BYTES: usize = 1 << 30;
    in_a_process(|path| {
        let new = path.parent().unwrap().join("new");
        let wal = options().open(path).unwrap();
        for number in 0..10 {
            wal.commit(&record(number, 240)).unwrap();
        }
        let (_dir, killed) = copy_as_killed(path);
        wal.close().unwrap();
        // The process has less than this, so all else fits below the limit.
        let before = lower(Resource::As, BUFFER_BYTES as u64);
        for path in [path, &killed, &new] {
            let error = options().buffer_bytes(BUFFER_BYTES).open(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert_eq!(error.io_kind(), Some(std::io::ErrorKind::OutOfMemory), "{error}");
            assert!(error.to_string().contains("memory for the log buffer"), "{error}");
            assert!(!error.to_string().contains("device"), "{error}");
        }
        setrlimit(Resource::As, before).unwrap();
        for (path, count) in [(path, 10), (&killed, 10), (&new, 0)] {
            assert_eq!(numbers(&options().open(path).unwrap()), all(count));
        }
    });
}
