//! More segments without a sync than a process may open files. Alone in its process, whose open
//! files it counts.

#![cfg(target_os = "linux")]

use palisade::{Options, SyncPolicy};

const SEGMENTS: usize = 150;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_log_that_never_syncs_does_not_keep_all_of_its_segments_open() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("log");
    let options = Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    for policy in [SyncPolicy::Os, SyncPolicy::OnCommit] {
        let before = open_files();
        let wal = options.clone().sync_policy(policy).open(&path).unwrap();
        let appended = wal.recovery_report().records;
        for _ in 0..SEGMENTS * 2 {
            wal.append(&[7; 30_000]).unwrap();
        }
        let open = open_files() - before;
        assert!(open < 100, "{open} files are open under {policy:?}");
        wal.sync().unwrap();
        let mut records = wal.iter().unwrap();
        let mut count = 0;
        while records.next().unwrap().is_some() {
            count += 1;
        }
        assert!(count >= appended as usize + SEGMENTS * 2, "{count} records");
        drop(records);
        wal.close().unwrap();
    }
}
