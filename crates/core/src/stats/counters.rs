//! The counters of a running log, and how a snapshot of them is consistent.
//!
//! # Words
//! *Group*: cells and a watermark that one thread at a time changes together: those of the writes
//! (the holder of the write lock; *written*) and those of the rounds (the leader; *durable*).
//! *Change*: the time in which a thread changes a group.
//!
//! # Protocol
//! Each group has a version, odd during a change.
//! - A change: (1) adds 1 to the version; (2) stores cells and watermark; (3) adds 1 again.
//! - A snapshot: (1) reads the versions; (2) reads all cells and watermarks; (3) reads the versions
//!   again. If a version is odd or has changed, it waits a moment and begins again.
//!
//! No change waits for a snapshot. Cells outside of both groups, which any thread adds to, are read
//! in an order of their own, see [`LiveHistogram::record`]. *filled* and *reserved* belong to no
//! group: the snapshot reads them after *written*, so they are at or above it.
//!
//! # Ordering pairs
//! - P11: every store to a cell or watermark in a change (Release) with its load in a snapshot
//!   (Acquire). A snapshot that sees a store of a change sees its odd version, or a later one, at
//!   step 3. The second addition (Release) with step 1 (Acquire): a snapshot that begins with a
//!   version sees all stores of the changes before it.
//!
//! # Why not
//! A lock: a leader would wait for snapshots, and a forked child could wait for ever.
//!
//! # Checked by
//! `stats::counters::tests`, and `crates/palisade/tests/log/api/snapshots.rs`. The cells are
//! outside of the loom models.

use palisade_store::sync::{Backoff, CachePadded, Instant, Mutex, Ordering, StatCell};

use super::histogram::{LiveHistogram, add_alone};
use super::{Histogram, Stats};
use crate::Lsn;

/// About one wait for a sync in this many is measured: reading the clock twice takes a tenth of a
/// commit in memory.
pub(crate) const WAITS_PER_SAMPLE: u64 = 16;

/// An append that finds room, writes nothing and does not wait touches none of these.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) writes: CachePadded<Writes>,
    pub(crate) rounds: CachePadded<Rounds>,
    pub(super) waits_for_room: CachePadded<StatCell>,
    pub(super) append_stall_ns: LiveHistogram,
    pub(super) commit_latency_ns: LiveHistogram,
    // An end of the log that a snapshot has seen reserved and not durable, and when.
    seen: Mutex<Option<(Lsn, Instant)>>,
    opened: Instant,
}

/// What the holder of the write lock counts. A change touches two cache lines.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Writes {
    /// Changed under the write lock. *written* is published in the change.
    pub(crate) version: Version,
    pub(super) appends: StatCell,
    pub(super) bytes: LiveHistogram,
}

/// What the leader counts. A change touches four cache lines.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Rounds {
    /// Changed by the leader. *durable* is published in the change.
    pub(crate) version: Version,
    pub(super) smoothed_ns: StatCell,
    // When the running sync began, in nanoseconds after `Counters::opened`; 0 if none runs.
    running_since: StatCell,
    pub(super) duration_ns: LiveHistogram,
    pub(super) appends: LiveHistogram,
}

#[derive(Debug, Default)]
pub(crate) struct Version(StatCell);

#[must_use]
pub(crate) struct Change<'a>(&'a Version);

impl Version {
    pub(crate) fn change(&self) -> Change<'_> {
        // Relaxed, both: one thread changes the version, and the Release stores that follow publish
        // the odd one [P11].
        let version = self.0.load(Ordering::Relaxed);
        self.0.store(version + 1, Ordering::Relaxed);
        Change(self)
    }

    /// Returns the version, or `None` during a change.
    fn look(&self) -> Option<u64> {
        // Acquire: pairs with the Release at the end of the change before [P11].
        let version = self.0.load(Ordering::Acquire);
        version.is_multiple_of(2).then_some(version)
    }

    /// Calls `read` until the group does not change meanwhile, or once if not `is_own`.
    fn unchanged<R>(&self, is_own: bool, read: impl Fn() -> R) -> R {
        let mut backoff = Backoff::default();
        loop {
            let version = self.look();
            if version.is_some() || !is_own {
                let seen = read();
                // Relaxed: the Acquire loads since `look` keep this load behind them [P11].
                if !is_own || version == Some(self.0.load(Ordering::Relaxed)) {
                    return seen;
                }
            }
            backoff.wait();
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // Relaxed: only this thread changes the version.
        let version = self.0.0.load(Ordering::Relaxed);
        // Release: pairs with the Acquire in `look` [P11].
        self.0.0.store(version + 1, Ordering::Release);
    }
}

impl Writes {
    pub(crate) fn note(&self, _change: &Change<'_>, appends: u64, bytes: u64) {
        add_alone(&self.appends, appends);
        self.bytes.record_alone(bytes);
    }

    /// Returns *written*, which `read` reads, and the reservations below it since the open.
    pub(crate) fn appends_at(&self, read: impl Fn() -> Lsn) -> (Lsn, u64) {
        // Acquire, also in `read`: pair with the Releases of a change [P11].
        self.version.unchanged(true, || (read(), self.appends.load(Ordering::Acquire)))
    }
}

impl Rounds {
    /// Counts a sync that covered the first `appends` reservations.
    pub(crate) fn note(&self, _change: &Change<'_>, ns: u64, appends: u64) {
        self.duration_ns.record_alone(ns);
        self.appends.record_alone(appends.saturating_sub(self.appends.sum()));
        let before = self.smoothed_ns();
        // The newest counts one eighth: ten syncs follow three quarters of a change.
        let smoothed = if before == 0 { ns } else { before - before / 8 + ns / 8 };
        // Release: as all stores of a change [P11].
        self.smoothed_ns.store(smoothed, Ordering::Release);
    }

    pub(crate) fn smoothed_ns(&self) -> u64 {
        // Acquire: for a snapshot [P11]. The leader, which reads it too, needs no order.
        self.smoothed_ns.load(Ordering::Acquire)
    }
}

/// Shows a sync as running until it is dropped.
#[must_use]
pub(crate) struct RunningSync<'a>(&'a StatCell);

impl Drop for RunningSync<'_> {
    fn drop(&mut self) {
        // Release, as all stores of a change: a successful sync ends within one [P11].
        self.0.store(0, Ordering::Release);
    }
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            writes: CachePadded::default(),
            rounds: CachePadded::default(),
            waits_for_room: CachePadded::new(StatCell::new(0)),
            append_stall_ns: LiveHistogram::default(),
            commit_latency_ns: LiveHistogram::default(),
            seen: Mutex::new(None),
            opened: Instant::now(),
        }
    }

    /// Calls `read` until no group changes meanwhile; in a forked child once, because a change that
    /// ran at the fork never ends there.
    pub(super) fn read_unchanged<R>(&self, is_own: bool, read: impl Fn() -> R) -> R {
        let (writes, rounds) = (&self.writes.version, &self.rounds.version);
        writes.unchanged(is_own, || rounds.unchanged(is_own, &read))
    }

    pub(crate) fn begin_sync(&self, start: Instant) -> RunningSync<'_> {
        let cell = &self.rounds.running_since;
        // Relaxed: it publishes nothing. A snapshot sees it a moment later.
        cell.store(nanos(start - self.opened).max(1), Ordering::Relaxed);
        RunningSync(cell)
    }

    pub(super) fn running_sync_ns(&self) -> u64 {
        // Acquire: pairs with the Release in the drop of `RunningSync` [P11].
        match self.rounds.running_since.load(Ordering::Acquire) {
            0 => 0,
            since => nanos(Instant::now() - self.opened).saturating_sub(since).max(1),
        }
    }

    /// Returns the least age of the oldest record that is not durable in `stats`, or 0.
    pub(super) fn not_durable_ns(&self, stats: &Stats) -> u64 {
        if stats.durable >= stats.reserved {
            return 0;
        }
        let now = Instant::now();
        self.seen_ns(stats.durable, stats.reserved, now).max(stats.running_sync_ns)
    }

    /// Returns the time since the first snapshot that saw a record above `durable`.
    fn seen_ns(&self, durable: Lsn, reserved: Lsn, now: Instant) -> u64 {
        let mut seen = self.seen.lock();
        match *seen {
            // What lies between `durable` and the end that was seen was there at that time.
            Some((end, at)) if durable < end => nanos(now - at),
            _ => {
                *seen = Some((reserved, now));
                0
            }
        }
    }

    /// Returns the time now if the wait number `arrival` is measured. Those that are measured are
    /// spread evenly over all waits, and over each regular part of them.
    #[inline]
    pub(crate) fn begin_wait(&self, arrival: u64) -> Option<Instant> {
        // Multiples of the golden ratio.
        let spread = arrival.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (spread < u64::MAX / WAITS_PER_SAMPLE).then(Instant::now)
    }

    pub(crate) fn end_wait(&self, start: Option<Instant>) {
        if let Some(start) = start {
            self.commit_latency_ns.record(nanos(start.elapsed()));
        }
    }

    pub(crate) fn begin_stall(&self) -> Instant {
        // Relaxed: the Release in `end_stall` follows it.
        self.waits_for_room.fetch_add(1, Ordering::Relaxed);
        Instant::now()
    }

    pub(crate) fn end_stall(&self, start: Option<Instant>) {
        if let Some(start) = start {
            self.append_stall_ns.record(nanos(start.elapsed()));
        }
    }

    /// Returns the waits for room that have begun, and the times of those that have ended.
    pub(super) fn stalls(&self) -> (u64, Histogram) {
        // The ended ones first: each has begun before.
        let ended = self.append_stall_ns.snapshot();
        // Relaxed: the Acquire loads of the snapshot come before it [P11].
        (self.waits_for_room.load(Ordering::Relaxed), ended)
    }
}

pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::watermark::Watermark;

    #[test]
    fn a_snapshot_never_sees_part_of_a_change() {
        const CHANGES: u64 = 200_000;
        let counters = Counters::new();
        let reads = Cell::new(0);
        counters.read_unchanged(true, || {
            reads.set(reads.get() + 1);
            match reads.get() {
                1 => drop(counters.writes.version.change()),
                2 => drop(counters.rounds.version.change()),
                _ => {}
            }
        });
        assert_eq!(reads.get(), 3, "each of the two changes makes the snapshot begin again");
        let written = Watermark::new(Lsn::ZERO);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=CHANGES {
                    let change = counters.writes.version.change();
                    counters.writes.note(&change, 2, 8);
                    written.publish(Lsn::new(n * 8));
                }
            });
            scope.spawn(|| {
                for n in 1..=CHANGES {
                    let change = counters.rounds.version.change();
                    counters.rounds.note(&change, 3, n * 5);
                }
            });
            loop {
                let (appends, bytes, end, rounds, covered) = counters.read_unchanged(true, || {
                    (
                        // Acquire: as in a snapshot of the log.
                        counters.writes.appends.load(Ordering::Acquire),
                        counters.writes.bytes.snapshot(),
                        written.read(),
                        counters.rounds.duration_ns.snapshot(),
                        counters.rounds.appends.snapshot(),
                    )
                });
                assert_eq!((appends, bytes.sum()), (bytes.count() * 2, bytes.count() * 8));
                assert_eq!(end.as_u64(), bytes.sum());
                assert_eq!((rounds.sum(), covered.sum()), (rounds.count() * 3, rounds.count() * 5));
                assert_eq!(covered.count(), rounds.count());
                if rounds.count() == CHANGES && bytes.count() == CHANGES {
                    break;
                }
            }
        });
    }

    #[test]
    fn a_leader_counts_the_appends_of_the_very_prefix_that_it_syncs() {
        let counters = Counters::new();
        let written = Watermark::new(Lsn::ZERO);
        let reads = std::cell::Cell::new(0);
        let seen = counters.writes.appends_at(|| {
            let end = written.read();
            // A write ends between the two loads.
            if reads.replace(reads.get() + 1) == 0 {
                let change = counters.writes.version.change();
                counters.writes.note(&change, 2, 8);
                written.publish(Lsn::new(8));
            }
            end
        });
        assert_eq!((seen, reads.get()), ((Lsn::new(8), 2), 2));
    }

    #[test]
    fn a_child_that_was_forked_during_a_change_gets_a_snapshot() {
        let counters = Counters::new();
        let _change = counters.writes.version.change();
        assert_eq!(counters.read_unchanged(false, || 7), 7);
    }

    #[test]
    fn the_age_counts_from_the_first_snapshot_that_saw_the_record() {
        let counters = Counters::new();
        let start = Instant::now();
        let age = |durable: u64, reserved: u64, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            counters.seen_ns(Lsn::new(durable * 8), Lsn::new(reserved * 8), now) / 1_000_000_000
        };
        assert_eq!(age(1, 3, 0), 0, "seen for the first time");
        assert_eq!(age(1, 9, 10), 10, "still not durable");
        assert_eq!(age(2, 9, 20), 20, "a part of what was seen is");
        assert_eq!(age(3, 9, 30), 0, "all of it is; the others are seen for the first time");
        assert_eq!(age(8, 9, 40), 10);
        assert_eq!(age(9, 10, 9999), 0, "the time of a log without such records does not count");
    }

    #[test]
    fn a_sync_runs_from_its_begin_to_its_end() {
        let counters = Counters::new();
        assert_eq!(counters.running_sync_ns(), 0);
        let running = counters.begin_sync(Instant::now());
        assert!(counters.running_sync_ns() > 0);
        drop(running);
        assert_eq!(counters.running_sync_ns(), 0);
    }

    #[test]
    fn the_waits_that_are_measured_are_spread_over_all_threads() {
        let counters = Counters::new();
        for step in 1..=64 {
            for first in 0..step {
                let arrivals = (0..4096).map(|n| first + n * step);
                let measured =
                    arrivals.filter(|n| counters.begin_wait(*n).is_some()).count() as u64;
                let expected = 4096 / WAITS_PER_SAMPLE;
                assert!((expected / 2..=expected * 2).contains(&measured), "{first} {step}");
            }
        }
    }
}
