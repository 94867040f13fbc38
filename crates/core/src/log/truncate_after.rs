//! Truncation of the suffix: the log ends at an earlier record and continues in a new epoch.
//!
//! # Steps
//! 1. Find the *new end*, the end of the last frame that stays. If there is nothing to remove or
//!    append, wait until the log is durable up to there, and return.
//! 2. Pause the tail, which fixes the end of the log: appends wait, or return `NoRoom`. With
//!    `pad_to_block`, first wait for room for the padding of the last block.
//! 3. Wait until the fixed end is durable, so that no thread waits for a record that goes. This
//!    step and step 5 may pass `max_bytes`.
//! 4. Take leadership, then the locks of the write cursor and of the saved state. Repeat a failed
//!    save of the state. Check the head and the record again.
//! 5. Create the new epoch's first segment. Its header names the new end, and its log begins with
//!    the records of `replace_from`. Its name becomes durable last; then every later open finds the
//!    new epoch.
//! 6. Move the durable mark in the log buffer. Then write its header block with the new epoch's
//!    number: it must never name the new epoch while its mark is below the new base.
//! 7. Save the state.
//! 8. Under the locks of the state and of the list of epochs, so that a reader sees all of a
//!    replacement or nothing: change both, set the seed, move the tail to the end of the first
//!    records, which clears the flag, then move the watermarks.
//! 9. Release the locks and leadership, wake the waiting threads, and free the discarded segments.
//!    A thread in a release, whose callback may take long, frees them instead.
//!
//! A failure of step 3 or 4, or a lack of space, file descriptors or LSNs in step 5, changes
//! nothing: the tail continues at the fixed end. Another failure of the steps 5 to 8 poisons the
//! log, because only the next open can find out which epoch runs. After a crash between steps 5 and
//! 6, recovery ignores the log buffer of the old epoch.

use palisade_store::{BadHeader, Epoch, Predecessor, ReadStore, State};

use super::epochs::truncated_error;
use super::first_records::FirstRecords;
use super::pins::PinKind;
use super::truncate_before::below_head;
use super::{Handle, LastSave, Wal};
use crate::buffer::Stop;
use crate::commit::{Commit, WriteCursor};
use crate::events::span;
use crate::frame::{EpochSeed, HEADER_BYTES, Header, Kind, no_lsn_left};
use crate::reader::EpochSpan;
use crate::{Error, ErrorKind, Lsn, Result};

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEnd {
    /// The last record that stays, the first one that goes, or the end.
    pub(crate) record: Lsn,
    /// The end of the last frame that stays.
    pub(crate) new_end: Lsn,
}

struct Begun {
    base: Lsn,
    new_end: Lsn,
}

enum Failed {
    Unchanged(Error),
    Unknown(Error),
}

impl Wal {
    /// Truncates all records above the one at `lsn`. Blocks for some device syncs, and for appends
    /// in progress, so the closure of an [`append_with`](Wal::append_with) must not call it.
    ///
    /// The log continues in another segment, also above [`max_bytes`](crate::Options::max_bytes),
    /// with LSNs greater than all before. The old segment stays until
    /// [`truncate_before`](Wal::truncate_before) frees it. Concurrent appends wait, but
    /// [`try_append`](Wal::try_append) returns `NoRoom`. Each use of a truncated record returns
    /// `Truncated`, also by an iterator that was created before.
    ///
    /// # Durability
    /// The records up to the one at `lsn` survive power loss when this returns, and the truncated
    /// ones never come back. A crash in between leaves the log as it was, or truncated.
    ///
    /// ```
    /// # fn show(wal: &palisade::Wal) -> palisade::Result<()> {
    /// let kept = wal.append(b"agreed")?.lsn();
    /// let overruled = wal.append(b"overruled")?.lsn();
    /// wal.truncate_after(kept)?;
    /// assert_eq!(wal.get(overruled).unwrap_err().kind(), palisade::ErrorKind::Truncated);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Poisoned`: the next open shows whether the log was truncated. Other errors change nothing:
    /// `NotARecord`, `Truncated`, `NoSpace`. `InvalidArgument`: the record is in a batch and is not
    /// its last. `OutOfRange`: also if no segment is left below [`Lsn::LIMIT`]. `Corrupt`, `Io`:
    /// the log cannot read the record.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_after", log = %self.uuid(), lsn = lsn.as_u64());
        self.begin_to_truncate(lsn)?;
        let place = NewEnd { record: lsn, new_end: self.end_of_kept(lsn)? };
        self.handle.truncate_above(place, FirstRecords::default()).map(drop)
    }

    /// Truncates the record at `lsn` and all above it, as [`truncate_after`](Wal::truncate_after)
    /// does. `lsn` can also be the end of a record ([`Record::next_lsn`](crate::Record::next_lsn)).
    ///
    /// # Errors
    /// As [`truncate_after`](Wal::truncate_after), except `InvalidArgument`: the record is in a
    /// batch and is not its first. `Corrupt`, `Io`: also for the header of the segment.
    pub fn truncate_from(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_from", log = %self.uuid(), lsn = lsn.as_u64());
        self.begin_to_truncate(lsn)?;
        let place = self.before_removed(lsn)?;
        self.handle.truncate_above(place, FirstRecords::default()).map(drop)
    }

    /// Truncates as [`truncate_from`](Wal::truncate_from) does, appends `records` in the same step,
    /// and returns their LSNs. If the engine needs other records above `lsn`, such as Raft votes,
    /// it passes them again.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// let entry = wal.append(b"entry 1 of term 1")?.lsn();
    /// wal.append(b"vote in term 2")?;
    /// let replaced = wal.replace_from(entry, ["vote in term 2", "entry 1 of term 2"])?;
    /// assert_eq!(wal.get(replaced[1])?.data(), b"entry 1 of term 2");
    /// assert_eq!(wal.records()?.into_iter().count(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Durability
    /// The records below `lsn`, and `records`, survive power loss when this returns. A crash in
    /// between leaves the log as it was, or with all of `records`.
    ///
    /// # Errors
    /// As [`truncate_from`](Wal::truncate_from). `TooLarge`: all frames together are larger than
    /// the largest one ([`max_record_bytes`](Wal::max_record_bytes)); append the rest afterwards.
    pub fn replace_from<I>(&self, lsn: Lsn, records: I) -> Result<Vec<Lsn>>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        self.replace_from_tagged(lsn, records.into_iter().map(|record| (0, record)))
    }

    /// Replaces as [`replace_from`](Wal::replace_from) does, each new record with its tag.
    ///
    /// # Errors
    /// As [`replace_from`](Wal::replace_from).
    pub fn replace_from_tagged<I, R>(&self, lsn: Lsn, records: I) -> Result<Vec<Lsn>>
    where
        I: IntoIterator<Item = (u16, R)>,
        R: AsRef<[u8]>,
    {
        span!("replace_from", log = %self.uuid(), lsn = lsn.as_u64());
        self.begin_to_truncate(lsn)?;
        let most = self.handle.max_frame_bytes as usize;
        let first = FirstRecords::copy(records, self.codec(), most)?;
        // In a child that the records' iterator forked, the log belongs to the parent.
        self.handle.commit.own()?;
        self.handle.truncate_above(self.before_removed(lsn)?, first)
    }

    /// If only the log buffer holds the record at `lsn`, lets step 1 exceed `max_bytes`.
    fn begin_to_truncate(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let end = self.reserved_lsn();
        if self.written_lsn() <= lsn && lsn < end {
            self.handle.commit.own()?.store.exceed_limit_below(end);
        }
        Ok(())
    }

    fn end_of_kept(&self, lsn: Lsn) -> Result<Lsn> {
        // Read the stored record: its end does not depend on the codec.
        let record = self.get_stored(lsn)?;
        if !self.frame_at(lsn)?.is_member() {
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

    /// The record at `lsn` must be the first of its batch, even if that is below the head. `lsn`
    /// may be the end of the log, or of the epoch before an empty one.
    fn before_removed(&self, lsn: Lsn) -> Result<NewEnd> {
        let epochs = &self.handle.epochs;
        let (base, reserved) = (epochs.running_base(), self.reserved_lsn());
        // Skip only to the base of an empty epoch: any other skip would turn a stale LSN into the
        // LSN of a newer record.
        let is_end = lsn == reserved || (base == reserved && epochs.skip_end_of_epoch(lsn) == base);
        if is_end {
            return Ok(NewEnd { record: reserved, new_end: reserved });
        }
        let whole = NewEnd { record: lsn, new_end: lsn };
        self.check_readable(lsn)?;
        if !self.frame_at(lsn)?.is_member() {
            return Ok(whole);
        }
        let (batch, _) = self.batch_around(lsn)?;
        if lsn == batch.plus(HEADER_BYTES as u64) {
            return Ok(NewEnd { new_end: batch, ..whole });
        }
        let text = "the record is not the first of its batch, whose records stay or go together";
        let advice = "name the first record of the batch; if that is below the head, \
                      truncate_before(reserved_lsn()) empties the log";
        Err(Error::new(ErrorKind::InvalidArgument, text).at_lsn(lsn).with_advice(advice))
    }

    fn batch_around(&self, lsn: Lsn) -> Result<(Lsn, Header)> {
        let span = self.handle.epochs.find(lsn).ok_or_else(|| truncated_error(lsn))?;
        let _pin = self.pin(PinKind::Reader, Some(lsn))?;
        let mut reader = self.frame_reader(self.handle.read_ahead_bytes);
        let mut at = lsn.segment_start(self.handle.segment_bytes).max(span.base);
        while at < lsn {
            let Some(header) = reader.header(at, span.seed)? else { break };
            if header.kind == Kind::Batch && lsn < at.plus(header.frame_bytes) {
                return Ok((at, header));
            }
            at = at.plus(header.frame_bytes);
        }
        let text = "no batch holds a record with the member flag";
        Err(reader.located(Error::new(ErrorKind::Corrupt, text), at))
    }
}

impl Handle {
    /// Runs steps 2 to 9, or only waits as in step 1.
    pub(super) fn truncate_above(
        &self,
        place: NewEnd,
        mut first: FirstRecords,
    ) -> Result<Vec<Lsn>> {
        let log = self.commit.own()?;
        if first.is_empty() && self.is_end_of_log(place.new_end) {
            return log.wait(place.new_end, None).map(|_| Vec::new());
        }
        let end = log.fix_end(Stop::Paused)?;
        log.store.exceed_limit_below(end);
        match log.poison_on_panic(|| self.begin_epoch(log, place, end, &mut first)) {
            Ok(begun) => {
                self.discard(begun.new_end, begun.base);
                Ok(first.lsns(begun.base))
            }
            Err(Failed::Unchanged(error)) => {
                log.buffer.resume(end, log.buffer.seed());
                Err(error)
            }
            Err(Failed::Unknown(error)) => Err(log.poison(error)),
        }
    }

    fn is_end_of_log(&self, new_end: Lsn) -> bool {
        let reserved = self.commit.lock_free().buffer.reserved();
        let is_empty = reserved == self.epochs.running_base();
        new_end == reserved || (is_empty && self.epochs.skip_discarded(new_end) == reserved)
    }

    /// Runs steps 3 to 8, and releases what step 4 took.
    fn begin_epoch(
        &self,
        log: &Commit,
        place: NewEnd,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<Begun, Failed> {
        log.wait(end, None).map_err(Failed::Unchanged)?;
        let switched = log.with_leadership(|cursor| {
            let mut saving = self.saving.lock();
            // A failure is noted under the locks: a thread that waits for one of them must not save
            // a state of the old epoch above it.
            let switched = log.note_panic(|| {
                self.save_state_again(log, &mut saving).map_err(Failed::Unchanged)?;
                self.switch_epoch(log, cursor, place, end, first)
            });
            switched.map_err(|failed| match failed {
                Failed::Unknown(error) => Failed::Unknown(log.note_failure(error)),
                unchanged => unchanged,
            })
        });
        switched.map_err(Failed::Unchanged)?
    }

    /// Runs steps 5 to 8 under the locks of step 4.
    fn switch_epoch(
        &self,
        log: &Commit,
        cursor: &mut WriteCursor,
        place: NewEnd,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<Begun, Failed> {
        let (begun, state, running) = self.store_epoch(log, place, end, first)?;
        let tail = first.end(begun.base);
        self.set_state_and(state, || {
            let jump = || log.jump(cursor, tail, running.seed);
            self.epochs.truncate(begun.new_end, running, jump);
        });
        log.store.prepare_ahead(tail);
        Ok(begun)
    }

    /// After a failed save the store may hold a head or a checkpoint above the new end.
    fn save_state_again(&self, log: &Commit, saving: &mut LastSave) -> Result<()> {
        if *saving == LastSave::Failed {
            let state = self.state.lock().clone();
            log.store.save_state(&state)?;
            *saving = LastSave::Done;
        }
        Ok(())
    }

    /// Runs the check of step 4, and steps 5 to 7.
    fn store_epoch(
        &self,
        log: &Commit,
        place: NewEnd,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<(Begun, State, EpochSpan), Failed> {
        let before = self.state.lock().clone();
        self.check_may_truncate(log, &before, place.record).map_err(Failed::Unchanged)?;
        let predecessor = self.predecessor(log, place).map_err(Failed::Unchanged)?;
        let new_end = predecessor.end;
        let epoch = self.create_first_segment(log, &before, predecessor, end, first)?;
        let (number, salt, base) = (epoch.number, epoch.salt, epoch.base);
        let mut state = State {
            epoch: number,
            epoch_base: base,
            epoch_salt: salt,
            checkpoint: before.checkpoint.min(new_end),
            ..before
        };
        state.note_base(new_end, base);
        let store = &log.store;
        // The first two in any order: an open ignores the buffer of the epoch before, and every
        // mark of that epoch is below the base.
        store
            .mark_durable(first.end(base))
            .and_then(|()| store.pass_buffer_on(number))
            .and_then(|()| store.save_state(&state))
            .map_err(Failed::Unknown)?;
        let running = EpochSpan::open_ended(state.uuid, number, salt, base);
        Ok((Begun { base, new_end }, state, running))
    }

    /// If no frame of an epoch stays, the new one follows that epoch's predecessor, which the
    /// header of the first segment names. If it names none, the segment is a later one of its
    /// epoch.
    fn predecessor(&self, log: &Commit, place: NewEnd) -> Result<Predecessor> {
        let NewEnd { record, new_end } = place;
        let around = self.epochs.find(record).ok_or_else(|| truncated_error(record))?;
        if around.base < new_end {
            return Ok(Predecessor { epoch: around.epoch, end: new_end });
        }
        if let Some(before) = self.epochs.before(around.base) {
            return Ok(Predecessor { epoch: before.epoch, end: before.end });
        }
        let number = around.base.segment(self.segment_bytes);
        let (_, segments) = log.store.segments_from(number)?;
        let first = segments.into_iter().next().filter(|segment| segment.number == number);
        let missing = || BadHeader::Damaged("the segment is missing".into());
        let header = first.map_or_else(|| Err(missing()), |segment| segment.header);
        let header = header.map_err(|bad| {
            let text = format!("the header of the segment does not validate: {bad}");
            let place = log.store.segment_place(number);
            Error::new(bad.kind(), text).at_path(place).at_segment(number)
        })?;
        Ok(header.predecessor.unwrap_or(Predecessor { epoch: around.epoch, end: new_end }))
    }

    /// Runs step 5. The base is the first segment start above every reservation and prepared
    /// segment, so that the truncated range has the end of each truncated record. The store may
    /// prepare one more meanwhile.
    fn create_first_segment(
        &self,
        log: &Commit,
        before: &State,
        predecessor: Predecessor,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<Epoch, Failed> {
        let store = &log.store;
        let (uuid, segment_bytes) = (before.uuid, before.segment_bytes);
        let number = before.epoch + 1;
        loop {
            let above = end.plus(1).max(store.prepared());
            let base = above.segment_start_at_or_above(segment_bytes);
            if base.plus(segment_bytes) > Lsn::LIMIT {
                return Err(Failed::Unchanged(no_lsn_left(base)));
            }
            let salt = store.random().map_err(Failed::Unchanged)?;
            let epoch = Epoch { number, salt, base, predecessor };
            let seed = EpochSeed::new(uuid, number, epoch.salt);
            let bytes = first.encode(seed, base, log.buffer.block_bytes());
            match store.begin_epoch(&epoch, bytes) {
                Ok(()) => return Ok(epoch),
                // More was prepared meanwhile, so the next base is higher.
                Err(error) if error.kind() == ErrorKind::OutOfRange => {}
                Err(error) if error.is_shortage() => {
                    return Err(Failed::Unchanged(error));
                }
                Err(error) => return Err(Failed::Unknown(error)),
            }
        }
    }

    /// The caller's lock keeps the head and the clean end from moving.
    fn check_may_truncate(&self, log: &Commit, state: &State, lsn: Lsn) -> Result<()> {
        if state.clean {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if lsn < state.head {
            return Err(below_head(lsn, state.head));
        }
        log.check()
    }
}
