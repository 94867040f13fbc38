//! Truncation of the suffix: the log ends at an earlier record and continues in a new epoch.
//!
//! # Steps
//! 1. Find the record that stays, and its end: the *new end*. If no record follows it, wait until
//!    it is durable and return.
//! 2. Pause the tail: set a flag that fixes the end of the log. Appends wait, or return `NoRoom`.
//!    With `pad_to_block` the pause first waits for room for the padding of the last block.
//! 3. Wait until everything below the fixed end is durable. The owners of reservations finish and
//!    waiters return, so no thread waits for a record that will be truncated.
//! 4. Take leadership, then the locks of the write cursor and of the saved state. If the last save
//!    of the state failed, save it again. Check the head and the record again.
//! 5. Create the new epoch's first segment. Its header names the new end as the end of the epoch
//!    before. First the header becomes durable, then the name. From here on the log is truncated,
//!    whatever happens.
//! 6. Move the durable mark in the log buffer, then write the log buffer's block, which assigns the
//!    log buffer to the new epoch.
//! 7. Save the state.
//! 8. In memory, change the list of epochs. Then the seed, the tail and the watermarks move to the
//!    new epoch, and the flag is cleared.
//! 9. Release the locks and leadership, serve observers, free the discarded segments.
//!
//! Before the segment of step 5 may have a name, a failure changes nothing: space, file descriptors
//! or LSNs run out, the wait of step 3 fails, or a check of step 4 fails. The pause then ends at
//! the fixed end. Any later failure poisons the log, because only the next open can find out which
//! epoch runs.
//!
//! A crash before the name of step 5 is durable leaves the log as it was. A crash after that leaves
//! a truncated log. Until step 6 the log buffer belongs to an older epoch than the newest segment,
//! so recovery does not read it. The mark moves before the block, because recovery would take a
//! mark below the epoch for damage.

use std::sync::Arc;

use super::epochs::truncated_error;
use super::truncate_before::below_head;
use super::{Handle, LastSave, Wal};
use crate::buffer::Stop;
use crate::frame::{EpochSeed, Header, Kind};
use crate::reader::EpochSpan;
use crate::recovery::no_lsn_left;
use crate::store::{Epoch, Predecessor, State, Store};
use crate::{Error, ErrorKind, Lsn, Result};

/// Why the new epoch did not begin.
enum Failed {
    /// Nothing was changed: the old epoch continues.
    Unchanged(Error),
    /// The new epoch may have begun. Only the next open can find out.
    Unknown(Error),
}

impl Wal {
    /// Truncates all records above the one at `lsn`, which becomes the last record.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let new_end = self.end_of_kept(lsn)?;
        self.handle.truncate_above(lsn, new_end)
    }

    /// Returns the end of the record at `lsn`. If the record is in a batch, it must be the last of
    /// the batch, and both have the same end.
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

    /// Returns the batch that holds the member at `lsn`. The search starts where a frame begins: at
    /// the base of the segment, or of the epoch if that is higher.
    fn batch_around(&self, lsn: Lsn) -> Result<(Lsn, Header)> {
        let span = self.handle.epochs.find(lsn).ok_or_else(|| truncated_error(lsn))?;
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
        let text = "no batch holds a record with the member flag";
        Err(Error::new(ErrorKind::Corrupt, text).at_lsn(at))
    }
}

impl Handle {
    /// Runs steps 2 to 9 for the record at `lsn`, which ends at `new_end`. If no record follows it,
    /// only waits until it is durable.
    pub(super) fn truncate_above(&self, lsn: Lsn, new_end: Lsn) -> Result<()> {
        let log = &*self.log;
        if self.is_end_of_log(new_end) {
            return log.wait(new_end, None).map(drop);
        }
        let end = log.fix_end(Stop::Paused)?;
        match log.poison_on_panic(|| self.begin_epoch(lsn, new_end, end)) {
            Ok(base) => {
                self.discard(new_end, base);
                Ok(())
            }
            Err(Failed::Unchanged(error)) => {
                log.buffer.resume(end, log.buffer.seed());
                Err(error)
            }
            Err(Failed::Unknown(error)) => Err(log.poison(error)),
        }
    }

    /// Returns whether the log has no record above `new_end`.
    fn is_end_of_log(&self, new_end: Lsn) -> bool {
        let reserved = self.log.buffer.reserved();
        let is_empty = reserved == self.epochs.running_base();
        new_end == reserved || (is_empty && self.epochs.skip_discarded(new_end) == reserved)
    }

    /// Runs steps 3 to 8, and releases the locks and leadership. Returns the new epoch's base.
    fn begin_epoch(&self, lsn: Lsn, new_end: Lsn, end: Lsn) -> std::result::Result<Lsn, Failed> {
        self.log.wait(end, None).map_err(Failed::Unchanged)?;
        let switched = self.log.with_leadership(|cursor| {
            let mut saving = self.saving.lock();
            self.save_state_again(&mut saving).map_err(Failed::Unchanged)?;
            let (base, seed) = self.store_epoch(lsn, new_end, end)?;
            self.log.jump(cursor, base, seed);
            Ok(base)
        });
        switched.map_err(Failed::Unchanged)?
    }

    /// Saves the state again if the last save failed. The store may then hold a head or a
    /// checkpoint above the new end.
    fn save_state_again(&self, saving: &mut LastSave) -> Result<()> {
        if *saving == LastSave::Failed {
            let state = self.state.lock().clone();
            self.log.store.save_state(&state)?;
            *saving = LastSave::Done;
        }
        Ok(())
    }

    /// Runs the check of step 4, steps 5 to 7, and changes the list of epochs (step 8). The caller
    /// holds the lock of the saved state. Returns the new epoch's base and seed.
    fn store_epoch(
        &self,
        lsn: Lsn,
        new_end: Lsn,
        end: Lsn,
    ) -> std::result::Result<(Lsn, EpochSeed), Failed> {
        let before = self.state.lock().clone();
        self.check_may_truncate(&before, lsn).map_err(Failed::Unchanged)?;
        let kept = self.epochs.find(lsn).ok_or_else(|| Failed::Unchanged(truncated_error(lsn)))?;
        let predecessor = Predecessor { epoch: kept.epoch, end: new_end };
        let store = &self.log.store;
        let epoch = create_first_segment(store, &before, predecessor, end)?;
        let (number, salt, base) = (epoch.number, epoch.salt, epoch.base);
        let state = State {
            epoch: number,
            epoch_base: base,
            epoch_salt: salt,
            checkpoint: before.checkpoint.min(new_end),
            ..before
        };
        store
            .mark_durable(base)
            .and_then(|()| store.pass_buffer_on(number))
            .and_then(|()| store.save_state(&state))
            .map_err(Failed::Unknown)?;
        let running = EpochSpan::open_ended(state.uuid, number, salt, base);
        self.set_state(state);
        self.epochs.truncate(new_end, running);
        Ok((base, running.seed))
    }

    /// Checks again that the log is open and holds the record at `lsn`. The caller's lock keeps the
    /// head and the clean end from moving.
    fn check_may_truncate(&self, state: &State, lsn: Lsn) -> Result<()> {
        if state.clean {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if lsn < state.head {
            return Err(below_head(lsn, state.head));
        }
        self.log.check()
    }
}

/// Runs step 5. The base is the first segment start at or above the end of every reservation and of
/// every segment that was prepared for the epoch before.
///
/// The store may be preparing one more segment meanwhile and then refuses the base. So this tries
/// again with a higher base, at most up to the last LSN.
fn create_first_segment(
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
