//! Tails: readers that follow one stream, or all, and return entries as they become durable.
//!
//! A tail waits for two things, one after the other. The hub of the stream says that there is an
//! entry; a tail of the log says that the entry is durable. Neither asks for a sync.
//!
//! A task that waits for an entry is also registered for the end of the log. A thread looks for
//! it now and then. While it waits for a sync, it also looks whether the entry is still there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use palisade::{Ended, Error, ErrorKind, Lsn, RecordBuf, Result};
use palisade_store::sync::Instant;

use crate::directory::Stripe;
use crate::hub::{Found, Hub};
use crate::read::Entry;
use crate::record::Record;
use crate::streams::{Stream, Streams};
use crate::write::truncated;

/// Follows a stream: returns each entry once, in order, as soon as it is durable. Made by
/// [`Stream::tail`].
///
/// A tail requests no sync: it returns what commits make durable. It does not keep the entries: if
/// they are truncated before it comes to them, it returns `Truncated`.
///
/// With the feature `stream` a tail is also a `futures_core::Stream` of entries, which ends after
/// an error.
#[derive(Debug)]
pub struct Tail {
    stream: Stream,
    next: u64,
    hub: Arc<Hub>,
    number: u64,
    /// Where the entry is whose durability a task waits for, and the tail of the log that waits.
    reading: Option<(Lsn, palisade::Tail)>,
    /// For a task at the end of the stream.
    ended: Option<Ended>,
    #[cfg(feature = "stream")]
    has_failed: bool,
}

/// A tail that blocks a thread looks so often whether the log is closed or poisoned, and whether an
/// entry that is not durable is still there.
const CHECK: Duration = Duration::from_millis(100);

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
        Tail::begin(self, &mut self.shared().directory.lock_of(self.id()), from)
    }
}

impl Tail {
    /// Begins at entry `from`. The caller must free the stripe's lock before it drops the tail.
    pub(crate) fn begin(stream: &Stream, stripe: &mut Stripe, from: u64) -> Result<Tail> {
        let slot = stripe.live(stream.id())?;
        crate::write::check_index(from, slot.next())?;
        if from < slot.first() {
            return Err(truncated(from, slot.first()));
        }
        let hub = Arc::clone(slot.make_hub());
        let number = hub.add();
        Ok(Tail {
            stream: stream.clone(),
            next: from,
            hub,
            number,
            reading: None,
            ended: None,
            #[cfg(feature = "stream")]
            has_failed: false,
        })
    }

    /// Returns the index of the entry that the tail returns next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the next entry, or `None` if none becomes durable within `timeout`.
    ///
    /// # Errors
    /// `Truncated`: [`Stream::truncate_before`] removed the entry, or a truncation of the suffix
    /// removed one that the tail has returned; begin again at [`Stream::first_index`] or at the
    /// entry that was replaced. If it removed only others, the tail waits for the new ones.
    /// `NotFound`: the stream was deleted, also while the call waits. `Closed`, `Poisoned`: after
    /// the last durable entry. `Corrupt`: the entry cannot be read, at each call; to pass over it,
    /// begin a tail at the index above [`position`](Tail::position). Else as [`Stream::get`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let found = self.find(timeout)?;
        self.next += u64::from(found.is_some());
        Ok(found)
    }

    /// Polls for the next entry, on any runtime or none.
    ///
    /// Reads files as [`next`](Tail::next) does, but does not wait for a sync. At the end of the
    /// stream, a change of it wakes the task, and so does the end of the log. If the next entry is
    /// not durable, the task waits for its sync: a truncation or a deletion does not wake it. A
    /// waiting task counts towards `palisade::Options::max_waiters`. While it waits for a sync, the
    /// tail keeps the segment of the entry. To stop waiting, drop the tail.
    ///
    /// # Errors
    /// As [`next`](Tail::next). `TooManyWaiters`: poll again when others have finished (a
    /// `futures_core::Stream` has ended then). `Io`: the log's background thread did not start.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Entry>> {
        let entry = ready!(self.poll_find(context))?;
        self.next += 1;
        Poll::Ready(Ok(entry))
    }

    /// Returns what the next call of `next` returns, and does not move on.
    pub(crate) fn find(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let deadline = Instant::now().checked_add(timeout);
        let far = || Instant::now() + Duration::from_secs(1 << 30);
        let deadline = deadline.unwrap_or_else(far);
        loop {
            match self.look()? {
                Found::At(lsn) => {
                    let rest = deadline.saturating_duration_since(Instant::now());
                    // A truncation or a deletion does not wake a tail of the log.
                    match self.read(lsn, rest.min(CHECK)).transpose() {
                        None if rest > CHECK => {}
                        None => return Ok(None),
                        Some(read) => {
                            if let Some(entry) = self.check_read(lsn, read)? {
                                return Ok(Some(entry));
                            }
                        }
                    }
                }
                Found::Nothing { changes } => {
                    // A tail of the log at its end finds nothing, or why there will be nothing.
                    let wal = &self.stream.shared().wal;
                    let end = wal.tail_from(wal.reserved_lsn());
                    let ended = end.and_then(|mut end| end.next(Duration::ZERO).map(drop));
                    // Any other error is one of another stream.
                    if ended.as_ref().is_err_and(is_end) && self.is_at_the_end()? {
                        return ended.map(|()| None);
                    }
                    let slice = deadline.min(Instant::now() + CHECK);
                    if !self.hub.wait(changes, slice) && slice == deadline {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn poll_find(&mut self, context: &mut Context<'_>) -> Poll<Result<Entry>> {
        loop {
            let lsn = ready!(self.poll_look(context))?;
            let read = ready!(self.poll_read(lsn, context));
            if let Some(entry) = self.check_read(lsn, read)? {
                return Poll::Ready(Ok(entry));
            }
        }
    }

    /// Polls for where the next entry is. The registration for the end of the log ends with it: the
    /// wait for the sync needs another one, and a task counts once.
    fn poll_look(&mut self, context: &mut Context<'_>) -> Poll<Result<Lsn>> {
        let mut ended = self.ended.take();
        let wal = &self.stream.shared().wal;
        let poll_end = |context: &mut Context<'_>| {
            Pin::new(ended.get_or_insert_with(|| wal.ended())).poll(context)
        };
        let found = self.hub.poll(self.number, context, || self.look(), poll_end);
        if found.is_pending() {
            self.ended = ended;
        }
        found
    }

    /// Looks again after the log has ended, for the reason in `hub`.
    fn is_at_the_end(&self) -> Result<bool> {
        Ok(matches!(self.look()?, Found::Nothing { .. }))
    }

    /// Looks for the next entry.
    fn look(&self) -> Result<Found<Lsn>> {
        let shared = self.stream.shared();
        let found = self.hub.look(&shared.directory, self.stream.id(), self.number, self.next)?;
        Ok(match found {
            Found::At(place) => Found::At(shared.segments.lsn(place)),
            Found::Nothing { changes } => Found::Nothing { changes },
        })
    }

    /// Returns the least index from which a truncation of the suffix has removed entries that the
    /// tail has returned, or the greatest number if there was none.
    pub(crate) fn cut(&self) -> u64 {
        self.hub.cut(self.number)
    }

    /// Reads the entry at `lsn` when it is durable.
    fn read(&self, lsn: Lsn, timeout: Duration) -> Result<Option<Entry>> {
        let mut records = self.stream.shared().wal.tail_from(lsn)?;
        let Some(record) = records.next(timeout)? else { return Ok(None) };
        self.entry_at(lsn, record.into()).map(Some)
    }

    fn poll_read(&mut self, lsn: Lsn, context: &mut Context<'_>) -> Poll<Result<Entry>> {
        let known = self.reading.take().filter(|(of, _)| *of == lsn);
        let begin = || Ok((lsn, self.stream.shared().wal.tail_from(lsn)?));
        let mut reading = known.map_or_else(begin, Ok)?;
        let Poll::Ready(found) = reading.1.poll_next(context) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        // None: the tail of the log has ended, so the record is not there any more.
        let found = found?.map(RecordBuf::from).ok_or_else(|| truncated(self.next, self.next));
        Poll::Ready(found.and_then(|record| self.entry_at(lsn, record)))
    }

    fn entry_at(&self, lsn: Lsn, record: RecordBuf) -> Result<Entry> {
        if record.lsn() != lsn {
            return Err(truncated(self.next, self.next));
        }
        Entry::of(record, self.stream.id(), self.next)
    }

    /// Returns the entry that was read at `lsn`, or none if the tail must look again.
    fn check_read(&self, lsn: Lsn, read: Result<Entry>) -> Result<Option<Entry>> {
        if read.as_ref().is_err_and(|error| error.kind() != ErrorKind::Truncated) {
            return read.map(Some);
        }
        // It was moved, truncated or replaced while the tail has waited, if it is not where it was.
        let is_there = matches!(self.look()?, Found::At(again) if again == lsn);
        if is_there { read.map(Some) } else { Ok(None) }
    }
}

/// Returns whether an error of the log's tail means that no more records become durable.
fn is_end(error: &Error) -> bool {
    use ErrorKind::{Closed, Forked, Poisoned};
    matches!(error.kind(), Closed | Forked | Poisoned)
}

/// Ends after an error.
#[cfg(feature = "stream")]
impl futures_core::Stream for Tail {
    type Item = Result<Entry>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let tail = self.get_mut();
        if tail.has_failed {
            return Poll::Ready(None);
        }
        let found = ready!(Tail::poll_next(tail, context));
        tail.has_failed = found.is_err();
        Poll::Ready(Some(found))
    }
}

/// The last tail of a stream takes what it needs out of the stream's slot.
impl Drop for Tail {
    fn drop(&mut self) {
        // Declared before the guard: the drop of a waker is foreign code.
        let _waker;
        let mut stripe = self.stream.shared().directory.lock_of(self.stream.id());
        let is_last;
        (is_last, _waker) = self.hub.remove(self.number);
        if is_last && let Ok(slot) = stripe.live(self.stream.id()) {
            slot.drop_hub();
        }
    }
}

/// The name of a stream, and one of its entries.
type NamedEntry = (Vec<u8>, Entry);

/// Follows all streams: returns the entries of all in the order of the log, as soon as they are
/// durable. Made by [`Streams::tail_all`].
///
/// With the feature `stream` it is also a `futures_core::Stream` of names and entries, which ends
/// after an error.
#[derive(Debug)]
pub struct TailAll {
    streams: Streams,
    tail: palisade::Tail,
    #[cfg(feature = "stream")]
    has_failed: bool,
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
        Ok(TailAll {
            streams: self.clone(),
            tail,
            #[cfg(feature = "stream")]
            has_failed: false,
        })
    }

    /// Returns the stream's name and the entry, if the record is one.
    fn entry_of(&self, record: &palisade::Record<'_>) -> Result<Option<NamedEntry>> {
        let Record::Entry { id, index, .. } = Record::of(record)? else { return Ok(None) };
        let stripe = self.shared().directory.lock_of(id);
        let Some(name) = stripe.slot(id).map(|_| stripe.name_of(id).to_vec()) else {
            return Ok(None);
        };
        drop(stripe);
        Ok(Some((name, Entry::of(RecordBuf::from(*record), id, index)?)))
    }
}

impl TailAll {
    /// Returns the stream's name and the entry, or `None` if none becomes durable within `timeout`.
    /// Skips the entries of streams that were deleted.
    ///
    /// # Errors
    /// As [`palisade::Tail::next`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<NamedEntry>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let rest = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let Some(record) = self.tail.next(rest)? else { return Ok(None) };
            if let Some(found) = self.streams.entry_of(&record)? {
                return Ok(Some(found));
            }
        }
    }

    /// Polls for what [`next`](TailAll::next) returns, as [`palisade::Tail::poll_next`]. `None`
    /// after an error from which the tail cannot continue.
    ///
    /// # Errors
    /// As [`palisade::Tail::poll_next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<NamedEntry>>> {
        loop {
            let Some(record) = ready!(self.tail.poll_next(context))? else {
                return Poll::Ready(Ok(None));
            };
            if let Some(found) = self.streams.entry_of(&record)? {
                return Poll::Ready(Ok(Some(found)));
            }
        }
    }
}

/// Ends after an error.
#[cfg(feature = "stream")]
impl futures_core::Stream for TailAll {
    type Item = Result<NamedEntry>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let tail = self.get_mut();
        if tail.has_failed {
            return Poll::Ready(None);
        }
        let found = ready!(TailAll::poll_next(tail, context));
        tail.has_failed = found.is_err();
        Poll::Ready(found.transpose())
    }
}
