//! The keeper: releases segments, moves what keeps them (`moves`) and writes footers (`footer`).
//!
//! Its work comes in steps, each of which appends or releases little. A thread does them, or the
//! user, who calls [`Streams::maintain`](crate::Streams::maintain).
//!
//! # Releasing
//! A log shrinks from its head only. The lowest segments are released as soon as they have nothing
//! that is live. Before that, the last record that removed something live is made durable: a
//! truncation, a deletion, or the copy of a moved entry. Else a loss of power could keep the
//! release and lose the reason.
//!
//! # Errors
//! A step that failed has changed nothing, or is continued by the next one. The thread waits for a
//! moment after an error, and ends after one that only another open can repair.

use std::time::Duration;

use palisade::{Error, ErrorKind, Lsn, Result, framed_bytes};
use palisade_store::sync::{Condvar, Instant, Mutex, Ordering, StatCell};

use crate::footer::Writing;
use crate::moves::Move;
use crate::record::{self, Encode};
use crate::segments::{Counted, Prefix};
use crate::shared::Shared;

/// How long the thread waits after an error.
const RETRY: Duration = Duration::from_millis(100);
/// The least time between two rounds of the thread: each truncation wakes it.
const ROUND: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Keeper {
    work: Mutex<Work>,
    move_percent: u64,
    moved_bytes: StatCell,
    released_bytes: StatCell,
    /// Of `moved_bytes`, those for which releases have made up.
    paid_bytes: StatCell,
    /// 1 if there may be work.
    has_work: StatCell,
    /// 1 if segments below the head may have files that nothing keeps.
    has_left: StatCell,
    signal: Mutex<Signal>,
    signalled: Condvar,
}

#[derive(Debug, Default)]
struct Signal {
    stops: bool,
    error: Option<Error>,
}

/// What the keeper has begun.
#[derive(Debug)]
struct Work {
    /// Of the segments below it, `Segments` knows everything that the stripes have counted.
    counted: u32,
    /// The end of the last footer.
    last_footer: Option<Lsn>,
    writing: Option<Writing>,
    moving: Option<Move>,
    /// Where the last release has cut the log: a cursor of the log may have kept the head below.
    cut: Lsn,
    /// Why the last release has failed. The next round tries again: each try calls the archive.
    failed: Option<Error>,
}

impl Keeper {
    pub(crate) fn new(move_percent: u32, last_footer: Option<Lsn>) -> Keeper {
        Keeper {
            work: Mutex::new(Work {
                counted: 0,
                last_footer,
                writing: None,
                moving: None,
                cut: Lsn::ZERO,
                failed: None,
            }),
            move_percent: u64::from(move_percent),
            moved_bytes: StatCell::new(0),
            released_bytes: StatCell::new(0),
            paid_bytes: StatCell::new(0),
            has_work: StatCell::new(1),
            has_left: StatCell::new(1),
            signal: Mutex::default(),
            signalled: Condvar::default(),
        }
    }

    /// Tells the thread that there may be work.
    pub(crate) fn wake(&self) {
        // Relaxed: the thread takes the lock before it sleeps, and looks again.
        if self.has_work.swap(1, Ordering::Relaxed) == 0 {
            drop(self.signal.lock());
            self.signalled.notify_all();
        }
    }

    /// Makes the next step release what an earlier release has left: one that failed, or was
    /// stopped by a kill, or a reader has read on since.
    pub(crate) fn release_left(&self) {
        // Relaxed: the keeper swaps it before it lists the files, and `wake` orders the rest.
        self.has_left.store(1, Ordering::Relaxed);
        self.wake();
    }

    /// Ends the thread after the step that it is in.
    pub(crate) fn stop(&self) {
        self.signal.lock().stops = true;
        self.signalled.notify_all();
    }

    pub(crate) fn moved_bytes(&self) -> u64 {
        // Relaxed, here and below: sums that only the keeper changes.
        self.moved_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn released_bytes(&self) -> u64 {
        self.released_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes may have been moved when `released` more bytes will be released.
    pub(crate) fn budget(&self, released: u64) -> u64 {
        // Relaxed: only the keeper changes it.
        self.paid_bytes.load(Ordering::Relaxed) + released / 100 * self.move_percent
    }

    /// Notes a release. What it would have allowed to move beyond what was moved is not kept: it
    /// would pay for copies of segments of which much is live.
    fn note_released(&self, bytes: u64) {
        self.paid_bytes.store(self.budget(bytes).min(self.moved_bytes()), Ordering::Relaxed);
        self.released_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the error of the thread's last step.
    pub(crate) fn error(&self) -> Option<Error> {
        self.signal.lock().error.clone()
    }

    /// Waits for work, and for `pause` at least. Returns false if the thread must end.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let earliest = Instant::now() + pause;
        let mut signal = self.signal.lock();
        loop {
            let is_early = Instant::now() < earliest;
            if signal.stops {
                return false;
            }
            if !is_early && self.has_work.swap(0, Ordering::Relaxed) == 1 {
                return true;
            }
            signal = self.signalled.wait(signal, is_early.then_some(earliest));
        }
    }

    fn stops(&self) -> bool {
        self.signal.lock().stops
    }
}

/// Returns whether no later step of the keeper can succeed after `error`. After damage a step can,
/// because the damage may go with its stream.
pub(crate) fn ends_keeper(error: &Error) -> bool {
    error.is_fatal() && error.kind() != ErrorKind::Corrupt
}

impl Shared {
    /// Runs the steps of the keeper on its thread until the keeper stops or the log has ended.
    pub(crate) fn keep(&self) {
        let mut pause = Duration::ZERO;
        while self.keeper.wait(pause) {
            let ended = loop {
                match self.maintain() {
                    Ok(true) if !self.keeper.stops() => {}
                    ended => break ended,
                }
            };
            self.keeper.signal.lock().error = ended.as_ref().err().cloned();
            pause = match ended {
                Ok(_) => ROUND,
                // It may be an error of a callback for released segments: ask the log.
                Err(error) if ends_keeper(&error) && self.has_ended() => return,
                Err(_) => {
                    self.keeper.wake();
                    RETRY
                }
            };
        }
    }

    fn has_ended(&self) -> bool {
        self.wal.sync().is_err_and(|error| ends_keeper(&error))
    }

    /// Does one step. Returns whether there may be more to do.
    pub(crate) fn maintain(&self) -> Result<bool> {
        let mut work = self.keeper.work.lock();
        let mut tail = self.segments.of(self.wal.reserved_lsn());
        if work.failed.is_none() {
            work.failed = self.release_what_was_left(work.cut).err();
        }
        // Not in each step: it takes the locks of all stripes.
        if tail > work.counted || (work.failed.is_none() && self.segments.seems_dead(tail)) {
            let reserved = self.directory.flush_all(&self.segments, || self.wal.reserved_lsn());
            tail = self.segments.of(reserved);
            work.counted = tail;
            if work.failed.is_none() {
                match self.release(&mut work, reserved) {
                    Ok(true) => return Ok(true),
                    released => work.failed = released.err(),
                }
            }
        }
        // What cannot be released now, as long as an archive is away, stops nothing else.
        let done = self.move_or_index(&mut work, tail);
        if let Ok(true) = done {
            return done;
        }
        // The round ends, also if moves fail: the next one releases first.
        work.failed.take().map_or(done, Err)
    }

    /// Moves some of what keeps the lowest segments, or writes a part of a footer. Returns whether
    /// there may be more to do.
    fn move_or_index(&self, work: &mut Work, tail: u32) -> Result<bool> {
        if self.room() < self.segments.bytes() {
            // A tail may have ended since, and the log has freed what it kept.
            self.count_files()?;
            let is_full = self.room() < self.segments.bytes();
            if is_full && (work.failed.is_some() || self.is_kept_below()?) {
                // A move would free nothing yet, and the last segments are for truncations.
                return Ok(false);
            }
        }
        if let Some(moving) = &mut work.moving {
            let before = self.keeper.moved_bytes();
            let step = self.step(moving);
            if self.keeper.moved_bytes() > before {
                // A tail waits until an entry is durable where it is now. One that was durable must
                // not wait for a sync that nobody else asks for.
                self.wal.sync()?;
            }
            if !step? {
                work.moving = None;
            }
            return Ok(true);
        }
        if let Some(moving) = self.plan(tail) {
            work.moving = Some(moving);
            return Ok(true);
        }
        if work.writing.is_none() {
            work.writing = self.begin_footer(tail);
        }
        let Work { last_footer, writing, .. } = work;
        let Some(begun) = writing else { return Ok(false) };
        // A footer only makes opens faster: the last segments are for truncations.
        if self.room() < 2 * self.segments.bytes() {
            return Ok(false);
        }
        if self.write_footer(begun, last_footer)? {
            *writing = None;
        }
        Ok(true)
    }

    /// Releases the lowest segments that have nothing live.
    fn release(&self, work: &mut Work, reserved: Lsn) -> Result<bool> {
        let Some(prefix) = self.segments.dead_prefix(reserved) else { return Ok(false) };
        let Prefix { first, cut, lsn } = self.keep_generation(prefix)?;
        if let Some(removal) = self.segments.last_removal() {
            self.wal.wait_durable(removal)?;
        }
        if let Err(error) = self.wal.truncate_before(lsn) {
            if self.wal.head_lsn() < lsn {
                return Err(error);
            }
            // Only files are left.
            self.keeper.has_left.store(1, Ordering::Relaxed);
        }
        work.cut = lsn;
        let has_footer = self.segments.with(|all| {
            *all = all.split_off(&cut);
            all.values().any(|of| of.has_footer)
        });
        if !has_footer {
            // Footers below would lead over segments that were released before they got one. They
            // may be there: a cursor of the log keeps them, or a restore has brought them back.
            work.last_footer = None;
        }
        self.keeper.note_released(u64::from(cut - first) * self.segments.bytes());
        self.count_files()?;
        Ok(true)
    }

    /// Appends the greatest generation of all slots, unless a deletion or such a record above the
    /// prefix says it. Without one, a later open could use the id of a deleted stream again.
    /// If there is no room, returns the prefix without the last segment with a record that says it.
    fn keep_generation(&self, prefix: Prefix) -> Result<Prefix> {
        let (generation, segment) = self.segments.newest();
        if generation == 0 || segment >= prefix.cut {
            return Ok(prefix);
        }
        let mut bytes = Vec::new();
        bytes.number(u64::from(generation));
        let appended = self.append_own(record::GENERATIONS, &bytes);
        match appended.and_then(|lsn| self.wal.wait_durable(lsn).map(|_| lsn)) {
            Ok(lsn) => {
                self.segments.note_generation(generation, self.segments.of(lsn));
                Ok(prefix)
            }
            Err(error) if error.is_shortage() && segment > prefix.first => {
                Ok(Prefix { cut: segment, lsn: self.segments.start(segment), ..prefix })
            }
            Err(error) => Err(error),
        }
    }

    /// Releases what an earlier release has left, below the head or below its `cut`.
    fn release_what_was_left(&self, cut: Lsn) -> Result<()> {
        if self.keeper.has_left.swap(0, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        // Where the segment of the cut begins: there the log looks at no frame.
        let cut = self.segments.start(self.segments.of(cut));
        let released = self.wal.truncate_before(self.wal.head_lsn().max(cut));
        if released.is_err() {
            self.keeper.has_left.store(1, Ordering::Relaxed);
        }
        self.count_files().and(released)
    }

    /// Appends a record that belongs to no stream.
    pub(crate) fn append_own(&self, tag: u16, bytes: &[u8]) -> Result<Lsn> {
        let _taken = self.check_room_for_copy(framed_bytes(bytes.len()))?;
        let lsn = self.wal.append_tagged(tag, bytes)?.lsn();
        let mut counted = Counted::new(&self.segments, lsn);
        (counted.records, counted.bytes) = (1, framed_bytes(bytes.len()));
        self.segments.add(counted);
        Ok(lsn)
    }
}
