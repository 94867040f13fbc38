//! A log that is abandoned: the next open in the same process finds what a kill would have left.

use std::thread;

use palisade::sim::Effect;
use palisade::{BufferKind, ErrorKind, Lsn, Options, Wal};

use crate::faulty::{SYNC, WRITE, log_and_store};
use crate::folder::{contents, folder, small};
use crate::watchdog::{until, watched};

#[test]
fn an_abandoned_log_keeps_what_a_kill_would_keep() {
    for (buffer, kept) in [(BufferKind::Auto, 50), (BufferKind::Heap, 20)] {
        let (_dir, path) = folder();
        let options = || small().buffer(buffer);
        let wal = options().open(&path).unwrap();
        let lsns: Vec<Lsn> = (0..50_u8).map(|n| wal.append(&[n; 90]).unwrap().lsn()).collect();
        wal.truncate_after(lsns[19]).unwrap();
        let later = (20..50_u8).map(|n| wal.append(&[n; 90]).unwrap().lsn());
        let lsns: Vec<Lsn> = lsns[..20].iter().copied().chain(later).collect();
        let kept = if wal.stats().appends_survive_kill { kept } else { 20 };
        let other = wal.clone();
        wal.abandon();
        assert_eq!(other.append(b"too late").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(other.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        let wal = options().open(&path).unwrap();
        // The handle that is left changes nothing, also when it goes.
        drop(other);
        assert!(!wal.recovery_report().clean);
        let found: Vec<Lsn> = contents(&wal).into_iter().map(|(lsn, _)| lsn).collect();
        assert_eq!(found, lsns[..kept]);
        wal.commit(b"and on").unwrap();
    }
}

/// Protection: a sync that is in progress has ended when the lock is free.
#[test]
fn an_abandoned_log_writes_nothing_after_the_call() {
    let _watch = watched();
    let (wal, store) = log_and_store();
    store.set(SYNC, Effect::Hold);
    thread::scope(|scope| {
        let leader = scope.spawn(|| wal.commit(b"in progress"));
        until(|| store.is_holding(SYNC));
        let abandoned = scope.spawn(|| wal.clone().abandon());
        store.set(SYNC, Effect::Pass);
        leader.join().unwrap().unwrap();
        abandoned.join().unwrap();
    });
    let (writes, syncs) = (store.count(WRITE), store.count(SYNC));
    assert_eq!(wal.append(b"late").unwrap_err().kind(), ErrorKind::Poisoned);
    drop(wal);
    assert_eq!((store.count(WRITE), store.count(SYNC)), (writes, syncs));
    let next = store.open(Options::new().buffer_bytes(1 << 14));
    assert_eq!(contents(&next).len(), 1);
}

#[test]
fn an_empty_log_is_empty_whatever_was_in_it() {
    let (_dir, path) = folder();
    let check = |wal: &Wal, records: usize| {
        assert_eq!(wal.is_empty().unwrap(), records == 0);
        let bytes: u64 =
            contents(wal).iter().map(|(_, data)| palisade::framed_bytes(data.len())).sum();
        assert!(wal.live_bytes() >= bytes, "{} of {bytes}", wal.live_bytes());
        assert!(records > 0 || wal.live_bytes() <= 24, "at most a mark: {}", wal.live_bytes());
    };
    let wal = small().open(&path).unwrap();
    check(&wal, 0);
    let kept = wal.append(&[1; 1000]).unwrap().lsn();
    wal.append(&[2; 1000]).unwrap();
    check(&wal, 2);
    wal.truncate_after(kept).unwrap();
    check(&wal, 1);
    assert_eq!(wal.live_bytes(), palisade::framed_bytes(1000));
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    check(&wal, 0);
    wal.close().unwrap();
    let wal = small().open(&path).unwrap();
    check(&wal, 0);
    wal.abandon();
    let wal = small().open(&path).unwrap();
    check(&wal, 0);
    wal.commit(b"one").unwrap();
    check(&wal, 1);
}
