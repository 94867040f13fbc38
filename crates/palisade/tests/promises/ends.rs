//! Truncation of the suffix, for Raft: what is cut stays gone, what is kept stays there, appends
//! meanwhile land behind the cut, and nobody gets `Ok` for what is gone.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use palisade::{Error, ErrorKind, Lsn, Options, SyncPolicy, Wal, framed_bytes};

use crate::executor::block_on;
use crate::faulty::{Fault, FaultyStore, Op};
use crate::folder::{contents, copy_as_killed, folder, place_of, small};
use crate::holes::with_a_hole;
use crate::watchdog::{guarded, until};

const SEGMENT_BYTES: u64 = 8 << 10;

type Entries = Vec<(Lsn, Vec<u8>)>;

fn options() -> Options {
    Options::new().buffer_bytes(4 << 10)
}

fn open(store: &FaultyStore) -> Wal {
    Wal::with_store(store.clone(), options()).unwrap()
}

/// Appends records of `len` bytes, each with a number of its own.
fn append(wal: &Wal, from: u8, to: u8, len: usize) -> Entries {
    let datas = (from..to).map(|n| vec![n; len]);
    datas.map(|data| (wal.append(&data).unwrap().lsn(), data)).collect()
}

fn is_truncated<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    result.unwrap_err().kind() == ErrorKind::Truncated
}

#[test]
fn what_is_cut_is_gone_and_what_is_kept_is_there_in_every_later_life() {
    guarded(|| {
        // From a cut in the first segment to one that leaves the last record but one.
        for kept in [0, 3, 35, 38, 77, 98] {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = open(&store);
            let mut expected = append(&wal, 0, 100, 180);
            let cut = expected.split_off(kept + 1);
            let highest = wal.reserved_lsn();
            wal.truncate_after(expected[kept].0).unwrap();
            assert_eq!(contents(&wal).unwrap(), expected);
            assert!(wal.reserved_lsn() >= highest && wal.durable_lsn() == wal.reserved_lsn());
            // Shorter ones: none of the old may show between or behind them.
            expected.extend(append(&wal, 100, 120, 40));
            assert!(expected[kept + 1].0 >= highest, "no LSN is used twice");
            assert_eq!(contents(&wal).unwrap(), expected);
            store.kill();
            drop(wal);
            let mut store = store.next_life();
            for _ in 0..3 {
                let wal = open(&store);
                assert_eq!(contents(&wal).unwrap(), expected);
                for (lsn, _) in &cut {
                    assert!(is_truncated(wal.get(*lsn)) && is_truncated(wal.wait_durable(*lsn)));
                    let first = wal.iter_from(*lsn).unwrap().next().unwrap().map(|next| next.lsn());
                    assert_eq!(first, Some(expected[kept + 1].0));
                }
                store.kill();
                drop(wal);
                store.inner.lose_power();
                store = store.next_life();
            }
        }
    });
}

#[test]
fn an_epoch_that_stays_empty_and_a_clean_end_keep_the_cut() {
    guarded(|| {
        for ends_cleanly in [false, true] {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = open(&store);
            let mut expected = append(&wal, 0, 10, 100);
            wal.sync().unwrap();
            wal.truncate_after(expected[4].0).unwrap();
            expected.truncate(5);
            if ends_cleanly {
                wal.close().unwrap();
            } else {
                store.kill();
                drop(wal);
            }
            for _ in 0..3 {
                let store = store.next_life();
                let wal = open(&store);
                assert_eq!(contents(&wal).unwrap(), expected);
                store.kill();
            }
        }
    });
}

#[test]
fn cuts_reach_back_over_epochs_and_over_earlier_cuts() {
    guarded(|| {
        let mut store = FaultyStore::new(SEGMENT_BYTES);
        let mut expected = Entries::new();
        for life in 0..4 {
            let wal = open(&store);
            expected.extend(append(&wal, life * 10, life * 10 + 10, 100));
            wal.truncate_after(expected[expected.len() - 3].0).unwrap();
            expected.truncate(expected.len() - 2);
            store.kill();
            store = store.next_life();
        }
        let wal = open(&store);
        assert_eq!(contents(&wal).unwrap(), expected);
        // Into the second life, then into the first, the running epoch being empty.
        for kept in [12, 5] {
            wal.truncate_after(expected[kept].0).unwrap();
            expected.truncate(kept + 1);
            assert_eq!(contents(&wal).unwrap(), expected);
        }
        expected.extend(append(&wal, 90, 95, 10));
        store.kill();
        drop(wal);
        assert_eq!(contents(&open(&store.next_life())).unwrap(), expected);
    });
}

#[test]
fn a_cut_behind_the_last_record_changes_nothing() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let expected = append(&wal, 0, 5, 100);
        let last = expected[4].0;
        let end = wal.reserved_lsn();
        wal.truncate_after(last).unwrap();
        assert_eq!((wal.reserved_lsn(), wal.durable_lsn()), (end, end));
        store.kill();
        drop(wal);
        let store = store.next_life();
        let wal = open(&store);
        let base = wal.reserved_lsn();
        wal.truncate_after(last).unwrap();
        assert_eq!(wal.reserved_lsn(), base, "the running epoch is empty");
        assert_eq!(contents(&wal).unwrap(), expected);
        assert_eq!(store.calls(Op::BeginEpoch), 1);
    });
}

#[test]
fn what_is_no_record_to_keep_is_refused_and_nothing_is_changed() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let before = append(&wal, 0, 40, 200);
        let batch = wal.append_batch(&[b"one", b"two", b"three"]).unwrap().lsn();
        let second = batch.plus(framed_bytes(3));
        let third = second.plus(framed_bytes(3));
        let behind = wal.append(b"behind").unwrap().lsn();
        wal.truncate_before(before[10].0).unwrap();
        let expected = contents(&wal).unwrap();
        let end = wal.reserved_lsn();
        let cases = [
            (before[9].0, ErrorKind::Truncated),
            (before[20].0.plus(8), ErrorKind::NotARecord),
            (Lsn::new(batch.as_u64() - 24), ErrorKind::NotARecord),
            (batch, ErrorKind::InvalidArgument),
            (second, ErrorKind::InvalidArgument),
            (end, ErrorKind::NotARecord),
            (end.plus(8), ErrorKind::OutOfRange),
        ];
        for (lsn, kind) in cases {
            let error = wal.truncate_after(lsn).unwrap_err();
            assert_eq!((error.kind(), error.lsn()), (kind, Some(lsn)), "{error}");
        }
        assert_eq!(contents(&wal).unwrap(), expected);
        assert_eq!(store.calls(Op::BeginEpoch), 1);
        wal.truncate_after(third).unwrap();
        assert_eq!(contents(&wal).unwrap(), expected[..expected.len() - 1]);
        assert!(is_truncated(wal.truncate_after(behind)));
        wal.clone().close().unwrap();
        assert_eq!(wal.truncate_after(third).unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn nobody_gets_ok_for_what_was_cut() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let kept = wal.append(b"kept").unwrap();
        let waited = wal.append(b"cut").unwrap();
        let awaited = wal.append(b"cut, too").unwrap();
        let lsn = awaited.lsn();
        let mut old_records = wal.iter().unwrap();
        let mut behind = wal.tail().unwrap().written();
        let mut beyond = wal.tail().unwrap().written();
        for _ in 0..3 {
            beyond.next(Duration::ZERO).unwrap().unwrap();
        }
        assert_eq!(behind.next(Duration::ZERO).unwrap().unwrap().lsn(), kept.lsn());
        wal.truncate_after(kept.lsn()).unwrap();
        assert!(!waited.is_durable() && kept.is_durable());
        assert!(is_truncated(waited.wait()));
        assert!(is_truncated(waited.wait_timeout(Duration::ZERO)));
        assert!(is_truncated(block_on(awaited)));
        assert!(is_truncated(wal.get(lsn)) && is_truncated(wal.wait_durable(lsn)));
        assert!(is_truncated(wal.flush_to_os(lsn)) && is_truncated(wal.on_durable(lsn, |_| ())));
        assert!(is_truncated(wal.truncate_before(lsn)) && is_truncated(wal.checkpoint(lsn)));
        assert_eq!(kept.wait().unwrap(), kept.lsn());
        assert_eq!(old_records.next().unwrap().unwrap().lsn(), kept.lsn());
        assert!(is_truncated(old_records.next()));
        assert!(old_records.next().unwrap().is_none(), "an iterator is at its end after an error");
        assert!(is_truncated(beyond.next(Duration::ZERO)));
        let next = wal.commit(b"next").unwrap();
        assert_eq!(behind.next(Duration::ZERO).unwrap().unwrap().lsn(), next);
        wal.checkpoint(next).unwrap();
        assert!(is_truncated(wal.checkpoint(lsn)), "also below a later checkpoint");
    });
}

#[test]
fn a_head_beyond_a_cut_acknowledges_nothing() {
    guarded(|| {
        // One cut; two in a row; one that takes back an earlier one's epoch.
        for kept in [&[0][..], &[0, 3], &[3, 0]] {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = open(&store);
            let first = wal.append(b"first").unwrap().lsn();
            let mut cut = Vec::new();
            for &kept in kept {
                let mut lsn = first;
                for n in 0..6 {
                    let ticket = wal.append(&[n; 300]).unwrap();
                    if n < kept {
                        lsn = ticket.lsn();
                    } else {
                        cut.push(ticket);
                    }
                }
                wal.truncate_after(lsn).unwrap();
            }
            let behind = wal.append(b"behind").unwrap().lsn();
            wal.truncate_before(behind).unwrap();
            for ticket in cut {
                let lsn = ticket.lsn();
                assert!(!ticket.is_durable());
                assert!(is_truncated(ticket.wait()));
                assert!(is_truncated(ticket.wait_timeout(Duration::ZERO)));
                assert!(is_truncated(block_on(ticket)));
                assert!(is_truncated(wal.wait_durable(lsn)) && is_truncated(wal.get(lsn)));
                assert!(is_truncated(wal.flush_to_os(lsn)));
                assert!(is_truncated(wal.on_durable(lsn, |_| ())));
            }
            assert_eq!(contents(&wal).unwrap(), [(behind, b"behind".to_vec())]);
        }
    });
}

#[test]
fn readers_under_way_are_told_of_a_cut_that_the_head_has_passed() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let kept = wal.append(b"kept").unwrap().lsn();
        for n in 0..20 {
            wal.append(&[n; 300]).unwrap();
        }
        wal.sync().unwrap();
        let mut records = wal.iter().unwrap();
        let mut beyond = wal.tail().unwrap();
        for _ in 0..10 {
            records.next().unwrap().unwrap();
            beyond.next(Duration::ZERO).unwrap().unwrap();
        }
        wal.truncate_after(kept).unwrap();
        let behind = wal.commit(b"behind").unwrap();
        wal.truncate_before(behind).unwrap();
        assert!(is_truncated(records.next()));
        assert!(is_truncated(beyond.next(Duration::ZERO)));
    });
}

#[test]
fn a_follower_gets_what_is_kept_before_a_cut_that_the_head_has_passed() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let first = wal.commit(b"first").unwrap();
        let mut tail = wal.tail().unwrap();
        assert_eq!(tail.next(Duration::ZERO).unwrap().unwrap().lsn(), first);
        assert!(tail.next(Duration::ZERO).unwrap().is_none());
        let kept = append(&wal, 0, 5, 100);
        wal.append(b"cut").unwrap();
        wal.truncate_after(kept[4].0).unwrap();
        let behind = wal.commit(b"behind").unwrap();
        wal.truncate_before(behind).unwrap();
        for (lsn, data) in kept.iter().chain(&[(behind, b"behind".to_vec())]) {
            let record = tail.next(Duration::ZERO).unwrap().unwrap();
            assert_eq!((record.lsn(), record.data()), (*lsn, &data[..]));
        }
    });
}

#[test]
fn a_checkpoint_is_lowered_to_the_cut() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let entries = append(&wal, 0, 10, 100);
        wal.checkpoint(entries[8].0).unwrap();
        wal.truncate_after(entries[3].0).unwrap();
        assert_eq!(wal.checkpoint_lsn(), entries[4].0, "the end of what is kept");
        store.kill();
        drop(wal);
        let wal = open(&store.next_life());
        assert_eq!(wal.checkpoint_lsn(), entries[4].0);
        assert_eq!(contents(&wal).unwrap(), entries[..4]);
    });
}

#[test]
fn appends_wait_while_the_log_is_cut_and_land_behind_the_cut() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let mut expected = append(&wal, 0, 5, 100);
        store.set(Op::BeginEpoch, Fault::Hold);
        thread::scope(|scope| {
            let (log, kept) = (&wal, expected[2].0);
            let cutter = scope.spawn(move || log.truncate_after(kept));
            until(|| store.is_holding(Op::BeginEpoch));
            let end = wal.reserved_lsn();
            assert_eq!(wal.try_append(b"no").unwrap_err().kind(), ErrorKind::NoRoom);
            let appenders: Vec<_> = (0..4_u8)
                .map(|n| (n, scope.spawn(move || log.commit(&[n; 50]).unwrap())))
                .collect();
            let batch = scope.spawn(|| wal.append_batch(&[b"a", b"b"]).unwrap().lsn());
            assert_eq!(wal.reserved_lsn(), end, "nothing is reserved meanwhile");
            store.set(Op::BeginEpoch, Fault::None);
            cutter.join().unwrap().unwrap();
            expected.truncate(3);
            let mut behind: Entries = Vec::new();
            for (n, appender) in appenders {
                behind.push((appender.join().unwrap(), vec![n; 50]));
            }
            let batch = batch.join().unwrap();
            behind.push((batch, b"a".to_vec()));
            behind.push((batch.plus(framed_bytes(1)), b"b".to_vec()));
            behind.sort();
            assert!(behind[0].0 >= end);
            expected.extend(behind);
        });
        assert_eq!(contents(&wal).unwrap(), expected);
        store.kill();
        drop(wal);
        assert_eq!(contents(&open(&store.next_life())).unwrap(), expected);
    });
}

#[test]
fn owners_beyond_the_cut_finish_and_their_waiters_are_served() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let kept = wal.append(b"kept").unwrap().lsn();
        let (sender, receiver) = channel();
        with_a_hole(&wal, 100, |fill_it| {
            thread::scope(|scope| {
                let waiter = scope.spawn(|| wal.commit(b"beyond the hole"));
                until(|| wal.reserved_lsn() >= kept.plus(2 * 24 + 100));
                let last = Lsn::new(wal.reserved_lsn().as_u64() - 8);
                wal.on_durable(last, move |result| sender.send(result).unwrap()).unwrap();
                let cutter = scope.spawn(|| wal.truncate_after(kept));
                until(|| wal.try_append(b"").is_err());
                fill_it();
                cutter.join().unwrap().unwrap();
                let served = waiter.join().unwrap();
                assert!(served.is_ok() || is_truncated(served), "served before the cut, or cut");
            });
        });
        let called = receiver.recv().unwrap();
        assert!(called.is_ok() || is_truncated(called));
        assert_eq!(contents(&wal).unwrap(), [(kept, b"kept".to_vec())]);
    });
}

#[test]
fn lack_of_space_for_the_new_epoch_changes_nothing() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        let mut expected = append(&wal, 0, 5, 100);
        for op in [Op::BeginEpoch, Op::Prepare] {
            store.set(op, Fault::Full);
            let is_needed = op == Op::BeginEpoch;
            if !is_needed {
                while wal
                    .try_append(&[9; 150])
                    .map(|t| expected.push((t.lsn(), vec![9; 150])))
                    .is_ok()
                {}
            }
            assert_eq!(wal.truncate_after(expected[1].0).unwrap_err().kind(), ErrorKind::NoSpace);
            store.set(op, Fault::None);
            expected.push((wal.commit(b"goes on").unwrap(), b"goes on".to_vec()));
            assert_eq!(contents(&wal).unwrap(), expected);
        }
        wal.truncate_after(expected[1].0).unwrap();
        assert_eq!(contents(&wal).unwrap(), expected[..2]);
    });
}

#[test]
fn a_failure_after_the_new_epoch_may_have_begun_poisons_and_nobody_hangs() {
    guarded(|| {
        let ops = [Op::BeginEpoch, Op::MarkDurable, Op::PassBufferOn, Op::SaveState];
        for (op, fault) in ops.into_iter().flat_map(|op| [(op, Fault::Broken), (op, Fault::Panic)])
        {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = open(&store);
            let expected = append(&wal, 0, 5, 100);
            wal.sync().unwrap();
            store.set(op, Fault::Hold);
            thread::scope(|scope| {
                let cutter = scope.spawn(|| {
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        wal.truncate_after(expected[1].0)
                    }))
                });
                until(|| store.is_holding(op));
                let appender = scope.spawn(|| wal.append(b"meanwhile").map(drop));
                store.set(op, fault);
                if let Ok(result) = cutter.join().unwrap() {
                    assert_eq!(result.unwrap_err().kind(), ErrorKind::Poisoned, "{op:?}");
                }
                assert_eq!(appender.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
            });
            store.kill();
            drop(wal);
            let found = contents(&open(&store.next_life())).unwrap();
            let whole = if op == Op::BeginEpoch { 5 } else { 2 };
            assert_eq!(found, expected[..whole], "{op:?}");
        }
    });
}

#[test]
fn a_kill_or_loss_of_power_at_every_call_of_a_truncation_leaves_the_log_whole_or_cut() {
    guarded(|| {
        for (calls, loses_power) in (0..12).flat_map(|calls| [(calls, false), (calls, true)]) {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = open(&store);
            let mut expected = append(&wal, 0, 60, 200);
            wal.sync().unwrap();
            let kept = 20;
            let store = {
                let before = store.total();
                store.die_after(before + calls);
                let result = wal.truncate_after(expected[kept].0);
                let was_cut = result.is_ok();
                if was_cut {
                    // Shorter ones than those that were cut.
                    expected.truncate(kept + 1);
                }
                store.kill();
                drop(wal);
                if loses_power {
                    store.inner.lose_power();
                }
                store.next_life()
            };
            let found = contents(&open(&store)).unwrap();
            let is_cut = found == expected[..=kept];
            assert!(is_cut || found == expected, "{calls} calls: {} records", found.len());
            // What an open reported stays: also the recovery is killed, and power lost.
            store.kill();
            store.inner.lose_power();
            let again = contents(&open(&store.next_life())).unwrap();
            assert_eq!(again, found, "{calls} calls");
        }
    });
}

#[test]
fn a_close_beside_a_truncation_makes_a_clean_end() {
    guarded(|| {
        for op in [Op::BeginEpoch, Op::PassBufferOn, Op::SaveState] {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = open(&store);
            let expected = append(&wal, 0, 10, 100);
            wal.sync().unwrap();
            store.set(op, Fault::Hold);
            thread::scope(|scope| {
                let cutter = scope.spawn(|| wal.truncate_after(expected[4].0));
                until(|| store.is_holding(op));
                let closer = scope.spawn(|| wal.clone().close());
                store.set(op, Fault::None);
                cutter.join().unwrap().unwrap();
                closer.join().unwrap().unwrap();
            });
            drop(wal);
            let wal = open(&store.next_life());
            assert!(wal.recovery_report().clean);
            assert_eq!(contents(&wal).unwrap(), expected[..5]);
        }
    });
}

#[test]
fn truncations_of_both_ends_and_appends_of_many_threads_leave_one_log() {
    guarded(|| {
        for policy in [SyncPolicy::OnCommit, SyncPolicy::Always] {
            let store = FaultyStore::new(SEGMENT_BYTES);
            let wal = Wal::with_store(store.clone(), options().sync_policy(policy)).unwrap();
            let mark = wal.commit(b"mark").unwrap();
            thread::scope(|scope| {
                let appenders: Vec<_> = (1..=3_u8)
                    .map(|thread| {
                        let wal = &wal;
                        scope.spawn(move || {
                            for n in 0..400_u32 {
                                let data = [&[thread][..], &n.to_le_bytes()].concat();
                                match wal.append(&data) {
                                    Err(error) => assert_eq!(error.kind(), ErrorKind::Truncated),
                                    Ok(ticket) if n % 16 == 0 => drop(ticket.wait()),
                                    Ok(_) => {}
                                }
                            }
                        })
                    })
                    .collect();
                let mut kept = mark;
                while !appenders.iter().all(thread::ScopedJoinHandle::is_finished) {
                    let Ok(ticket) = wal.append(b"kept") else { continue };
                    let lsn = ticket.lsn();
                    drop(ticket);
                    wal.truncate_after(lsn).unwrap();
                    wal.truncate_before(kept).unwrap();
                    kept = lsn;
                }
            });
            let last = wal.commit(b"last").unwrap();
            let found = contents(&wal).unwrap();
            assert_eq!(found.last().unwrap().0, last);
            let mut latest = [None; 4];
            for (lsn, data) in &found {
                if data.len() == 5 {
                    let n = u32::from_le_bytes(data[1..].try_into().unwrap());
                    let before = latest[usize::from(data[0])].replace(n);
                    assert!(before < Some(n), "{lsn}: in each thread's order");
                }
            }
            store.kill();
            drop(wal);
            assert_eq!(contents(&open(&store.next_life())).unwrap(), found);
        }
    });
}

#[test]
fn a_log_on_files_is_cut_and_goes_on_after_a_kill() {
    guarded(|| {
        let (_dir, path) = folder();
        let wal = small().open(&path).unwrap();
        let mut expected = append(&wal, 0, 200, 3000);
        for kept in [150, 40] {
            wal.truncate_after(expected[kept].0).unwrap();
            expected.truncate(kept + 1);
            expected.extend(append(&wal, 200, 230, 500));
            wal.truncate_before(expected[20].0).unwrap();
            assert_eq!(contents(&wal).unwrap(), expected[20..]);
            let (_copy_dir, copy) = copy_as_killed(&path);
            let reopened = small().open(&copy).unwrap();
            assert_eq!(contents(&reopened).unwrap(), expected[20..]);
            assert!(reopened.recovery_report().buffer_note.is_none());
        }
        // The old bytes are still in the segment that holds the cut, and stay unread.
        wal.close().unwrap();
        let wal = small().open(&path).unwrap();
        assert!(wal.recovery_report().clean);
        assert_eq!(contents(&wal).unwrap(), expected[20..]);
    });
}

#[test]
fn a_rotten_header_of_the_new_epoch_is_refused_and_the_cut_records_stay_gone() {
    guarded(|| {
        let (_dir, path) = folder();
        let wal = small().open(&path).unwrap();
        let entries = append(&wal, 0, 50, 3000);
        wal.truncate_after(entries[10].0).unwrap();
        let base = wal.reserved_lsn();
        wal.commit(b"behind the cut").unwrap();
        drop(wal);
        let (file, _) = place_of(&path, base, 64 << 10);
        crate::folder::flip(&file, 100);
        let error = small().open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    });
}

#[test]
fn an_overtaken_truncation_of_the_head_succeeds() {
    guarded(|| {
        let store = FaultyStore::new(SEGMENT_BYTES);
        let wal = open(&store);
        for round in 0..50_u8 {
            let entries = append(&wal, 0, 60, 100);
            thread::scope(|scope| {
                let truncations = [3, 7, 20, 45].map(|at| {
                    let (wal, lsn) = (&wal, entries[at].0);
                    scope.spawn(move || wal.truncate_before(lsn))
                });
                for truncation in truncations {
                    truncation.join().unwrap().unwrap();
                }
            });
            assert_eq!(wal.head_lsn(), entries[45].0, "round {round}");
        }
    });
}
