//! What each segment of the log holds: how much of it is live, and which streams it concerns.
//!
//! *Live* are the entries that no truncation has removed, and the last anchor of each stream. A
//! segment without them can be released, if all below it can: whatever else it has is said again
//! by later records.
//!
//! An append counts in its stripe, without a shared counter. When the stripe goes on to another
//! segment, or when [`Directory::flush`](crate::directory::Directory::flush) visits it, what it has
//! counted comes here.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade::Lsn;
use palisade_store::sync::{AtomicU64, Mutex, Ordering};

use crate::entries::{OFFSET_UNIT, Place};
use crate::record::StreamId;

/// About the bytes of an anchor, with the record's header: it has a name, and rarely values.
const ANCHOR_BYTES: u64 = 96;

/// How much is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) entries: u64,
    pub(crate) anchors: u64,
}

impl Live {
    pub(crate) const ENTRY: Live = Live { entries: 1, anchors: 0 };
    pub(crate) const ANCHOR: Live = Live { entries: 0, anchors: 1 };

    pub(crate) fn entries(entries: u64) -> Live {
        Live { entries, anchors: 0 }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Live::default()
    }

    pub(crate) fn add(&mut self, more: Live) {
        self.entries += more.entries;
        self.anchors += more.anchors;
    }

    /// Takes as much of `gone` away as there is, and returns the rest.
    pub(crate) fn take(&mut self, gone: Live) -> Live {
        let here = Live {
            entries: gone.entries.min(self.entries),
            anchors: gone.anchors.min(self.anchors),
        };
        self.entries -= here.entries;
        self.anchors -= here.anchors;
        Live { entries: gone.entries - here.entries, anchors: gone.anchors - here.anchors }
    }
}

/// What a stripe has counted in the segment that it appends to.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) segment: u32,
    /// Where the segment begins.
    pub(crate) start: Lsn,
    /// The LSN of the first record.
    pub(crate) first: Lsn,
    pub(crate) live: Live,
    pub(crate) records: u64,
    /// Bytes of records, with their headers.
    pub(crate) bytes: u64,
    /// The streams of the records. A stream can be there more than once.
    pub(crate) streams: Vec<StreamId>,
    /// How many streams of this segment the stripe has handed over before.
    pub(crate) before: usize,
}

impl Counted {
    pub(crate) fn new(segments: &Segments, first: Lsn) -> Counted {
        let segment = segments.of(first);
        Counted {
            segment,
            start: segments.start(segment),
            first,
            live: Live::default(),
            records: 0,
            bytes: 0,
            streams: Vec::new(),
            before: 0,
        }
    }

    pub(crate) fn note_stream(&mut self, id: StreamId) {
        if self.streams.last() != Some(&id) {
            self.streams.push(id);
        }
        if self.streams.len() == self.streams.capacity() {
            self.streams.sort_unstable();
            self.streams.dedup();
            self.streams.reserve(1 + self.streams.len() / 4);
        }
    }
}

/// What is known of one segment.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// The LSN of the first record that begins in it.
    pub(crate) first: Option<Lsn>,
    pub(crate) live: Live,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// A stream can be there more than once.
    pub(crate) streams: Arc<Vec<StreamId>>,
    /// At most so many of `streams` are there a second time.
    repeated: usize,
    pub(crate) has_footer: bool,
    /// It has a live entry that cannot be moved, at least before the log has come to this segment.
    pub(crate) damaged_until: u32,
}

impl Segment {
    /// Returns about how many bytes its live records take. Anchors count by themselves: many small
    /// ones would else count as much as the large entries beside them.
    pub(crate) fn live_bytes(&self) -> u64 {
        let of_anchors = self.live.anchors.saturating_mul(ANCHOR_BYTES);
        self.bytes_of(self.live.entries).saturating_add(of_anchors)
    }

    /// Returns about how many bytes `entries` of it take.
    pub(crate) fn bytes_of(&self, entries: u64) -> u64 {
        let bytes = u128::from(entries) * u128::from(self.bytes) / u128::from(self.records.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Segments at the head of the log that have nothing live.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) first: u32,
    /// The lowest segment that stays, and where it begins, or the end of the log.
    pub(crate) cut: u32,
    pub(crate) lsn: Lsn,
}

/// All segments that have records.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The number of the segment that counts as 0: that of the head when the log was opened.
    base: u64,
    segment_bytes: u64,
    all: Mutex<BTreeMap<u32, Segment>>,
    /// The LSN of the last record that removed something live; 0 if there was none.
    last_removal: AtomicU64,
    /// The greatest generation of all slots, and the last segment with a record that says it.
    newest: Mutex<(u32, u32)>,
}

impl Segments {
    pub(crate) fn new(head: Lsn, segment_bytes: u64) -> Segments {
        let base = head.as_u64() / segment_bytes;
        let (all, newest) = (Mutex::default(), Mutex::default());
        Segments { base, segment_bytes, all, last_removal: AtomicU64::new(0), newest }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Returns the segment in which a record at `lsn` begins. Stays at the greatest number after
    /// 2^32 segments in one process run: then the caller refuses to append.
    pub(crate) fn of(&self, lsn: Lsn) -> u32 {
        let number = (lsn.as_u64() / self.segment_bytes).saturating_sub(self.base);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Returns the LSN where a segment begins.
    pub(crate) fn start(&self, segment: u32) -> Lsn {
        Lsn::new((self.base + u64::from(segment)) * self.segment_bytes)
    }

    /// Runs `call` on all that is known.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut BTreeMap<u32, Segment>) -> R) -> R {
        call(&mut self.all.lock())
    }

    /// Returns whether the lowest segment is below `tail` and seems to have nothing live. Appends
    /// that only the stripes have counted may be missing.
    pub(crate) fn seems_dead(&self, tail: u32) -> bool {
        let lowest = |all: &mut BTreeMap<u32, Segment>| {
            all.first_key_value().is_some_and(|(&number, of)| number < tail && of.live.is_none())
        };
        self.with(lowest)
    }

    /// Returns the lowest segments that have nothing live, if there are some. The caller has
    /// counted every record below `reserved`: see
    /// [`Directory::flush_all`](crate::directory::Directory::flush_all).
    pub(crate) fn dead_prefix(&self, reserved: Lsn) -> Option<Prefix> {
        let tail = self.of(reserved);
        self.with(|all| {
            let is_dead = |number: u32, of: &Segment| number < tail && of.live.is_none();
            let mut kept = all.iter().skip_while(|(number, of)| is_dead(**number, of));
            let &first = all.keys().next()?;
            let (cut, lsn) = match kept.next() {
                // Not at its first record, whose header may be damaged. Above the last segment, a
                // record in the last one may not be counted yet.
                Some((&cut, _)) => (cut, Some(self.start(cut)).filter(|lsn| *lsn <= reserved)?),
                // The last segment has no record: the last record ends where it begins, or a kill
                // passed over the rest of the one before.
                None => (tail, reserved),
            };
            (first < cut).then_some(Prefix { first, cut, lsn })
        })
    }

    /// Adds what a stripe has counted. A stripe comes at each poll of the numbers, so streams that
    /// it names again are removed when they may be the greater part. What stripes name first is not
    /// sorted here: appends can wait for the lock.
    pub(crate) fn add(&self, counted: Counted) {
        let Counted { segment, first, live, records, bytes, streams, before, .. } = counted;
        self.with(|all| {
            let of = all.entry(segment).or_default();
            of.first = Some(of.first.map_or(first, |known| known.min(first)));
            of.live.add(live);
            of.records += records;
            of.bytes += bytes;
            of.repeated += before.min(streams.len());
            let all_streams = Arc::make_mut(&mut of.streams);
            all_streams.extend(streams);
            if of.repeated > all_streams.len() / 2 {
                sort(all_streams);
                of.repeated = 0;
            }
        });
    }

    /// Returns the streams of a segment, each once, those of a stripe one after the other: so a
    /// pass over them stays in the cache. The caller has counted all records of the segment, so
    /// none is added meanwhile. Sorts without the lock, for which appends can wait.
    pub(crate) fn sorted_streams(&self, segment: u32) -> Arc<Vec<StreamId>> {
        let known = self.with(|all| all.get(&segment).map(|of| Arc::clone(&of.streams)));
        let mut streams = Vec::clone(&known.unwrap_or_default());
        sort(&mut streams);
        let sorted = Arc::new(streams);
        self.with(|all| {
            if let Some(of) = all.get_mut(&segment) {
                of.streams = Arc::clone(&sorted);
                of.repeated = 0;
            }
        });
        sorted
    }

    /// Takes what is not live any more away.
    pub(crate) fn remove_live(&self, segment: u32, gone: Live) {
        self.with(|all| {
            if let Some(of) = all.get_mut(&segment) {
                of.live.take(gone);
            }
        });
    }

    /// Notes that a live entry of the segment cannot be moved, before the log has come to segment
    /// `until`.
    pub(crate) fn note_damage(&self, segment: u32, until: u32) {
        self.with(|all| {
            if let Some(of) = all.get_mut(&segment) {
                of.damaged_until = of.damaged_until.max(until);
            }
        });
    }

    /// Lets the keeper try again to read what the device did not read.
    pub(crate) fn retry_damaged(&self) {
        self.with(|all| {
            let may_be_read = |of: &&mut Segment| of.damaged_until < u32::MAX;
            all.values_mut().filter(may_be_read).for_each(|of| of.damaged_until = 0);
        });
    }

    pub(crate) fn forget_damage(&self, segment: u32) {
        self.with(|all| {
            if let Some(of) = all.get_mut(&segment) {
                of.damaged_until = 0;
            }
        });
    }

    /// Notes that the record at `lsn` removes something live. The caller counts that afterwards.
    pub(crate) fn note_removal(&self, lsn: Lsn) {
        // Relaxed: the keeper reads it after it has seen the count, under the lock of `all`.
        self.last_removal.fetch_max(lsn.as_u64(), Ordering::Relaxed);
    }

    /// Returns the LSN of the last record that removed something live.
    pub(crate) fn last_removal(&self) -> Option<Lsn> {
        let lsn = self.last_removal.load(Ordering::Relaxed);
        (lsn > 0).then_some(Lsn::new(lsn))
    }

    /// Notes that a record in `segment` says that a slot has had `generation`. A deletion comes
    /// here after `note_removal`: who sees the generation makes its record durable, too.
    pub(crate) fn note_generation(&self, generation: u32, segment: u32) {
        let mut newest = self.newest.lock();
        *newest = (*newest).max((generation, segment));
    }

    /// Returns the greatest generation of all slots, and the last segment with a record that says
    /// it.
    pub(crate) fn newest(&self) -> (u32, u32) {
        *self.newest.lock()
    }

    /// Returns where an entry is in the log.
    pub(crate) fn lsn(&self, place: Place) -> Lsn {
        let start = self.start(place.segment).as_u64();
        Lsn::new(start + u64::from(place.offset) * OFFSET_UNIT)
    }

    /// Returns the place of what is at `lsn` in the log.
    pub(crate) fn place(&self, lsn: Lsn) -> Place {
        let offset = (lsn.as_u64() % self.segment_bytes) / OFFSET_UNIT;
        Place { segment: self.of(lsn), offset: offset as u32 }
    }
}

/// Leaves each stream once, those of a stripe one after the other.
fn sort(streams: &mut Vec<StreamId>) {
    streams.sort_unstable_by_key(|id| id.by_stripe());
    streams.dedup();
    streams.shrink_to_fit();
}
