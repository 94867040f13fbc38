//! A Raft group on a stream, without the types of a line of openraft.
//!
//! The entries of the group are the entries of the stream, encoded with postcard. The stream's
//! values hold the rest: the vote, the last committed log id and the *start*, which places the log.
//!
//! A stream begins at 0 and has no gaps. Raft's index skips if a snapshot is installed that ends
//! above the log. So the start says at which index of the stream which index of Raft lies. A purge
//! sets the start first, which is atomic, and then truncates the stream. If a crash comes between,
//! the open truncates. In a log that begins at 0, both indexes are the same until the first skip.

use std::ops::{Bound, RangeBounds};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use palisade::{Error, ErrorKind, Result};
use palisade_streams::{Stream, Streams, Ticket};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) const VOTE: &str = "vote";
pub(crate) const COMMITTED: &str = "committed";
const START: &str = "start";

/// A limited read ends with the entry that makes it as long as this or longer.
const LIMITED_BYTES: usize = 1 << 20;

/// Where the log begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Start<L> {
    /// The line of openraft whose encoding the group has: 9 or 10.
    line: u8,
    purged: Option<L>,
    /// The index of the first entry that is not purged.
    index: u64,
    /// The index of this entry in the stream.
    at: u64,
}

impl<L> Start<L> {
    /// Returns the index in the stream of entry `index`, which is not below the start.
    fn place(&self, index: u64) -> u64 {
        self.at.saturating_add(index.saturating_sub(self.index))
    }
}

/// The log of one group. Reads can come from any thread, changes from one at a time.
#[derive(Debug)]
pub(crate) struct Group<L> {
    stream: Stream,
    /// Readers hold the lock while they read, so that no truncation comes between. An append
    /// changes nothing that they see, and shares the lock with them.
    start: RwLock<Start<L>>,
}

impl<L: Clone + Serialize + DeserializeOwned> Group<L> {
    /// Opens the group `name`, or makes it. All that it has is durable on return.
    pub(crate) fn open(streams: &Streams, name: &[u8], line: u8) -> Result<Group<L>> {
        let stream = streams.stream_or_create(name)?;
        // The line is the first byte. The rest can only be decoded by the line that wrote it.
        let start = match stream.value(START)? {
            Some(bytes) if bytes.first() == Some(&line) => decode(START, &bytes)?,
            None if stream.next_index()? == 0 => {
                let start = Start { line, purged: None, index: 0, at: 0 };
                stream.put(START, encode(START, &start)?)?;
                start
            }
            _ => return Err(foreign(&stream)),
        };
        // A crash can have undone the truncation of the last purge, but not its start.
        //
        // Wait: openraft takes for durable what it finds at its start, and does not append it
        // again. In an open log, changes of the group's last `Raft` may not be durable yet.
        stream.truncate_before(start.at)?.wait()?;
        Ok(Group { stream, start: RwLock::new(start) })
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    fn read_start(&self) -> RwLockReadGuard<'_, Start<L>> {
        self.start.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The start is replaced as a whole, so a panic leaves a good one.
    fn write_start(&self) -> RwLockWriteGuard<'_, Start<L>> {
        self.start.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends entries, and returns a ticket for all of them. Leaves out those that are purged: a
    /// snapshot has them. If the log has no entry and nothing was purged, it begins at the index of
    /// the first one.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the entries leave a hole or are out of order: the log has none of them.
    /// After each other error, such as `NoSpace` or `TooLarge`, the log can have the entries before
    /// the one that failed.
    pub(crate) fn append<T: Serialize>(
        &self,
        entries: impl IntoIterator<Item = (u64, T)>,
    ) -> Result<Ticket<'static>> {
        let (mut first, mut next, mut encoded) = (None, None, Vec::new());
        for (index, entry) in entries {
            if let Some(next) = next.filter(|next| *next != index) {
                return Err(out_of_order(next, index));
            }
            next = Some(index.checked_add(1).ok_or_else(|| {
                refused(format!("no log of a Raft group has an entry with index {index}"))
            })?);
            if first.is_some() || !self.is_purged(index) {
                first.get_or_insert(index);
                encoded.push(encode("the entry", &entry)?);
            }
        }
        first.map_or(Ok(()), |index| self.begin_at(index))?;
        let mut ticket = None;
        for entry in encoded {
            ticket = Some(self.stream.append(entry)?);
        }
        // A truncation of nothing waits for what is in the log.
        let ticket = ticket.map_or_else(|| self.stream.truncate_before(0), Ok)?;
        Ok(ticket.detach())
    }

    fn is_purged(&self, index: u64) -> bool {
        let start = self.read_start();
        start.purged.is_some() && index < start.index
    }

    /// Refuses an entry that is not the next one. If the log has no entry and nothing was purged,
    /// it begins at `index`.
    fn begin_at(&self, index: u64) -> Result<()> {
        let next = self.stream.next_index()?;
        let start = self.read_start();
        let expected = start.index + (next - start.at);
        if index == expected {
            return Ok(());
        }
        if start.purged.is_some() || start.at != next {
            return Err(out_of_order(expected, index));
        }
        drop(start);
        self.set_start(&mut self.write_start(), None, index, next)
    }

    fn set_start(
        &self,
        start: &mut Start<L>,
        purged: Option<L>,
        index: u64,
        at: u64,
    ) -> Result<()> {
        let new = Start { line: start.line, purged, index, at };
        self.stream.put(START, encode(START, &new)?)?;
        *start = new;
        Ok(())
    }

    /// Removes the entries from `index` on.
    pub(crate) fn truncate(&self, index: u64) -> Result<Ticket<'static>> {
        let start = self.write_start();
        if start.purged.is_some() && index < start.index {
            let text =
                format!("cannot truncate at {index}: the log is purged below {}", start.index);
            return Err(Error::new(ErrorKind::Truncated, text));
        }
        let next = self.stream.next_index()?;
        Ok(self.stream.truncate_from(start.place(index).min(next))?.detach())
    }

    /// Removes the entries up to `index`, whose id is `purged`. The index can lie above the end. If
    /// the log has no entry, it begins above `index`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if nothing was purged and `index` lies more than one below the first
    /// entry: the entries between would be missing. Nothing has changed then.
    pub(crate) fn purge(&self, index: u64, purged: L) -> Result<()> {
        let mut start = self.write_start();
        if start.purged.is_some() && index < start.index {
            return Ok(());
        }
        let (first, next) = (index.saturating_add(1), self.stream.next_index()?);
        // The start of an empty log can lie above `first`: a crash or a truncation took its
        // entries. To keep it would leave out the entries from `first` on as purged.
        if first < start.index && start.at < next {
            return Err(leaves_a_hole(index, start.index));
        }
        let at = start.place(first).min(next);
        self.set_start(&mut start, Some(purged), first, at)?;
        self.stream.truncate_before(at).map(drop)
    }

    /// Returns the last purged log id and the last entry.
    pub(crate) fn state<T: DeserializeOwned>(&self) -> Result<(Option<L>, Option<T>)> {
        let start = self.read_start();
        let last = self.stream.range_rev(..)?.next().transpose()?;
        let last = last.map(|entry| decode("the last entry", entry.data())).transpose()?;
        Ok((start.purged.clone(), last))
    }

    /// Returns the entries in `range` that the log has.
    pub(crate) fn read<T: DeserializeOwned>(&self, range: impl RangeBounds<u64>) -> Result<Vec<T>> {
        self.read_bytes(range, usize::MAX)
    }

    /// Returns the first entries in `range`, at least one if the log has it.
    pub(crate) fn read_limited<T: DeserializeOwned>(
        &self,
        range: impl RangeBounds<u64>,
    ) -> Result<Vec<T>> {
        self.read_bytes(range, LIMITED_BYTES)
    }

    fn read_bytes<T: DeserializeOwned>(
        &self,
        range: impl RangeBounds<u64>,
        most: usize,
    ) -> Result<Vec<T>> {
        let from = match range.start_bound() {
            Bound::Included(&from) => from,
            Bound::Excluded(&from) => from.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&to) => to.saturating_add(1),
            Bound::Excluded(&to) => to,
            Bound::Unbounded => u64::MAX,
        };
        let start = self.read_start();
        let (mut found, mut bytes) = (Vec::new(), 0);
        if to <= start.index || to <= from {
            return Ok(found);
        }
        for entry in self.stream.range(start.place(from)..start.place(to))? {
            let entry = entry?;
            bytes += entry.data().len();
            found.push(decode("an entry", entry.data())?);
            if bytes >= most {
                break;
            }
        }
        Ok(found)
    }

    /// Sets a small value. It is durable when the ticket is.
    pub(crate) fn save(&self, key: &str, value: &impl Serialize) -> Result<Ticket<'static>> {
        Ok(self.stream.put(key, encode(key, value)?)?.detach())
    }

    pub(crate) fn load<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        self.stream.value(key)?.map(|bytes| decode(key, &bytes)).transpose()
    }
}

fn encode(what: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| {
        let text = format!("postcard cannot encode {what}");
        let advice = "postcard needs types of known length: see the page of palisade-openraft";
        Error::new(ErrorKind::InvalidArgument, text).with_source(error).with_advice(advice)
    })
}

fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    let corrupt = |text| {
        let advice = "open the group with the types with which it was written";
        Error::new(ErrorKind::Corrupt, text).with_advice(advice)
    };
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(corrupt(format!("{what} has {} bytes too many", rest.len()))),
        Err(error) => Err(corrupt(format!("postcard cannot decode {what}")).with_source(error)),
    }
}

fn out_of_order(expected: u64, index: u64) -> Error {
    refused(format!("the next entry has index {expected}, and not {index}"))
}

fn leaves_a_hole(index: u64, first: u64) -> Error {
    let text = format!("cannot purge up to {index}: the log begins at {first}");
    let advice = "truncate the log first, or purge up to an entry that it has";
    Error::new(ErrorKind::InvalidArgument, text).with_advice(advice)
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text).with_advice("append entries in their order")
}

fn foreign(stream: &Stream) -> Error {
    let name = stream.name().escape_ascii();
    let text = format!("the stream \"{name}\" has no log of a Raft group of this line of openraft");
    let advice = "name another stream, or open the group with the line that made it";
    Error::new(ErrorKind::Foreign, text).with_advice(advice)
}

#[cfg(test)]
mod tests;
