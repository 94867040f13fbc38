//! Ranges, batches of single records and the last record: what they return, and what they cost.

use std::sync::atomic::{AtomicU64, Ordering};

use palisade::{Result, framed_bytes};

use crate::faulty::FaultyLog;
use crate::prelude::*;

/// A log with records, batches, padding and a truncated range; its records.
fn mixed_log() -> (Wal, Vec<(Lsn, Vec<u8>)>) {
    let wal = log_in_memory(1 << 16, 1 << 14);
    for n in 0..400_usize {
        wal.append(&vec![n as u8; n * 7 % 900]).unwrap();
        wal.append_batch([vec![1; n % 50], vec![2; n % 30]]).unwrap();
        if n % 100 == 50 {
            let kept = wal.append(b"kept").unwrap().lsn();
            wal.append(b"truncated").unwrap();
            wal.truncate_after(kept).unwrap();
        }
    }
    let records = contents(&wal);
    (wal, records)
}

fn lsns(records: palisade::Records) -> Vec<Lsn> {
    records.into_iter().map(|record| record.unwrap().lsn()).collect()
}

#[test]
fn a_range_has_the_records_that_begin_in_it() {
    let (wal, records) = mixed_log();
    let all: Vec<Lsn> = records.iter().map(|(lsn, _)| *lsn).collect();
    for (from, to) in [(0, 1), (0, 0), (3, 700), (699, 702), (1100, 1203), (0, all.len() - 1)] {
        assert_eq!(lsns(wal.range(all[from]..all[to]).unwrap()), all[from..to]);
        assert_eq!(lsns(wal.range(all[from]..=all[to]).unwrap()), all[from..=to]);
        let within = all[to].plus(1);
        assert_eq!(lsns(wal.range(all[from]..within).unwrap()), all[from..=to]);
        assert_eq!(lsns(wal.range(..all[to]).unwrap()), all[..to]);
        assert_eq!(lsns(wal.range(all[from]..).unwrap()), all[from..]);
    }
    assert_eq!(lsns(wal.range(..).unwrap()), all);
    assert_eq!(lsns(wal.range(all[5]..Lsn::LIMIT).unwrap()), all[5..]);
    assert_eq!(lsns(wal.range(all[9]..all[2]).unwrap()), []);
    let none = wal.range(all[5].plus(8)..).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotARecord);
    let above = wal.range(Lsn::LIMIT..).unwrap_err();
    assert_eq!(above.kind(), ErrorKind::OutOfRange);
    let excluded = (std::ops::Bound::Excluded(all[1]), std::ops::Bound::Unbounded);
    assert_eq!(wal.range(excluded).unwrap_err().kind(), ErrorKind::InvalidArgument);
    wal.truncate_before(all[10]).unwrap();
    assert_eq!(wal.range(all[9]..).unwrap_err().kind(), ErrorKind::Truncated);
    assert_eq!(lsns(wal.range(..all[12]).unwrap()), all[10..12]);
}

#[test]
fn a_batch_of_lsns_gives_their_records_in_the_callers_order() {
    let (wal, records) = mixed_log();
    let index = |n: usize| (n * 577) % records.len();
    let wanted: Vec<Lsn> = (0..300).map(|n| records[index(n)].0).collect();
    let found = wal.get_batch(&wanted).unwrap();
    assert_eq!(found.len(), 300);
    for (n, record) in found.iter().enumerate() {
        assert_eq!((record.lsn(), record.data()), (records[index(n)].0, &records[index(n)].1[..]));
    }
    assert_eq!(wal.get_batch(&[]).unwrap(), []);
    let twice = wal.get_batch(&[wanted[0], wanted[0]]).unwrap();
    assert_eq!(twice[0], twice[1]);
    for (bad, kind) in [
        (wanted[3].plus(8), ErrorKind::NotARecord),
        (wal.reserved_lsn(), ErrorKind::NotARecord),
        (Lsn::LIMIT, ErrorKind::OutOfRange),
    ] {
        let error = wal.get_batch(&[wanted[1], bad, wanted[2]]).unwrap_err();
        assert_eq!((error.kind(), error.lsn()), (kind, Some(bad)));
    }
}

/// Checks single records and both kinds of batches.
#[test]
fn the_last_record_is_found_below_marks_padding_and_new_epochs() {
    let wal = log_in_memory(1 << 16, 1 << 14);
    let last = |wal: &Wal| wal.last_record().unwrap().map(RecordBuf::into_data);
    assert_eq!(last(&wal), None);
    let first = wal.append(b"first").unwrap().lsn();
    assert_eq!(last(&wal).as_deref(), Some(&b"first"[..]));
    wal.checkpoint(first).unwrap();
    assert_eq!(last(&wal).as_deref(), Some(&b"first"[..]), "behind a mark");
    wal.append_batch(["one", "two"]).unwrap();
    assert_eq!(last(&wal).as_deref(), Some(&b"two"[..]));
    wal.append_many(["three", "four"]).unwrap();
    assert_eq!(last(&wal).as_deref(), Some(&b"four"[..]));
    wal.truncate_after(first).unwrap();
    assert_eq!(last(&wal).as_deref(), Some(&b"first"[..]), "below a new epoch without records");
    for n in 0..100_u8 {
        wal.append(&[n; 3000]).unwrap();
    }
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wal.append_with(6000, |_, _| panic!("becomes padding")).map(drop)
    }));
    assert_eq!(last(&wal), Some(vec![99; 3000]), "below padding");
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    assert_eq!(last(&wal), None, "nothing is left");
}

#[test]
fn the_last_record_is_found_after_a_close_and_after_a_kill() {
    let store = MemStore::new(1 << 16);
    let open = || Wal::with_store(store.clone(), Options::new().buffer_bytes(1 << 14)).unwrap();
    for n in 0..40_u8 {
        let wal = open();
        let found = wal.last_record().unwrap().map(RecordBuf::into_data);
        assert_eq!(found, n.checked_sub(1).map(|before| vec![before; 2000]));
        wal.append(&[n; 2000]).unwrap();
        if n % 2 == 0 {
            wal.close().unwrap();
        }
    }
}

/// Protection: the search for the last record begins in the last segment, also before any write.
#[test]
fn after_an_open_the_last_record_costs_only_the_last_segments() {
    let store = FaultyLog::new(8 << 10);
    let wal = store.open(Options::new().buffer_bytes(8 << 10));
    for n in 0..200_u8 {
        wal.append(&[n; 1000]).unwrap();
    }
    wal.close().unwrap();
    let wal = store.open(Options::new().buffer_bytes(8 << 10));
    let reads = store.count(READ);
    assert_eq!(wal.last_record().unwrap().unwrap().data(), [199; 1000]);
    let reads = store.count(READ) - reads;
    assert!(reads <= 8, "{reads} reads");
}

/// Protection: a reader of old records writes nothing, and reads about as much as it returns.
#[test]
fn a_few_old_records_cost_what_they_take() -> Result<()> {
    let (wal, store) = log_and_store();
    let old: Vec<Lsn> = (0..100_u8)
        .map(|n| wal.append(&[n; 100]).map(|ticket| ticket.lsn()))
        .collect::<Result<_>>()?;
    wal.flush_to_os(old[99])?;
    wal.append(b"only in the buffer")?;
    let (writes, reads) = (store.count(WRITE), store.count(READ));
    let mut records = wal.range(old[10]..old[13])?;
    while records.next()?.is_some() {}
    let mut from = wal.records_from(old[20])?;
    from.next()?;
    let mut tail = wal.tail_from(old[30])?;
    assert!(tail.next(std::time::Duration::ZERO)?.is_none(), "nothing is durable");
    assert_eq!(store.count(WRITE), writes, "nothing was written for them");
    let reads = store.count(READ) - reads;
    assert!(reads <= 9, "{reads} reads");
    // The rest is written once the iterator comes there.
    while from.next()?.is_some() {}
    assert!(store.count(WRITE) > writes);
    Ok(())
}

/// Counts the reads from here on, and their bytes.
fn count_reads(store: &FaultyLog) -> Arc<[AtomicU64; 2]> {
    let read = Arc::new([const { AtomicU64::new(0) }; 2]);
    let counted = Arc::clone(&read);
    store.watch(move |call| {
        if (call.kind, call.target) == READ {
            counted[0].fetch_add(1, Ordering::SeqCst);
            counted[1].fetch_add(call.len, Ordering::SeqCst);
        }
        Ok(())
    });
    read
}

/// Protection: a prepared segment is longer than the log, and nothing reads its zeros.
#[test]
fn a_tail_reads_few_bytes_beyond_the_records_that_it_returns() -> Result<()> {
    let (wal, store) = log_and_store();
    let read = count_reads(&store);
    let mut tail = wal.tail()?;
    for _ in 0..100 {
        wal.commit(&[7; 100])?;
        assert!(tail.next(Duration::ZERO)?.is_some());
    }
    let read = read[1].load(Ordering::SeqCst);
    assert!(read <= 100 * 2 * framed_bytes(100), "{read} bytes");
    Ok(())
}

/// Appends 100 groups of `count` records of `bytes` bytes, far from each other, and reads them by
/// one call. Returns how many reads that took, and their bytes.
fn read_groups(count: usize, bytes: usize) -> Result<[u64; 2]> {
    let (wal, store) = log_and_store();
    let mut lsns = Vec::new();
    for _ in 0..100 {
        for _ in 0..count {
            lsns.push(wal.append(&vec![7; bytes])?.lsn());
        }
        wal.append(&[8; 5000])?;
        wal.append(&[9; 5000])?;
    }
    wal.sync()?;
    let read = count_reads(&store);
    assert_eq!(wal.get_batch(&lsns)?.len(), lsns.len());
    Ok(read.each_ref().map(|read| read.load(Ordering::SeqCst)))
}

/// Protection: the first read of a record is not longer than the ones before.
#[test]
fn a_batch_of_scattered_records_reads_little_more_than_them() -> Result<()> {
    let [_, bytes] = read_groups(1, 1000)?;
    assert!(bytes <= 4096 + 100 * framed_bytes(1000), "{bytes} bytes");
    Ok(())
}

/// Protection: what is expected is a group, not a record.
#[test]
fn a_batch_of_groups_of_records_takes_a_read_for_each_group() -> Result<()> {
    let [reads, _] = read_groups(16, 200)?;
    // A group can lie on both sides of a segment's end.
    let segments = 100 * (10_000 + 16 * framed_bytes(200)) / (64 << 10);
    assert!(reads <= 100 + 2 * segments, "{reads} reads");
    Ok(())
}

#[test]
fn an_iterator_waits_for_a_hole_only_where_it_lies() {
    let (wal, _store) = log_and_store();
    let before = wal.append(b"before").unwrap().lsn();
    wal.flush_to_os(before).unwrap();
    with_a_hole(&wal, 8, |fill_it| {
        wal.append(b"behind").unwrap();
        let mut records = wal.records().unwrap();
        assert_eq!(records.next().unwrap().unwrap().data(), b"before");
        fill_it();
        assert_eq!(records.next().unwrap().unwrap().data().len(), 8);
        assert_eq!(records.next().unwrap().unwrap().data(), b"behind");
        assert!(records.next().unwrap().is_none());
    });
}

#[test]
fn an_iterator_with_an_unwritable_rest_returns_the_error_once() {
    for (effect, kind) in
        [(Effect::NoSpace, ErrorKind::NoSpace), (Effect::Eio, ErrorKind::Poisoned)]
    {
        let (wal, store) = log_and_store();
        let written = wal.append(b"written").unwrap().lsn();
        wal.flush_to_os(written).unwrap();
        wal.append(b"only in the buffer").unwrap();
        let mut records = wal.records().unwrap();
        store.set(WRITE, effect);
        assert_eq!(records.next().unwrap().unwrap().lsn(), written);
        assert_eq!(records.next().unwrap_err().kind(), kind);
        assert!(records.next().unwrap().is_none(), "once");
        store.set(WRITE, Effect::Pass);
    }
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
    let (_copy, path) = copy_as_killed(&path);
    let wal = small().open(&path).unwrap();
    check(&wal, 0);
    wal.commit(b"one").unwrap();
    check(&wal, 1);
}
