//! `pad_to_block`: a block that a returned sync has covered is never written again, in no run.

use crate::prelude::*;

const SEGMENT_BYTES: u64 = 16 << 10;

fn open(store: &FaultyLog, buffer_bytes: usize, pads: bool) -> Wal {
    let options = Options::new().buffer_bytes(buffer_bytes).write_bytes(1 << 10).pad_to_block(pads);
    store.open(options)
}

fn new(buffer_bytes: usize, pads: bool) -> (Wal, FaultyLog) {
    let store = FaultyLog::new(SEGMENT_BYTES);
    (open(&store, buffer_bytes, pads), store)
}

/// Commits and appends from several threads, some of the records larger than what is left of a
/// block; truncates both ends meanwhile.
fn work(wal: &Wal, rounds: u32) {
    thread::scope(|scope| {
        for thread in 0..3_u32 {
            scope.spawn(move || {
                for n in 0..rounds {
                    let data = vec![thread as u8; (n * 37 % 900) as usize];
                    let ticket = wal.append(&data).unwrap();
                    if n % 3 == 0 {
                        // Cut meanwhile, or durable.
                        let _ = ticket.wait();
                    }
                }
            });
        }
        let mut kept = wal.commit(b"kept").unwrap();
        for n in 0..rounds / 10 {
            let lsn = wal.commit(&[7; 100]).unwrap();
            if n % 2 == 0 {
                wal.truncate_after(lsn).unwrap();
            } else if wal.truncate_before(kept).is_ok() {
                kept = lsn;
            }
            wal.checkpoint(kept).unwrap();
        }
    });
}

#[test]
fn no_block_that_a_sync_has_covered_is_written_again() {
    for buffer_bytes in [4 << 10, 16 << 10] {
        let mut store = FaultyLog::new(SEGMENT_BYTES);
        for run in 0..12 {
            let wal = open(&store, buffer_bytes, true);
            work(&wal, 40);
            assert!(!contents(&wal).is_empty());
            match run % 4 {
                0 => wal.close().unwrap(),
                1 => drop(wal),
                other => {
                    drop(wal.append(b"in the buffer only").unwrap());
                    store.kill();
                    drop(wal);
                    if other == 3 {
                        store.inner.lose_power();
                    }
                }
            }
            assert_eq!(store.rewrites(), 0, "run {run}");
            store = store.next_run();
        }
    }
}

#[test]
fn without_the_option_such_blocks_are_written_again() {
    let store = FaultyLog::new(SEGMENT_BYTES);
    work(&open(&store, 16 << 10, false), 20);
    assert!(store.rewrites() > 0, "the watch of the other tests sees it");
}

#[test]
fn a_log_that_was_not_padded_goes_on_behind_its_last_block() {
    let (wal, store) = new(16 << 10, false);
    let first = wal.commit(b"first").unwrap();
    wal.close().unwrap();
    let before = store.rewrites();
    let store = store.next_run();
    let wal = open(&store, 16 << 10, true);
    let second = wal.commit(b"second").unwrap();
    wal.close().unwrap();
    let wal = open(&store.next_run(), 16 << 10, true);
    assert!(wal.recovery_report().clean, "a padded end is the end of a block");
    assert_eq!(store.rewrites(), before);
    assert_eq!(lsns_of(&wal), [first, second]);
}

#[test]
fn every_commit_is_durable_with_its_block() {
    let (wal, store) = new(16 << 10, true);
    for n in 0..40_u8 {
        let ticket = wal.append(&vec![n; usize::from(n) * 40]).unwrap();
        ticket.wait().unwrap();
        assert!(ticket.is_durable());
        assert_eq!(wal.durable_lsn().as_u64() % 4096, 0);
    }
    let expected = contents(&wal);
    assert_eq!(expected.len(), 40);
    let next = store.after_power_loss(wal);
    assert_eq!(contents(&open(&next, 4 << 10, true)), expected);
}

#[test]
fn a_hole_keeps_its_block_from_being_synced_and_nobody_hangs() {
    let (wal, store) = new(16 << 10, true);
    with_a_hole(&wal, 100, |fill_it| {
        thread::scope(|scope| {
            let wal = &wal;
            let waiters = [0, 1, 2].map(|n| scope.spawn(move || wal.commit(&[n])));
            until(|| wal.reserved_lsn().as_u64() >= 4096);
            assert_eq!(wal.durable_lsn().as_u64(), 0);
            fill_it();
            for waiter in waiters {
                waiter.join().unwrap().unwrap();
            }
        });
    });
    assert_eq!(store.rewrites(), 0);
    assert_eq!(contents(&wal).len(), 4);
}

/// Fills the ring of a log whose disk is full, so that no sync can end with a block. Returns how
/// many records were appended.
fn fill_up(wal: &Wal, store: &FaultyLog) -> usize {
    // The end of what is written lies inside of a block: what is left of the ring does, too.
    let lsn = wal.append(&[1; 100]).unwrap().lsn();
    wal.flush_to_os(lsn).unwrap();
    store.set(MAKE_SEGMENT, Effect::NoSpace);
    store.set(WRITE, Effect::NoSpace);
    let mut appended = 1;
    loop {
        match wal.append(&[2; 72]) {
            Ok(_) => appended += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                return appended;
            }
        }
    }
}

fn free_space(store: &FaultyLog) {
    store.set(MAKE_SEGMENT, Effect::Pass);
    store.set(WRITE, Effect::Pass);
}

#[test]
fn a_truncation_without_room_for_padding_changes_nothing() {
    let (wal, store) = new(8 << 10, true);
    let kept = wal.commit(b"kept").unwrap();
    let appended = fill_up(&wal, &store);
    let end = wal.reserved_lsn();
    assert!(!end.as_u64().is_multiple_of(4096));
    assert_eq!(wal.truncate_after(kept).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(wal.reserved_lsn(), end);
    assert_eq!(wal.append(&[2; 72]).unwrap_err().kind(), ErrorKind::NoSpace);
    free_space(&store);
    wal.commit(b"goes on").unwrap();
    assert_eq!(contents(&wal).len(), appended + 2);
    wal.truncate_after(kept).unwrap();
    assert_eq!(contents(&wal), [(kept, b"kept".to_vec())]);
    assert_eq!(store.rewrites(), 0);
}

#[test]
fn a_close_without_room_for_padding_fails_and_loses_nothing() {
    let (wal, store) = new(8 << 10, true);
    wal.commit(b"first").unwrap();
    let appended = fill_up(&wal, &store);
    assert_eq!(wal.clone().close().unwrap_err().kind(), ErrorKind::NoSpace);
    free_space(&store);
    wal.commit(b"goes on").unwrap();
    wal.close().unwrap();
    assert_eq!(store.rewrites(), 0);
    let wal = open(&store.next_run(), 8 << 10, true);
    assert!(wal.recovery_report().clean);
    assert_eq!(contents(&wal).len(), appended + 2);
}
