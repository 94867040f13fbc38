//! G6: after a failed write or sync everybody gets the same error, now and later; nobody hangs,
//! no sync is tried again, and what was acknowledged is recovered.

use palisade::Result;

use crate::prelude::*;

fn options() -> Options {
    Options::new().buffer_bytes(1 << 16)
}

/// What everybody who waits while `op` fails gets to hear.
fn errors_of_those_who_wait(wal: &Wal, store: &FaultyLog, op: Calls) -> Vec<Error> {
    let mut tail = wal.tail_from(wal.reserved_lsn()).unwrap();
    // The first mark of a commit says what is written, the second what is durable.
    store.set_after(usize::from(op == MARK), op, Effect::Hold);
    let (sender, receiver) = channel();
    let tell = |result: Result<()>| {
        let sender = sender.clone();
        sender.send(result.expect_err("nothing can be acknowledged")).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| tell(wal.commit(b"leader").map(drop)));
        until(|| store.is_holding(op));
        scope.spawn(|| tell(wal.commit(b"follower").map(drop)));
        scope.spawn(|| tell(wal.append(b"sync").and_then(|_| wal.sync())));
        scope.spawn(|| {
            let ticket = wal.append(b"ticket").unwrap();
            tell(ticket.wait_timeout(2 * PATIENCE).map(drop));
        });
        scope.spawn(|| tell(block_on(wal.append(b"future").unwrap()).map(drop)));
        scope.spawn(|| tell(tail.next(2 * PATIENCE).map(drop)));
        let lsn = wal.append(b"callback").unwrap().lsn();
        let sender = sender.clone();
        wal.on_durable(lsn, move |result| sender.send(result.unwrap_err()).unwrap()).unwrap();
        until(|| wal.stats().waiters == 6);
        store.set(op, Effect::Eio);
    });
    receiver.iter().take(7).collect()
}

/// What every call that needs the log gets later.
fn errors_of_later_calls(wal: &Wal) -> Vec<Error> {
    let last = wal.reserved_lsn();
    let unwritten = Lsn::new(last.as_u64() - 8);
    vec![
        wal.append(b"x").unwrap_err(),
        wal.try_append(b"x").unwrap_err(),
        wal.append_batch(&[b"x", b"y"]).unwrap_err(),
        wal.append_with(4, |_, _| ()).unwrap_err(),
        wal.commit(b"x").unwrap_err(),
        wal.sync().unwrap_err(),
        wal.wait_durable(unwritten).unwrap_err(),
        wal.on_durable(unwritten, |_| ()).unwrap_err(),
        wal.truncate_before(last).unwrap_err(),
        wal.checkpoint(last).unwrap_err(),
        wal.tail_from(last).and_then(|mut tail| tail.next(PATIENCE).map(drop)).unwrap_err(),
        wal.clone().close().unwrap_err(),
    ]
}

/// The text without the record that the call had appended, which is the call's own.
fn sticky_text(error: &Error) -> String {
    let text = error.to_string();
    text.split("; the record was appended").next().unwrap().into()
}

fn poisons_for_all(op: Calls, what: &str) {
    let (wal, store) = new_log(1 << 16, options());
    let acknowledged: Vec<Lsn> = (0..20_u8).map(|n| wal.commit(&[n]).unwrap()).collect();
    let durable = wal.durable_lsn();
    let syncs = store.count(SYNC);

    let mut errors = errors_of_those_who_wait(&wal, &store, op);
    let writes = store.count(WRITE);
    // The device works again; that must change nothing.
    store.set(op, Effect::Pass);
    errors.extend(errors_of_later_calls(&wal));
    let texts: BTreeSet<String> = errors.iter().map(sticky_text).collect();
    assert_eq!(texts.len(), 1, "{what}: one sticky error: {texts:#?}");
    let is_poison = |error: &Error| error.kind() == ErrorKind::Poisoned && error.is_fatal();
    assert!(errors.iter().all(is_poison), "{what}: {errors:?}");
    let text = &errors[0].to_string();
    for part in [what, &FaultKind::Eio.error().to_string(), "open it again"] {
        assert!(text.contains(part), "{what}: {text}");
    }

    let reserved = wal.reserved_lsn();
    let memory = wal.stats().buffer_memory_bytes;
    assert!((0..1000).all(|_| wal.append(&[0; 500]).is_err()), "{what}");
    assert_eq!(wal.reserved_lsn(), reserved, "{what}: a refused append reserves nothing");
    assert_eq!(wal.stats().buffer_memory_bytes, memory, "{what}");
    assert_eq!(wal.stats().waiters, 0, "{what}");
    assert_eq!(wal.durable_lsn(), durable, "{what}: nothing more is acknowledged");
    drop(wal);
    assert_eq!(store.count(WRITE), writes, "{what}: no write after the failure");
    let tried = usize::from(op != WRITE);
    assert_eq!(store.count(SYNC), syncs + tried, "{what}: a failed sync is never tried again");

    for power_is_lost in [false, true] {
        if power_is_lost {
            store.inner.lose_power();
        }
        let wal = store.open(options());
        assert_eq!(lsns_of(&wal)[..20], acknowledged, "{what}: what was acknowledged is recovered");
    }
}

#[test]
fn a_failed_write_sync_or_mark_is_final_for_every_caller() {
    poisons_for_all(WRITE, "write the segment");
    poisons_for_all(SYNC, "sync the segment");
    poisons_for_all(MARK, "note how far the log has come");
}

/// A sync cannot be made again, so there lack of space is a failure.
#[test]
fn lack_of_space_in_a_sync_poisons_and_keeps_nobody_waiting() {
    let (wal, store) = new_log(1 << 16, options());
    wal.commit(b"kept").unwrap();
    let lsn = wal.append(b"written first, then synced").unwrap().lsn();
    wal.flush_to_os(lsn).unwrap();
    store.set(SYNC, Effect::NoSpace);
    let error = wal.sync().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    store.set(SYNC, Effect::Pass);
    assert_eq!(wal.wait_durable(lsn).unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(wal.durable_lsn() <= lsn, "nothing more is acknowledged");
}

/// The sync before the mark has succeeded, and both can be made again.
#[test]
fn a_mark_that_lacks_space_does_not_poison_and_succeeds_later() {
    let (wal, store) = new_log(1 << 16, options());
    wal.commit(b"kept").unwrap();
    let lsn = wal.append(b"written first, then synced").unwrap().lsn();
    wal.flush_to_os(lsn).unwrap();
    store.set(MARK, Effect::NoSpace);
    for error in [wal.sync().unwrap_err(), wal.commit(b"the next").unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    }
    assert!(wal.durable_lsn() <= lsn, "nothing is acknowledged without its mark");
    store.set(MARK, Effect::Pass);
    wal.sync().unwrap();
    wal.commit(b"the last").unwrap();
    let expected = contents(&wal);
    assert_eq!(expected.len(), 4);
    assert_eq!(contents(&store.after_kill(wal).open(options())), expected);
}

#[test]
fn a_poisoned_log_returns_written_records_and_then_the_error() {
    let (wal, store) = new_log(1 << 16, options());
    let lsns: Vec<Lsn> = (0..5_u8).map(|n| wal.commit(&[n]).unwrap()).collect();
    store.set(WRITE, Effect::Eio);
    let lost = wal.append(b"in the buffer only").unwrap().lsn();
    wal.sync().unwrap_err();
    let (found, error) = read_until_error(wal.records().unwrap());
    assert!(found.iter().map(|(lsn, _)| lsn).eq(&lsns));
    assert_eq!(error.unwrap().kind(), ErrorKind::Poisoned);
    assert_eq!(wal.get(lsns[4]).unwrap().data(), [4]);
    assert_eq!(wal.get(lost).unwrap_err().kind(), ErrorKind::Poisoned);
    let kept = wal.append(b"x").unwrap_err();
    assert_eq!(wal.flush_to_os(lost).unwrap_err().to_string(), kept.to_string());
    wal.wait_durable(lsns[0]).unwrap();
}

#[test]
fn an_append_that_makes_room_and_the_next_get_the_failure() {
    let (wal, store) = new_log(1 << 16, Options::new().buffer_bytes(4096));
    let kept = wal.commit(b"kept").unwrap();
    store.set(WRITE, Effect::Eio);
    let first = (0..100).find_map(|_| wal.append(&[1; 200]).err()).expect("no room for all");
    assert_eq!(first.kind(), ErrorKind::Poisoned);
    assert_eq!(wal.append(b"x").unwrap_err().to_string(), sticky_text(&first));
    drop(wal);
    store.set(WRITE, Effect::Pass);
    let wal = store.open(Options::new().buffer_bytes(4096));
    assert_eq!(contents(&wal)[0], (kept, b"kept".to_vec()));
}

#[test]
fn a_failure_of_the_interval_policy_poisons() {
    let store = FaultyLog::new(1 << 16);
    let policy = palisade::SyncPolicy::Interval(Duration::from_millis(1));
    let wal = store.open(options().sync_policy(policy));
    store.set(SYNC, Effect::Eio);
    drop(wal.append(b"nobody waits for it").unwrap());
    until(|| wal.append(b"x").is_err_and(|error| error.kind() == ErrorKind::Poisoned));
    assert_eq!(store.count(SYNC), 1);
}

#[test]
fn a_failed_state_save_keeps_the_old_state_and_does_not_poison() {
    let (wal, store) = new_log(1 << 16, options());
    let lsns: Vec<Lsn> = (0..9_u8).map(|n| wal.commit(&[n]).unwrap()).collect();
    for fault in [Effect::NoSpace, Effect::Eio] {
        store.set(SAVE_STATE, fault);
        wal.truncate_before(lsns[4]).unwrap_err();
        wal.checkpoint(lsns[4]).unwrap_err();
        assert_eq!((wal.head_lsn(), wal.checkpoint_lsn()), (Lsn::ZERO, Lsn::ZERO));
        wal.commit(b"still alive").unwrap();
    }
    store.set(SAVE_STATE, Effect::Pass);
    wal.truncate_before(lsns[4]).unwrap();
    wal.checkpoint(lsns[5]).unwrap();
    assert_eq!((wal.head_lsn(), wal.checkpoint_lsn()), (lsns[4], lsns[5]));
    assert_eq!(contents(&wal).len(), 9 - 4 + 2);
}

/// The generator of std panics if the system has no random numbers, so the log does not fall back
/// to it.
#[test]
fn without_random_numbers_calls_fail_and_the_log_goes_on() {
    let store = FaultyLog::new(1 << 16);
    let lack = |log: &FaultyLog, is_lacking: bool| {
        log.watch(move |call| match call.name {
            "random" if is_lacking => Err(io::Error::other("no random numbers")),
            _ => Ok(()),
        });
    };
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("no random numbers"), "{error}");
    };
    lack(&store, true);
    refused(store.try_open(options()).map(drop));
    lack(&store, false);
    let wal = store.open(options());
    let lsns = [wal.commit(b"0").unwrap(), wal.commit(b"1").unwrap()];
    lack(&store, true);
    refused(wal.truncate_after(lsns[0]));
    assert_eq!(lsns_of(&wal), lsns, "nothing was truncated");
    wal.commit(b"2").unwrap();
    let store = store.after_kill(wal);
    lack(&store, true);
    refused(store.try_open(options()).map(drop));
    lack(&store, false);
    assert_eq!(lsns_of(&store.open(options())).len(), 3);
}

/// Protection: if too many files of segments are open, the oldest is synced before it is closed. A
/// failed write-back is reported to the files that are open.
#[test]
fn a_file_that_is_closed_because_many_are_open_is_synced_before() {
    let (wal, store) = new_log(4096, Options::new().buffer_bytes(4096));
    store.set(SYNC, Effect::Eio);
    let error = (0..400).find_map(|_| wal.append(&[1; 1000]).err()).expect("no file was synced");
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(wal.written_lsn().as_u64() > 60 * 4096, "at {}", wal.written_lsn());
}
