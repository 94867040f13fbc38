//! Logs that are abandoned, and opened again while the old handles exist.

use std::sync::OnceLock;

use palisade::Result;

use crate::held_release::held;
use crate::prelude::*;

#[test]
fn the_next_open_finds_what_a_kill_leaves() {
    let (_dir, path, wal) = log_on_files(small());
    let committed = wal.commit(b"committed").unwrap();
    let appended = wal.append(b"appended").unwrap().lsn();
    let other = wal.clone();
    wal.abandon();
    let next = small().open(&path).unwrap();
    assert!(!next.recovery_report().clean);
    let both = [(committed, b"committed".to_vec()), (appended, b"appended".to_vec())];
    assert_eq!(contents(&next), both);
    assert_eq!(other.append(b"late").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(other.close().unwrap_err().kind(), ErrorKind::Poisoned);
    // Abandoned twice: nothing more happens, and the next one's lock stays.
    other.abandon();
    assert_eq!(small().open(&path).unwrap_err().kind(), ErrorKind::Locked);
}

/// The next open reads the buffer while the old handle still writes to it.
#[test]
fn a_record_that_is_being_filled_does_not_hold_up_the_next_open() {
    let (_dir, path, wal) = log_on_files(small());
    let committed = wal.commit(b"committed").unwrap();
    let (filling, fills) = channel();
    let (go_on, may_end) = channel::<()>();
    let next = thread::scope(|scope| {
        let filler = wal.clone();
        scope.spawn(move || {
            let filled = filler.append_with(1000, |_, bytes| {
                bytes[..500].fill(1);
                filling.send(()).unwrap();
                may_end.recv().unwrap();
                bytes[500..].fill(1);
            });
            drop(filled);
        });
        fills.recv().unwrap();
        wal.clone().abandon();
        let next = small().open(&path).unwrap();
        assert_eq!(contents(&next), [(committed, b"committed".to_vec())]);
        go_on.send(()).unwrap();
        next
    });
    let later = next.commit(b"later").unwrap();
    let both = [(committed, b"committed".to_vec()), (later, b"later".to_vec())];
    assert_eq!(contents(&next), both);
    next.abandon();
    assert_eq!(contents(&small().open(&path).unwrap()), both);
}

#[test]
fn with_a_heap_buffer_records_that_were_not_written_are_gone() {
    let (_dir, path, wal) = log_on_files(heap());
    let committed = wal.commit(b"committed").unwrap();
    wal.append(b"appended").unwrap();
    wal.abandon();
    let next = heap().open(&path).unwrap();
    assert_eq!(contents(&next), [(committed, b"committed".to_vec())]);
}

/// A reader that goes would free the segments below the head.
#[test]
fn the_old_handles_change_no_file_afterwards() {
    let (_dir, path, wal) = log_on_files(small());
    let mut tail = wal.tail_from(wal.head_lsn()).unwrap();
    while wal.reserved_lsn().as_u64() < 4 * SEGMENT_BYTES {
        wal.append(&[7; 1000]).unwrap();
    }
    let last = wal.commit(b"last").unwrap();
    assert!(tail.next(Duration::ZERO).unwrap().is_some());
    wal.truncate_before(last).unwrap();
    let cursor = wal.create_cursor("one", None, 0).unwrap();
    wal.append(b"unwritten").unwrap();
    let other = wal.clone();
    wal.abandon();
    let before = snapshot(&path);
    assert_eq!(cursor.save().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(other.flush_to_os(last).map_err(|error| error.kind()), Ok(()));
    assert_eq!(other.checkpoint(last).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(other.truncate_after(last).unwrap_err().kind(), ErrorKind::Poisoned);
    drop((tail, cursor, other));
    assert!(snapshot(&path) == before, "a handle of an abandoned log has changed a file");
    assert_eq!(small().open(&path).unwrap().last_record().unwrap().unwrap().data(), b"unwritten");
}

/// Abandons the log on another thread. Checks that no open gets it before `release` was called.
fn check_that_it_waits(wal: &Wal, open: impl Fn() -> Result<Wal>, release: impl FnOnce()) {
    thread::scope(|scope| {
        let abandoned = wal.clone();
        let abandoning = scope.spawn(|| abandoned.abandon());
        until(|| wal.checkpoint(Lsn::ZERO).is_err());
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Locked);
        release();
        abandoning.join().unwrap();
    });
    drop(open().unwrap());
}

#[test]
fn in_flight_syncs_writes_and_saves_end_before_the_log_is_free() {
    let commit: fn(&Wal) -> Result<()> = |wal| wal.commit(b"record").map(drop);
    let flush: fn(&Wal) -> Result<()> = |wal| wal.flush_to_os(wal.append(b"record")?.lsn());
    let save: fn(&Wal) -> Result<()> = |wal| wal.create_cursor("one", None, 0).map(drop);
    for (held, call) in [(SYNC, commit), (WRITE, flush), (SAVE_STATE, save)] {
        let (wal, store) = log_and_store();
        wal.commit(b"first").unwrap();
        store.set(held, Effect::Hold);
        thread::scope(|scope| {
            let caller = scope.spawn(|| call(&wal));
            until(|| store.is_holding(held));
            let open = || store.try_open(Options::new());
            check_that_it_waits(&wal, open, || store.set(held, Effect::Pass));
            let result = caller.join().unwrap().map_err(|error| error.kind());
            assert!(result.is_ok_and(|()| held != SYNC) || result == Err(ErrorKind::Poisoned));
        });
    }
}

#[test]
fn a_release_callback_ends_before_the_log_is_free() {
    let (callback, results, begins) = held();
    let (_dir, path, wal) = log_on_files(small().on_release(callback));
    while wal.append(&[7; 1000]).unwrap().lsn().as_u64() < 2 * SEGMENT_BYTES {}
    let last = wal.commit(b"last").unwrap();
    let release = wal.truncate_before_in_background(last).unwrap();
    begins.recv().unwrap();
    check_that_it_waits(
        &wal,
        || small().open(&path),
        || {
            // One for each segment.
            (0..2).for_each(|_| results.send(Ok(())).unwrap());
        },
    );
    drop(release);
}

/// In many rounds: whatever the threads do at that moment, all that they were promised is there.
#[test]
fn an_abandonment_beside_committers_loses_nothing_acknowledged() {
    let (_dir, path, mut wal) = log_on_files(small());
    let mut promised = Vec::new();
    for round in 0..20_u8 {
        let (sender, acknowledged) = channel();
        thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (wal, sender) = (wal.clone(), sender.clone());
                scope.spawn(move || {
                    let mut data = [round, thread, 0];
                    while let Ok(lsn) = wal.commit(&data) {
                        sender.send((lsn, data.to_vec())).unwrap();
                        data[2] = data[2].wrapping_add(1);
                    }
                });
            }
            promised.extend(acknowledged.iter().take(100));
            wal.clone().abandon();
            // The threads may be in their last calls still.
            wal = small().open(&path).unwrap();
        });
        drop(sender);
        promised.extend(acknowledged);
        let found: BTreeMap<_, _> = contents(&wal).into_iter().collect();
        let is_there = |(lsn, data): &(Lsn, Vec<u8>)| found.get(lsn) == Some(data);
        assert!(promised.iter().all(is_there), "round {round}");
    }
}

/// A callback for released segments that appends and writes until the log ends.
#[derive(Debug, Default)]
struct Writes(OnceLock<Wal>, AtomicBool);

impl OnRelease for Writes {
    fn released(&self, _: &ReleasedSegment<'_>) -> Result<()> {
        let wal = self.0.get().unwrap();
        // Relaxed: nothing else is read.
        self.1.store(true, Ordering::Relaxed);
        while wal.append(b"released").and_then(|ticket| wal.flush_to_os(ticket.lsn())).is_ok() {}
        Ok(())
    }
}

/// The lock of the release and the write lock are taken in one order.
#[test]
fn abandon_beside_a_callback_that_writes_hangs_nobody() {
    watch();
    for _ in 0..400 {
        let callback = Arc::new(Writes::default());
        let wal =
            small().on_release(Arc::clone(&callback)).open_on(Arc::new(MemDisk::new()), "/log");
        let wal = wal.unwrap();
        callback.0.set(wal.clone()).unwrap();
        let last = append(&wal, 0..1000, 100).pop().unwrap();
        assert!(last.as_u64() > SEGMENT_BYTES);
        wal.sync().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| wal.truncate_before(last));
            scope.spawn(|| {
                while wal.append(b"more").is_ok_and(|it| wal.flush_to_os(it.lsn()).is_ok()) {}
            });
            until(|| callback.1.load(Ordering::Relaxed));
            wal.clone().abandon();
        });
    }
}
