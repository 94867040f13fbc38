//! What `Verify::Full` refuses, and what an open that checks the tail alone does not find.

use crate::prelude::*;
use crate::two_epochs::{damage, full, log, refused};

#[test]
fn full_verification_refuses_damage_that_a_tail_check_misses() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        for index in [0, 1, 300, 699, 700, 900] {
            let (_copy, path) = copy_as_killed(&path);
            damage(&path, records[index].0);
            for threads in [0, 1, 3] {
                let options = full().verify_threads(threads);
                let error = refused(&options, &path, ErrorKind::Corrupt);
                assert_eq!(error.lsn(), Some(records[index].0), "record {index}");
                let segment = records[index].0.as_u64() / SEGMENT_BYTES;
                assert_eq!(error.segment(), Some(segment));
            }
            small().open(&path).unwrap();
        }
    }
}

#[test]
fn damage_below_the_head_is_nobodys_business() {
    let (_dir, path, records) = log(false);
    let wal = small().open(&path).unwrap();
    wal.truncate_before(records[650].0).unwrap();
    wal.close().unwrap();
    damage(&path, records[649].0);
    let wal = full().open(&path).unwrap();
    assert_eq!(wal.recovery_report().records, 750);
}
