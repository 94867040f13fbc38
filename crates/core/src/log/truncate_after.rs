//! Truncation of the suffix: the log ends at an earlier record and continues in a new epoch.
//!
//! # Steps
//! 1. Find the *new end*, the end of the last frame that stays. If no record is above it and there
//!    is nothing to append, wait until everything below it is durable, and return.
//! 2. Pause the tail: set a flag that fixes the end of the log. Appends wait, or return `NoRoom`.
//!    With `pad_to_block`, first wait for room for the padding of the last block.
//! 3. Wait until everything below the fixed end is durable. Then no thread waits for a record that
//!    will be truncated. This wait and step 5 may pass `max_bytes`, because the truncation frees
//!    space.
//! 4. Take leadership, then the locks of the write cursor and of the saved state. If the last save
//!    of the state failed, save it again. Check the head and the record again.
//! 5. Create the new epoch's first segment. Its header names the new end as the end of the epoch
//!    before. Its log begins with the records of `replace_from`. First the header and the records
//!    become durable, then the name. Once the name is durable, the log is truncated: every later
//!    open finds the new epoch.
//! 6. Move the durable mark in the log buffer. Then write the log buffer's header block with the
//!    number of the new epoch.
//! 7. Save the state.
//! 8. In memory, change the state and the list of epochs. Then set the seed, and move the tail to
//!    the end of the new epoch's first records, which also clears the flag. Then move the
//!    watermarks. All of it happens under the locks of the state and of the list, so a reader that
//!    takes them sees all of a replacement or nothing.
//! 9. Release the locks and leadership, wake the waiting threads, and free the discarded segments.
//!    If another thread frees segments below the head, that thread frees these, too: its callback
//!    may take long.
//!
//! A failure of step 3 or 4 changes nothing. Neither does a lack of space, file descriptors or LSNs
//! in step 5. The tail then continues at the fixed end. Any other failure of the steps 5 to 8
//! poisons the log, because only the next open can find out which epoch runs.
//!
//! A crash before the name of step 5 is durable leaves the log as it was. A later crash leaves a
//! truncated log. Until step 6 the log buffer belongs to the old epoch, so recovery does not read
//! the buffer. The mark moves before the header block is written: the buffer must never name the
//! new epoch while its mark is below the new base.

use palisade_store::{BadHeader, Epoch, Predecessor, ReadStore, State};

use super::epochs::truncated_error;
use super::first_records::FirstRecords;
use super::pins::PinKind;
use super::truncate_before::below_head;
use super::{Handle, LastSave, Wal};
use crate::buffer::Stop;
use crate::commit::WriteCursor;
use crate::events::span;
use crate::frame::{EpochSeed, HEADER_BYTES, Header, Kind};
use crate::reader::EpochSpan;
use crate::recovery::no_lsn_left;
use crate::{Error, ErrorKind, Lsn, Result};

/// Where the log ends after a truncation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEnd {
    /// The last record that stays, the first one that goes, or the end of the log. A record must
    /// still be in the log when the truncation begins.
    pub(crate) record: Lsn,
    /// The end of the last frame that stays.
    pub(crate) new_end: Lsn,
}

/// An epoch that has begun.
struct Begun {
    base: Lsn,
    /// The end of the epoch before.
    new_end: Lsn,
}

/// Why the new epoch did not begin.
enum Failed {
    /// Nothing was changed: the old epoch continues.
    Unchanged(Error),
    /// The new epoch may have begun. Only the next open can find out.
    Unknown(Error),
}

impl Wal {
    /// Truncates all records above the one at `lsn`, which becomes the last. For example, a Raft
    /// follower calls it when the Raft leader overrules entries that the follower has appended.
    /// [`truncate_from`](Wal::truncate_from) also removes the record at `lsn`, and
    /// [`replace_from`](Wal::replace_from) appends others in the same step.
    ///
    /// The log continues in another segment, also above
    /// [`max_bytes`](crate::Options::max_bytes). The segment of the last record stays until
    /// [`truncate_before`](Wal::truncate_before) frees it.
    ///
    /// Concurrent appends wait ([`try_append`](Wal::try_append) returns `NoRoom`) and continue
    /// after the new end. Their LSNs are greater than all before: no LSN is used twice. Every use
    /// of a truncated record returns `Truncated` from then on: tickets, waits, callbacks and `get`.
    /// An iterator that was created before returns it when it reaches the new end; a new iterator
    /// skips the truncated range.
    ///
    /// Blocks for some device syncs, and for appends in progress. The closure of an
    /// [`append_with`](Wal::append_with) must not call it.
    ///
    /// # Durability
    /// All records up to the one at `lsn` survive power loss when this returns, and the truncated
    /// records never come back. A crash in between leaves the log as it was, or truncated.
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
    /// `Poisoned`: the next open shows whether the log was truncated. After each other error
    /// nothing was changed. `NotARecord`: no record begins at `lsn`. `InvalidArgument`: the record
    /// is in a batch and is not its last. `OutOfRange`: `lsn` is above the end, or no segment is
    /// left below [`Lsn::LIMIT`] to continue in. `Truncated`: `lsn` is below the head, or was
    /// truncated before. `NoSpace`: free space and call again. `Corrupt`, `Io`: the log cannot read
    /// the record at `lsn`. `Closed`.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_after", log = %self.uuid(), lsn = lsn.as_u64());
        self.begin_to_truncate(lsn)?;
        let place = NewEnd { record: lsn, new_end: self.end_of_kept(lsn)? };
        self.handle.truncate_above(place, FirstRecords::default()).map(drop)
    }

    /// Truncates the record at `lsn` and all records above it, in the same way as
    /// [`truncate_after`](Wal::truncate_after). If `lsn` is the first record of the log, the log is
    /// empty afterwards. `lsn` can also be the end of a record
    /// ([`Record::next_lsn`](crate::Record::next_lsn)). If it is the end of the log, no record is
    /// removed.
    ///
    /// # Durability
    /// All records below `lsn` survive power loss when this returns, and the truncated records
    /// never come back. A crash in between leaves the log as it was, or truncated.
    ///
    /// # Errors
    /// As [`truncate_after`](Wal::truncate_after), except `InvalidArgument`: the record is in a
    /// batch and is not its first. `Corrupt`, `Io`: also if no record of the epoch stays, and the
    /// call cannot read the header of the segment at `lsn`.
    pub fn truncate_from(&self, lsn: Lsn) -> Result<()> {
        span!("truncate_from", log = %self.uuid(), lsn = lsn.as_u64());
        self.begin_to_truncate(lsn)?;
        let place = self.before_removed(lsn)?;
        self.handle.truncate_above(place, FirstRecords::default()).map(drop)
    }

    /// Truncates the record at `lsn` and all records above it, and appends `records` in their
    /// place, in one step: after a crash the log is as it was, or it has exactly the records below
    /// `lsn` and all of `records`. Returns the LSNs of `records`, which are greater than all
    /// before. Without `records` it is [`truncate_from`](Wal::truncate_from), and returns no LSN.
    ///
    /// Removes also other records above `lsn` that the engine still needs, such as the votes of a
    /// Raft node. So the engine passes the newest of these again, in `records`.
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
    /// The records below `lsn`, and `records`, survive power loss when this returns.
    ///
    /// # Errors
    /// As [`truncate_from`](Wal::truncate_from). `TooLarge`: all frames together are larger than
    /// the largest record with its header ([`max_record_bytes`](Wal::max_record_bytes)); append the
    /// rest afterwards.
    pub fn replace_from<I>(&self, lsn: Lsn, records: I) -> Result<Vec<Lsn>>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        self.replace_from_tagged(lsn, records.into_iter().map(|record| (0, record)))
    }

    /// Replaces records as [`replace_from`](Wal::replace_from) does, each new one with its tag.
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
        self.handle.truncate_above(self.before_removed(lsn)?, first)
    }

    /// Checks that the log is open. If only the log buffer holds the record at `lsn`, lets the log
    /// exceed `max_bytes`, so that step 1 can write the record.
    fn begin_to_truncate(&self, lsn: Lsn) -> Result<()> {
        self.check_open()?;
        let end = self.reserved_lsn();
        if self.written_lsn() <= lsn && lsn < end {
            self.handle.commit.store.exceed_limit_below(end);
        }
        Ok(())
    }

    /// Returns the end of the record at `lsn`. If the record is in a batch, it must be the last of
    /// the batch, and both have the same end.
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

    /// Returns where the log ends if the record at `lsn` goes. A record in a batch must be the
    /// first one, even if that is below the head. `lsn` may be the end of the log, or the end of
    /// the epoch before an empty one.
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

    /// Returns the batch that holds the member at `lsn`. The search starts where a frame begins: at
    /// the base of the segment, or of the epoch if that is higher.
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
    /// Runs steps 2 to 9, and returns the LSNs of the `first` records. If there is nothing to
    /// truncate and nothing to append, only waits until the log is durable up to the new end.
    pub(super) fn truncate_above(
        &self,
        place: NewEnd,
        mut first: FirstRecords,
    ) -> Result<Vec<Lsn>> {
        let log = &*self.commit;
        if first.is_empty() && self.is_end_of_log(place.new_end) {
            return log.wait(place.new_end, None).map(|_| Vec::new());
        }
        let end = log.fix_end(Stop::Paused)?;
        log.store.exceed_limit_below(end);
        match log.poison_on_panic(|| self.begin_epoch(place, end, &mut first)) {
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

    /// Returns whether the log has no record above `new_end`.
    fn is_end_of_log(&self, new_end: Lsn) -> bool {
        let reserved = self.commit.buffer.reserved();
        let is_empty = reserved == self.epochs.running_base();
        new_end == reserved || (is_empty && self.epochs.skip_discarded(new_end) == reserved)
    }

    /// Runs steps 3 to 8, and releases the locks and leadership.
    fn begin_epoch(
        &self,
        place: NewEnd,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<Begun, Failed> {
        self.commit.wait(end, None).map_err(Failed::Unchanged)?;
        let switched = self.commit.with_leadership(|cursor| {
            let mut saving = self.saving.lock();
            // A failure is noted under the locks: a thread that waits for one of them must not save
            // a state of the old epoch above it.
            let switched = self.commit.note_panic(|| {
                self.save_state_again(&mut saving).map_err(Failed::Unchanged)?;
                self.switch_epoch(cursor, place, end, first)
            });
            switched.map_err(|failed| match failed {
                Failed::Unknown(error) => Failed::Unknown(self.commit.note_failure(error)),
                unchanged => unchanged,
            })
        });
        switched.map_err(Failed::Unchanged)?
    }

    /// Runs steps 5 to 8. The caller holds leadership, the write lock and that of the saved state.
    fn switch_epoch(
        &self,
        cursor: &mut WriteCursor,
        place: NewEnd,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<Begun, Failed> {
        let (begun, state, running) = self.store_epoch(place, end, first)?;
        let tail = first.end(begun.base);
        self.set_state_and(state, || {
            let jump = || self.commit.jump(cursor, tail, running.seed);
            self.epochs.truncate(begun.new_end, running, jump);
        });
        self.commit.store.prepare_ahead(tail);
        Ok(begun)
    }

    /// Saves the state again if the last save failed. The store may then hold a head or a
    /// checkpoint above the new end.
    fn save_state_again(&self, saving: &mut LastSave) -> Result<()> {
        if *saving == LastSave::Failed {
            let state = self.state.lock().clone();
            self.commit.store.save_state(&state)?;
            *saving = LastSave::Done;
        }
        Ok(())
    }

    /// Runs the check of step 4, and steps 5 to 7. Returns the saved state and the new epoch. The
    /// caller holds the lock of the saved state.
    fn store_epoch(
        &self,
        place: NewEnd,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<(Begun, State, EpochSpan), Failed> {
        let before = self.state.lock().clone();
        self.check_may_truncate(&before, place.record).map_err(Failed::Unchanged)?;
        let predecessor = self.predecessor(place).map_err(Failed::Unchanged)?;
        let new_end = predecessor.end;
        let epoch = self.create_first_segment(&before, predecessor, end, first)?;
        let (number, salt, base) = (epoch.number, epoch.salt, epoch.base);
        let mut state = State {
            epoch: number,
            epoch_base: base,
            epoch_salt: salt,
            checkpoint: before.checkpoint.min(new_end),
            ..before
        };
        state.note_base(new_end, base);
        let store = &self.commit.store;
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

    /// Returns the epoch that the new one follows, and its new end.
    ///
    /// If no frame of an epoch stays, the new epoch names that epoch's predecessor instead. If this
    /// process does not know that epoch, because all of its records are below the head, the
    /// header of the first segment names it. If the header names none, the segment is a later one
    /// of its epoch, whose first records are below the head.
    fn predecessor(&self, place: NewEnd) -> Result<Predecessor> {
        let NewEnd { record, new_end } = place;
        let around = self.epochs.find(record).ok_or_else(|| truncated_error(record))?;
        if around.base < new_end {
            return Ok(Predecessor { epoch: around.epoch, end: new_end });
        }
        if let Some(before) = self.epochs.before(around.base) {
            return Ok(Predecessor { epoch: before.epoch, end: before.end });
        }
        let number = around.base.segment(self.segment_bytes);
        let (_, segments) = self.commit.store.segments_from(number)?;
        let first = segments.into_iter().next().filter(|segment| segment.number == number);
        let missing = || BadHeader::Damaged("the segment is missing".into());
        let header = first.map_or_else(|| Err(missing()), |segment| segment.header);
        let header = header.map_err(|bad| {
            let text = format!("the header of the segment does not validate: {bad}");
            let place = self.commit.store.segment_place(number);
            Error::new(bad.kind(), text).at_path(place).at_segment(number)
        })?;
        Ok(header.predecessor.unwrap_or(Predecessor { epoch: around.epoch, end: new_end }))
    }

    /// Runs step 5. The base is the first segment start above every reservation and above every
    /// segment that the store has prepared. So the end of each truncated record lies in the
    /// truncated range.
    ///
    /// The store may be preparing one more segment meanwhile and then refuses the base. So this
    /// tries again with a higher base, at most up to the last LSN.
    fn create_first_segment(
        &self,
        before: &State,
        predecessor: Predecessor,
        end: Lsn,
        first: &mut FirstRecords,
    ) -> std::result::Result<Epoch, Failed> {
        let store = &self.commit.store;
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
            let bytes = first.encode(seed, base, self.commit.buffer.block_bytes());
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

    /// Checks again that the log is open and that `lsn` is not below the head. The caller's lock
    /// keeps the head and the clean end from moving.
    fn check_may_truncate(&self, state: &State, lsn: Lsn) -> Result<()> {
        if state.clean {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if lsn < state.head {
            return Err(below_head(lsn, state.head));
        }
        self.commit.check()
    }
}
