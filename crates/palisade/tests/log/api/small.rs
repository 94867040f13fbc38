//! A fresh log with the default options is small: on disk, in memory, and in time to open.

use crate::prelude::*;

/// Far above the 20 ms that are the goal, so that a busy machine does not fail the test.
const LONGEST_OPEN: Duration = Duration::from_millis(500);

#[cfg(unix)]
fn bytes_on_disk(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn bytes_on_disk(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

#[test]
fn a_fresh_log_takes_under_4_mib_on_disk_and_24_mib_of_memory() {
    let (_dir, path) = folder();
    let start = Instant::now();
    let wal = Wal::open(&path).unwrap();
    let elapsed = start.elapsed();
    for moment in ["open", "after a commit", "closed"] {
        let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap());
        let files = files.filter(|file| file.file_name() != "buffer");
        let bytes: u64 = files.map(|file| bytes_on_disk(&file.metadata().unwrap())).sum();
        assert!(bytes < 4 << 20, "{moment}: {bytes} bytes");
        match moment {
            "open" => drop(wal.commit(b"first").unwrap()),
            "after a commit" => wal.clone().close().unwrap(),
            _ => {}
        }
    }
    assert!(elapsed < LONGEST_OPEN, "opened in {elapsed:?}");
    let memory = wal.stats().buffer_memory_bytes;
    assert!(memory <= 24 << 20, "{memory} bytes of memory");
    let report = wal.recovery_report();
    assert!(report.elapsed <= elapsed, "the report knows how long it took");
}

#[test]
fn opens_without_records_do_not_let_the_folder_grow() {
    let (_dir, path) = folder();
    let open_some = || {
        (0..6).for_each(|_| drop(small().open(&path).unwrap()));
        fs::read_dir(&path).unwrap().count()
    };
    // `lock`, `meta` and a segment; a spare and `reserve`, if the background thread came to them.
    let most = 5;
    for _ in 0..2 {
        let files = open_some();
        assert!((3..=most).contains(&files), "{files} files");
    }
}

/// An engine that creates its log anew goes on above the LSNs that its pages have.
#[test]
fn a_log_begins_at_the_lsn_that_its_engine_asked_for() {
    let segment_bytes = 1 << 16;
    for first in [0, 1, segment_bytes, (1 << 50) + 17, 1 << 59] {
        let (_dir, path) = folder();
        let options = small().segment_bytes(segment_bytes).first_lsn(Lsn::new(first));
        let begin = Lsn::new(first.next_multiple_of(segment_bytes));
        let wal = options.open(&path).unwrap();
        assert_eq!(
            (wal.head_lsn(), wal.reserved_lsn(), wal.checkpoint_lsn()),
            (begin, begin, begin)
        );
        assert_eq!(wal.recovery_report().end, begin);
        let lsn = wal.commit(b"first").unwrap();
        assert_eq!(lsn, begin);
        wal.close().unwrap();
        // A log that exists stays where it is.
        let wal = options.first_lsn(Lsn::new(first / 2)).open(&path).unwrap();
        assert_eq!(wal.head_lsn(), begin);
        assert_eq!(wal.get(lsn).unwrap().data(), b"first");
        drop(wal);
        let verdict = Inspector::open(&path).unwrap().verify().unwrap();
        assert_eq!((verdict.head, verdict.records), (begin, 1));
    }
    let (_dir, path) = folder();
    for far in [Lsn::new((1 << 59) + 1), Lsn::LIMIT, Lsn::new(u64::MAX)] {
        let error = small().first_lsn(far).open(&path).unwrap_err();
        assert_eq!((error.kind(), error.lsn()), (ErrorKind::InvalidArgument, Some(far)));
    }
    assert!(!path.exists(), "nothing was created");
}
