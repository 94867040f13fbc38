//! What the log takes, what keeps it, and what happens at a limit.

use crate::prelude::*;

const REMOVE_A_SPARE: Calls = (CallKind::Remove, Target::Spare);
const FILE_BYTES: u64 = SEGMENT_BYTES + 4096;

fn limited(files: u64) -> Options {
    Options::new()
        .segment_bytes(SEGMENT_BYTES)
        .buffer_bytes(16 << 10)
        .buffer(BufferKind::Heap)
        .spare_segments(0)
        .max_bytes(files * FILE_BYTES)
}

/// Commits records of 1 KiB until one lacks space. Returns their LSNs, and the end of the one that
/// lacked space.
fn fill(wal: &Wal) -> (Vec<Lsn>, Lsn) {
    let mut lsns = Vec::new();
    loop {
        match wal.commit(&[7; 1024]) {
            Ok(lsn) => lsns.push(lsn),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                let text = error.to_string();
                assert!(text.contains("max_bytes") && error.path().is_some(), "{error}");
                assert!(text.contains("truncate the log, or open it with a higher"), "{error}");
                return (lsns, error.appended_lsn().expect("it is in the log"));
            }
        }
    }
}

#[test]
fn a_log_at_its_limit_lacks_space_until_a_segment_is_freed() {
    let (_folder, path, wal) = log_on_files(limited(6));
    let (lsns, waiting) = fill(&wal);
    let space = wal.space().unwrap();
    assert_eq!((space.segments, space.ready), (6, 0), "the limit is used to the full");
    assert_eq!((space.file_bytes, space.limit), (FILE_BYTES, Some(6 * FILE_BYTES)));
    assert_eq!(wal.commit(b"x").unwrap_err().kind(), ErrorKind::NoSpace);
    // Nothing is lost, and the log is not poisoned.
    assert!(lsns.iter().all(|lsn| wal.get(*lsn).is_ok()));
    let second = lsns.iter().find(|lsn| lsn.as_u64() >= SEGMENT_BYTES).unwrap();
    wal.truncate_before(*second).unwrap();
    wal.wait_durable(waiting).unwrap();
    wal.commit(b"y").unwrap();
    let before = contents(&wal);
    drop(wal);
    assert_eq!(contents(&limited(6).open(&path).unwrap()), before);
}

#[test]
fn a_log_at_its_limit_can_be_closed_opened_and_truncated() {
    let (_folder, path, wal) = log_on_files(limited(4));
    let (lsns, _) = fill(&wal);
    drop(wal);
    // As on a full disk, but the open takes the segments that it needs beyond the limit.
    for _ in 0..3 {
        let wal = limited(4).open(&path).unwrap();
        assert!(lsns.iter().all(|lsn| wal.get(*lsn).is_ok()));
    }
    let wal = limited(4).open(&path).unwrap();
    wal.truncate_before(wal.durable_lsn()).unwrap();
    let (_, waiting) = fill(&wal);
    // Only the log buffer has the record there.
    wal.truncate_before(wal.durable_lsn()).unwrap();
    wal.wait_durable(waiting).unwrap();
    wal.commit(b"again").unwrap();
    wal.close().unwrap();
}

/// Returns whether `call` got `NoSpace` before anything was appended.
fn is_refused<T>(call: palisade::Result<T>) -> bool {
    call.is_err_and(|error| {
        let says_why = error.to_string().contains("max_bytes");
        let is_it = error.kind() == ErrorKind::NoSpace && error.appended_lsn().is_none();
        assert!(says_why && is_it, "{error}");
        true
    })
}

#[test]
fn reopens_at_the_limit_take_two_more_segments_only_once() {
    for buffer in [BufferKind::Auto, BufferKind::Heap] {
        let (_folder, path) = folder();
        let open = || limited(4).buffer(buffer).open(&path).unwrap();
        let files = |wal: &Wal| wal.space().unwrap().segments + wal.space().unwrap().ready;
        let (lsns, _) = fill(&open());
        for closes in [false, false, true, false, true, true] {
            let wal = open();
            assert!(files(&wal) <= 6, "{}", files(&wal));
            let end = wal.reserved_lsn();
            assert!(is_refused(wal.append(b"x")) && is_refused(wal.commit(b"x")));
            assert!(is_refused(wal.try_append(b"x")) && is_refused(wal.append_batch(&[b"x"])));
            assert!(is_refused(wal.checkpoint(*lsns.last().unwrap())));
            assert_eq!(wal.reserved_lsn(), end);
            assert!(lsns.iter().all(|lsn| wal.get(*lsn).is_ok()));
            wal.sync().unwrap();
            if closes {
                wal.close().unwrap();
            }
        }
        // Until the log is within its limit.
        let wal = open();
        for number in 1..=2 {
            let first = lsns.iter().find(|lsn| lsn.segment(SEGMENT_BYTES) == number).unwrap();
            wal.truncate_before(*first).unwrap();
            assert_eq!(is_refused(wal.try_append(b"x")), files(&wal) > 4);
        }
        assert!(files(&wal) <= 4);
        fill(&wal);
    }
}

#[test]
fn a_log_opened_above_its_limit_can_truncate_its_suffix() {
    let (_folder, path) = folder();
    let (lsns, _) = fill(&limited(4).open(&path).unwrap());
    let wal = limited(4).open(&path).unwrap();
    assert!(is_refused(wal.append(b"x")));
    wal.truncate_after(lsns[0]).unwrap();
    wal.commit(b"x").unwrap();
    assert_eq!(contents(&wal).len(), 2);
}

/// A Raft follower at its limit, the last record of which has no segment yet: removes records from
/// that one on, from the middle on, and from the second on.
#[test]
fn a_suffix_truncation_at_the_limit_makes_the_segments_it_needs() {
    for (pads, part) in [(false, 1), (false, 2), (false, 80), (true, 1), (true, 2)] {
        let (_folder, _, wal) = log_on_files(limited(4).pad_to_block(pads));
        let (mut lsns, waiting) = fill(&wal);
        lsns.push(waiting);
        let nothing = wal.truncate_from(wal.reserved_lsn());
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::NoSpace, "it frees nothing");
        let removed = (lsns.len() - 1) / part;
        wal.replace_from(lsns[removed], ["new"]).unwrap();
        assert_eq!(contents(&wal).len(), removed + 1);
        wal.truncate_after(lsns[0]).unwrap();
        assert_eq!(contents(&wal), [(lsns[0], vec![7; 1024])]);
        assert!(wal.space().unwrap().segments <= 4);
        assert!(!fill(&wal).0.is_empty(), "the space is free again");
    }
}

#[test]
fn an_append_does_not_fail_a_truncation_at_the_limit() {
    let store = FaultyLog::limited(8 << 10, 4, 0);
    let wal = store.open(Options::new().buffer_bytes(8 << 10));
    let kept = wal.commit(&[7; 500]).unwrap();
    while wal.reserved_lsn().as_u64() < (32 << 10) - 1000 {
        wal.commit(&[7; 500]).unwrap();
    }
    store.set(READ, Effect::Hold);
    thread::scope(|scope| {
        let truncating = scope.spawn(|| wal.truncate_after(kept));
        until(|| store.is_holding(READ));
        while wal.append(&[7; 500]).unwrap().lsn().as_u64() < 32 << 10 {}
        store.set(READ, Effect::Pass);
        truncating.join().unwrap().unwrap();
    });
    assert_eq!(contents(&wal).len(), 1);
    wal.commit(b"goes on").unwrap();
}

#[test]
fn a_file_that_a_release_renames_or_removes_counts_meanwhile() {
    const BECOMES_A_SPARE: Calls = (CallKind::Rename, Target::Spare);
    let store = FaultyLog::limited(8 << 10, 40, 8);
    let wal = store.open(Options::new().buffer_bytes(8 << 10));
    let files = || wal.space().map(|space| space.segments + space.ready).unwrap();
    let (lsns, waiting) = fill(&wal);
    let second = lsns.iter().find(|lsn| lsn.segment(8 << 10) == 1).unwrap();
    store.set(BECOMES_A_SPARE, Effect::HoldDone);
    thread::scope(|scope| {
        let truncating = scope.spawn(|| wal.truncate_before(*second));
        until(|| store.is_holding(BECOMES_A_SPARE));
        let meanwhile = (wal.commit(b"x").map_err(|error| error.kind()), files());
        store.set(BECOMES_A_SPARE, Effect::Pass);
        truncating.join().unwrap().unwrap();
        assert_eq!(meanwhile, (Err(ErrorKind::NoSpace), 40));
    });
    wal.wait_durable(waiting).unwrap();
    wal.truncate_before(wal.durable_lsn()).unwrap();
    store.set(REMOVE_A_SPARE, Effect::Hold);
    thread::scope(|scope| {
        // The log takes one segment between two releases, and each keeps a tenth fewer spares.
        let truncating = scope.spawn(|| {
            while store.count(REMOVE_A_SPARE) == 0 {
                (0..8).for_each(|_| assert!(wal.commit(&[7; 1024]).is_ok()));
                wal.truncate_before(wal.durable_lsn()).unwrap();
            }
        });
        until(|| store.is_holding(REMOVE_A_SPARE));
        fill(&wal);
        let meanwhile = files();
        store.set(REMOVE_A_SPARE, Effect::Pass);
        truncating.join().unwrap();
        assert_eq!(meanwhile, 40);
    });
}

#[test]
fn a_spare_that_could_not_be_removed_goes_with_a_later_release() {
    let store = FaultyLog::limited(8 << 10, 40, 8);
    let wal = store.open(Options::new().buffer_bytes(8 << 10));
    fill(&wal);
    wal.truncate_before(wal.durable_lsn()).unwrap();
    let release = || {
        (0..8).for_each(|_| assert!(wal.commit(&[7; 1024]).is_ok()));
        wal.truncate_before(wal.durable_lsn())
    };
    store.set(REMOVE_A_SPARE, Effect::Eio);
    let failed = (0..100).find_map(|_| release().err());
    assert_eq!(failed.expect("fewer and fewer are kept").kind(), ErrorKind::Io);
    store.set(REMOVE_A_SPARE, Effect::Pass);
    (0..100).for_each(|_| release().unwrap());
    assert_eq!(wal.space().unwrap().ready, 8);
}

/// Protections: the spare that the preparer is making counts for the limit; the thread that needs a
/// segment waits for it if the limit allows no other file.
#[test]
fn a_spare_in_preparation_counts_and_is_awaited_at_the_limit() {
    watch();
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    let (begun, begins) = channel();
    let (end, ends) = channel::<()>();
    let ends = Mutex::new(ends);
    let (looked, looks) = channel();
    disk.watch(move |call| {
        // Either end may be gone once the test has seen what it wants.
        if call.is_background && (call.kind, call.target) == (CallKind::Create, Target::Spare) {
            let _ = begun.send(());
            let _ = ends.lock().unwrap().recv();
        } else if !call.is_background
            && (call.kind, call.target) == (CallKind::Read, Target::Folder)
        {
            let _ = looked.send(());
        }
        Ok(())
    });
    let options = Options::new().segment_bytes(8 << 10).buffer_bytes(8 << 10).spare_segments(0);
    let wal = Wal::with_store(&disk, options.max_bytes(4 * (12 << 10))).unwrap();
    let files = || wal.space().map(|space| space.segments + space.ready).unwrap();
    begins.recv().unwrap();
    thread::scope(|scope| {
        let filling = scope.spawn(|| fill(&wal));
        // The thread that needs the fourth segment looks whether the limit allows a file.
        while looks.recv().is_ok() && wal.reserved_lsn().as_u64() <= 24 << 10 {}
        drop(end);
        let (lsns, _) = filling.join().unwrap();
        assert_eq!(lsns.last().unwrap().segment(8 << 10), 3, "the fourth segment is used");
    });
    assert_eq!(files(), 4);
}

#[test]
fn a_limit_below_four_segments_is_refused_and_changes_nothing() {
    let (_folder, path) = folder();
    let refuse = |options: Options| {
        let error = options.open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("max_bytes"), "{error}");
    };
    refuse(limited(3));
    refuse(Options::new().max_bytes(100 << 20));
    assert!(!path.exists(), "no folder was made");
    limited(4).open(&path).unwrap().close().unwrap();
    let before = snapshot_at_rest(&path);
    refuse(Options::new().open_mode(OpenMode::MustExist).max_bytes(3 * FILE_BYTES));
    assert_eq!(snapshot_at_rest(&path), before);
}

#[test]
fn each_reader_tail_and_hold_is_a_pin_with_its_lag() {
    let (_folder, _, wal) = log_on_files(limited(16));
    let lsns: Vec<Lsn> = (0..100).map(|_| wal.commit(&[7; 1024]).unwrap()).collect();
    let end = wal.reserved_lsn();
    assert_eq!(wal.space().unwrap().pins, []);
    let (hold, _other) = (wal.hold(lsns[1]).unwrap(), wal.hold(lsns[1]).unwrap());
    let mut tail = wal.tail().unwrap();
    let records = wal.records_from(lsns[90]).unwrap();
    let pins = wal.space().unwrap().pins;
    let seen: Vec<_> = pins.iter().map(|pin| (pin.lsn, pin.kind, pin.count)).collect();
    let expected = [
        (Lsn::ZERO, PinKind::Tail, 1),
        (lsns[1], PinKind::Hold, 2),
        (lsns[90], PinKind::Reader, 1),
    ];
    assert_eq!(seen, expected);
    assert!(pins.iter().all(|pin| pin.lag == end.as_u64() - pin.lsn.as_u64()));
    // The tail moves on with the segment that it reads.
    for _ in 0..100 {
        tail.next(Duration::ZERO).unwrap().unwrap();
    }
    drop((hold, records));
    let pins = wal.space().unwrap().pins;
    assert_eq!((pins.len(), pins[0].kind, pins[0].count), (2, PinKind::Hold, 1));
    assert!(pins[1].kind == PinKind::Tail && pins[1].lsn.as_u64() >= SEGMENT_BYTES);
    let space = wal.space().unwrap();
    assert_eq!((space.head, space.head_lag), (Lsn::ZERO, end.as_u64()));
    assert_eq!(space.live_bytes, wal.live_bytes());
}

#[test]
fn a_soft_limit_calls_once_until_the_log_has_shrunk() {
    let (_folder, path) = folder();
    let (sender, calls) = channel();
    let limit = 4 * FILE_BYTES;
    let options = limited(32).soft_limit(limit, move |bytes| sender.send(bytes).unwrap());
    let wal = options.open(&path).unwrap();
    let grow = || (0..300).for_each(|_| assert!(wal.commit(&[7; 1024]).is_ok()));
    for _ in 0..2 {
        grow();
        let bytes = calls.recv().unwrap();
        assert!(bytes > limit && bytes % FILE_BYTES == 0, "{bytes}");
        grow();
        assert!(calls.try_recv().is_err(), "it is still above");
        wal.truncate_before(wal.durable_lsn()).unwrap();
        assert!(wal.space().unwrap().segments <= 4);
    }
}

#[test]
fn the_callback_of_a_soft_limit_may_truncate_the_log() {
    let (_folder, path) = folder();
    let (sender, receiver) = channel::<Wal>();
    let receiver = Mutex::new(receiver);
    let options = limited(8).soft_limit(5 * FILE_BYTES, move |_| {
        let wal = receiver.lock().unwrap().recv().unwrap();
        wal.truncate_before(wal.durable_lsn()).unwrap();
    });
    let wal = options.open(&path).unwrap();
    // Dropped before the log: its last handle waits for the callback.
    let sender = sender;
    thread::scope(|scope| {
        scope.spawn(|| {
            // More than the hard limit in all: the callback makes room.
            for _ in 0..1000 {
                if let Err(error) = wal.commit(&[7; 1024]) {
                    assert_eq!(error.kind(), ErrorKind::NoSpace);
                    sender.send(wal.clone()).unwrap();
                    until(|| wal.space().unwrap().segments <= 5);
                    wal.wait_durable(error.appended_lsn().unwrap()).unwrap();
                }
            }
        });
    });
    drop(sender);
    assert!(wal.head_lsn() > Lsn::ZERO);
}
