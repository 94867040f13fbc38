//! G7: lack of space loses nothing and poisons nothing; when there is space again, the same
//! epoch goes on.

use crate::faulty::MAKE_BUFFER;
use crate::prelude::*;

const SEGMENT_BYTES: u64 = 8 << 10;

/// A log whose next segment has to be prepared for the record after the next few.
fn nearly_full_segment() -> (FaultyLog, Wal, Entries) {
    let store = FaultyLog::with_buffer(SEGMENT_BYTES, BufferKind::Mapped);
    let wal = store.open(Options::new().buffer_bytes(4096));
    let mut expected = Vec::new();
    while wal.reserved_lsn().as_u64() < SEGMENT_BYTES - 300 {
        let data = vec![expected.len() as u8; 200];
        expected.push((wal.commit(&data).unwrap(), data));
    }
    (store, wal, expected)
}

fn is_full(error: &Error) -> bool {
    let says_what_to_do = error.to_string().contains("free space");
    error.kind() == ErrorKind::NoSpace && error.is_shortage() && says_what_to_do
}

/// Appends until the buffer refuses; returns what it refused with.
fn fill_up(wal: &Wal, expected: &mut Entries) -> Error {
    loop {
        let data = vec![expected.len() as u8; 150];
        match wal.append(&data) {
            Ok(ticket) => expected.push((ticket.lsn(), data)),
            Err(error) => return error,
        }
        assert!(expected.len() < 1000, "a full disk has to show");
    }
}

fn loses_nothing(op: Calls) {
    let (store, wal, mut expected) = nearly_full_segment();
    let (epoch, committed) = (store.inner.reader().unwrap().state().unwrap().epoch, expected.len());
    store.set(op, Effect::NoSpace);
    let refused = fill_up(&wal, &mut expected);
    assert!(is_full(&refused), "{refused}");
    assert!(expected.len() > committed + 5, "the buffer takes what it can");
    let reserved = wal.reserved_lsn();
    for _ in 0..3 {
        let last = expected.last().unwrap().0;
        assert!(is_full(&wal.append(&[0; 150]).unwrap_err()));
        assert!(is_full(&wal.commit(&[0; 150]).unwrap_err()));
        assert!(is_full(&wal.sync().unwrap_err()));
        assert!(is_full(&wal.wait_durable(last).unwrap_err()));
        assert!(is_full(&wal.flush_to_os(last).unwrap_err()));
    }
    assert_eq!(wal.reserved_lsn(), reserved, "a refused append reserves nothing");

    // Reads of what is written, and truncation, go on.
    let written = wal.written_lsn();
    let readable: Vec<_> = expected.iter().filter(|(lsn, _)| *lsn < written).cloned().collect();
    assert!(readable.len() >= committed);
    let (found, error) = read_until_error(wal.records().unwrap());
    assert_eq!(found, readable);
    assert!(is_full(&error.unwrap()));
    assert_eq!(wal.get(expected[3].0).unwrap().data(), expected[3].1);
    wal.truncate_before(expected[2].0).unwrap();
    assert_eq!(wal.head_lsn(), expected[2].0);

    store.set(op, Effect::Pass);
    wal.sync().unwrap();
    expected.push((wal.commit(b"after").unwrap(), b"after".to_vec()));
    assert_eq!(contents(&wal), expected[2..]);
    wal.close().unwrap();
    assert_eq!(
        store.inner.reader().unwrap().state().unwrap().epoch,
        epoch,
        "the same epoch went on"
    );
    let wal = store.open(Options::new().buffer_bytes(4096));
    assert_eq!(contents(&wal), expected[2..]);
}

#[test]
fn a_write_without_space_loses_nothing_and_keeps_the_epoch() {
    loses_nothing(WRITE);
}

#[test]
fn a_segment_without_space_loses_nothing_and_keeps_the_epoch() {
    loses_nothing(MAKE_SEGMENT);
}

#[test]
fn a_future_gets_no_space_and_can_be_polled_again() {
    let (store, wal, _) = nearly_full_segment();
    store.set(WRITE, Effect::NoSpace);
    let mut future = wal.append(b"awaited").unwrap();
    for _ in 0..3 {
        let error = block_on(&mut future).unwrap_err();
        assert!(is_full(&error), "{error}");
    }
    assert_eq!(wal.stats().waiters, 0);
    store.set(WRITE, Effect::Pass);
    assert_eq!(block_on(&mut future).unwrap(), future.lsn());
    assert!(future.is_durable());
}

#[test]
fn all_waiters_on_a_full_disk_get_the_error_and_may_wait_again() {
    let (store, wal, _) = nearly_full_segment();
    store.set(WRITE, Effect::Hold);
    let (sender, receiver) = channel();
    let wait_twice = |ticket: Ticket<'_>| {
        sender.send(ticket.wait().unwrap_err()).unwrap();
        until(|| ticket.wait().is_ok());
    };
    let wait_twice = &wait_twice;
    thread::scope(|scope| {
        let (wal, store) = (&wal, &store);
        scope.spawn(move || wait_twice(wal.append(b"leader").unwrap()));
        until(|| store.is_holding(WRITE));
        for _ in 0..3 {
            scope.spawn(move || wait_twice(wal.append(b"follower").unwrap()));
        }
        let lsn = wal.append(b"callback").unwrap().lsn();
        let sender = sender.clone();
        wal.on_durable(lsn, move |told| sender.send(told.unwrap_err()).unwrap()).unwrap();
        let mut future = wal.append(b"future").unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(std::pin::pin!(&mut future).as_mut().poll(&mut context).is_pending());
        until(|| wal.stats().waiters == 5);
        store.set(WRITE, Effect::NoSpace);
        assert!(receiver.iter().take(5).all(|error| is_full(&error)));
        match std::pin::pin!(&mut future).as_mut().poll(&mut context) {
            Poll::Ready(Err(error)) => assert!(is_full(&error)),
            other => panic!("the future has to be told, too: {other:?}"),
        }
        store.set(WRITE, Effect::Pass);
        // Another's try that began before there was space may fail once more.
        until(|| block_on(&mut future).is_ok());
    });
    wal.sync().unwrap();
}

#[test]
fn try_append_finds_room_again_once_there_is_space() {
    let (wal, store) = new_log(1 << 16, Options::new().buffer_bytes(4096));
    store.set(WRITE, Effect::NoSpace);
    let refused = (0..100).find_map(|_| wal.try_append(&[1; 200]).err()).unwrap();
    assert!(refused.is_retryable(), "{refused}");
    store.set(WRITE, Effect::Pass);
    // It says "try again": trying has to lead somewhere without another call's help.
    until(|| wal.try_append(&[1; 200]).is_ok());
}

#[test]
fn a_close_without_space_ends_uncleanly_and_loses_nothing() {
    let (store, wal, mut expected) = nearly_full_segment();
    store.set(WRITE, Effect::NoSpace);
    assert!(is_full(&fill_up(&wal, &mut expected)));
    assert!(is_full(&wal.close().unwrap_err()));
    drop(wal);
    store.set(WRITE, Effect::Pass);
    let wal = store.open(Options::new().buffer_bytes(4096));
    assert!(!wal.recovery_report().clean);
    assert_eq!(contents(&wal), expected, "the buffer kept the rest");
}

#[test]
fn a_close_that_found_no_space_can_be_repeated() {
    for op in [WRITE, SAVE_STATE] {
        let (store, wal, expected) = nearly_full_segment();
        store.set(op, Effect::NoSpace);
        assert!(is_full(&wal.close().unwrap_err()), "{op:?}");
        assert_eq!(wal.append(b"late").unwrap_err().kind(), ErrorKind::Closed);
        store.set(op, Effect::Pass);
        wal.close().unwrap();
        assert_eq!(wal.close().unwrap_err().kind(), ErrorKind::Closed, "{op:?}");
        drop(wal);
        let wal = store.open(Options::new().buffer_bytes(4096));
        assert!(wal.recovery_report().clean, "{op:?}");
        assert_eq!(contents(&wal), expected, "{op:?}");
    }
}

#[test]
fn an_open_without_space_loses_nothing_and_succeeds_later() {
    let (store, wal, expected) = nearly_full_segment();
    drop(wal);
    for op in [MAKE_SEGMENT, MAKE_BUFFER, SAVE_STATE] {
        store.set(op, Effect::NoSpace);
        let options = Options::new().buffer_bytes(4096);
        let error = store.try_open(options.clone()).unwrap_err();
        assert!(is_full(&error), "{op:?}: {error}");
        store.set(op, Effect::Pass);
        let wal = store.open(options);
        assert_eq!(contents(&wal), expected, "{op:?}");
    }
}
