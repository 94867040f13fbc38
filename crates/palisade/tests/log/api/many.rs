//! Appends of many records at a time, waits for all that was appended, and what their errors say.

use crate::prelude::*;

#[test]
fn tickets_of_many_records_name_each_with_its_tag() {
    let wal = log_in_memory(1 << 16, 1 << 14);
    let records = |n: u16| (0..n).map(|tag| (tag, vec![tag as u8; usize::from(tag) * 7]));
    for n in 1..30 {
        let batch = wal.append_batch_tagged(records(n)).unwrap();
        let many = wal.append_many_tagged(records(n)).unwrap();
        for ticket in [&batch, &many] {
            assert_eq!((ticket.lsns().len(), ticket.lsns()[0]), (usize::from(n), ticket.lsn()));
            for (&lsn, (tag, data)) in ticket.lsns().iter().zip(records(n)) {
                let record = wal.get(lsn).unwrap();
                assert_eq!((record.tag(), record.data()), (tag, &data[..]));
            }
        }
        many.wait().unwrap();
        let lsn = wal.commit_tagged(n, b"").unwrap();
        assert!(wal.durable_lsn() > lsn && wal.get(lsn).unwrap().tag() == n);
        assert!(batch.is_durable() && many.is_durable());
    }
    let expected = (1..30).flat_map(|n| records(n).chain(records(n)).chain([(n, vec![])]));
    assert_eq!(datas_of(&wal), expected.map(|(_, data)| data).collect::<Vec<_>>());
}

/// A crash between them leaves the first of many records, and none of a batch.
#[test]
fn many_records_are_recovered_one_by_one_and_a_batch_is_not() {
    let left = ["kept", "one"];
    for (is_batch, count) in [(false, 2), (true, 1)] {
        let store = FaultyLog::with_buffer(1 << 16, BufferKind::Heap);
        let wal = store.open(Options::new().buffer_bytes(1 << 14));
        wal.commit(b"kept").unwrap();
        let records = ["one", "two", "three"];
        let ticket = if is_batch { wal.append_batch(records) } else { wal.append_many(records) };
        let second = ticket.unwrap().lsns()[1];
        wal.flush_to_os(second).unwrap();
        let next = store.after_kill(wal);
        next.inner.damage(second, &[0xff; 24]).unwrap();
        let wal = next.open(Options::new().buffer_bytes(1 << 14));
        assert_eq!(datas_of(&wal), left.map(str::as_bytes)[..count], "batch: {is_batch}");
    }
}

#[test]
fn a_truncation_between_many_records_shows_in_their_ticket() {
    let wal = log_in_memory(1 << 16, 1 << 14);
    let ticket = wal.append_many(["stays", "goes", "goes"]).unwrap();
    wal.truncate_after(ticket.lsns()[0]).unwrap();
    let error = ticket.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert!(error.to_string().contains("the last of the records"), "{error}");
    assert!(!ticket.is_durable());
    assert_eq!(wal.get(ticket.lsns()[0]).unwrap().data(), b"stays");
}

#[test]
fn the_ticket_of_a_batch_can_be_kept_beside_those_of_records() {
    let wal = log_in_memory(1 << 16, 1 << 14);
    let batch = wal.append_batch(["one", "two"]).unwrap();
    let lsns = batch.lsns().to_vec();
    let tickets: Vec<Ticket> = vec![batch.into(), wal.append(b"three").unwrap()];
    for ticket in &tickets {
        ticket.wait().unwrap();
    }
    assert_eq!(tickets[0].lsn(), lsns[0]);
    assert_eq!(tickets[0].end_lsn(), tickets[1].lsn());
}

/// A record whose length changes between two looks at it.
struct Fickle<'a>(&'a Cell<usize>, [usize; 2]);

impl AsRef<[u8]> for Fickle<'_> {
    fn as_ref(&self) -> &[u8] {
        let look = self.0.replace(self.0.get() + 1);
        &[7; 100][..self.1[look.min(1)]]
    }
}

/// Protection: records that change while they are appended leave padding, whatever they do.
#[test]
fn records_that_change_while_they_are_appended_leave_padding() {
    let wal = log_in_memory(1 << 16, 1 << 14);
    let mut expected = vec![wal.append(b"before").unwrap().lsn()];
    for lens in [[10, 60], [60, 10]] {
        for is_batch in [false, true] {
            let looks = Cell::new(0);
            let fickle = Fickle(&looks, lens);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let records = std::iter::once(&fickle);
                if is_batch { wal.append_batch(records) } else { wal.append_many(records) }
                    .map(drop)
            }));
            assert!(panicked.is_err(), "{lens:?}");
            expected.push(wal.commit(b"and on").unwrap());
        }
    }
    assert_eq!(lsns_of(&wal), expected);
}

#[test]
fn too_many_bytes_or_no_record_are_refused_and_reserve_nothing() {
    let wal = log_in_memory(1 << 16, 1 << 14);
    let before = wal.reserved_lsn();
    let max = wal.max_record_bytes();
    for records in [vec![], vec![vec![0; max / 2]; 2], vec![vec![0; max + 1]]] {
        let kind =
            if records.is_empty() { ErrorKind::InvalidArgument } else { ErrorKind::TooLarge };
        assert_eq!(wal.append_batch(&records).unwrap_err().kind(), kind);
        assert_eq!(wal.append_many(&records).unwrap_err().kind(), kind);
    }
    let endless = std::iter::repeat("an iterator without an end");
    assert_eq!(wal.append_batch(endless.clone()).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(wal.append_many(endless).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(wal.reserved_lsn(), before);
    wal.append_many([vec![0; max]]).unwrap();
}

#[test]
fn a_barrier_is_durable_when_all_that_was_appended_before_is() {
    let (wal, store) = log_and_store();
    assert!(wal.barrier().is_durable(), "of an empty log");
    let lsn = wal.append(b"before").unwrap().lsn();
    let mut polled = wal.barrier();
    assert!(!polled.is_durable() && wal.stats().syncs == 0, "it requests nothing by itself");
    store.set(SYNC, Effect::Hold);
    assert!(matches!(poll_once(&mut polled), Poll::Pending));
    store.set(SYNC, Effect::Pass);
    let end = block_on(polled).unwrap();
    assert!(end > lsn && wal.durable_lsn() >= end);
    assert_eq!(wal.barrier().wait().unwrap(), end);
    // A truncation removes records. The barrier has none.
    wal.append(b"after").unwrap();
    let barrier = wal.barrier();
    wal.truncate_after(lsn).unwrap();
    barrier.wait().unwrap();
}

#[test]
fn each_error_of_a_ticket_names_the_record_that_is_in_the_log() {
    let (wal, store) = log_and_store();
    with_a_hole(&wal, 8, |fill_it| {
        let late = wal.append(b"late").unwrap();
        assert!(!late.wait_timeout(std::time::Duration::from_millis(1)).unwrap());
        fill_it();
    });
    let kept = wal.commit(b"kept").unwrap();
    let truncated = wal.append(b"truncated").unwrap();
    wal.truncate_after(kept).unwrap();
    let error = truncated.wait().unwrap_err();
    assert_eq!((error.kind(), error.appended_lsn()), (ErrorKind::Truncated, Some(truncated.lsn())));
    let mut failed = wal.append(b"failed").unwrap();
    let barrier = wal.barrier();
    store.set(SYNC, Effect::Eio);
    for error in [failed.wait().unwrap_err(), block_on(&mut failed).unwrap_err()] {
        assert_eq!((error.kind(), error.appended_lsn()), (ErrorKind::Poisoned, Some(failed.lsn())));
    }
    assert_eq!(barrier.wait().unwrap_err().appended_lsn(), None);
    let as_io = io::Error::from(failed.wait().unwrap_err());
    let inner = as_io.get_ref().and_then(|error| error.downcast_ref::<palisade::Error>());
    assert_eq!(inner.unwrap().appended_lsn(), Some(failed.lsn()));
}
