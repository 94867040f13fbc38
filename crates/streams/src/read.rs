//! Reads of a stream.
//!
//! A read looks up where the entries are, frees the stripe's lock, and reads the log. Meanwhile the
//! keeper may have moved an entry and released its old place. Then the log returns `Truncated`, and
//! the read looks up the new place.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use palisade::{Error, ErrorKind, Lsn, RecordBuf, Result};

use crate::positions::user_key;
use crate::record::{self, Decoder, StreamId};
use crate::shared::Shared;
use crate::stats::StreamStats;
use crate::streams::Stream;

/// The entries that a range reads first. It doubles them, up to `MOST_ENTRIES`, until a read has
/// `MOST_BYTES`.
const FIRST_ENTRIES: u64 = 8;
const MOST_ENTRIES: u64 = 64;
const MOST_BYTES: usize = 1 << 20;

/// An entry that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    index: u64,
    record: Vec<u8>,
    data_at: usize,
}

impl Entry {
    /// Returns the index in the stream.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns what was appended.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.record[self.data_at..]
    }

    /// Takes what was appended.
    #[must_use]
    pub fn into_data(mut self) -> Vec<u8> {
        self.record.drain(..self.data_at);
        self.record
    }

    /// Returns whether the record is entry `index` of stream `id`.
    pub(crate) fn is(record: &RecordBuf, id: StreamId, index: u64) -> bool {
        data_at(record, id, index).is_some()
    }

    /// Takes the entry out of a record of the log, which must be entry `index` of stream `id`.
    pub(crate) fn of(record: RecordBuf, id: StreamId, index: u64) -> Result<Entry> {
        if let Some(data_at) = data_at(&record, id, index) {
            return Ok(Entry { index, record: record.into_data(), data_at });
        }
        let text = format!("the record is not entry {index} of stream {}", id.0);
        let advice = "close the log, open it again, and run palisade verify if that does not help";
        Err(Error::new(ErrorKind::Corrupt, text).at_lsn(record.lsn()).with_advice(advice))
    }
}

/// Returns where the data of entry `index` of stream `id` begins in its record.
fn data_at(record: &RecordBuf, id: StreamId, index: u64) -> Option<usize> {
    let mut from = Decoder(record.data());
    let is_entry = matches!(record.tag(), record::ENTRY | record::MOVED);
    let is_it = is_entry && from.number() == Some(id.0) && from.number() == Some(index);
    is_it.then(|| record.data().len() - from.0.len())
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let data = self.data().escape_ascii().to_string();
        f.debug_struct("Entry").field("index", &self.index).field("data", &data).finish()
    }
}

/// Looks up where entries are, and reads them there. If they were released meanwhile, looks again:
/// they were moved if they are not where they were.
pub(crate) fn read_moved<R>(
    mut look_up: impl FnMut() -> Result<Vec<Lsn>>,
    mut read: impl FnMut(&[Lsn]) -> Result<R>,
) -> Result<R> {
    let mut before = Vec::new();
    loop {
        let lsns = look_up()?;
        match read(&lsns) {
            Err(error) if error.kind() == ErrorKind::Truncated && lsns != before => before = lsns,
            read => return read,
        }
    }
}

impl Shared {
    /// Returns the entries at `indexes`, in this order.
    pub(crate) fn get_batch(&self, id: StreamId, indexes: &[u64]) -> Result<Vec<Entry>> {
        let look_up = || {
            let stripe = self.directory.lock_of(id);
            let slot = stripe.slot(id).ok_or_else(crate::directory::deleted)?;
            let lsn_of = |&index: &u64| {
                let place = slot.place_of(index)?;
                place.map(|place| self.segments.lsn(place)).ok_or_else(|| {
                    let text =
                        format!("there is no entry {index}: the next one is {}", slot.next());
                    let advice = "use an index below Stream::next_index";
                    Error::new(ErrorKind::OutOfRange, text).with_advice(advice)
                })
            };
            indexes.iter().map(lsn_of).collect()
        };
        let records = read_moved(look_up, |lsns| self.wal.get_batch(lsns))?;
        records
            .into_iter()
            .zip(indexes)
            .map(|(record, &index)| Entry::of(record, id, index))
            .collect()
    }

    /// Returns the indexes of the first entry and of the next one.
    pub(crate) fn bounds(&self, id: StreamId) -> Result<(u64, u64)> {
        let stripe = self.directory.lock_of(id);
        let slot = stripe.slot(id).ok_or_else(crate::directory::deleted)?;
        Ok((slot.first(), slot.next()))
    }
}

impl Stream {
    /// Returns a copy of entry `index`.
    ///
    /// Returns the entry also if it is not durable yet. Reads the log. If only the log's buffer has
    /// the entry, first writes it to the operating system.
    ///
    /// # Errors
    /// `Truncated`: the entry was truncated. `OutOfRange`: it is not there yet. `NotFound`: the
    /// stream was deleted. `Corrupt`: the entry cannot be read. Else as [`palisade::Wal::get`].
    pub fn get(&self, index: u64) -> Result<Entry> {
        let mut found = self.get_batch(&[index])?;
        found.pop().ok_or_else(|| Error::new(ErrorKind::OutOfRange, "no entry was found"))
    }

    /// Returns copies of the entries at `indexes`, in this order. Entries that lie close to each
    /// other are read together.
    ///
    /// # Errors
    /// As [`get`](Stream::get), for one of the indexes. Then the call returns no entry.
    pub fn get_batch(&self, indexes: &[u64]) -> Result<Vec<Entry>> {
        self.shared().get_batch(self.id(), indexes)
    }

    /// Returns the entries with indexes in `range`, which ends at the end of the stream at the time
    /// of the call. Begins at the first entry if `range` begins below it.
    ///
    /// ```
    /// # use palisade_streams::Options;
    /// # fn main() -> palisade::Result<()> {
    /// # let disk = std::sync::Arc::new(palisade::disk::MemDisk::new());
    /// # let streams = Options::new().open_on(disk, "/log")?;
    /// let stream = streams.create("greetings")?;
    /// for word in ["good morning", "hello", "good night"] {
    ///     stream.append(word)?;
    /// }
    /// let words: Vec<_> = stream.range(1..)?.collect::<palisade::Result<_>>()?;
    /// assert_eq!(words[0].data(), b"hello");
    /// let last = stream.range_rev(..)?.next().expect("there are three")?;
    /// assert_eq!((last.index(), last.data()), (2, &b"good night"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn range(&self, range: impl RangeBounds<u64>) -> Result<Range> {
        self.range_in(range, false)
    }

    /// Returns the entries of [`range`](Stream::range), the last one first.
    ///
    /// # Errors
    /// As [`range`](Stream::range).
    pub fn range_rev(&self, range: impl RangeBounds<u64>) -> Result<Range> {
        self.range_in(range, true)
    }

    fn range_in(&self, range: impl RangeBounds<u64>, is_reverse: bool) -> Result<Range> {
        let (first, next) = self.shared().bounds(self.id())?;
        let (from, to) = clip(range, first, next);
        let (stream, found) = (self.clone(), VecDeque::new());
        Ok(Range { stream, from, to, is_reverse, found, at_once: FIRST_ENTRIES })
    }

    /// Returns the index of the first entry, or of the next one if there is none.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn first_index(&self) -> Result<u64> {
        Ok(self.shared().bounds(self.id())?.0)
    }

    /// Returns the index of the last entry, if there is one.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn last_index(&self) -> Result<Option<u64>> {
        let (first, next) = self.shared().bounds(self.id())?;
        Ok((first < next).then(|| next - 1))
    }

    /// Returns the index that the next entry gets.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn next_index(&self) -> Result<u64> {
        Ok(self.shared().bounds(self.id())?.1)
    }

    /// Returns how many entries the stream has.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn len(&self) -> Result<u64> {
        let (first, next) = self.shared().bounds(self.id())?;
        Ok(next - first)
    }

    /// Returns whether the stream has no entry.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the numbers of the stream. Reads no file; visits all of its entries.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn stats(&self) -> Result<StreamStats> {
        self.shared().stats_of(self.id())
    }

    /// Returns the value of `key`, if there is one. Reads no file.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn value(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let stripe = self.shared().directory.lock_of(self.id());
        let slot = stripe.slot(self.id()).ok_or_else(crate::directory::deleted)?;
        Ok(slot.value(&user_key(key.as_ref())).map(<[u8]>::to_vec))
    }
}

/// Returns where `range` begins and ends in a stream with entries from `first` to `next`.
pub(crate) fn clip(range: impl RangeBounds<u64>, first: u64, next: u64) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(&index) => index,
        Bound::Excluded(&index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(&index) => index.saturating_add(1),
        Bound::Excluded(&index) => index,
        Bound::Unbounded => u64::MAX,
    };
    (from.max(first), to.min(next))
}

/// Entries of a stream, in order or the last one first: see [`Stream::range`].
///
/// Each step may read the log, up to 64 entries at once, however long they are. After an error the
/// iterator goes on with the next index. An entry that was truncated after the call of `range` is
/// an error `Truncated`; after a deletion of the stream, each index is an error `NotFound`.
#[derive(Debug)]
pub struct Range {
    stream: Stream,
    from: u64,
    to: u64,
    is_reverse: bool,
    found: VecDeque<Entry>,
    at_once: u64,
}

impl Range {
    fn fill(&mut self) -> Result<()> {
        let count = self.at_once.min(self.to - self.from);
        let indexes: Vec<u64> = match self.is_reverse {
            false => (self.from..self.from + count).collect(),
            true => (self.to - count..self.to).rev().collect(),
        };
        let found = self.stream.get_batch(&indexes);
        let taken = match &found {
            Ok(_) => count,
            // So that only the entry which fails is skipped.
            Err(_) if count > 1 => {
                self.at_once = 1;
                return self.fill();
            }
            Err(_) => 1,
        };
        match self.is_reverse {
            false => self.from += taken,
            true => self.to -= taken,
        }
        let found = found?;
        let bytes: usize = found.iter().map(|entry| entry.record.len()).sum();
        self.at_once = match bytes {
            0..MOST_BYTES => (self.at_once * 2).min(MOST_ENTRIES),
            _ => (self.at_once / 2).max(1),
        };
        self.found = found.into();
        Ok(())
    }
}

impl Iterator for Range {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.found.is_empty()
            && self.from < self.to
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        self.found.pop_front().map(Ok)
    }
}
