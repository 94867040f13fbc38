//! Tails: readers that follow one stream, or all, and return entries as they become durable.

use std::time::Duration;

use palisade::{Lsn, Result};
use palisade_core::sync::Instant;
use std::sync::Arc;

use crate::directory::deleted;
use crate::hub::Hub;
use crate::read::Entry;
use crate::record::Record;
use crate::streams::{Stream, Streams};
use crate::write::truncated;

/// Follows a stream: returns each entry once, in order, as soon as it is durable. Made by
/// [`Stream::tail`].
///
/// A tail requests no sync: it returns what commits make durable. It does not keep the entries: if
/// they are truncated before it comes to them, it returns `Truncated`.
#[derive(Debug)]
pub struct Tail {
    stream: Stream,
    next: u64,
    hub: Arc<Hub>,
    number: u64,
}

/// A tail that waits looks so often whether the log is closed or poisoned: nobody tells it.
const CHECK: Duration = Duration::from_millis(100);

/// What a tail found in the stream.
enum Found {
    At(Lsn),
    Nothing { changes: u64 },
}

impl Stream {
    /// Returns a tail that follows the stream from entry `from` on.
    ///
    /// ```
    /// # use palisade_streams::Options;
    /// use std::time::Duration;
    ///
    /// # fn main() -> palisade::Result<()> {
    /// # let disk = std::sync::Arc::new(palisade::disk::MemDisk::new());
    /// # let streams = Options::new().open_on(disk, "/log")?;
    /// let stream = streams.create("greetings")?;
    /// let mut tail = stream.tail(0)?;
    /// stream.append("not durable yet")?;
    /// assert_eq!(tail.next(Duration::ZERO)?, None);
    /// stream.commit("hello")?;
    /// let entry = tail.next(Duration::from_secs(1))?.expect("it is durable");
    /// assert_eq!(entry.data(), b"not durable yet");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Truncated`: the entry was truncated. `OutOfRange`: `from` is above the index of the next
    /// entry. `NotFound`: the stream was deleted.
    pub fn tail(&self, from: u64) -> Result<Tail> {
        let mut stripe = self.shared().directory.lock_of(self.id());
        let slot = stripe.live(self.id())?;
        crate::write::check_index(from, slot.next())?;
        if from < slot.first() {
            return Err(truncated(from, slot.first()));
        }
        let hub = Arc::clone(slot.make_hub());
        let number = hub.add();
        Ok(Tail { stream: self.clone(), next: from, hub, number })
    }
}

impl Tail {
    /// Returns the index of the entry that the tail returns next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the next entry, or `None` if none becomes durable within `timeout`.
    ///
    /// # Errors
    /// `Truncated`: the entry was truncated, or a truncation of the suffix removed one that the
    /// tail has returned; begin again at [`Stream::first_index`] or at the entry that was replaced.
    /// `NotFound`: the stream was deleted. `Closed`, `Poisoned`: after the last durable entry. Else
    /// as [`Stream::get`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let deadline = Instant::now().checked_add(timeout);
        let far = || Instant::now() + Duration::from_secs(1 << 30);
        let deadline = deadline.unwrap_or_else(far);
        loop {
            let lsn = match self.look()? {
                Found::At(lsn) => lsn,
                Found::Nothing { changes } => {
                    self.check_goes_on()?;
                    let slice = deadline.min(Instant::now() + CHECK);
                    if !self.hub.wait(changes, slice) && slice == deadline {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.read(lsn, rest) {
                // It was moved or truncated meanwhile: look again.
                Err(error) if error.kind() == palisade::ErrorKind::Truncated => {
                    if matches!(self.look()?, Found::At(again) if again == lsn) {
                        return Err(error);
                    }
                }
                Ok(Some(entry)) => {
                    self.next += 1;
                    return Ok(Some(entry));
                }
                ended => return ended,
            }
        }
    }

    /// Refuses to wait for an entry that cannot come.
    fn check_goes_on(&self) -> Result<()> {
        let wal = &self.stream.shared().wal;
        // A tail of the log at its end finds nothing, or why there will be nothing.
        wal.tail_from(wal.reserved_lsn())?.next(Duration::ZERO).map(drop)
    }

    /// Looks for the next entry.
    fn look(&self) -> Result<Found> {
        let changes = self.hub.look();
        let shared = self.stream.shared();
        let stripe = shared.directory.lock_of(self.stream.id());
        let slot = stripe.slot(self.stream.id()).ok_or_else(deleted)?;
        let cut = self.hub.take_cut(self.number);
        if cut < self.next {
            // So that the next call returns it again.
            self.hub.put_back(self.number, cut);
            return Err(truncated(cut, slot.first()));
        }
        if self.next < slot.first() {
            return Err(truncated(self.next, slot.first()));
        }
        let place = slot.entries().and_then(|entries| entries.get(self.next));
        match place {
            Some(place) => Ok(Found::At(shared.segments.lsn(place))),
            None if self.next < slot.next() => {
                drop(stripe);
                // The error says what is wrong with it.
                self.stream.get(self.next).map(|_| Found::Nothing { changes })
            }
            None => Ok(Found::Nothing { changes }),
        }
    }

    /// Reads the entry at `lsn` when it is durable.
    fn read(&self, lsn: Lsn, timeout: Duration) -> Result<Option<Entry>> {
        let mut records = self.stream.shared().wal.tail_from(lsn)?;
        let Some(record) = records.next(timeout)? else { return Ok(None) };
        if record.lsn() != lsn {
            return Err(truncated(self.next, self.next));
        }
        Entry::of(record.into(), self.stream.id(), self.next).map(Some)
    }
}

/// The last tail of a stream takes what it needs out of the stream's slot.
impl Drop for Tail {
    fn drop(&mut self) {
        let mut stripe = self.stream.shared().directory.lock_of(self.stream.id());
        if self.hub.remove(self.number)
            && let Ok(slot) = stripe.live(self.stream.id())
        {
            slot.drop_hub();
        }
    }
}

/// Follows all streams: returns the entries of all in the order of the log, as soon as they are
/// durable. Made by [`Streams::tail_all`].
#[derive(Debug)]
pub struct TailAll {
    streams: Streams,
    tail: palisade::Tail,
}

impl Streams {
    /// Returns a tail of all entries that are appended from now on, in all streams.
    ///
    /// The tail keeps the files of the segments that it has not read. Entries that are moved come
    /// only once.
    ///
    /// # Errors
    /// As [`palisade::Wal::tail_from`].
    pub fn tail_all(&self) -> Result<TailAll> {
        let tail = self.log().tail_from(self.log().reserved_lsn())?;
        Ok(TailAll { streams: self.clone(), tail })
    }
}

impl TailAll {
    /// Returns the stream's name and the entry, or `None` if none becomes durable within `timeout`.
    /// Skips the entries of streams that were deleted.
    ///
    /// # Errors
    /// As [`palisade::Tail::next`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<(Vec<u8>, Entry)>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let rest = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let Some(record) = self.tail.next(rest)? else { return Ok(None) };
            let Record::Entry { id, index, .. } = Record::of(&record)? else { continue };
            let stripe = self.streams.shared().directory.lock_of(id);
            let Some(name) = stripe.slot(id).map(|_| stripe.name_of(id).to_vec()) else { continue };
            drop(stripe);
            return Ok(Some((name, Entry::of(record.into(), id, index)?)));
        }
    }
}
