//! Consumers: tails whose positions have names and are durable.
//!
//! A position is a value of the stream (`positions`), so an acknowledgement is one small record. A
//! truncation of the suffix that removes acknowledged entries sets these positions back in the same
//! atomic step (`Shared::truncate_from`): else a consumer would pass over the entries that follow.

use std::task::{Context, Poll};
use std::time::Duration;

use palisade::{Error, ErrorKind, Result, framed_bytes};

use crate::directory::Stripe;
use crate::positions::{ConsumerStatus, Position, consumer_key, consumers};
use crate::read::Entry;
use crate::record::StreamId;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::streams::Stream;
use crate::tail::Tail;
use crate::ticket::Ticket;
use crate::write::{VALUE_OVERHEAD, check_name, quoted};

const SEEK: &str =
    "call Consumer::seek with this index, or with Stream::first_index if that is above";

/// A tail of a stream whose position has a name and survives power loss. Made by
/// [`Stream::consumer`].
///
/// [`next`](Consumer::next) returns entries; [`ack`](Consumer::ack) notes that all entries up to
/// one of them are done. A consumer that is opened again continues with the first entry that was
/// not acknowledged, so it sees each entry at least once. With [`Batch::ack`](crate::Batch::ack)
/// the position is saved in one atomic step with what the consumer appends, so each entry has
/// exactly one effect.
///
/// A consumer keeps no entries: the engine truncates the stream, for example at
/// [`Stream::lowest_acked`]. The drop of a consumer acknowledges nothing.
///
/// With the feature `stream` a consumer is also a `futures_core::Stream` of entries. It ends after
/// an error, until [`seek`](Consumer::seek).
#[derive(Debug)]
pub struct Consumer {
    claim: Claim,
    /// Where `tail` began, or was to begin.
    begin: u64,
    /// The error: why the stream cannot be read from `begin` on.
    tail: Result<Tail>,
    #[cfg(feature = "stream")]
    has_failed: bool,
}

/// The right to be the only handle of a consumer.
#[derive(Debug)]
struct Claim {
    stream: Stream,
    key: Box<[u8]>,
}

impl Claim {
    fn new(stream: &Stream, name: &[u8]) -> Result<Claim> {
        let key = consumer_key(name);
        if !stream.shared().claims.lock().insert((stream.id(), key.clone())) {
            let text = format!("the consumer {} is open already", quoted(name));
            return Err(Error::new(ErrorKind::Locked, text)
                .with_advice("drop the other handle of the consumer, or use another consumer"));
        }
        Ok(Claim { stream: stream.clone(), key })
    }

    fn name(&self) -> &[u8] {
        &self.key[1..]
    }

    fn save(&self, stripe: &mut Stripe, position: Position) -> Result<palisade::Ticket<'_>> {
        let shared = self.stream.shared();
        let value = position.encode();
        let _taken = shared.check_room_for_position(framed_value(&self.key, &value))?;
        shared.set_value(stripe, self.stream.id(), &self.key, Some(&value))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let claim = (self.stream.id(), std::mem::take(&mut self.key));
        self.stream.shared().claims.lock().remove(&claim);
    }
}

impl Stream {
    /// Opens the consumer of this name, and makes it if there is none. A new one begins at the
    /// first entry that the stream has.
    ///
    /// ```
    /// # use palisade_streams::Options;
    /// use std::time::Duration;
    ///
    /// # fn main() -> palisade::Result<()> {
    /// # let disk = std::sync::Arc::new(palisade::disk::MemDisk::new());
    /// # let streams = Options::new().open_on(disk, "/log")?;
    /// let orders = streams.create("orders")?;
    /// orders.commit("two apples")?;
    /// let mut mail = orders.consumer("mail")?;
    /// while let Some(order) = mail.next(Duration::ZERO)? {
    ///     // ... send it, then:
    ///     mail.ack(order.index())?.wait()?; // survives power loss
    /// }
    /// assert_eq!((mail.acked()?, mail.lag()?), (1, 0));
    /// # Ok(()) }
    /// ```
    ///
    /// A name has 1 to 1024 bytes of any kind. The position of a consumer counts towards the
    /// [greatest length](crate::MAX_VALUE_BYTES) of the stream's values with 9 bytes, the name, and
    /// 16 bytes more.
    ///
    /// # Durability
    /// The consumer survives power loss. Waits for a sync only if a stream or a consumer was made
    /// and is not durable yet.
    ///
    /// # Errors
    /// `Locked`: the consumer is open already; drop the other handle. `InvalidArgument`: the name
    /// is empty or too long. `TooLarge`: the stream's values would take too much. Else as
    /// [`append`](Stream::append) and [`Ticket::wait`], for a consumer that is new or not durable
    /// yet. If the position is truncated, the open succeeds and [`Consumer::next`] returns the
    /// error.
    pub fn consumer(&self, name: impl AsRef<[u8]>) -> Result<Consumer> {
        check_name("a consumer's name", name.as_ref())?;
        let (shared, id) = (self.shared(), self.id());
        let claim = Claim::new(self, name.as_ref())?;
        let mut stripe = shared.directory.lock_of(id);
        let position = match stripe.live(id)?.position(&claim.key) {
            Some(position) => position,
            None => {
                let position = Position { next: stripe.live(id)?.first(), is_cut: false };
                let bytes = position.encode();
                let value = Some(&bytes[..]);
                shared.check_values(stripe.live(id)?.values(), [(&claim.key[..], value)])?;
                let _taken = shared.check_room(framed_value(&claim.key, &bytes))?;
                let made = shared.set_value(&mut stripe, id, &claim.key, value)?;
                stripe.last_made = Some(made.lsn());
                position
            }
        };
        let (made, values_in) = (stripe.last_made, stripe.live(id)?.values_in());
        let begin = position.next;
        let tail = match position.is_cut {
            true => Err(replaced(claim.name(), begin)),
            false => Tail::begin(self, &mut stripe, begin).map_err(advise),
        };
        drop(stripe);
        shared.wait_for_made(made, values_in)?;
        Ok(Consumer {
            claim,
            begin,
            tail,
            #[cfg(feature = "stream")]
            has_failed: false,
        })
    }

    /// Returns all consumers of the stream, by name.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn consumers(&self) -> Result<Vec<ConsumerStatus>> {
        let mut stripe = self.shared().directory.lock_of(self.id());
        let slot = stripe.live(self.id())?;
        Ok(consumers(slot.borrowed_values().into_iter(), slot.first(), slot.next()))
    }

    /// Returns the first entry that one of the consumers has not acknowledged, or `None` if the
    /// stream has no consumer.
    ///
    /// ```
    /// # use palisade_streams::Options;
    /// # use std::time::Duration;
    /// # fn main() -> palisade::Result<()> {
    /// # let disk = std::sync::Arc::new(palisade::disk::MemDisk::new());
    /// # let streams = Options::new().open_on(disk, "/log")?;
    /// # let orders = streams.create("orders")?;
    /// if let Some(first) = orders.lowest_acked()? {
    ///     orders.truncate_before(first)?; // a truncation survives only if the positions do
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn lowest_acked(&self) -> Result<Option<u64>> {
        Ok(self.consumers()?.into_iter().map(|consumer| consumer.acked).min())
    }

    /// Removes the consumer of this name. A consumer of the same name that is made later begins at
    /// the first entry.
    ///
    /// # Durability
    /// As [`append`](Stream::append): survives power loss after a wait for the ticket.
    ///
    /// # Errors
    /// `NotFound`: there is no such consumer. `Locked`: it is open; drop the handle. Else as
    /// [`Consumer::ack`].
    pub fn remove_consumer(&self, name: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        let (shared, id) = (self.shared(), self.id());
        // No other thread opens it meanwhile.
        let claim = Claim::new(self, name.as_ref())?;
        let mut stripe = shared.directory.lock_of(id);
        if stripe.live(id)?.position(&claim.key).is_none() {
            return Err(unknown(claim.name()));
        }
        let _taken = shared.check_room_for_position(framed_value(&claim.key, b""))?;
        let log = shared.set_value(&mut stripe, id, &claim.key, None)?;
        Ok(Ticket::new(log, 0))
    }
}

impl Consumer {
    /// Returns the consumer's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.claim.name()
    }

    /// Returns the stream that the consumer follows.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.claim.stream
    }

    /// Returns the index of the entry that [`next`](Consumer::next) returns next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.tail.as_ref().map_or(self.begin, Tail::position)
    }

    /// Returns the next durable entry, or `None` if none becomes durable within `timeout`.
    ///
    /// # Errors
    /// `Truncated`: the entry was truncated, or a truncation of the suffix removed one that the
    /// consumer has returned or acknowledged, in an earlier process run, too. Call
    /// [`seek`](Consumer::seek). `Corrupt`: the entry cannot be read, at each call; to pass over
    /// it, seek to the index above [`position`](Consumer::position). Else as [`Tail::next`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        self.tail()?.next(timeout).map_err(advise)
    }

    /// Returns the entry that [`next`](Consumer::next) will return, and does not move on.
    ///
    /// # Errors
    /// As [`next`](Consumer::next).
    pub fn peek(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        self.tail()?.find(timeout).map_err(advise)
    }

    /// Polls for the next entry, as [`Tail::poll_next`].
    ///
    /// # Errors
    /// As [`next`](Consumer::next) and [`Tail::poll_next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Entry>> {
        self.tail()?.poll_next(context).map_err(advise)
    }

    /// Notes that entry `index` and all entries below it are done. A consumer that is opened again
    /// continues above. Changes nothing if it was acknowledged already.
    ///
    /// Waits as [`Stream::append`] does, and for other changes of the stream. At the limit of the
    /// log's space acknowledgements still work where appends return `NoSpace`, for most of
    /// two segments, so that the engine can truncate the stream.
    ///
    /// # Durability
    /// As [`Stream::append`]: survives power loss after a wait for the ticket. A crash before
    /// that leaves this position or an earlier one.
    ///
    /// # Errors
    /// `OutOfRange`: the consumer has not returned the entry since it was opened. `Truncated`: a
    /// truncation of the suffix has removed the entry, or one that was acknowledged; call
    /// [`seek`](Consumer::seek). Else as [`Stream::append`]. In all cases nothing was changed.
    pub fn ack(&self, index: u64) -> Result<Ticket<'_>> {
        let (shared, id) = (self.shared(), self.stream().id());
        let mut stripe = shared.directory.lock_of(id);
        let slot = stripe.live(id)?;
        let after = self.after_ack(slot, index)?;
        if slot.position(self.key()) == Some(after) {
            return Ok(Ticket::new(shared.wal.barrier(), index));
        }
        let log = self.claim.save(&mut stripe, after)?;
        Ok(Ticket::new(log, index))
    }

    /// Continues at entry `index`, and acknowledges all entries below it and no other. `index` is
    /// from the first entry to the index of the next entry.
    ///
    /// # Durability
    /// As [`ack`](Consumer::ack).
    ///
    /// # Errors
    /// `Truncated`: `index` is below the first entry. `OutOfRange`: it is above the index of the
    /// next entry. Else as [`Stream::append`]. In all cases nothing was changed.
    pub fn seek(&mut self, index: u64) -> Result<Ticket<'_>> {
        let stream = &self.claim.stream;
        let mut stripe = stream.shared().directory.lock_of(stream.id());
        let tail = Tail::begin(stream, &mut stripe, index)?;
        let saved = self.claim.save(&mut stripe, Position { next: index, is_cut: false });
        // Before a tail is dropped: it takes this lock.
        drop(stripe);
        let log = saved?;
        (self.tail, self.begin) = (Ok(tail), index);
        #[cfg(feature = "stream")]
        {
            self.has_failed = false;
        }
        Ok(Ticket::new(log, index))
    }

    /// Returns the index of the first entry that is not acknowledged: where the consumer continues
    /// if it is opened again.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn acked(&self) -> Result<u64> {
        self.status().map(|status| status.acked)
    }

    /// Returns how many entries of the stream are not acknowledged, durable or not.
    ///
    /// # Errors
    /// `NotFound`: the stream was deleted.
    pub fn lag(&self) -> Result<u64> {
        self.status().map(|status| status.lag)
    }

    fn status(&self) -> Result<ConsumerStatus> {
        let mut stripe = self.shared().directory.lock_of(self.stream().id());
        let slot = stripe.live(self.stream().id())?;
        let value = slot.value(self.key()).map(|value| (self.key(), value));
        let status = consumers(value.into_iter(), slot.first(), slot.next()).pop();
        status.ok_or_else(|| unknown(self.name()))
    }

    /// Returns the position after an acknowledgement of entry `index` of the stream in `slot`.
    pub(crate) fn after_ack(&self, slot: &Slot, index: u64) -> Result<Position> {
        let tail = self.tail.as_ref().map_err(Clone::clone)?;
        let saved = slot.position(self.key()).ok_or_else(|| unknown(self.name()))?;
        if index >= tail.position() {
            let next = tail.position();
            let text = format!("the consumer has not returned entry {index}: it is at {next}");
            let advice = "acknowledge entries that Consumer::next has returned";
            return Err(Error::new(ErrorKind::OutOfRange, text).with_advice(advice));
        }
        // What has this index now is another entry.
        let cut = if saved.is_cut { saved.next } else { tail.cut() };
        if saved.is_cut || cut <= index {
            return Err(replaced(self.name(), cut));
        }
        Ok(Position { next: saved.next.max(index + 1), is_cut: false })
    }

    fn tail(&mut self) -> Result<&mut Tail> {
        self.tail.as_mut().map_err(|error| error.clone())
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.claim.key
    }

    fn shared(&self) -> &Shared {
        self.stream().shared()
    }
}

/// Ends after an error, until a seek.
#[cfg(feature = "stream")]
impl futures_core::Stream for Consumer {
    type Item = Result<Entry>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        let consumer = self.get_mut();
        if consumer.has_failed {
            return Poll::Ready(None);
        }
        let found = std::task::ready!(Consumer::poll_next(consumer, context));
        consumer.has_failed = found.is_err();
        Poll::Ready(Some(found))
    }
}

impl Slot {
    fn position(&self, key: &[u8]) -> Option<Position> {
        Position::decode(self.value(key)?)
    }

    /// Returns the keys of the consumers that have acknowledged entries from `next` on.
    pub(crate) fn consumers_above(&self, next: u64) -> Vec<Box<[u8]>> {
        let all = consumers(self.borrowed_values().into_iter(), self.first(), self.next());
        let above = all.into_iter().filter(|consumer| consumer.acked > next);
        above.map(|consumer| consumer_key(&consumer.name)).collect()
    }
}

/// The handles of consumers that are open.
pub(crate) type Claims = std::collections::HashSet<(StreamId, Box<[u8]>)>;

fn advise(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Truncated | ErrorKind::OutOfRange => error.with_advice(SEEK),
        _ => error,
    }
}

fn replaced(name: &[u8], index: u64) -> Error {
    let name = quoted(name);
    let text = format!("entry {index}, which the consumer {name} has returned, was truncated");
    Error::new(ErrorKind::Truncated, text).with_advice(SEEK)
}

fn unknown(name: &[u8]) -> Error {
    let text = format!("the stream has no consumer {}", quoted(name));
    Error::new(ErrorKind::NotFound, text).with_advice("make it with Stream::consumer")
}

/// Returns how many bytes the record of a value takes.
fn framed_value(key: &[u8], value: &[u8]) -> u64 {
    framed_bytes(VALUE_OVERHEAD + key.len() + value.len())
}
