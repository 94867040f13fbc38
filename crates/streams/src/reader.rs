//! Reads streams without opening the log, also beside a running writer.
//!
//! A reader takes no lock and changes nothing. It reads all records of the log once, from the head
//! on, and keeps where the entries are. If the writer releases or moves what the reader is at, the
//! reader looks again, and begins anew if records that it has not read were released.

use std::collections::VecDeque;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use palisade::disk::Disk;
use palisade::inspect::Inspector;
use palisade::{Error, ErrorKind, Lsn, RecordBuf, Records, Result, framed_bytes};

use crate::positions::{ConsumerStatus, consumers, of_user};
use crate::read::{Entry, clip};
use crate::record::{MAX_ENTRY_HEADER_BYTES, StreamId};
use crate::replay::{At, Known, Replay};
use crate::stats::Pinned;
use crate::write::quoted;

/// How often a reader begins anew because the writer released what was to be read next.
const RESTARTS: usize = 100;
/// The entries that are read together.
const MOST_ENTRIES: usize = 1024;
const MOST_BYTES: u64 = 1 << 20;
/// A record within this distance is reached by reading on.
const NEAR_BYTES: u64 = 1 << 20;

/// What streams a log has, and their entries, without an open of the log.
///
/// Works beside a running writer: takes no lock and changes nothing. Does not see records that only
/// the log buffer of the writer holds. Entries that it sees may not be durable yet.
///
/// Keeps about 60 bytes for each entry, and twice as much while it reads the log anew.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let id = std::process::id();
/// # let folder = std::env::temp_dir().join(format!("palisade-streams-reader-{id}"));
/// # let _ = std::fs::remove_dir_all(&folder);
/// use palisade_streams::{Reader, Streams};
///
/// let streams = Streams::open(&folder)?;
/// let orders = streams.create("orders")?;
/// orders.commit("two apples")?;
///
/// let mut reader = Reader::open(&folder)?; // here, or in another process
/// assert_eq!(reader.stream("orders")?.next, 1);
/// let first = reader.entries("orders", ..)?.next().expect("there is one")?;
/// assert_eq!(first.data(), b"two apples");
/// # drop(orders);
/// # streams.close()?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Reader {
    log: Inspector,
    pub(crate) replay: Replay,
    /// What it had read when it began anew, until it has read all again.
    before: Option<Replay>,
    segment_bytes: u64,
    /// The head of the log, and its epoch, when the replay began; none before all was read once.
    began: Option<(Lsn, u64)>,
    /// Where the next record is looked for.
    position: Lsn,
}

/// What a [`Reader`] knows of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// The stream's name.
    pub name: Vec<u8>,
    /// The index of the first entry, or of the next one if there is none.
    pub first: u64,
    /// The index that the next entry gets.
    pub next: u64,
    /// How many entries were found. Fewer than `next - first` if entries are missing in the log.
    pub entries: u64,
    /// How many values the stream has.
    pub values: u64,
    /// Bytes of the entries, without their headers.
    pub bytes: u64,
}

impl StreamStatus {
    fn of(known: &Known) -> StreamStatus {
        StreamStatus {
            name: known.name.clone(),
            first: known.first,
            next: known.next,
            entries: known.entries.len() as u64,
            values: of_user(known.values()).count() as u64,
            bytes: known.entries.values().map(|at| at.bytes).sum(),
        }
    }
}

/// The numbers of a log that a [`Reader`] has read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderStats {
    /// Where the log began when the reader began.
    pub head: Lsn,
    /// Where the records end that were read.
    pub end: Lsn,
    /// Bytes of log in a segment.
    pub segment_bytes: u64,
    /// Records that were read.
    pub records: u64,
    /// Of these, copies of entries that were moved.
    pub moved: u64,
    /// Of these, ends of footers.
    pub footers: u64,
    /// About how many bytes of log the entries take, with their headers.
    pub live_bytes: u64,
    /// The streams that keep the lowest segment, as [`Streams::pinned`](crate::Streams::pinned).
    pub pinned: Vec<Pinned>,
}

impl Reader {
    /// Reads the log of streams in the folder `path`.
    ///
    /// Reads every record of the log once. The records end at the first place without a valid one:
    /// compare [`end`](Reader::end) with what [`Inspector::verify`] returns.
    ///
    /// # Errors
    /// As [`Inspector::open`] and [`Inspector::records`]. `Foreign`: the log is none of streams.
    /// `Corrupt`: a record does not make sense. `Unsupported`: a codec has encoded a record. `Io`:
    /// also if the writer releases records faster than they are read.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
        Reader::of(Inspector::open(path)?)
    }

    /// Reads the log of streams in the folder `path` of `disk`.
    ///
    /// # Errors
    /// As [`open`](Reader::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<Reader> {
        Reader::of(Inspector::open_on(disk, path)?)
    }

    fn of(log: Inspector) -> Result<Reader> {
        let segment_bytes = log.state()?.segment_bytes;
        let replay = Replay::default();
        let position = Lsn::ZERO;
        let mut reader = Reader { log, replay, before: None, segment_bytes, began: None, position };
        reader.refresh()?;
        Ok(reader)
    }

    /// Reads what the writer has appended since. After an error the reader may know less than
    /// before, until a later call succeeds.
    ///
    /// # Errors
    /// As [`open`](Reader::open).
    pub fn refresh(&mut self) -> Result<()> {
        for _ in 0..RESTARTS {
            if self.read_on()? {
                if let Some(before) = self.before.take() {
                    self.replay.note_cuts_since(&before);
                }
                return Ok(());
            }
            let anew = Replay::new(self.replay.cuts_from());
            let before = std::mem::replace(&mut self.replay, anew);
            self.before.get_or_insert(before);
            self.began = None;
        }
        let text = "the writer releases records faster than they can be read";
        Err(Error::new(ErrorKind::Io, text).with_advice("try again when the log is less busy"))
    }

    /// Applies the records from the position on. Returns false if some were released unread, or if
    /// records that were applied may not be there any more.
    fn read_on(&mut self) -> Result<bool> {
        let before = self.log.state()?;
        let from = self.began.map(|_| self.position);
        if self.began.is_some_and(|(_, epoch)| epoch != before.epoch) {
            // A recovery may have removed records that were read.
            return Ok(false);
        }
        let mut records = match self.log.records(from) {
            Ok(records) => records,
            // A writer that releases segments passes through such a state.
            Err(error) if error.kind() == ErrorKind::Corrupt && self.log.state()? != before => {
                return Ok(false);
            }
            Err(error) if error.kind() == ErrorKind::Truncated => return Ok(false),
            Err(error) => return Err(error),
        };
        let at = records.position();
        if from.is_some_and(|from| at > from) {
            return Ok(false);
        }
        if self.began.is_none() {
            // A read that failed may have left a part of the records here.
            self.replay = Replay::new(self.replay.cuts_from());
        }
        let counts = self.replay.counts;
        if let Err(error) = self.apply_all(&mut records) {
            // The next call reads these records again.
            self.replay.counts = counts;
            let was_released = error.kind() == ErrorKind::Truncated;
            return if was_released { Ok(false) } else { Err(error) };
        }
        // Not before the reads: if one fails, the next call must not go on from the old position.
        self.began = Some((self.began.map_or(at, |(began, _)| began), before.epoch));
        self.position = records.position();
        let after = self.log.state()?;
        Ok(after.head <= self.position && after.epoch == before.epoch)
    }

    fn apply_all(&mut self, records: &mut palisade::Records) -> Result<()> {
        while let Some(record) = records.next()? {
            self.replay.apply(&record)?;
        }
        Ok(())
    }

    /// Returns where the records end that were read.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.position
    }

    /// Returns all streams, by name.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamStatus> {
        self.replay.streams().map(|(_, known)| StreamStatus::of(known)).collect()
    }

    /// Returns the stream of this name.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    pub fn stream(&self, name: impl AsRef<[u8]>) -> Result<StreamStatus> {
        Ok(StreamStatus::of(self.find(name.as_ref())?.1))
    }

    /// Returns the keys and values of the stream of this name, by key.
    ///
    /// # Errors
    /// `NotFound`: there is no such stream.
    pub fn values(&self, name: impl AsRef<[u8]>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (_, known) = self.find(name.as_ref())?;
        Ok(of_user(known.values()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
    }

    /// Returns the consumers of the stream of this name, by name.
    ///
    /// # Errors
    /// `NotFound`: there is no such stream.
    pub fn consumers(&self, name: impl AsRef<[u8]>) -> Result<Vec<ConsumerStatus>> {
        let (_, known) = self.find(name.as_ref())?;
        Ok(consumers(known.values(), known.first, known.next))
    }

    /// Returns the numbers of what was read.
    #[must_use]
    pub fn stats(&self) -> ReaderStats {
        let counts = self.replay.counts;
        let entries = self.replay.streams().flat_map(|(_, known)| known.entries.values());
        // Without its header an entry is too short by a few bytes of its id and its index.
        let live = |at: &At| framed_bytes(at.bytes as usize + MAX_ENTRY_HEADER_BYTES / 4);
        ReaderStats {
            head: self.began.map_or(Lsn::ZERO, |(head, _)| head),
            end: self.position,
            segment_bytes: self.segment_bytes,
            records: counts.records,
            moved: counts.moved,
            footers: counts.footers,
            live_bytes: entries.map(live).sum(),
            pinned: self.pinned(),
        }
    }

    fn pinned(&self) -> Vec<Pinned> {
        let segment = |lsn: Lsn| lsn.as_u64() / self.segment_bytes;
        let anchors = self.replay.streams().map(|(_, known)| known.anchor);
        let entries = self.replay.streams().flat_map(|(_, known)| known.entries.values());
        let lowest = anchors.chain(entries.map(|at| at.lsn)).min().map(segment);
        let tail = segment(self.position);
        let Some(lowest) = lowest.filter(|lowest| *lowest < tail) else { return Vec::new() };
        let bytes = (tail - lowest) * self.segment_bytes;
        let pin = |(_, known): (_, &Known)| {
            let mut here = known.entries.iter().filter(|(_, at)| segment(at.lsn) == lowest);
            let first = here.next().map(|(index, _)| *index);
            let entries = u64::from(first.is_some()) + here.count() as u64;
            let is_pin = entries > 0 || segment(known.anchor) == lowest;
            is_pin.then(|| Pinned { name: known.name.clone(), entries, first, bytes })
        };
        self.replay.streams().filter_map(pin).collect()
    }

    /// Returns the entries of the stream of this name with indexes in `range`, which ends at the
    /// end of the stream at the time of the call. Begins at the first entry if `range` begins below
    /// it.
    ///
    /// # Errors
    /// `NotFound`: there is no such stream.
    pub fn entries(
        &mut self,
        name: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<ReaderEntries<'_>> {
        let (id, known) = self.find(name.as_ref())?;
        let (from, to) = clip(range, known.first, known.next);
        Ok(ReaderEntries { reader: self, id, from, to, found: VecDeque::new() })
    }

    pub(crate) fn find(&self, name: &[u8]) -> Result<(StreamId, &Known)> {
        self.replay.find(name).ok_or_else(|| {
            let text = format!("the log has no stream {}", quoted(name));
            let advice = "`palisade streams ls` prints the names of all streams";
            Error::new(ErrorKind::NotFound, text).with_advice(advice)
        })
    }

    /// Reads entries of stream `id` from `from` on, below `to`: some, but at least one if there is
    /// one. Moves `from` above what was read, or above what cannot be read.
    pub(crate) fn read(&mut self, id: StreamId, from: &mut u64, to: u64) -> Result<Vec<Entry>> {
        let mut failed = None;
        for _ in 0..RESTARTS {
            let Some(known) = self.replay.known(id).filter(|known| !known.name.is_empty()) else {
                return Err(crate::directory::deleted());
            };
            let to = to.min(known.next);
            if *from >= to {
                return Ok(Vec::new());
            }
            if *from < known.first {
                let below = std::mem::replace(from, known.first);
                return Err(truncated(below, known.first));
            }
            let wanted = wanted(known, *from, to);
            let at = wanted.first().map_or(to, |(index, _)| *index);
            if at > *from {
                let first = std::mem::replace(from, at);
                return Err(missing(first, at - 1));
            }
            let found = read_at(&self.log, id, &wanted)?;
            if let Some(last) = found.last() {
                *from = last.index() + 1;
                return Ok(found);
            }
            // The entry was moved or truncated meanwhile, unless it is where it was.
            if failed == wanted.first().copied() {
                let (index, at) = wanted[0];
                *from = index + 1;
                let text = format!("entry {index} cannot be read");
                return Err(Error::new(ErrorKind::Corrupt, text).at_lsn(at.lsn));
            }
            failed = wanted.first().copied();
            self.refresh()?;
        }
        let text = "the writer moves entries faster than they can be read";
        Err(Error::new(ErrorKind::Io, text).with_advice("try again when the log is less busy"))
    }
}

/// Returns the entries from `from` on that are read together: those before the next gap.
fn wanted(known: &Known, from: u64, to: u64) -> Vec<(u64, At)> {
    let mut wanted = Vec::new();
    let mut bytes = 0;
    for (&index, &at) in known.entries.range(from..to).take(MOST_ENTRIES) {
        let follows = wanted.last().is_none_or(|(last, _)| last + 1 == index);
        if !follows || bytes >= MOST_BYTES {
            break;
        }
        bytes += at.bytes;
        wanted.push((index, at));
    }
    wanted
}

/// Reads the entries at the places of `wanted`, in one walk upwards. Returns those before the first
/// one that is not there.
fn read_at(log: &Inspector, id: StreamId, wanted: &[(u64, At)]) -> Result<Vec<Entry>> {
    let mut upwards: Vec<_> = wanted.to_vec();
    upwards.sort_unstable_by_key(|(_, at)| at.lsn);
    let mut records: Option<Records> = None;
    let mut found = Vec::with_capacity(wanted.len());
    for (index, At { lsn, .. }) in upwards {
        let is_near = |records: &Records| {
            records.position() <= lsn && lsn.bytes_since(records.position()) <= NEAR_BYTES
        };
        let mut walk = match records.take().filter(is_near) {
            Some(records) => records,
            None => match log.records(Some(lsn)) {
                Err(error) if error.kind() == ErrorKind::Truncated => break,
                records => records?,
            },
        };
        if let Some(record) = record_at(&mut walk, lsn)?
            && let Ok(entry) = Entry::of(record, id, index)
        {
            found.push(entry);
            records = Some(walk);
        }
    }
    found.sort_unstable_by_key(Entry::index);
    let whole = found.iter().zip(wanted).take_while(|(entry, (index, _))| entry.index() == *index);
    let whole = whole.count();
    found.truncate(whole);
    Ok(found)
}

/// Reads on to the record at `lsn`, if there is one and it was not released meanwhile.
fn record_at(records: &mut Records, lsn: Lsn) -> Result<Option<RecordBuf>> {
    loop {
        match records.next() {
            Ok(Some(record)) if record.lsn() >= lsn => {
                return Ok((record.lsn() == lsn).then(|| RecordBuf::from(record)));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Truncated => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn truncated(index: u64, first: u64) -> Error {
    let text = format!("entry {index} was truncated; the first entry that is left is {first}");
    let advice = "`palisade streams ls` prints the indexes of all streams";
    Error::new(ErrorKind::Truncated, text).with_advice(advice)
}

fn missing(first: u64, last: u64) -> Error {
    let text = match first == last {
        true => format!("entry {first} is missing in the log"),
        false => format!("entries {first} to {last} are missing in the log"),
    };
    let advice = "`palisade streams verify` names all that is missing; restore from a backup";
    Error::new(ErrorKind::Corrupt, text).with_advice(advice)
}

/// Entries of a stream, in order: see [`Reader::entries`].
///
/// Each step may read the log. After an error the iterator continues behind the entries that the
/// error names: `Truncated` if the writer truncated them meanwhile, `Corrupt` if they are missing
/// or cannot be read. It ends where a truncation of the suffix ended the stream meanwhile.
#[derive(Debug)]
pub struct ReaderEntries<'r> {
    reader: &'r mut Reader,
    id: StreamId,
    from: u64,
    to: u64,
    found: VecDeque<Entry>,
}

impl Iterator for ReaderEntries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.found.is_empty() && self.from < self.to {
            match self.reader.read(self.id, &mut self.from, self.to) {
                Ok(found) => self.found = found.into(),
                Err(error) => {
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Io) {
                        self.from = self.to;
                    }
                    return Some(Err(error));
                }
            }
        }
        self.found.pop_front().map(Ok)
    }
}
