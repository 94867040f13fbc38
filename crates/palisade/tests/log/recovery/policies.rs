//! What an open does about damage and about an end that is not clean, as the caller chose.

use palisade::{EndCause, ErrorKind, RecoveryPolicy};

use crate::folder::{SEGMENT_BYTES, copy_as_killed, folder, small};
use crate::two_epochs::{damage, full, log, refused};

#[test]
fn require_clean_refuses_every_end_but_a_clean_one_and_changes_nothing() {
    let require_clean = small().recovery(RecoveryPolicy::RequireClean);
    let (_dir, path, _) = log(false);
    let error = refused(&require_clean, &path, ErrorKind::Unclean);
    assert!(error.to_string().contains("RecoveryPolicy::Strict"), "{error}");
    let wal = small().open(&path).unwrap();
    wal.close().unwrap();
    let wal = require_clean.open(&path).unwrap();
    assert_eq!(wal.recovery_report().end_cause, EndCause::CleanClose);
    drop(wal);
    refused(&require_clean, &path, ErrorKind::Unclean);
    let (_dir, fresh) = folder();
    require_clean.open(&fresh).unwrap().close().unwrap();
    require_clean.open(&fresh).unwrap();
}

#[test]
fn full_verification_refuses_damage_anywhere_and_the_tail_alone_does_not_see_it() {
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
