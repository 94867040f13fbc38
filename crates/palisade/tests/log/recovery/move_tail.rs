//! An open after a kill moves the end of the log into new files: what fails there loses nothing.

use palisade::Result;

use crate::prelude::*;

const SEGMENT_BYTES: u64 = 1 << 20;
/// Some segments and a half.
const MUCH: u64 = 7 << 19;

fn open(store: &FaultyLog) -> Result<Wal> {
    let options = Options::new().buffer_bytes(1 << 20).sync_policy(SyncPolicy::Os);
    store.try_open(options)
}

/// A log killed with much that no sync has covered; how many records it has.
fn killed() -> (FaultyLog, usize) {
    let store = FaultyLog::new(SEGMENT_BYTES);
    let wal = open(&store).unwrap();
    wal.commit(b"acknowledged").unwrap();
    let mut count = 1;
    while wal.append(&[count as u8; 70_000]).unwrap().lsn() < Lsn::new(MUCH) {
        count += 1;
    }
    (store.after_kill(wal), count + 1)
}

#[test]
fn a_move_that_fails_ends_the_open_and_loses_nothing() {
    for fault in [Effect::Eio, Effect::NoSpace, Effect::Panic] {
        let (store, count) = killed();
        store.set(MAKE_SEGMENT, fault);
        let expected = match fault {
            Effect::NoSpace => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        assert_eq!(open(&store).unwrap_err().kind(), expected, "{fault:?}");
        assert_eq!(store.count(MAKE_SEGMENT), 1, "it is not tried again");
        let next = store.next_run();
        let wal = open(&next).unwrap();
        assert_eq!(wal.recovery_report().floor, Lsn::new(40));
        assert_eq!(contents(&wal).len(), count);
        let next = next.after_power_loss(wal);
        let wal = open(&next).unwrap();
        assert_eq!(contents(&wal).len(), count, "what was reported stays");
    }
}
