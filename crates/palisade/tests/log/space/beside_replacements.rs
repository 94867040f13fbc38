//! Backups, holds and readers beside replacements, appends and truncations of the prefix: each has
//! a state that the log had, with everything that was acknowledged before the call.

use std::sync::atomic::AtomicUsize;

use crate::prelude::*;

/// Records below the ones that are replaced. Only truncations of the prefix remove them.
const BELOW: usize = 100;
/// Looks of each kind, and changes of the log; `PALISADE_SEEDS` replaces it.
const LOOKS: usize = 100;

/// What the log has: the records from number `head` on of those below, and the numbers above them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    head: usize,
    above: Vec<u64>,
}

/// A log, all states that it had or is about to have, and how many of them were acknowledged.
struct History {
    wal: Wal,
    below: Vec<Lsn>,
    states: Mutex<Vec<State>>,
    acknowledged: AtomicUsize,
    is_over: AtomicBool,
}

impl History {
    fn new(wal: Wal) -> History {
        let mut below = append(&wal, 0..BELOW as u64, 2000);
        let number = BELOW as u64;
        below.push(wal.commit(&record(number, 20)).unwrap());
        History {
            wal,
            below,
            states: Mutex::new(vec![State { head: 0, above: vec![number] }]),
            acknowledged: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Changes the log until the looks are over. `seed` fixes the changes.
    fn change(&self, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut first = self.below[BELOW];
        for number in BELOW as u64 + 1.. {
            // Relaxed: it only ends the loop.
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let mut state = self.states.lock().unwrap().last().unwrap().clone();
            let truncates = dice.once_in(8) && state.head + 1 < BELOW;
            let appends = dice.once_in(8);
            match () {
                () if truncates => state.head += 1,
                () if appends => state.above.push(number),
                () => state.above = vec![number; 1 + dice.below(3) as usize],
            }
            self.states.lock().unwrap().push(state.clone());
            if truncates {
                self.wal.truncate_before(self.below[state.head]).unwrap();
            } else if appends {
                self.wal.commit(&record(number, 20)).unwrap();
            } else {
                let datas = state.above.iter().map(|number| record(*number, 20));
                first = self.wal.replace_from(first, datas).unwrap()[0];
            }
            // Release: a look that sees it sees what is acknowledged.
            self.acknowledged.fetch_add(1, Ordering::Release);
        }
    }

    /// Calls `look` until it returns something, and checks that this is a state which the log had,
    /// and none before the ones that were acknowledged. `has_head`: so is its begin. An error must
    /// say that the log was truncated meanwhile. Returns how many there were.
    fn check(&self, has_head: bool, mut look: impl FnMut() -> palisade::Result<Vec<u64>>) -> usize {
        let mut disturbed = 0;
        loop {
            // Acquire: pairs with the Release in `change`.
            let acknowledged = self.acknowledged.load(Ordering::Acquire);
            let numbers = match look() {
                Ok(numbers) => numbers,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
                    disturbed += 1;
                    continue;
                }
            };
            let is_below = |number: &u64| *number < BELOW as u64;
            let (below, above): (Vec<u64>, Vec<u64>) = numbers.iter().partition(|n| is_below(n));
            let head = BELOW - below.len();
            assert!(below.iter().copied().eq(head as u64..BELOW as u64), "{numbers:?}");
            let states = self.states.lock().unwrap();
            let may_be = &states[acknowledged..];
            let fits = |state: &State| state.above == above && (state.head == head || !has_head);
            let newest = may_be.last();
            assert!(
                may_be.iter().any(fits),
                "{numbers:?} is no state from {:?} to {newest:?}",
                states[acknowledged]
            );
            return disturbed;
        }
    }
}

/// Ends the changes when it is dropped, also if a check fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // Relaxed: it only ends the loop.
        self.0.store(true, Ordering::Relaxed);
    }
}

fn numbers_until_error(mut records: palisade::Records) -> palisade::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    while let Some(record) = records.next()? {
        numbers.push(number_of(record.data()).expect("a record that nobody appended"));
    }
    Ok(numbers)
}

fn looks() -> usize {
    let looks = std::env::var("PALISADE_SEEDS").ok();
    looks.map_or(LOOKS, |looks| looks.parse().expect("PALISADE_SEEDS is a number"))
}

/// Looks at a log that changes, until both have happened as often as `looks` says, and prints how
/// often.
fn beside_changes(
    kind: &str,
    has_head: bool,
    look: impl Fn(&History, &Arc<dyn Disk>) -> palisade::Result<Vec<u64>>,
) {
    watch();
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let history = History::new(small().open_on(Arc::clone(&disk), "/log").unwrap());
    // Relaxed: a count.
    let changes = || history.acknowledged.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let _end = End(&history.is_over);
        scope.spawn(|| history.change(7));
        let (mut count, mut disturbed) = (0, 0);
        while count < looks() || changes() < looks() {
            disturbed += history.check(has_head, || look(&history, &disk));
            count += 1;
        }
        println!("{count} {kind} beside {} changes, {disturbed} disturbed", changes());
    });
}

#[test]
fn a_backup_beside_changes_has_all_that_was_acknowledged() {
    beside_changes("backups", true, |history, _| {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        history.wal.backup_on(Arc::clone(&disk), "/backup")?;
        let copy = small().open_mode(OpenMode::MustExist).open_on(disk, "/backup").unwrap();
        Ok(numbers(&copy))
    });
}

#[test]
fn a_hold_beside_changes_has_all_that_was_acknowledged() {
    beside_changes("holds", false, |history, _| {
        let hold = history.wal.hold(history.below[BELOW - 1])?;
        numbers_until_error(hold.records()?)
    });
}

#[test]
fn an_iterator_beside_changes_has_all_that_was_acknowledged() {
    beside_changes("iterators", true, |history, _| numbers_until_error(history.wal.records()?));
    beside_changes("ranges", false, |history, _| {
        numbers_until_error(history.wal.range(history.below[BELOW - 1]..)?)
    });
}

#[test]
fn a_tail_beside_changes_has_all_that_was_acknowledged() {
    beside_changes("tails", false, |history, _| {
        let mut tail = history.wal.tail_from(history.below[BELOW - 1])?;
        let mut numbers = Vec::new();
        while let Some(record) = tail.next(Duration::ZERO)? {
            numbers.push(number_of(record.data()).expect("a record that nobody appended"));
        }
        Ok(numbers)
    });
}

#[test]
fn another_process_beside_changes_has_all_acknowledged_records() {
    beside_changes("foreign readers", false, |_, disk| {
        numbers_until_error(Inspector::open_on(Arc::clone(disk), "/log")?.records(None)?)
    });
}

#[test]
fn the_log_is_unchanged_while_a_replacement_waits_for_the_disk() {
    for calls in [MAKE_SEGMENT, NAME_SEGMENT, SAVE_STATE] {
        let (wal, store) = new_log(SEGMENT_BYTES, small());
        let mut records = append_bytes(&wal, 0..5, 100);
        wal.sync().unwrap();
        let live = wal.live_bytes();
        let hold = wal.hold(records[0].0).unwrap();
        let check = |records: &Entries| {
            let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
            wal.backup_on(Arc::clone(&disk), "/backup").unwrap();
            let copy = small().open_mode(OpenMode::MustExist).open_on(disk, "/backup").unwrap();
            assert_eq!(contents(&copy), *records);
            assert_eq!(read_until_error(hold.records().unwrap()).0, *records);
            assert_eq!(contents(&wal), *records);
        };
        store.set(calls, Effect::Hold);
        thread::scope(|scope| {
            let (wal, place) = (&wal, records[3].0);
            let replacing = scope.spawn(move || wal.replace_from(place, ["new"]).unwrap());
            until(|| store.is_holding(calls));
            check(&records);
            assert_eq!((wal.live_bytes(), wal.space().unwrap().live_bytes), (live, live));
            store.set(calls, Effect::Pass);
            let lsns = replacing.join().unwrap();
            records.truncate(3);
            records.push((lsns[0], b"new".to_vec()));
        });
        check(&records);
    }
}

/// A log with one record, which `replace` replaces by another.
fn vote(disk: &FaultDisk) -> (Wal, impl Fn() + Clone + Send + Sync + 'static) {
    watch();
    let wal = small().open_on(Arc::new(disk.clone()), "/log").unwrap();
    let place = Arc::new(Mutex::new(wal.commit(b"vote").unwrap()));
    let replace = {
        let wal = wal.clone();
        move || {
            let mut place = place.lock().unwrap();
            *place = wal.replace_from(*place, ["vote"]).unwrap()[0];
        }
    };
    (wal, replace)
}

/// What another process finds in a log that always has one record.
fn check_foreign(disk: Arc<dyn Disk>) -> palisade::Result<()> {
    let log = Inspector::open_on(disk, "/log")?;
    let mut records = log.records(None)?;
    let record = records.next()?.expect("the log has a vote");
    assert_eq!(record.data(), b"vote");
    let next = record.next_lsn();
    drop(records);
    let verdict = log.verify()?;
    assert_eq!(verdict.records, 1, "{verdict:?}");
    assert_ne!(verdict.outcome, Outcome::Corrupt, "{verdict:?}");
    assert!(log.end()? >= next);
    let mut salvage = log.salvage(None)?;
    let mut salvaged = 0;
    while let Some(found) = salvage.next()? {
        salvaged += usize::from(matches!(found, Salvaged::Record(_)));
    }
    assert_eq!(salvaged, 1);
    Ok(())
}

#[test]
fn at_each_call_of_a_replacement_another_process_finds_a_record() {
    let below: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let disk = FaultDisk::new(Arc::clone(&below));
    let (wal, replace) = vote(&disk);
    let (log, looks) = (wal.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&looks);
    disk.watch(move |_| {
        check_foreign(Arc::clone(&below)).unwrap();
        assert!(log.live_bytes() > 0);
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    (0..5).for_each(|_| replace());
    assert!(looks.load(Ordering::Relaxed) > 50, "{looks:?}");
}

/// At each of its calls, the log's writer replaces the record.
#[test]
fn a_replacement_at_any_call_of_another_process_hides_no_record() {
    for replacements in [1, 3] {
        for call in 0.. {
            let below: Arc<dyn Disk> = Arc::new(MemDisk::new());
            let (_wal, replace) = vote(&FaultDisk::new(Arc::clone(&below)));
            let disk = FaultDisk::new(below);
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            disk.watch(move |_| {
                if counted.fetch_add(1, Ordering::Relaxed) == call {
                    (0..replacements).for_each(|_| replace());
                }
                Ok(())
            });
            if let Err(error) = check_foreign(Arc::new(disk)) {
                assert_eq!(error.kind(), ErrorKind::Truncated, "at call {call}: {error}");
            }
            if calls.load(Ordering::Relaxed) <= call {
                assert!(call > 20, "{call}");
                break;
            }
        }
    }
}

/// The reader has returned records that the writer removes, or the head moves over what it has not
/// returned: it does not end as if the log did.
#[test]
fn a_truncation_at_any_call_of_a_foreign_reader_is_not_the_end() {
    for replaces in [false, true] {
        let mut truncated = 0;
        for call in 0..200 {
            let below: Arc<dyn Disk> = Arc::new(MemDisk::new());
            let wal = small().open_on(Arc::clone(&below), "/log").unwrap();
            let lsns = append(&wal, 0..100, 2000);
            wal.sync().unwrap();
            let disk = FaultDisk::new(below);
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            disk.watch(move |_| {
                if counted.fetch_add(1, Ordering::Relaxed) != call {
                } else if replaces {
                    wal.replace_from(lsns[10], [record(200, 20)]).unwrap();
                } else {
                    wal.truncate_before(lsns[90]).unwrap();
                }
                Ok(())
            });
            let log = Inspector::open_on(Arc::new(disk), "/log").unwrap();
            match log.records(None).and_then(numbers_until_error) {
                Ok(numbers) => {
                    let replaced: Vec<u64> = (0..10).chain([200]).collect();
                    let is_after =
                        if replaces { numbers == replaced } else { numbers == all(100)[90..] };
                    assert!(numbers == all(100) || is_after, "at call {call}: {numbers:?}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Truncated, "at call {call}: {error}");
                    truncated += 1;
                }
            }
            if calls.load(Ordering::Relaxed) <= call {
                break;
            }
        }
        assert!(truncated > 0);
    }
}

/// At each of its calls, the log's writer replaces the last records and uses the file of their
/// segment for another one.
#[test]
fn a_verification_beside_a_reused_file_counts_one_state() {
    let mut counts = BTreeSet::new();
    for call in 0.. {
        let below: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let wal = heap().open_on(Arc::clone(&below), "/log").unwrap();
        let lsns = append(&wal, 0..40, 2000);
        wal.flush_to_os(lsns[39]).unwrap();
        let last = lsns[39].segment(SEGMENT_BYTES);
        let disk = FaultDisk::new(Arc::clone(&below));
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        disk.watch(move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) == call {
                let folder = below.open_folder("/log".as_ref(), 0o600)?;
                let file = folder.open(&format!("segment-{last:020}"), Access::Write)?;
                wal.replace_from(lsns[20], [record(200, 20)]).unwrap();
                file.write_at(0, &[IoSlice::new(&[0; SEGMENT_BYTES as usize])])?;
            }
            Ok(())
        });
        let verdict = Inspector::open_on(Arc::new(disk), "/log").unwrap().verify().unwrap();
        assert_ne!(verdict.outcome, Outcome::Corrupt, "at call {call}: {verdict:?}");
        assert!([21, 40].contains(&verdict.records), "at call {call}: {verdict:?}");
        counts.insert(verdict.records);
        if calls.load(Ordering::Relaxed) <= call {
            break;
        }
    }
    assert_eq!(counts.len(), 2);
}
