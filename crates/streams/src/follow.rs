//! Follows a stream without opening the log, also beside a running writer.

use std::collections::VecDeque;

use palisade::{Error, ErrorKind, Lsn, Result};

use crate::read::Entry;
use crate::reader::{Reader, truncated};
use crate::record::StreamId;

/// Follows one stream by polls of the log's files. Made by [`Reader::follow`].
///
/// If the stream was deleted, and one of the same name was made after the deletion's record was
/// released, the follower can take the new stream for the old one.
#[derive(Debug)]
pub struct Follow {
    reader: Reader,
    id: StreamId,
    /// A later stream can have the id, once nothing in the log tells of this one.
    name: Vec<u8>,
    next: u64,
    found: VecDeque<Entry>,
}

/// What a [`Follow`] found in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Followed {
    /// The next entry.
    Entry(Entry),
    /// The writer truncated entries before they were returned.
    Truncated {
        /// The first index that is passed over.
        from: u64,
        /// The index at which the follower continues.
        to: u64,
    },
    /// A truncation of the suffix, or a crash of the writer, removed entries that were returned.
    ///
    /// A crash leaves no record of what it removed, and the writer may release the record of a
    /// truncation before the follower reads it. Then the follower compares the data: it does not
    /// name entries that equal ones have replaced, or that were truncated since at the front.
    Replaced {
        /// The first index that was removed. The follower continues there.
        from: u64,
        /// The index that would have been next.
        to: u64,
    },
}

impl Reader {
    /// Follows the stream of this name from entry `from` on, or from its first entry.
    ///
    /// # Errors
    /// `NotFound`: there is no such stream. `Truncated`: the entry was truncated. `OutOfRange`:
    /// `from` is above the index of the next entry.
    pub fn follow(mut self, name: impl AsRef<[u8]>, from: Option<u64>) -> Result<Follow> {
        let name = name.as_ref().to_vec();
        let (id, known) = self.find(&name)?;
        let next = from.unwrap_or(known.first);
        if next < known.first {
            return Err(truncated(next, known.first));
        }
        if next > known.next {
            let text = format!("index {next} is above the end of the stream, {}", known.next);
            let advice = "`palisade streams ls` prints the indexes of all streams";
            return Err(Error::new(ErrorKind::OutOfRange, text).with_advice(advice));
        }
        let end = self.end();
        self.replay.forget_cuts(end);
        Ok(Follow { reader: self, id, name, next, found: VecDeque::new() })
    }
}

impl Follow {
    /// Returns the index of the entry that is returned next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns where the records end that were read.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.reader.end()
    }

    /// Returns what follows in the stream, or `None` if there is nothing yet: then wait, and call
    /// again.
    ///
    /// # Errors
    /// As [`Reader::refresh`]. `NotFound`: the stream was deleted. `Corrupt`: entries are missing,
    /// or one cannot be read; the next call continues above them.
    #[expect(clippy::should_implement_trait, reason = "after `None` there may be more")]
    pub fn next(&mut self) -> Result<Option<Followed>> {
        if let Some(entry) = self.found.pop_front() {
            self.next = entry.index().saturating_add(1);
            return Ok(Some(Followed::Entry(entry)));
        }
        self.reader.refresh()?;
        if let Some(change) = self.change()? {
            return Ok(Some(change));
        }
        let mut from = self.next;
        let found = self.reader.read(self.id, &mut from, u64::MAX);
        match found {
            Ok(found) => self.found = found.into(),
            // The writer truncated the entry during the read.
            Err(error) if error.kind() == ErrorKind::Truncated => return self.change(),
            Err(error) => {
                self.next = from;
                return Err(error);
            }
        }
        // `read` may have refreshed the reader.
        if let Some(change) = self.change()? {
            self.found.clear();
            return Ok(Some(change));
        }
        let entry = self.found.pop_front();
        if let Some(entry) = &entry {
            self.next = entry.index().saturating_add(1);
        }
        Ok(entry.map(Followed::Entry))
    }

    /// Returns the truncation that removed the next entry or returned ones, if there is one, and
    /// moves the index.
    fn change(&mut self) -> Result<Option<Followed>> {
        let end = self.reader.end();
        let known = self.reader.replay.known(self.id).filter(|known| known.name == self.name);
        let Some(known) = known else { return Err(crate::directory::deleted()) };
        let (first, next) = (known.first, known.next);
        let cut = known.cut.unwrap_or(next).min(next);
        self.reader.replay.forget_cuts(end);
        let was = self.next;
        if cut < was {
            self.next = cut;
            return Ok(Some(Followed::Replaced { from: cut, to: was }));
        }
        if was < first {
            self.next = first;
            return Ok(Some(Followed::Truncated { from: was, to: first }));
        }
        Ok(None)
    }
}
