//! More segments without a sync than a process may open files. Alone in its process, whose open
//! files it counts.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::sync::Mutex;

use palisade::{Options, SyncPolicy, Wal};

const SEGMENTS: usize = 150;
/// Held by the test that counts.
static COUNTING: Mutex<()> = Mutex::new(());

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn open(path: &Path, policy: SyncPolicy) -> Wal {
    let options = Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    options.sync_policy(policy).open(path).unwrap()
}

fn fill(wal: &Wal) {
    for _ in 0..SEGMENTS * 2 {
        wal.append(&[7; 30_000]).unwrap();
    }
}

fn assert_few_more_than(before: usize, when: &str) {
    let open = open_files() - before;
    assert!(open < 100, "{open} files are open {when}");
}

#[test]
fn a_log_that_never_syncs_does_not_keep_all_segments_open() {
    let _counting = COUNTING.lock().unwrap();
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("log");
    for policy in [SyncPolicy::Os, SyncPolicy::OnCommit] {
        let before = open_files();
        let wal = open(&path, policy);
        let appended = wal.recovery_report().records;
        fill(&wal);
        assert_few_more_than(before, &format!("under {policy:?}"));
        wal.sync().unwrap();
        let mut records = wal.records().unwrap();
        let mut count = 0;
        while records.next().unwrap().is_some() {
            count += 1;
        }
        assert!(count >= appended as usize + SEGMENTS * 2, "{count} records");
        drop(records);
        wal.close().unwrap();
    }
}

#[test]
fn a_sync_of_many_segments_does_not_keep_all_of_them_open() {
    let _counting = COUNTING.lock().unwrap();
    let temp = tempfile::tempdir().unwrap();
    let before = open_files();
    let wal = open(&temp.path().join("log"), SyncPolicy::Os);
    fill(&wal);
    wal.sync().unwrap();
    assert_few_more_than(before, "after a sync");
}

#[test]
fn an_open_that_syncs_many_segments_does_not_keep_all_open() {
    let _counting = COUNTING.lock().unwrap();
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("log");
    let wal = open(&path, SyncPolicy::Os);
    fill(&wal);
    drop(wal);
    let before = open_files();
    let wal = open(&path, SyncPolicy::Os);
    assert_eq!(wal.recovery_report().records as usize, SEGMENTS * 2);
    assert_few_more_than(before, "after an open");
}
