//! The log on files and in memory, through its public calls.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use palisade::inspect::{Inspector, Outcome};
use palisade::{
    BufferKind, ErrorKind, Lsn, MemStore, Options, Result, SyncPolicy, Wal, framed_bytes,
};
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("log");
    (dir, path)
}

fn small() -> Options {
    Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10)
}

fn contents(wal: &Wal) -> Vec<(Lsn, Vec<u8>)> {
    let mut records = wal.records().unwrap();
    let mut all = Vec::new();
    while let Some(record) = records.next().unwrap() {
        all.push((record.lsn(), record.data().to_vec()));
    }
    all
}

#[test]
fn what_was_appended_is_read_back_in_order() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let mut expected = Vec::new();
    for n in 0..2000_usize {
        let data = vec![n as u8; n % 300];
        expected.push((wal.append(&data)?.lsn(), data));
    }
    assert_eq!(contents(&wal), expected);
    for (lsn, data) in &expected {
        assert_eq!(wal.get(*lsn)?.data(), data);
    }
    wal.close()
}

#[test]
fn a_clean_close_opens_without_a_scan_and_goes_on_in_the_same_epoch() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let lsn = wal.commit(b"one")?;
    let epoch = wal.recovery_report().epoch;
    wal.close()?;
    let wal = small().open(&path)?;
    let report = wal.recovery_report();
    assert!(report.clean, "{report:?}");
    assert_eq!((report.records, report.epoch), (0, epoch));
    assert_eq!(wal.get(lsn)?.data(), b"one");
    let next = wal.commit(b"two")?;
    assert!(next > lsn);
    assert_eq!(contents(&wal).len(), 2);
    wal.close()
}

#[test]
fn a_dropped_log_is_recovered_whole_in_a_later_epoch() -> Result<()> {
    let (_dir, path) = folder();
    let mut expected = Vec::new();
    for round in 0..5_u64 {
        let wal = small().open(&path)?;
        assert_eq!(contents(&wal), expected, "round {round}: {:?}", wal.recovery_report());
        assert_eq!(wal.recovery_report().epoch, round + 1);
        for n in 0..400_u64 {
            let data = format!("{round} {n}").into_bytes();
            expected.push((wal.append(&data)?.lsn(), data));
        }
    }
    let wal = small().open(&path)?;
    assert_eq!(contents(&wal), expected);
    Ok(())
}

#[test]
fn an_open_without_appends_leaves_no_trace() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let lsn = wal.append(b"only")?.lsn();
    drop(wal);
    for _ in 0..4 {
        drop(small().open(&path)?);
    }
    let wal = small().open(&path)?;
    assert_eq!(contents(&wal), [(lsn, b"only".to_vec())]);
    Ok(())
}

#[test]
fn eight_threads_append_and_commit_and_nothing_is_lost() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let wal = &wal;
            scope.spawn(move || {
                for n in 0..500_u32 {
                    let data = [thread.to_le_bytes(), n.to_le_bytes()].concat();
                    if n % 7 == 0 {
                        wal.commit(&data).unwrap();
                        assert!(wal.durable_lsn() > Lsn::ZERO);
                    } else {
                        wal.append(&data).unwrap();
                    }
                }
            });
        }
    });
    drop(wal);
    let wal = small().open(&path)?;
    let mut next = [0_u32; 8];
    for (_, data) in contents(&wal) {
        let thread = u32::from_le_bytes(data[..4].try_into().unwrap()) as usize;
        let n = u32::from_le_bytes(data[4..].try_into().unwrap());
        assert_eq!(n, next[thread]);
        next[thread] += 1;
    }
    assert_eq!(next, [500; 8]);
    Ok(())
}

#[test]
fn records_of_every_size_up_to_the_limit_and_not_beyond() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let max = wal.max_record_bytes();
    for len in (0..max).step_by(97).chain([max]) {
        let lsn = wal.append(&vec![7; len])?.lsn();
        assert_eq!(wal.get(lsn)?.data().len(), len);
    }
    let before = wal.reserved_lsn();
    let error = wal.append(&vec![7; max + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(wal.reserved_lsn(), before);
    Ok(())
}

#[test]
fn batches_are_members_with_lsns_of_their_own() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let records: [&[u8]; 3] = [b"a", b"", b"long enough to matter"];
    let ticket = wal.append_batch(&records)?;
    let mut lsn = ticket.lsn();
    ticket.wait()?;
    for record in records {
        assert_eq!(wal.get(lsn)?.data(), record);
        lsn = lsn.plus(framed_bytes(record.len()));
    }
    assert_eq!(lsn, ticket.end_lsn());
    assert_eq!(wal.append_batch(&[]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(ticket);
    drop(wal);
    assert_eq!(contents(&small().open(&path)?).len(), 3);
    Ok(())
}

#[test]
fn vectored_tagged_and_in_place_appends() -> Result<()> {
    let wal = Wal::with_store(MemStore::new(1 << 16), Options::new().buffer_bytes(1 << 12))?;
    for n in 0..200 {
        let lsn = wal.append_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")])?.lsn();
        assert_eq!(wal.get(lsn)?.data(), b"abcde");
        let lsn = wal.append_tagged(n, b"t")?.lsn();
        assert_eq!(wal.get(lsn)?.tag(), n);
        let lsn = wal.append_with(100, |lsn, bytes| {
            assert_eq!(bytes, [0; 100]);
            bytes[..8].copy_from_slice(&lsn.as_u64().to_le_bytes());
        })?;
        let lsn = lsn.lsn();
        assert_eq!(wal.get(lsn)?.data()[..8], lsn.as_u64().to_le_bytes());
    }
    Ok(())
}

#[test]
fn a_panic_in_append_with_becomes_padding() -> Result<()> {
    let wal = Wal::with_store(MemStore::new(1 << 16), Options::new().buffer_bytes(1 << 12))?;
    let before = wal.append(b"before")?.lsn();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wal.append_with(64, |_, _| panic!("in the closure")).map(drop)
    }));
    assert!(panicked.is_err());
    let after = wal.commit(b"after")?;
    let lsns: Vec<Lsn> = contents(&wal).into_iter().map(|(lsn, _)| lsn).collect();
    assert_eq!(lsns, [before, after]);
    Ok(())
}

#[test]
fn lsns_that_are_no_records_are_refused_by_kind() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let first = wal.append(b"0123456789")?.lsn();
    let second = wal.append(b"second")?.lsn();
    let end = wal.reserved_lsn();
    let kind = |lsn: Lsn| wal.get(lsn).unwrap_err().kind();
    assert_eq!(kind(first.plus(8)), ErrorKind::NotARecord);
    assert_eq!(kind(first.plus(1)), ErrorKind::NotARecord);
    assert_eq!(kind(end), ErrorKind::NotARecord);
    assert_eq!(kind(end.plus(8)), ErrorKind::OutOfRange);
    assert_eq!(wal.wait_durable(end).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(wal.truncate_before(first.plus(8)).unwrap_err().kind(), ErrorKind::NotARecord);
    wal.truncate_before(second)?;
    assert_eq!(kind(first), ErrorKind::Truncated);
    assert_eq!(wal.records_from(first).unwrap_err().kind(), ErrorKind::Truncated);
    assert!(wal.records_from(end)?.next()?.is_none());
    assert_eq!(contents(&wal).len(), 1);
    Ok(())
}

#[test]
fn truncation_frees_segments_and_survives_a_reopen() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let mut lsns = Vec::new();
    for n in 0..3000_u32 {
        lsns.push(wal.append(&[n as u8; 200])?.lsn());
    }
    wal.sync()?;
    let count = |path| Inspector::open(path).unwrap().segments().unwrap().len();
    let before = count(&path);
    let pinned = wal.records()?;
    wal.truncate_before(lsns[2000])?;
    assert_eq!(count(&path), before, "an iterator pins its segments");
    drop(pinned);
    assert!(count(&path) < before);
    wal.checkpoint(lsns[2500])?;
    drop(wal);
    let wal = small().open(&path)?;
    assert_eq!(wal.head_lsn(), lsns[2000]);
    assert_eq!(wal.checkpoint_lsn(), lsns[2500]);
    assert_eq!(contents(&wal).len(), 1000);
    wal.close()?;
    assert_eq!(Inspector::open(&path)?.verify()?.outcome, Outcome::Clean);
    Ok(())
}

#[test]
fn a_closed_log_gives_closed_to_other_handles() -> Result<()> {
    let (_dir, path) = folder();
    let wal = small().open(&path)?;
    let other = wal.clone();
    wal.append(b"x")?;
    wal.close()?;
    assert_eq!(other.append(b"y").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(other.checkpoint(Lsn::new(32)).unwrap_err().kind(), ErrorKind::Closed);
    assert!(small().open(&path)?.recovery_report().clean);
    Ok(())
}

#[test]
fn every_policy_recovers_what_it_promises() -> Result<()> {
    let policies = [
        SyncPolicy::OnCommit,
        SyncPolicy::Always,
        SyncPolicy::Os,
        SyncPolicy::Interval(Duration::from_millis(1)),
    ];
    for policy in policies {
        let (_dir, path) = folder();
        let wal = small().sync_policy(policy).buffer(BufferKind::Heap).open(&path)?;
        let end = wal.append(b"record")?.end_lsn();
        match policy {
            SyncPolicy::Always => assert!(wal.durable_lsn() >= end),
            SyncPolicy::Os => assert!(wal.written_lsn() >= end),
            SyncPolicy::Interval(_) => {
                let mut tail = wal.tail()?;
                assert!(tail.next(Duration::from_secs(20))?.is_some(), "no sync came");
            }
            _ => assert_eq!(wal.stats().syncs, 0),
        }
        drop(wal);
        assert_eq!(contents(&small().open(&path)?).len(), 1);
    }
    Ok(())
}

#[test]
fn a_tail_follows_what_commits_make_durable() -> Result<()> {
    let wal = Wal::with_store(MemStore::new(1 << 16), Options::new().buffer_bytes(1 << 12))?;
    let follower = wal.clone();
    let reader = std::thread::spawn(move || -> Result<Vec<Vec<u8>>> {
        let mut tail = follower.tail()?;
        let mut seen = Vec::new();
        while seen.len() < 300 {
            let Some(record) = tail.next(Duration::from_secs(20))? else { break };
            seen.push(record.data().to_vec());
        }
        Ok(seen)
    });
    for n in 0..300_u32 {
        wal.commit(&n.to_le_bytes())?;
    }
    let seen = reader.join().unwrap()?;
    let expected: Vec<Vec<u8>> = (0..300_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(seen, expected);
    Ok(())
}

#[test]
fn callbacks_run_in_order_once_durable() -> Result<()> {
    let wal =
        Arc::new(Wal::with_store(MemStore::new(1 << 16), Options::new().buffer_bytes(1 << 12))?);
    let (sender, receiver) = std::sync::mpsc::channel();
    for n in 0..50_u32 {
        let lsn = wal.append(&n.to_le_bytes())?.lsn();
        let sender = sender.clone();
        let log = Arc::clone(&wal);
        wal.on_durable(lsn, move |result| {
            result.unwrap();
            assert!(log.durable_lsn() > lsn);
            sender.send(n).unwrap();
        })?;
    }
    for n in 0..50 {
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).unwrap(), n);
    }
    Ok(())
}
