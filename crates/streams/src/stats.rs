//! Numbers: what the streams hold, and what keeps the log.

use std::collections::BTreeMap;

use palisade::{Error, Result};

use crate::directory::STRIPES;
use crate::record::StreamId;
use crate::shared::Shared;

/// The numbers of a log of streams.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Streams that there are.
    pub streams: u64,
    /// Entries of all streams.
    pub entries: u64,
    /// Segments from the head to the tail.
    pub segments: u64,
    /// Bytes of records that the keeper copied to the tail since the open.
    pub moved_bytes: u64,
    /// Bytes of segments that the streams have released since the open. Cursors, holds and tails of
    /// the log may keep their files.
    pub released_bytes: u64,
    /// Why the keeper's last step failed, if it did. It tries again.
    pub keeper_error: Option<Error>,
}

/// The numbers of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Its entries.
    pub entries: u64,
    /// About how many bytes of the log they take: each counts as the average of its segment.
    pub bytes: u64,
    /// How many segments have at least one of them.
    pub segments: u64,
    /// Its values, and the positions of its consumers.
    pub values: u64,
    /// The bytes of their keys and of themselves.
    pub value_bytes: u64,
}

/// A stream that keeps the lowest segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pinned {
    /// The stream's name.
    pub name: Vec<u8>,
    /// Its entries in the segment.
    pub entries: u64,
    /// The index of the first of them. If there is none, the segment has the stream's anchor: a
    /// small record, which a move takes along if the budget allows the move.
    pub first: Option<u64>,
    /// The bytes of the segments from the lowest one to the one before the tail: at most so many
    /// could be released if nothing pinned the lowest one. The same for all streams that are named.
    pub bytes: u64,
}

impl Shared {
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for number in 0..STRIPES {
            let stripe = self.directory.lock(number);
            stats.streams += stripe.len() as u64;
            let lens = stripe.slots().map(|(_, slot)| slot.next() - slot.first());
            stats.entries += lens.sum::<u64>();
        }
        stats.moved_bytes = self.keeper.moved_bytes();
        stats.released_bytes = self.keeper.released_bytes();
        stats.keeper_error = self.keeper.error();
        let tail = self.segments.of(self.wal.reserved_lsn());
        let head = self.segments.of(self.wal.head_lsn());
        stats.segments = u64::from(tail.saturating_sub(head)) + 1;
        stats
    }

    pub(crate) fn stats_of(&self, id: StreamId) -> Result<StreamStats> {
        let mut counts = BTreeMap::<u32, u64>::new();
        let mut stats = {
            let stripe = self.directory.lock_of(id);
            let slot = stripe.slot(id).ok_or_else(crate::directory::deleted)?;
            if let Some(entries) = slot.entries() {
                entries.for_each(|_, place| *counts.entry(place.segment).or_default() += 1);
            }
            let values = slot.values();
            let bytes = values.iter().map(|(key, value)| (key.len() + value.len()) as u64);
            StreamStats {
                entries: slot.next() - slot.first(),
                segments: counts.len() as u64,
                values: values.len() as u64,
                value_bytes: bytes.sum(),
                ..StreamStats::default()
            }
        };
        self.directory.flush(&self.segments);
        stats.bytes = self.segments.with(|all| {
            let of = |(segment, count): (&u32, &u64)| {
                all.get(segment).map_or(0, |of| of.bytes_of(*count))
            };
            counts.iter().map(of).sum()
        });
        Ok(stats)
    }

    pub(crate) fn pinned(&self) -> Vec<Pinned> {
        let tail = self.segments.of(self.wal.reserved_lsn());
        self.directory.flush(&self.segments);
        let lowest = self.segments.with(|all| all.keys().next().copied());
        let Some(segment) = lowest.filter(|segment| *segment < tail) else { return Vec::new() };
        let streams = self.segments.sorted_streams(segment);
        let bytes = u64::from(tail - segment) * self.segments.bytes();
        streams.iter().filter_map(|&id| self.pin_of(id, segment, bytes)).collect()
    }

    fn pin_of(&self, id: StreamId, segment: u32, bytes: u64) -> Option<Pinned> {
        let stripe = self.directory.lock_of(id);
        let slot = stripe.slot(id)?;
        let mut found = (0, None);
        if let Some(entries) = slot.entries() {
            entries.for_each(|index, place| {
                if place.segment == segment {
                    found = (found.0 + 1, found.1.or(Some(index)));
                }
            });
        }
        let (entries, first) = found;
        let is_pin = entries > 0 || slot.home == segment;
        is_pin.then(|| Pinned { name: stripe.name_of(id).to_vec(), entries, first, bytes })
    }
}
