//! Both ends of the log: truncation at the head, checkpoints, the clean end; and the pins that
//! readers set.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Handle, LastSave, Wal};
use crate::reader::Pinned;
use crate::store::State;
use crate::sync::{Mutex, Ordering};
use crate::{Error, ErrorKind, Lsn, Result};

/// LSNs from which readers need the log, with how many readers each.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<BTreeMap<Lsn, usize>>);

impl Pins {
    fn lowest(&self) -> Option<Lsn> {
        self.0.lock().keys().next().copied()
    }

    fn add(&self, at: Lsn) {
        *self.0.lock().entry(at).or_insert(0) += 1;
    }

    fn remove(&self, at: Lsn) {
        let mut pins = self.0.lock();
        if let Some(count) = pins.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&at);
            }
        }
    }
}

/// One reader's pin; it keeps the log open, too.
#[derive(Debug)]
pub(super) struct Pin {
    wal: Wal,
    at: Lsn,
    // Where the pinned segment ends: the pin moves on when the reader comes there.
    segment_end: Lsn,
}

impl Pin {
    pub(super) fn at(&self) -> Lsn {
        self.at
    }
}

impl Pinned for Pin {
    fn check_process(&self) -> Result<()> {
        self.wal.handle.log.check_process()
    }

    fn advance(&mut self, lsn: Lsn) -> Lsn {
        if lsn >= self.segment_end {
            let pins = Arc::clone(&self.wal.handle.pins);
            pins.add(lsn);
            pins.remove(self.at);
            self.at = lsn;
            self.segment_end = self.wal.handle.segment_end(lsn);
        }
        self.segment_end
    }

    fn may_be_cut(&self, lsn: Lsn) -> bool {
        self.wal.handle.epochs.may_be_cut(lsn)
    }

    fn check_not_cut(&self, lsn: Lsn) -> Result<()> {
        self.wal.check_not_cut(lsn)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let handle = &self.wal.handle;
        if handle.log.check_process().is_err() {
            return;
        }
        handle.pins.remove(self.at);
        // A truncation that comes after this look finds the pin gone. If a release is in progress,
        // its callback may take long, and may be what drops this reader: do not wait for it.
        if self.at < self.wal.head_lsn()
            && let Some(_releasing) = handle.releasing.try_lock()
        {
            // A failure has nobody to go to.
            let _ = handle.release_alone();
        }
        // What was not released here is released by the next truncation.
    }
}

impl Wal {
    /// Keeps the segments from `at` on, or from the head on, for a reader.
    ///
    /// Looks at the head and pins under the lock under which a release decides how far it goes, so
    /// that what is pinned is there.
    pub(super) fn pin(&self, at: Option<Lsn>) -> Result<Pin> {
        let state = self.handle.state.lock();
        let at = at.unwrap_or(state.head);
        if at < state.head {
            return Err(below_head(at, state.head));
        }
        self.handle.pins.add(at);
        let segment_end = end_of_segment(at, state.segment_bytes);
        Ok(Pin { wal: self.clone(), at, segment_end })
    }

    /// Gives up all records below `lsn`, which stays: whole segments are freed and recycled, as
    /// far as no iterator reads them.
    ///
    /// Waits until everything below `lsn` is durable. An `lsn` at or below the head moves nothing,
    /// and frees what could not be freed before. The end that a crash or a truncation gave to the log
    /// counts as the place where it went on: who has replayed all of it may give up all of it.
    ///
    /// On files, a callback can get each segment before it is freed (`Options::on_release` of
    /// `palisade`). If it fails, the call returns its error; the head has moved all the same, and
    /// the next call tries again with the segment.
    ///
    /// # Durability
    /// The new head survives power loss when this returns.
    ///
    /// # Errors
    /// `NotARecord`: no record begins at `lsn`, and it is not the end of the log. `OutOfRange`:
    /// it lies above the end. `Truncated`: it lies within a range that a crash or
    /// [`truncate_after`](Wal::truncate_after) cut off. `NoSpace`, `Io`, and what a callback for
    /// released segments gives: the head may have moved, and nothing else is lost; call again.
    /// `Corrupt`, `Unsupported`: also the header of a segment that the callback is to get does not
    /// validate; that segment and all above stay. `Closed`, `Poisoned`.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let lsn = self.handle.epochs.past_an_end(lsn);
        if lsn <= self.head_lsn() {
            // What an earlier call or a reader left is freed all the same.
            return self.handle.release_unpinned();
        }
        match self.check_boundary(lsn) {
            // Another call was faster and went further: the log begins above already.
            Err(error) if error.kind() == ErrorKind::Truncated && lsn <= self.head_lsn() => {}
            checked => {
                checked?;
                self.handle.log.wait(lsn, None)?;
                self.handle.change_state(lsn, |state| state.head = state.head.max(lsn))?;
            }
        }
        self.handle.release_unpinned()
    }

    /// Records durably that everything below `lsn` has been applied elsewhere, and that it was
    /// durable: recovery refuses a log that ends below.
    ///
    /// Waits until everything below `lsn` is durable, and writes a mark that proves it for the
    /// records before. An `lsn` at or below the last checkpoint changes nothing. It does not
    /// free space: that is [`truncate_before`](Wal::truncate_before). A later
    /// [`truncate_after`](Wal::truncate_after) that cuts below it lowers it to the cut.
    ///
    /// # Errors
    /// As [`truncate_before`](Wal::truncate_before).
    pub fn checkpoint(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let lsn = self.handle.epochs.past_an_end(lsn);
        if lsn <= self.checkpoint_lsn() {
            // A later checkpoint says nothing for what was cut off before it.
            return self.check_not_cut(lsn);
        }
        self.check_boundary(lsn)?;
        self.handle.log.wait(lsn, None)?;
        let mark_end = self.append_mark()?;
        self.handle.log.wait(mark_end, None)?;
        self.handle.change_state(lsn, |state| state.checkpoint = state.checkpoint.max(lsn))
    }

    /// Refuses an LSN at which neither a record begins nor the log ends.
    fn check_boundary(&self, lsn: Lsn) -> Result<()> {
        // First: a truncation under way has begun the epoch and lets the tail jump there next.
        if lsn == self.handle.epochs.running_base() {
            return Ok(());
        }
        let reserved = self.reserved_lsn();
        if lsn > reserved {
            let text = format!("the log ends at LSN {reserved}");
            return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(lsn));
        }
        if lsn == reserved {
            return Ok(());
        }
        self.check_not_dead(lsn)?;
        self.frame_at(lsn).map(drop)
    }
}

impl Handle {
    pub(super) fn segment_end(&self, lsn: Lsn) -> Lsn {
        end_of_segment(lsn, self.state.lock().segment_bytes)
    }

    /// Sets the clean end: the end that CLOSED fixed, or the base of an epoch that a truncation
    /// under way has begun since; with it the list of epochs, for the next open. No state is saved
    /// afterwards.
    pub(super) fn save_clean_end(&self) -> Result<()> {
        // No release is under way when the store is closed, and none begins.
        let _releasing = self.releasing.lock();
        self.change_state(Lsn::ZERO, |state| {
            state.clean = true;
            state.clean_end = self.log.buffer.reserved();
            state.epochs = self.epochs.extents(state.head, state.clean_end);
        })
    }

    /// Saves a changed state that speaks of `lsn`, then lets it be seen. Who only looks does not
    /// wait for the device.
    fn change_state(&self, lsn: Lsn, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut saving = self.saving.lock();
        // No truncation comes between this look and the save.
        self.epochs.check_not_cut(lsn)?;
        let before = self.state.lock().clone();
        if before.clean {
            return Err(Error::bare(ErrorKind::Closed));
        }
        self.log.check()?;
        let mut next = before.clone();
        change(&mut next);
        if next != before {
            *saving = LastSave::Failed;
            self.log.store.save_state(&next)?;
            *saving = LastSave::Done;
            self.set_state(next);
        }
        Ok(())
    }

    /// Lets `state` be seen. The caller holds the lock `saving`.
    pub(super) fn set_state(&self, state: State) {
        let mut seen = self.state.lock();
        self.head.publish(state.head);
        // Relaxed: the value alone counts.
        self.checkpoint.store(state.checkpoint.as_u64(), Ordering::Relaxed);
        *seen = state;
    }

    /// Frees the segments below the head that no reader pins.
    fn release_unpinned(&self) -> Result<()> {
        let _releasing = self.releasing.lock();
        self.release_alone()
    }

    /// As [`release_unpinned`](Handle::release_unpinned), by a caller that holds the lock.
    fn release_alone(&self) -> Result<()> {
        let to = {
            let state = self.state.lock();
            if state.clean {
                return Ok(());
            }
            // Under the state's lock: a pin that is set later lies at or above this head.
            self.pins.lowest().map_or(state.head, |pin| pin.min(state.head))
        };
        // A reader that follows the log still goes through what it pins.
        self.epochs.forget_below(to);
        self.log.store.release(Lsn::ZERO, to)
    }

    /// Frees the segments of the dead range `[cut, base)`. They are never read; what is not freed
    /// here, the next open frees.
    pub(super) fn discard(&self, cut: Lsn, base: Lsn) {
        let _releasing = self.releasing.lock();
        let is_closed = self.state.lock().clean;
        if !is_closed {
            let _ = self.log.store.discard(cut, base);
        }
    }
}

fn end_of_segment(lsn: Lsn, segment_bytes: u64) -> Lsn {
    Lsn::new((lsn.segment(segment_bytes) + 1) * segment_bytes)
}

pub(super) fn below_head(lsn: Lsn, head: Lsn) -> Error {
    Error::new(ErrorKind::Truncated, format!("the log begins at LSN {head}")).at_lsn(lsn)
}
