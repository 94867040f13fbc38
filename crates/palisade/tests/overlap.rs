//! Many threads on a log whose durable writes overlap, come down in any order, lack space now and
//! then, fail for good or lose power: what was acknowledged is there afterwards, and nobody hangs.
//!
//! `PALISADE_FIRST_SEED` and `PALISADE_SEEDS` say which seeds are run. A seed chooses what the threads
//! and the store do; the order in which they come is chance.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, Write as _};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use palisade::sim::{Fault, FaultKind, SimDisk};
use palisade::store::{Epoch, OldBuffer, ReadStore, Segment, State, Store};
use palisade::{
    Error, ErrorKind, FileOptions, FileStore, Lsn, MemStore, Options, Result, SyncMethod,
    SyncPolicy, Ticket, Wal,
};
use palisade_core::Memory;

#[path = "common/executor.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod executor;
#[path = "common/watchdog.rs"]
mod watchdog;

use executor::block_on;
use watchdog::{guarded, until};

const THREADS: u64 = 16;
/// What each thread does in a life.
const STEPS: u64 = 60;
const LIVES: u64 = 3;
const SEGMENT_BYTES: u64 = 64 << 10;

/// SplitMix64, shared by the threads of a store.
#[derive(Debug)]
struct Dice(AtomicU64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(AtomicU64::new(seed.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    fn below(&self, end: u64) -> u64 {
        // Relaxed: numbers, nothing else.
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What befalls a store's calls.
#[derive(Debug)]
struct Weather {
    dice: Dice,
    /// So many calls yet are refused for lack of space.
    refusals: AtomicU64,
    /// So many calls yet until all of them fail; none left: they fail.
    until_broken: AtomicU64,
    /// Nothing befalls an open: that is tried elsewhere.
    is_calm: AtomicBool,
    gates: Gates,
    syncing: Mutex<()>,
}

/// Durable writes that are held, by where they begin, and those that have come.
#[derive(Debug, Default)]
struct Gates {
    closed: Mutex<BTreeSet<u64>>,
    opened: Condvar,
    come: Mutex<BTreeSet<u64>>,
}

impl Gates {
    fn close(&self, at: u64) {
        self.closed.lock().unwrap().insert(at);
    }

    fn open(&self, at: u64) {
        self.closed.lock().unwrap().remove(&at);
        self.opened.notify_all();
    }

    fn pass(&self, at: Lsn) {
        self.come.lock().unwrap().insert(at.as_u64());
        let is_closed = |closed: &mut BTreeSet<u64>| closed.contains(&at.as_u64());
        drop(self.opened.wait_while(self.closed.lock().unwrap(), is_closed).unwrap());
    }

    fn await_write(&self, at: u64) {
        until(|| self.come.lock().unwrap().contains(&at));
    }
}

impl Weather {
    fn calm(dice: &Dice) -> Weather {
        let is_broken_soon = dice.one_in(2);
        let until_broken = if is_broken_soon { 40 + dice.below(600) } else { u64::MAX / 2 };
        Weather {
            dice: Dice::new(dice.below(u64::MAX)),
            refusals: AtomicU64::new(0),
            until_broken: AtomicU64::new(until_broken),
            is_calm: AtomicBool::new(true),
            gates: Gates::default(),
            syncing: Mutex::new(()),
        }
    }

    fn begin(&self) -> Result<()> {
        // Relaxed: set before the threads begin.
        if self.is_calm.load(Ordering::Relaxed) {
            return Ok(());
        }
        for _ in 0..self.dice.below(40) {
            thread::yield_now();
        }
        // Relaxed, all: they count.
        if count_down(&self.until_broken).is_none() {
            return Err(Error::io("meet the weather", std::io::Error::from_raw_os_error(5)));
        }
        if self.dice.one_in(60) {
            self.refusals.store(1 + self.dice.below(12), Ordering::Relaxed);
        }
        Ok(())
    }

    fn space(&self) -> Result<()> {
        match count_down(&self.refusals) {
            Some(_) => Err(Error::io("find space", std::io::ErrorKind::StorageFull.into())),
            None => Ok(()),
        }
    }
}

fn count_down(left: &AtomicU64) -> Option<u64> {
    // Relaxed: it counts.
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()
}

/// A store of which up to four durable writes are in flight, in that weather.
#[derive(Debug)]
struct Stormy<S> {
    inner: S,
    weather: Arc<Weather>,
}

impl<S: Store> ReadStore for Stormy<S> {
    fn state(&self) -> Result<State> {
        self.inner.state()
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        self.inner.segments()
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        self.inner.read(at, into)
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

impl<S: Store> Store for Stormy<S> {
    fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.weather.begin()?;
        self.weather.space()?;
        self.inner.write(at, pieces)
    }

    fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        let _alone = self.weather.syncing.try_lock().expect("one sync at a time");
        self.weather.begin()?;
        self.inner.sync(from, to)
    }

    fn writes_in_flight(&self) -> usize {
        4
    }

    fn write_durable(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        self.weather.gates.pass(at);
        let begun = self.weather.begin();
        // What is refused, or fails, may have been written all the same.
        if begun.is_ok() || self.weather.dice.one_in(2) {
            self.inner.write_durable(at, pieces)?;
        }
        begun?;
        for _ in 0..self.weather.dice.below(40) {
            thread::yield_now();
        }
        self.weather.space()
    }

    fn mark_durable(&self, durable: Lsn) -> Result<()> {
        self.inner.mark_durable(durable)
    }

    fn prepared(&self) -> Lsn {
        self.inner.prepared()
    }

    fn prepare(&self, to: Lsn) -> Result<()> {
        self.weather.space()?;
        self.inner.prepare(to)
    }

    fn prepare_ahead(&self, tail: Lsn) {
        self.inner.prepare_ahead(tail);
    }

    fn save_state(&self, state: &State) -> Result<()> {
        self.inner.save_state(state)
    }

    fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.inner.release(from, to)
    }

    fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.inner.discard(from, to)
    }

    fn begin_epoch(&self, epoch: &Epoch) -> Result<()> {
        self.inner.begin_epoch(epoch)
    }

    fn resume_epoch(&self, epoch: &Epoch, end: Lsn) -> Result<()> {
        self.inner.resume_epoch(epoch, end)
    }

    fn old_buffer(&self) -> Result<OldBuffer> {
        self.inner.old_buffer()
    }

    fn renew_buffer(&self, epoch: u64, buffer_bytes: usize, durable: Lsn) -> Result<Memory> {
        self.inner.renew_buffer(epoch, buffer_bytes, durable)
    }

    fn move_to_fresh_blocks(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.inner.move_to_fresh_blocks(from, to)
    }

    fn pass_buffer_on(&self, epoch: u64) -> Result<()> {
        self.inner.pass_buffer_on(epoch)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// What one thread knows of its records.
#[derive(Debug, Default)]
struct Known {
    appended: BTreeMap<Lsn, Vec<u8>>,
    acknowledged: BTreeMap<Lsn, Vec<u8>>,
    /// A cut behind it failed: the next open shows whether it was made.
    maybe_cut_after: Option<Lsn>,
}

impl Known {
    fn merge(&mut self, other: Known) {
        self.appended.extend(other.appended);
        self.acknowledged.extend(other.acknowledged);
        self.note_maybe_cut(other.maybe_cut_after);
    }

    fn note_maybe_cut(&mut self, after: Option<Lsn>) {
        self.maybe_cut_after = self.maybe_cut_after.into_iter().chain(after).min();
    }

    /// Leaves out what was cut off.
    fn forget_cut(&mut self, wal: &Wal) {
        let is_cut = |lsn: Lsn| {
            let known = wal.wait_durable(lsn);
            known.is_err_and(|error| error.kind() == ErrorKind::Truncated)
        };
        let maybe_cut_after = self.maybe_cut_after;
        let stays = |lsn: Lsn| maybe_cut_after.is_none_or(|kept| lsn <= kept) && !is_cut(lsn);
        self.appended.retain(|lsn, _| stays(*lsn));
        self.acknowledged.retain(|lsn, _| self.appended.contains_key(lsn));
    }

    fn acknowledge(&mut self, lsn: Lsn) {
        let data = self.appended[&lsn].clone();
        self.acknowledged.insert(lsn, data);
    }
}

/// One thread of a storm.
struct Sailor<'a> {
    wal: &'a Wal,
    dice: Dice,
    name: u64,
    count: u64,
    max_bytes: u64,
    cuts: bool,
    known: Known,
}

impl Sailor<'_> {
    fn data(&mut self) -> Vec<u8> {
        self.count += 1;
        let len = match self.dice.below(8) {
            0 => self.dice.below(self.max_bytes),
            1 => self.dice.below(5000.min(self.max_bytes)),
            _ => self.dice.below(300),
        };
        let mut data = vec![self.name as u8; len as usize + 16];
        let _ =
            (&mut data[..]).write(&[self.name.to_le_bytes(), self.count.to_le_bytes()].concat());
        data
    }

    /// Whether the log is done for.
    fn ends(error: &Error) -> bool {
        match error.kind() {
            ErrorKind::NoSpace | ErrorKind::NoRoom | ErrorKind::Truncated => false,
            ErrorKind::Poisoned | ErrorKind::Io | ErrorKind::Closed => true,
            _ => panic!("{error}"),
        }
    }

    fn sail(mut self, steps: u64) -> Known {
        for _ in 0..steps {
            if let Err(error) = self.step()
                && Sailor::ends(&error)
            {
                break;
            }
        }
        self.known
    }

    fn append(&mut self) -> Result<(Lsn, Ticket<'static>)> {
        let data = self.data();
        let ticket = self.wal.append(&data)?.detach();
        self.known.appended.insert(ticket.lsn(), data);
        Ok((ticket.lsn(), ticket))
    }

    fn step(&mut self) -> Result<()> {
        match self.dice.below(if self.cuts { 14 } else { 13 }) {
            0..5 => self.commit(),
            5 | 6 => {
                let (lsn, ticket) = self.append()?;
                let time = Duration::from_micros(self.dice.below(600));
                if ticket.wait_timeout(time)? {
                    self.known.acknowledge(lsn);
                }
                Ok(())
            }
            7 | 8 => {
                let (lsn, ticket) = self.append()?;
                block_on(ticket)?;
                self.known.acknowledge(lsn);
                Ok(())
            }
            9 => self.poll_once(),
            10 => self.append().map(drop),
            11 => {
                let (lsn, _) = self.append()?;
                self.wal.flush_to_os(lsn)?;
                let found = self.wal.get(lsn)?;
                assert_eq!(found.data(), self.known.appended[&lsn]);
                assert!(self.wal.durable_lsn() <= self.wal.reserved_lsn());
                Ok(())
            }
            12 => {
                let before: Vec<Lsn> = self.known.appended.keys().copied().collect();
                self.wal.sync()?;
                before.into_iter().for_each(|lsn| self.known.acknowledge(lsn));
                Ok(())
            }
            _ => self.cut(),
        }
    }

    fn commit(&mut self) -> Result<()> {
        let data = self.data();
        match self.wal.commit(&data) {
            Ok(lsn) => {
                assert!(self.wal.durable_lsn() > lsn);
                self.known.appended.insert(lsn, data.clone());
                self.known.acknowledged.insert(lsn, data);
                Ok(())
            }
            Err(error) => {
                if let Some(lsn) = error.appended_lsn() {
                    self.known.appended.insert(lsn, data);
                }
                Err(error)
            }
        }
    }

    /// A future that is polled once, and dropped.
    fn poll_once(&mut self) -> Result<()> {
        let (lsn, ticket) = self.append()?;
        let mut ticket = pin!(ticket);
        if let Poll::Ready(done) = ticket.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            done?;
            self.known.acknowledge(lsn);
        }
        Ok(())
    }

    /// The last records of this thread, and what others appended meanwhile, are cut off.
    fn cut(&mut self) -> Result<()> {
        let kept = self.known.appended.keys().nth_back(self.dice.below(3) as usize).copied();
        let Some(kept) = kept else { return Ok(()) };
        let cut = self.wal.truncate_after(kept);
        if let Err(error) = &cut
            && Sailor::ends(error)
        {
            self.known.note_maybe_cut(Some(kept));
        }
        cut
    }
}

/// All threads at their work.
fn storm(wal: &Wal, seed: u64, cuts: bool) -> Known {
    let max_bytes = wal.max_record_bytes() as u64 - 16;
    let mut known = Known::default();
    thread::scope(|scope| {
        let sailors = (0..THREADS).map(|name| {
            let dice = Dice::new(seed * THREADS + name);
            let known = Known::default();
            let sailor = Sailor { wal, dice, name, count: 0, max_bytes, cuts, known };
            scope.spawn(move || sailor.sail(STEPS))
        });
        let sailors: Vec<_> = sailors.collect();
        sailors.into_iter().for_each(|sailor| known.merge(sailor.join().unwrap()));
    });
    known
}

/// G1 and G2: all that is known to be durable is there, and so is all that was appended below the
/// last record.
fn check(wal: &Wal, known: &mut Known, what: &str) {
    let mut missing = known.appended.clone();
    let mut records = wal.iter().unwrap();
    let mut last = Lsn::ZERO;
    while let Some(record) = records.next().unwrap() {
        last = record.lsn();
        if let Some(data) = missing.remove(&last) {
            assert_eq!(record.data(), data, "{what}: the record at {last}");
        }
    }
    let is_promised = |lsn: &&Lsn| **lsn < last || known.acknowledged.contains_key(lsn);
    let lost: Vec<_> = missing.keys().filter(is_promised).collect();
    assert!(lost.is_empty(), "{what}: lost {lost:?} of {last}; {:?}", wal.recovery_report());
    // What the crash took is gone for good.
    known.appended.retain(|lsn, _| !missing.contains_key(lsn));
}

fn options(dice: &Dice) -> Options {
    let buffer_bytes = [8 << 10, 32 << 10, 256 << 10][dice.below(3) as usize];
    let policy = match dice.below(4) {
        0 => SyncPolicy::Always,
        1 => SyncPolicy::Interval(Duration::from_micros(200)),
        _ => SyncPolicy::OnCommit,
    };
    let write_bytes = if dice.one_in(2) { 4096 } else { 1 << 20 };
    Options::new().buffer_bytes(buffer_bytes).sync_policy(policy).write_bytes(write_bytes)
}

/// Lives of one log, each of them ended by `end`, which gives its last words the log.
fn lives<S: Store>(
    seed: u64,
    open: impl Fn() -> Result<S>,
    begin: impl Fn(&Dice),
    end: impl Fn(Wal, &Dice),
) {
    let dice = Dice::new(seed);
    let mut known = Known::default();
    for life in 0..LIVES {
        let weather = Arc::new(Weather::calm(&dice));
        let store = Stormy { inner: open().unwrap(), weather: Arc::clone(&weather) };
        let wal = Wal::with_store(store, options(&dice)).unwrap();
        check(&wal, &mut known, &format!("seed {seed}, life {life}"));
        begin(&dice);
        // Relaxed: before the threads begin.
        weather.is_calm.store(false, Ordering::Relaxed);
        let cuts = life == LIVES - 1 && dice.one_in(2);
        let more = storm(&wal, seed * LIVES + life, cuts);
        known.merge(more);
        if cuts {
            known.forget_cut(&wal);
        }
        end(wal, &dice);
    }
    let store = Stormy { inner: open().unwrap(), weather: Arc::new(Weather::calm(&dice)) };
    let wal = Wal::with_store(store, Options::new()).unwrap();
    check(&wal, &mut known, &format!("seed {seed}, at last"));
}

fn seeds(default: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("PALISADE_FIRST_SEED").unwrap_or(0);
    first..first + number("PALISADE_SEEDS").unwrap_or(default)
}

#[test]
fn a_storm_over_a_store_in_memory_loses_nothing_with_the_power() {
    for seed in seeds(8) {
        guarded(move || {
            let store = MemStore::new(SEGMENT_BYTES);
            lives(
                seed,
                || Ok(store.clone()),
                |_| {},
                |wal, dice| {
                    if dice.one_in(3) {
                        let _ = wal.close();
                    } else {
                        drop(wal);
                    }
                    store.lose_power();
                },
            );
        });
    }
}

fn files() -> FileOptions {
    let mut files = FileOptions::new();
    files.segment_bytes = Some(SEGMENT_BYTES);
    files.sync_method = SyncMethod::Direct;
    files
}

#[test]
fn a_storm_over_a_simulated_disk_loses_nothing_with_the_power() {
    for seed in seeds(8) {
        guarded(move || {
            let disk = SimDisk::new(seed);
            let begin = |dice: &Dice| {
                disk.fail(Fault::rate(20, FaultKind::SlowSync));
                disk.fail(Fault::rate(50, FaultKind::ShortWrite));
                if dice.one_in(2) {
                    disk.crash_at(disk.calls() + dice.below(400));
                }
                if dice.one_in(3) {
                    let kind = if dice.one_in(2) { FaultKind::NoSpace } else { FaultKind::Eio };
                    disk.fail(Fault::rate(20 + dice.below(300), kind));
                }
            };
            let end = |wal: Wal, dice: &Dice| {
                disk.heal();
                if dice.one_in(3) {
                    let _ = wal.close();
                } else {
                    disk.kill();
                    drop(wal);
                }
                if dice.one_in(2) { disk.restart() } else { disk.lose_power() }
            };
            lives(seed, || disk.open(&files()), begin, end);
        });
    }
}

#[test]
fn a_storm_over_a_folder_loses_nothing() {
    for seed in seeds(3) {
        guarded(move || {
            let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let path: &Path = temp.path();
            let end = |wal: Wal, dice: &Dice| {
                if dice.one_in(3) {
                    let _ = wal.close();
                } else {
                    drop(wal);
                }
            };
            lives(seed, || FileStore::open(path, &files()), |_| {}, end);
        });
    }
}

/// A waker that commits, and says how far the log was durable when it was told so.
struct Commits(Wal, Mutex<Sender<(Lsn, Lsn)>>);

impl Wake for Commits {
    fn wake(self: Arc<Self>) {
        let lsn = self.0.commit(b"from a waker").unwrap();
        let _ = self.1.lock().unwrap().send((lsn, self.0.durable_lsn()));
    }
}

/// The leader has given up leadership, and waits for a lower flight with a place of its own.
#[test]
fn a_waker_that_commits_on_a_leader_whose_record_is_in_the_air_is_served_for_its_own_record() {
    guarded(|| {
        let weather = Arc::new(Weather::calm(&Dice::new(1)));
        let gates = &weather.gates;
        let store = Stormy { inner: MemStore::new(SEGMENT_BYTES), weather: Arc::clone(&weather) };
        let wal = Wal::with_store(store, Options::new().buffer_bytes(64 << 10)).unwrap();
        [0, 4096, 8192].into_iter().for_each(|at| gates.close(at));
        let mut woken = wal.append(b"its waker commits").unwrap();
        let (fill, filled) = channel::<()>();
        let (tell, told) = channel();
        thread::scope(|scope| {
            let wal = &wal;
            scope.spawn(move || {
                wal.append_with(8, |_, _| filled.recv().unwrap()).unwrap();
            });
            until(|| wal.reserved_lsn() > woken.end_lsn());
            // Above the hole: the first block ends here, whoever writes it.
            while !wal.reserved_lsn().as_u64().is_multiple_of(4096) {
                assert!(!woken.wait_timeout(Duration::from_micros(100)).unwrap());
            }
            scope.spawn(move || wal.commit(b"of the leader of the first block").unwrap());
            until(|| wal.reserved_lsn() > Lsn::new(4096));
            fill.send(()).unwrap();
            gates.await_write(0);
            let second = scope.spawn(move || wal.commit(b"of the leader of the second").unwrap());
            gates.await_write(4096);
            // So many wait that who commits does not lead beside others.
            let mut crowd: Vec<_> = (0..8).map(|_| wal.append(b"polled").unwrap()).collect();
            for ticket in &mut crowd {
                assert!(pin!(ticket).poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            scope.spawn(move || wal.commit(b"of the leader of the third").unwrap());
            gates.await_write(8192);
            let waker = Waker::from(Arc::new(Commits(wal.clone(), Mutex::new(tell))));
            assert!(pin!(&mut woken).poll(&mut Context::from_waker(&waker)).is_pending());
            gates.open(0);
            // The crowd, the leader of the first block, and the waker on its thread.
            until(|| wal.stats().waiters == 10);
            gates.open(4096);
            second.join().unwrap();
            gates.open(8192);
            let (lsn, durable) = told.recv().unwrap();
            assert!(durable > lsn, "acknowledged at {durable}: {lsn}");
        });
    });
}
