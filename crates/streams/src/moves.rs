//! Moves: what keeps the lowest segments is copied to the tail.
//!
//! A stream that nobody truncates would keep the log for ever. So the keeper looks for a prefix of
//! segments of which so little is live that a copy is worth it, and copies that: the entries, and
//! the anchors of the streams. Entries keep their index. A reader that has looked up the old place
//! finds it released, and looks again.
//!
//! # Budget
//! For 100 bytes that are released, at most about `move_percent` are moved. What a release leaves
//! of its budget is not kept. The live bytes of a segment are estimated: for its entries by the
//! mean length of its records. A move ends early if it has moved more than the budget allows, and
//! the next plan waits until releases have made up for it. If the log has a limit, a plan moves no
//! more than has room below it.
//!
//! # Damage
//! An entry that cannot be read or copied is not dropped: it keeps its segment, and the segments
//! above, until its stream is truncated or deleted. No prefix with such a segment is moved. If the
//! device failed to read an entry, a later plan tries again: some segments later, or when an append
//! finds no room.

use palisade::{ErrorKind, RecordBuf, Result, framed_bytes};

use crate::entries::Place;
use crate::keeper::ends_keeper;
use crate::read::Entry;
use crate::record::{self, StreamId};
use crate::segments::Live;
use crate::shared::Shared;

/// The most entries of one stream that a step moves.
const MOST_ENTRIES: usize = 256;
/// The most streams at which one step looks.
const MOST_STREAMS: usize = 256;
/// After so many more segments the keeper tries again to read an entry that the device did not
/// read.
const RETRY_SEGMENTS: u32 = 16;
/// A step ends when it has moved so many bytes, or an eighth of a segment if that is less.
const MOST_BYTES: u64 = 256 << 10;

/// What must leave the segments below `cut`.
#[derive(Debug)]
pub(crate) struct Move {
    cut: u32,
    /// The bytes that may have been moved when the move has ended.
    budget: u64,
    streams: std::vec::IntoIter<StreamId>,
    /// The stream whose entries are moved, and from which index on.
    at: Option<(StreamId, u64)>,
}

/// An entry that was read, and from where.
type MovedCopy = (u64, Place, RecordBuf);

impl Shared {
    /// Chooses the shortest prefix whose live bytes are within the budget, and have room.
    pub(crate) fn plan(&self, tail: u32) -> Option<Move> {
        let (cut, budget) = self.choose(tail)?;
        let below: Vec<_> = self.segments.with(|all| all.range(..cut).map(|(of, _)| *of).collect());
        let streams = below.into_iter().map(|segment| self.segments.sorted_streams(segment));
        let mut streams: Vec<_> = streams.flat_map(|streams| streams.to_vec()).collect();
        streams.sort_unstable_by_key(|id| id.by_stripe());
        streams.dedup();
        Some(Move { cut, budget, streams: streams.into_iter(), at: None })
    }

    /// Returns the end of the prefix, and the bytes that may have been moved when it is moved.
    fn choose(&self, tail: u32) -> Option<(u32, u64)> {
        let room = self.room();
        self.segments.with(|all| {
            let first = *all.keys().next()?;
            let mut live = 0;
            for (number, of) in all.range(..tail).take_while(|(_, of)| of.damaged_until <= tail) {
                live += of.live_bytes();
                let released = u64::from(number + 1 - first) * self.segments.bytes();
                let budget = self.keeper.budget(released);
                // If nothing is live, the release has failed: there is nothing to move.
                let fits = live > 0
                    && live.max(self.step_bytes()) <= room
                    && self.keeper.moved_bytes() + live <= budget;
                if fits {
                    return Some((number + 1, budget));
                }
            }
            None
        })
    }

    /// Moves some of what `moving` has left. Returns false if the move has ended.
    pub(crate) fn step(&self, moving: &mut Move) -> Result<bool> {
        let before = self.keeper.moved_bytes();
        let most_bytes = self.step_bytes();
        if self.room() < most_bytes {
            return Ok(false);
        }
        for _ in 0..MOST_STREAMS {
            if moving.at.is_none() {
                moving.at = moving.streams.next().map(|id| (id, 0));
            }
            let Some((id, from)) = moving.at else { return Ok(false) };
            if from == 0 {
                self.move_anchor(id, moving.cut)?;
            }
            let rest = self.move_entries(id, from, moving.cut)?;
            moving.at = rest.map(|from| (id, from));
            let moved = self.keeper.moved_bytes();
            if moved > moving.budget + most_bytes {
                return Ok(false);
            }
            if moved - before >= most_bytes || moving.at.is_some() {
                break;
            }
        }
        Ok(true)
    }

    fn step_bytes(&self) -> u64 {
        MOST_BYTES.min(self.segments.bytes() / 8)
    }

    /// Appends the anchor of stream `id` anew, if the last one is below segment `cut`.
    fn move_anchor(&self, id: StreamId, cut: u32) -> Result<()> {
        let mut stripe = self.directory.lock_of(id);
        let Some(slot) = stripe.slot(id).filter(|slot| slot.home < cut) else { return Ok(()) };
        let home = slot.home;
        let mut bytes = record::numbers(id, []);
        if let Some(anchor) = stripe.anchor_of(id) {
            record::put_anchor(&mut bytes, &anchor);
        }
        let _taken = self.check_room_for_copy(framed_bytes(bytes.len()))?;
        let lsn = self.append_anchor(&mut stripe, id, &bytes)?.lsn();
        stripe.live(id)?.set_home(self.segments.of(lsn));
        stripe.remove_live(&self.segments, lsn, &[(home, Live::ANCHOR)]);
        self.keeper.note_moved(framed_bytes(bytes.len()));
        Ok(())
    }

    /// Moves entries of stream `id` from index `from` on that are below segment `cut`. Returns
    /// where to go on.
    fn move_entries(&self, id: StreamId, from: u64, cut: u32) -> Result<Option<u64>> {
        let found = {
            let stripe = self.directory.lock_of(id);
            let entries = stripe.slot(id).and_then(|slot| slot.entries());
            entries.map(|entries| entries.in_segments(from, MOST_ENTRIES, |of| of < cut))
        };
        let Some(found) = found.filter(|found| !found.is_empty()) else { return Ok(None) };
        let mut copies = Vec::new();
        let (mut bytes, mut last) = (0, from);
        for (index, place) in &found {
            last = *index;
            match self.wal.get(self.segments.lsn(*place)) {
                Ok(found) if self.can_copy(&found, id, *index) => {
                    bytes += found.data().len() as u64;
                    copies.push((*index, *place, found));
                }
                // It was truncated meanwhile.
                Err(error) if error.kind() == ErrorKind::Truncated => {}
                Err(error) if error.is_shortage() || ends_keeper(&error) => return Err(error),
                Ok(_) => self.note_damage(id, (*index, *place), u32::MAX),
                Err(error) => {
                    let tail = self.segments.of(self.wal.reserved_lsn());
                    let until = match error.kind() {
                        ErrorKind::Corrupt | ErrorKind::NotARecord | ErrorKind::OutOfRange => {
                            u32::MAX
                        }
                        // The device may read it later.
                        _ => tail.saturating_add(RETRY_SEGMENTS),
                    };
                    self.note_damage(id, (*index, *place), until);
                }
            }
            if bytes >= self.step_bytes() {
                break;
            }
        }
        let is_all = found.len() < MOST_ENTRIES && found.last().is_some_and(|one| one.0 == last);
        self.append_copies(id, &copies)?;
        Ok((!is_all).then_some(last + 1))
    }

    /// Notes that an entry cannot be moved, if it is still there.
    fn note_damage(&self, id: StreamId, (index, place): (u64, Place), until: u32) {
        let stripe = self.directory.lock_of(id);
        if stripe.is_at(id, index, place) {
            self.segments.note_damage(place.segment, until);
        }
    }

    /// Returns whether the record is the entry, and no longer than a record can be since the last
    /// open.
    fn can_copy(&self, found: &RecordBuf, id: StreamId, index: u64) -> bool {
        found.data().len() <= self.wal.max_record_bytes() && Entry::is(found, id, index)
    }

    /// Appends the copies of those entries that are still where they were read.
    fn append_copies(&self, id: StreamId, copies: &[MovedCopy]) -> Result<()> {
        // All of them could be longer than the longest record; each one alone is not.
        let most = self.wal.max_record_bytes() / 4;
        let mut rest = copies;
        while !rest.is_empty() {
            let mut sum = 0;
            let fits = rest.iter().take_while(|(_, _, copy)| {
                sum += copy.data().len() + record::MAX_ENTRY_HEADER_BYTES;
                sum <= most
            });
            let count = fits.count().max(1);
            self.append_some_copies(id, &rest[..count])?;
            rest = &rest[count..];
        }
        Ok(())
    }

    fn append_some_copies(&self, id: StreamId, copies: &[MovedCopy]) -> Result<()> {
        let mut stripe = self.directory.lock_of(id);
        let is_there = |(index, place, _): &&MovedCopy| stripe.is_at(id, *index, *place);
        let copies: Vec<_> = copies.iter().filter(is_there).collect();
        let lengths = copies.iter().map(|(_, _, copy)| framed_bytes(copy.data().len()));
        let _taken = self.check_room_for_copy(framed_bytes(0) + lengths.sum::<u64>())?;
        let lsns = match &copies[..] {
            [] => return Ok(()),
            [(_, _, copy)] => vec![self.wal.append_tagged(record::MOVED, copy.data())?.lsn()],
            all => {
                let records = all.iter().map(|(_, _, copy)| (record::MOVED, copy.data()));
                self.wal.append_batch_tagged(records)?.lsns().to_vec()
            }
        };
        for ((index, old, copy), lsn) in copies.into_iter().zip(lsns) {
            let len = copy.data().len();
            self.count(&mut stripe, id, lsn, len);
            stripe.put_copy(&self.segments, id, *index, (*old, lsn))?;
            self.keeper.note_moved(framed_bytes(len));
        }
        Ok(())
    }
}
