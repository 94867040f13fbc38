//! The keeper: writes footers, releases segments and moves what keeps them.
//!
//! Its work comes in steps, each of which is bounded. A thread does them, or the user, who calls
//! [`Streams::maintain`](crate::Streams::maintain).
//!
//! # Releasing
//! A log shrinks from its head only. The lowest segments are released as soon as they have nothing
//! that is live. Before that, all that made them so is made durable: truncations, deletions, and
//! the copies of moved entries. Else a loss of power could keep the release and lose the reason.
//!
//! # Moving
//! A stream that nobody truncates would keep the log for ever. So the keeper looks for a prefix of
//! segments of which so little is live that a copy is worth it, and copies that to the tail: the
//! entries, and the anchors of the streams. Entries keep their index. A reader that has looked up
//! the old place finds it released, and looks again.
//!
//! The budget holds from the open on: the keeper plans a move only if all bytes moved would be at
//! most `move_percent` percent of the bytes released. It estimates the live bytes of a segment by
//! the mean length of its records, so one move can exceed the budget. What was really moved counts
//! for the next plan.
//!
//! An entry that cannot be read is not moved, and is not dropped: it keeps its segment until its
//! stream is truncated or deleted.

use std::time::Duration;

use palisade::{ErrorKind, Lsn, RecordBuf, Result, framed_bytes};
use palisade_core::sync::{Condvar, Instant, Mutex};

use crate::entries::Place;
use crate::footer::{self, End};
use crate::record::{self, StreamId};
use crate::segments::Counted;
use crate::shared::Shared;

/// The most entries that one step moves.
const MOST_ENTRIES: usize = 256;
/// The most streams at which one step looks.
const MOST_STREAMS: usize = 256;
/// A step that moves entries ends when it has moved so many bytes.
const MOST_BYTES: usize = 256 << 10;
/// How long the thread waits after an error that may pass.
const RETRY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Keeper {
    work: Mutex<Work>,
    move_percent: u64,
    signal: Mutex<Signal>,
    signalled: Condvar,
}

#[derive(Debug, Default)]
struct Signal {
    has_work: bool,
    stops: bool,
    error: Option<palisade::Error>,
}

/// How far the keeper has come.
#[derive(Debug, Default)]
struct Work {
    /// The end of the last footer.
    last_footer: Option<Lsn>,
    moving: Option<Move>,
    moved_bytes: u64,
    released_bytes: u64,
}

/// What must leave the segments below `cut`.
#[derive(Debug)]
struct Move {
    cut: u32,
    streams: std::vec::IntoIter<StreamId>,
    /// The stream whose entries are moved, and from which index on.
    at: Option<(StreamId, u64)>,
}

impl Keeper {
    pub(crate) fn new(move_percent: u32, last_footer: Option<Lsn>) -> Keeper {
        Keeper {
            work: Mutex::new(Work { last_footer, ..Work::default() }),
            move_percent: u64::from(move_percent),
            signal: Mutex::new(Signal { has_work: true, ..Signal::default() }),
            signalled: Condvar::default(),
        }
    }

    /// Tells the thread that there may be work.
    pub(crate) fn wake(&self) {
        self.signal.lock().has_work = true;
        self.signalled.notify_all();
    }

    /// Ends the thread after the step that it is in.
    pub(crate) fn stop(&self) {
        self.signal.lock().stops = true;
        self.signalled.notify_all();
    }

    /// Returns the bytes that were moved and released, and the error of the last step, if any.
    pub(crate) fn totals(&self) -> (u64, u64, Option<palisade::Error>) {
        let work = self.work.lock();
        (work.moved_bytes, work.released_bytes, self.signal.lock().error.clone())
    }

    /// Waits for work. Returns false if the thread must end.
    fn wait(&self) -> bool {
        let mut signal = self.signal.lock();
        while !signal.has_work && !signal.stops {
            signal = self.signalled.wait(signal, None);
        }
        signal.has_work = false;
        !signal.stops
    }

    /// Notes how a step ended. After an error waits for a moment.
    fn note(&self, ended: &Result<bool>) {
        let mut signal = self.signal.lock();
        signal.error = ended.as_ref().err().cloned();
        if signal.error.is_some() {
            signal.has_work = true;
            let deadline = Instant::now() + RETRY;
            while !signal.stops && Instant::now() < deadline {
                signal = self.signalled.wait(signal, Some(deadline));
            }
        }
    }
}

impl Shared {
    /// The body of the keeper's thread.
    pub(crate) fn keep(&self) {
        while self.keeper.wait() {
            loop {
                let ended = self.maintain();
                self.keeper.note(&ended);
                let is_over = ended.as_ref().is_err_and(|error| error.is_fatal());
                if is_over || matches!(ended, Ok(false)) || self.keeper.signal.lock().stops {
                    break;
                }
            }
        }
    }

    /// Does one step. Returns whether there may be more to do.
    pub(crate) fn maintain(&self) -> Result<bool> {
        let mut work = self.keeper.work.lock();
        // Every record below `reserved` is counted after the flush.
        let reserved = self.wal.reserved_lsn();
        let tail = self.segments.of(reserved);
        self.directory.flush(&self.segments, tail.saturating_add(1));
        if self.release(&mut work, reserved)? {
            return Ok(true);
        }
        if let Some(moving) = work.moving.take() {
            let (moving, bytes) = self.step(moving)?;
            work.moved_bytes += bytes;
            work.moving = moving;
            return Ok(true);
        }
        if let Some(moving) = self.plan(&work, tail) {
            work.moving = Some(moving);
            return Ok(true);
        }
        let without_footer = self.segments.with(|all| {
            let mut sealed = all.range(..tail);
            sealed.find(|(_, segment)| !segment.has_footer).map(|(number, _)| *number)
        });
        match without_footer {
            Some(segment) => self.write_footer(&mut work, segment).map(|()| true),
            None => Ok(false),
        }
    }

    /// Releases the lowest segments that have nothing live.
    fn release(&self, work: &mut Work, reserved: Lsn) -> Result<bool> {
        let tail = self.segments.of(reserved);
        let lowest_kept = self.segments.with(|all| {
            let mut kept = all.iter().skip_while(|(number, of)| **number < tail && of.live == 0);
            let (number, of) = kept.next()?;
            let first = all.keys().next()?;
            // In the last segment a lower record may not be counted yet, unless this one was
            // reserved before the flush.
            let lsn = of.first.filter(|lsn| *lsn < reserved)?;
            (first < number).then_some((*first, *number, lsn))
        });
        let Some((first, cut, lsn)) = lowest_kept else { return Ok(false) };
        // What made the segments free must be durable before they are gone.
        self.wal.barrier().wait()?;
        self.wal.truncate_before(lsn)?;
        self.segments.with(|all| *all = all.split_off(&cut));
        self.set_head(cut);
        work.released_bytes += u64::from(cut - first) * self.segments.bytes();
        // The chain of footers ends at the head.
        Ok(true)
    }

    /// Chooses the shortest prefix whose live bytes are within the budget.
    fn plan(&self, work: &Work, tail: u32) -> Option<Move> {
        self.segments.with(|all| {
            let first = *all.keys().next()?;
            let mut live = work.moved_bytes;
            let mut cut = None;
            for (number, of) in all.range(..tail) {
                if of.is_damaged {
                    break;
                }
                live += of.live_bytes();
                let released = u64::from(number + 1 - first) * self.segments.bytes();
                let budget = (work.released_bytes + released) / 100 * self.keeper.move_percent;
                if live <= budget {
                    cut = Some(number + 1);
                    break;
                }
            }
            let cut = cut?;
            let below = all.range_mut(..cut);
            let mut streams: Vec<_> =
                below.flat_map(|(_, segment)| segment.sorted_streams()).collect();
            streams.sort_unstable();
            streams.dedup();
            Some(Move { cut, streams: streams.into_iter(), at: None })
        })
    }

    /// Moves some of what `moving` has left. Returns the rest, and how many bytes were moved.
    fn step(&self, mut moving: Move) -> Result<(Option<Move>, u64)> {
        let mut bytes = 0;
        for _ in 0..MOST_STREAMS {
            let next = moving.at.take().or_else(|| Some((moving.streams.next()?, 0)));
            let Some((id, from)) = next else { return Ok((None, bytes)) };
            if from == 0 {
                bytes += self.move_anchor(id, moving.cut)?;
            }
            let (moved, rest) = self.move_entries(id, from, moving.cut)?;
            bytes += moved;
            moving.at = rest.map(|from| (id, from));
            if bytes >= MOST_BYTES as u64 || moving.at.is_some() {
                break;
            }
        }
        Ok((Some(moving), bytes))
    }

    /// Appends the anchor of stream `id` anew, if the last one is below segment `cut`.
    fn move_anchor(&self, id: StreamId, cut: u32) -> Result<u64> {
        let mut stripe = self.directory.lock_of(id);
        let Some(slot) = stripe.slot(id).filter(|slot| slot.home < cut) else { return Ok(0) };
        let home = slot.home;
        let mut bytes = record::numbers(id, []);
        if let Some(anchor) = stripe.anchor_of(id) {
            record::put_anchor(&mut bytes, &anchor);
        }
        let lsn = self.append_anchor(&mut stripe, id, &bytes)?.lsn();
        stripe.live(id)?.set_home(self.segments.of(lsn));
        stripe.remove_live(&self.segments, home, 1);
        Ok(framed_bytes(bytes.len()))
    }

    /// Moves entries of stream `id` from index `from` on that are below segment `cut`. Returns the
    /// bytes, and where to go on.
    fn move_entries(&self, id: StreamId, from: u64, cut: u32) -> Result<(u64, Option<u64>)> {
        let found = {
            let stripe = self.directory.lock_of(id);
            let entries = stripe.slot(id).and_then(|slot| slot.entries());
            entries.map(|entries| entries.in_segments(from, MOST_ENTRIES, |of| of < cut))
        };
        let Some(found) = found.filter(|found| !found.is_empty()) else { return Ok((0, None)) };
        let mut copies = Vec::new();
        let (mut bytes, mut last) = (0, from);
        for (index, place) in &found {
            last = *index;
            match self.wal.get(self.segments.lsn(*place)) {
                Ok(found) => {
                    bytes += found.data().len();
                    copies.push((*index, *place, found));
                }
                // It was truncated meanwhile.
                Err(error) if error.kind() == ErrorKind::Truncated => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => self.note_damage(*place),
                Err(error) => return Err(error),
            }
            if bytes >= MOST_BYTES {
                break;
            }
        }
        let is_all = found.len() < MOST_ENTRIES && found.last().is_some_and(|one| one.0 == last);
        let moved = self.append_copies(id, &copies)?;
        Ok((moved, (!is_all).then_some(last + 1)))
    }

    fn note_damage(&self, place: Place) {
        self.segments.with(|all| {
            if let Some(segment) = all.get_mut(&place.segment) {
                segment.is_damaged = true;
            }
        });
    }

    /// Appends the copies of those entries that are still where they were read.
    fn append_copies(&self, id: StreamId, copies: &[(u64, Place, RecordBuf)]) -> Result<u64> {
        // All of them could be longer than the longest record; each one alone is not.
        let most = self.wal.max_record_bytes() / 4;
        let mut bytes = 0;
        let mut rest = copies;
        while !rest.is_empty() {
            let mut sum = 0;
            let fits = rest.iter().take_while(|(_, _, copy)| {
                sum += copy.data().len() + record::MAX_ENTRY_HEADER_BYTES;
                sum <= most
            });
            let count = fits.count().max(1);
            bytes += self.append_some_copies(id, &rest[..count])?;
            rest = &rest[count..];
        }
        Ok(bytes)
    }

    fn append_some_copies(&self, id: StreamId, copies: &[(u64, Place, RecordBuf)]) -> Result<u64> {
        let mut stripe = self.directory.lock_of(id);
        let Some(entries) = stripe.slot(id).and_then(|slot| slot.entries()) else { return Ok(0) };
        let is_there =
            |(index, place, _): &&(u64, Place, RecordBuf)| entries.get(*index) == Some(*place);
        let copies: Vec<_> = copies.iter().filter(is_there).collect();
        let lsns = match &copies[..] {
            [] => return Ok(0),
            [(_, _, copy)] => vec![self.wal.append_tagged(record::MOVED, copy.data())?.lsn()],
            all => {
                let records = all.iter().map(|(_, _, copy)| (record::MOVED, copy.data()));
                self.wal.append_batch_tagged(records)?.lsns().to_vec()
            }
        };
        let mut bytes = 0;
        for ((index, old, copy), lsn) in copies.into_iter().zip(lsns) {
            let len = copy.data().len();
            self.count(&mut stripe, id, lsn, len);
            stripe.add_live();
            stripe.live(id)?.body().entries.put(*index, self.segments.place(lsn));
            stripe.remove_live(&self.segments, old.segment, 1);
            bytes += framed_bytes(len);
        }
        Ok(bytes)
    }

    /// Writes the footer of `segment`, which the tail has left, and moves the checkpoint above it.
    fn write_footer(&self, work: &mut Work, segment: u32) -> Result<()> {
        let streams = self.segments.with(|all| all.get_mut(&segment).map(|of| of.sorted_streams()));
        let streams = streams.unwrap_or_default();
        // An item has at most an anchor and the entries; a part is longer by at most one item.
        let (most_bytes, most_entries) =
            (self.wal.max_record_bytes() / 8, self.wal.max_record_bytes() / 64);
        let (mut parts, mut part) = (Vec::new(), Vec::new());
        for &id in &streams {
            let mut from = Some(0);
            while let Some(index) = from {
                let stripe = self.directory.lock_of(id);
                from = footer::encode_stream(&mut part, &stripe, id, segment, index, most_entries);
                drop(stripe);
                if part.len() >= most_bytes.min(MOST_BYTES) {
                    parts.push(self.append_own(record::FOOTER_PART, &part)?.lsn());
                    part.clear();
                }
            }
        }
        // Also if it is empty: then a record above the segment is known.
        parts.push(self.append_own(record::FOOTER_PART, &part)?.lsn());
        self.directory.flush(&self.segments, u32::MAX);
        let (first, above, records, bytes) = self.segments.with(|all| {
            let first = |(_, of): (_, &crate::segments::Segment)| of.first;
            let above = all.range(segment + 1..).find_map(first);
            let of = all.get(&segment).cloned().unwrap_or_default();
            let first = of.first.unwrap_or_else(|| self.segments.start(segment));
            (first, above.unwrap_or(parts[0]), of.records, of.bytes)
        });
        let number = self.segments.start(segment).as_u64() / self.segments.bytes();
        let previous = work.last_footer;
        let end = End { segment: number, first, above, previous, records, bytes, parts };
        let ticket = self.append_own(record::FOOTER_END, &end.encode())?;
        ticket.wait()?;
        self.wal.checkpoint(above)?;
        work.last_footer = Some(ticket.lsn());
        for id in streams {
            if let Ok(slot) = self.directory.lock_of(id).live(id) {
                slot.settle(segment);
            }
        }
        self.segments.with(|all| {
            if let Some(of) = all.get_mut(&segment) {
                of.has_footer = true;
            }
        });
        Ok(())
    }

    /// Appends a record that belongs to no stream.
    fn append_own(&self, tag: u16, bytes: &[u8]) -> Result<palisade::Ticket<'_>> {
        let ticket = self.wal.append_tagged(tag, bytes)?;
        let mut counted = Counted::new(&self.segments, ticket.lsn());
        (counted.records, counted.bytes) = (1, framed_bytes(bytes.len()));
        self.segments.add(counted);
        Ok(ticket)
    }
}
