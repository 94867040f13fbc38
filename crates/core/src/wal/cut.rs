//! Truncation of the suffix: the log ends at an earlier record and goes on in a new epoch.
//!
//! # Steps
//! 1. Find the record that stays, and its end: the *cut*.
//! 2. Pause the tail: the flag fixes the end. Appends wait, or get `NoRoom`. With `pad_to_block`
//!    there is room for the padding before the flag is set.
//! 3. Wait until all below the fixed end is durable. Owners of reservations finish, whoever
//!    waits is served: nobody is left who waits for what will be cut.
//! 4. Take leadership, then the locks of the saved state and of the write cursor. Look again at
//!    the head and at the record.
//! 5. The new epoch's first segment, whose header says that the epoch before ends at the cut:
//!    header durable, then name durable. From here on the log is cut, whatever happens.
//! 6. The durable mark, then the log buffer's block: the ring belongs to the new epoch.
//! 7. The state.
//! 8. In memory: the list of epochs, the seed, the tail without the flag, the watermarks.
//! 9. Give the locks and leadership back, serve observers, free the dead segments.
//!
//! Lack of space up to step 5 ends the pause at the fixed end: nothing was changed. A failure
//! after the segment may have got its name poisons: only the next open can tell.
//!
//! A crash before the name of step 5 is durable leaves the log as it was; after it, the log is
//! cut. In between the ring is of an older epoch than the newest segment, and recovery does not
//! look into it; the mark is moved before the block, because a mark below the epoch would
//! be taken for damage.

use std::sync::Arc;

use super::ends::below_head;
use super::epochs::cut_off;
use super::{Handle, LastSave, Wal};
use crate::buffer::Stop;
use crate::frame::{EpochSeed, Header, Kind};
use crate::reader::EpochSpan;
use crate::recovery::no_lsn_left;
use crate::store::{Epoch, Predecessor, State, Store};
use crate::{Error, ErrorKind, Lsn, Result};

/// Why the new epoch did not begin.
enum Failed {
    /// Nothing was changed: the old one goes on.
    Unchanged(Error),
    /// It may have begun: nothing is known before the next open.
    Unknown(Error),
}

impl Wal {
    /// Cuts off all records above the one at `lsn`, which stays the last. For Raft, whose leader
    /// overrules what a follower appended.
    ///
    /// Appends meanwhile wait ([`try_append`](Wal::try_append) gives `NoRoom`) and land behind the
    /// cut. Their LSNs are greater than all before: no LSN is used twice. What was cut gives
    /// `Truncated` from then on: tickets, waits, callbacks, `get`, and iterators that were under
    /// way when they come to the cut; a new iterator steps over it.
    ///
    /// Blocks for some device syncs, and for appends in progress: the closure of an
    /// [`append_with`](Wal::append_with) must not call it.
    ///
    /// # Durability
    /// All up to the record at `lsn` survives power loss when this returns, and what was cut
    /// never comes back. A crash in between leaves the log as it was, or cut.
    ///
    /// ```
    /// # fn show(wal: &palisade_core::Wal) -> palisade_core::Result<()> {
    /// let kept = wal.append(b"agreed")?.lsn();
    /// let cut = wal.append(b"overruled")?.lsn();
    /// wal.truncate_after(kept)?;
    /// assert_eq!(wal.get(cut).unwrap_err().kind(), palisade_core::ErrorKind::Truncated);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Nothing was changed: `NotARecord`: no record begins at `lsn`. `InvalidArgument`: it lies in
    /// a batch and is not its last. `OutOfRange`: it lies above the end, or no segment is left
    /// below [`Lsn::LIMIT`] to go on in. `Truncated`: it lies below
    /// the head, or was cut off before. `NoSpace`: free space and call again. `Closed`. `Poisoned`:
    /// the next open shows whether the log was cut.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let cut = self.end_of_kept(lsn)?;
        self.handle.cut_after(lsn, cut)
    }

    /// The end of the record at `lsn`, or of the batch that it is the last of.
    fn end_of_kept(&self, lsn: Lsn) -> Result<Lsn> {
        let record = self.get(lsn)?;
        if !self.frame_at(lsn)?.is_member {
            return Ok(record.next_lsn());
        }
        let (batch, header) = self.batch_around(lsn)?;
        let end = batch.plus(header.frame_bytes);
        if record.next_lsn() == end {
            return Ok(end);
        }
        let text = format!("the record is not the last of its batch, which ends at LSN {end}");
        Err(Error::new(ErrorKind::InvalidArgument, text).at_lsn(lsn))
    }

    /// The batch that holds the member at `lsn`: a segment begins with a frame.
    fn batch_around(&self, lsn: Lsn) -> Result<(Lsn, Header)> {
        let span = self.handle.epochs.find(lsn).ok_or_else(|| cut_off(lsn))?;
        let pin = self.pin(Some(lsn))?;
        let segment_bytes = self.handle.state.lock().segment_bytes;
        let mut reader = self.frame_reader(self.handle.read_ahead_bytes);
        let mut at = Lsn::new(lsn.as_u64() - lsn.as_u64() % segment_bytes).max(span.base);
        while at < lsn {
            let Some(header) = reader.header(at, span.seed)? else { break };
            if header.kind == Kind::Batch && lsn < at.plus(header.frame_bytes) {
                drop(pin);
                return Ok((at, header));
            }
            at = at.plus(header.frame_bytes);
        }
        let text = "no batch lies around a record that says that it is in one";
        Err(Error::new(ErrorKind::Corrupt, text).at_lsn(at))
    }
}

impl Handle {
    /// Steps 2 to 9 for the record at `lsn`, which ends at `cut`.
    pub(super) fn cut_after(&self, lsn: Lsn, cut: Lsn) -> Result<()> {
        let log = &*self.log;
        if self.is_end(cut) {
            return log.wait(cut, None).map(drop);
        }
        let end = log.fix_end(Stop::Paused)?;
        match log.poison_on_panic(|| self.switch(lsn, cut, end)) {
            Ok(base) => {
                self.discard(cut, base);
                Ok(())
            }
            Err(Failed::Unchanged(error)) => {
                log.buffer.resume(end, log.buffer.seed());
                Err(error)
            }
            Err(Failed::Unknown(error)) => Err(log.poison(error)),
        }
    }

    /// Whether no record lies behind `cut`.
    fn is_end(&self, cut: Lsn) -> bool {
        let reserved = self.log.buffer.reserved();
        let is_empty = reserved == self.epochs.running_base();
        cut == reserved || (is_empty && self.epochs.alive_at_or_above(cut) == reserved)
    }

    /// Steps 3 to 9, less the freeing: returns the new epoch's base.
    fn switch(&self, lsn: Lsn, cut: Lsn, end: Lsn) -> std::result::Result<Lsn, Failed> {
        self.log.wait(end, None).map_err(Failed::Unchanged)?;
        let switched = self.log.with_leadership(|cursor| {
            let mut saving = self.saving.lock();
            self.settle_state(&mut saving).map_err(Failed::Unchanged)?;
            let (base, seed) = self.begin_life(lsn, cut, end)?;
            self.log.jump(cursor, base, seed);
            Ok(base)
        });
        switched.map_err(Failed::Unchanged)?
    }

    /// After a save that failed the store may have a head or a checkpoint above the cut.
    fn settle_state(&self, saving: &mut LastSave) -> Result<()> {
        if *saving == LastSave::Failed {
            let state = self.state.lock().clone();
            self.log.store.save_state(&state)?;
            *saving = LastSave::Done;
        }
        Ok(())
    }

    /// Steps 5 to 7 and the list of epochs. The caller holds the lock of the saved state.
    fn begin_life(
        &self,
        lsn: Lsn,
        cut: Lsn,
        end: Lsn,
    ) -> std::result::Result<(Lsn, EpochSeed), Failed> {
        let before = self.state.lock().clone();
        self.check_may_cut(&before, lsn).map_err(Failed::Unchanged)?;
        let kept = self.epochs.find(lsn).ok_or_else(|| Failed::Unchanged(cut_off(lsn)))?;
        let predecessor = Predecessor { epoch: kept.epoch, end: cut };
        let store = &self.log.store;
        let epoch = begin_epoch(store, &before, predecessor, end)?;
        let (number, salt, base) = (epoch.number, epoch.salt, epoch.base);
        let state = State {
            epoch: number,
            epoch_base: base,
            epoch_salt: salt,
            checkpoint: before.checkpoint.min(cut),
            ..before
        };
        store
            .mark_durable(base)
            .and_then(|()| store.pass_buffer_on(number))
            .and_then(|()| store.save_state(&state))
            .map_err(Failed::Unknown)?;
        let running = EpochSpan::open_ended(state.uuid, number, salt, base);
        self.set_state(state);
        self.epochs.cut(cut, running);
        Ok((base, running.seed))
    }

    /// Looks again, under the lock that keeps the head and the clean end where they are.
    fn check_may_cut(&self, state: &State, lsn: Lsn) -> Result<()> {
        if state.clean {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if lsn < state.head {
            return Err(below_head(lsn, state.head));
        }
        self.log.check()
    }
}

/// Step 5. The base is the first segment start that is above every reservation and every segment
/// that was prepared for the epoch before; the store may be preparing one more. Each round begins
/// higher, so the last LSN ends them.
fn begin_epoch(
    store: &Arc<dyn Store>,
    before: &State,
    predecessor: Predecessor,
    end: Lsn,
) -> std::result::Result<Epoch, Failed> {
    let segment_bytes = before.segment_bytes;
    loop {
        let base = end.max(store.prepared()).segment_start_at_or_above(segment_bytes);
        if base.plus(segment_bytes) > Lsn::LIMIT {
            return Err(Failed::Unchanged(no_lsn_left(base)));
        }
        let epoch = Epoch { number: before.epoch + 1, salt: store.random(), base, predecessor };
        match store.begin_epoch(&epoch) {
            Ok(()) => return Ok(epoch),
            Err(error) if error.kind() == ErrorKind::OutOfRange => {
                if store.prepared() <= base {
                    return Err(Failed::Unchanged(error));
                }
            }
            Err(error) if error.is_shortage() => {
                return Err(Failed::Unchanged(error));
            }
            Err(error) => return Err(Failed::Unknown(error)),
        }
    }
}
