//! Batches: changes of several streams that recovery returns all together or not at all.

use std::collections::BTreeMap;

use palisade::{Error, ErrorKind, Result, framed_bytes};
use palisade_store::sync::MutexGuard;

use crate::consumer::Consumer;
use crate::directory::{Directory, STRIPES, Stripe};
use crate::granted::Taken;
use crate::positions::user_key;
use crate::record::{self, EntryHeader, Record, StreamId};
use crate::shared::Shared;
use crate::streams::{Stream, Streams};
use crate::ticket::BatchTicket;

/// Changes of one or several streams that happen all together or not at all. Made by
/// [`Streams::batch`].
///
/// ```
/// # use palisade_streams::{Options, Streams};
/// # fn main() -> palisade::Result<()> {
/// # let disk = std::sync::Arc::new(palisade::disk::MemDisk::new());
/// # let streams = Options::new().open_on(disk, "/log")?;
/// let (orders, invoices) = (streams.create(b"orders")?, streams.create(b"invoices")?);
/// let ticket = streams
///     .batch()
///     .append(&orders, b"two apples")
///     .append(&invoices, b"two apples: 1.20")
///     .put(&invoices, b"sum", b"1.20")
///     .apply()?;
/// ticket.wait()?; // all of it survives power loss
/// assert_eq!(ticket.indexes(), [0, 0]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a batch changes nothing before `apply`"]
pub struct Batch<'s> {
    streams: &'s Streams,
    steps: Vec<Step<'s>>,
    has_foreign: bool,
}

#[derive(Debug)]
enum Step<'s> {
    Append { id: StreamId, data: &'s [u8] },
    Value { id: StreamId, key: Box<[u8]>, value: Option<&'s [u8]> },
    Ack { consumer: &'s Consumer, index: u64 },
}

impl Step<'_> {
    fn id(&self) -> StreamId {
        match self {
            Step::Append { id, .. } | Step::Value { id, .. } => *id,
            Step::Ack { consumer, .. } => consumer.stream().id(),
        }
    }
}

impl<'s> Batch<'s> {
    pub(crate) fn new(streams: &'s Streams) -> Batch<'s> {
        Batch { streams, steps: Vec::new(), has_foreign: false }
    }

    /// Adds an entry to the end of `stream`.
    pub fn append(self, stream: &Stream, data: &'s [u8]) -> Batch<'s> {
        self.with(stream, Step::Append { id: stream.id(), data })
    }

    /// Sets a value of `stream`.
    pub fn put(self, stream: &Stream, key: &'s [u8], value: &'s [u8]) -> Batch<'s> {
        self.with(stream, Step::Value { id: stream.id(), key: user_key(key), value: Some(value) })
    }

    /// Removes a value of `stream`.
    pub fn remove_value(self, stream: &Stream, key: &'s [u8]) -> Batch<'s> {
        self.with(stream, Step::Value { id: stream.id(), key: user_key(key), value: None })
    }

    /// Acknowledges entry `index` and all below it, as [`Consumer::ack`]. If the batch also appends
    /// what the consumer makes of these entries, each of them has exactly one effect.
    ///
    /// If [`apply`](Batch::apply) fails, apply the same again, or [`seek`](Consumer::seek) to the
    /// first entry that is not acknowledged. Else the next acknowledgement covers this entry, too.
    ///
    /// ```
    /// # use palisade_streams::Options;
    /// # use std::time::Duration;
    /// # fn main() -> palisade::Result<()> {
    /// # let disk = std::sync::Arc::new(palisade::disk::MemDisk::new());
    /// # let streams = Options::new().open_on(disk, "/log")?;
    /// let (orders, invoices) = (streams.create("orders")?, streams.create("invoices")?);
    /// orders.commit("two apples")?;
    /// let mut billing = orders.consumer("billing")?;
    /// while let Some(order) = billing.next(Duration::ZERO)? {
    ///     let batch = streams.batch().append(&invoices, order.data());
    ///     batch.ack(&billing, order.index()).apply()?;
    /// }
    /// streams.sync()?; // one sync for all of them
    /// # assert_eq!((billing.lag()?, invoices.len()?), (0, 1));
    /// # Ok(()) }
    /// ```
    pub fn ack(mut self, consumer: &'s Consumer, index: u64) -> Batch<'s> {
        // One step for each consumer: a second one could set the position back.
        for step in &mut self.steps {
            if let Step::Ack { consumer: of, index: highest } = step
                && std::ptr::eq(*of, consumer)
            {
                *highest = index.max(*highest);
                return self;
            }
        }
        self.with(consumer.stream(), Step::Ack { consumer, index })
    }

    fn with(mut self, stream: &Stream, step: Step<'s>) -> Batch<'s> {
        self.has_foreign |= !std::ptr::eq(stream.shared(), self.streams.shared());
        self.steps.push(step);
        self
    }

    /// Does all changes, and returns a ticket with the indexes of the entries.
    ///
    /// Waits for the locks of all streams in the batch; the append itself waits as
    /// [`Stream::append`] does.
    ///
    /// # Errors
    /// `InvalidArgument`: the batch is empty, or one of the streams or consumers belongs to another
    /// log. `NotFound`: one of the streams was deleted. `TooLarge`: all changes together take more
    /// than the longest record, or the values of a stream would take too much. `OutOfRange`,
    /// `Truncated`: as [`Consumer::ack`]. Else as [`Stream::append`], or for a batch without
    /// appends as [`Stream::put`]. In all cases nothing was changed.
    pub fn apply(self) -> Result<BatchTicket<'s>> {
        if self.has_foreign {
            let text = "a stream of the batch belongs to another log";
            let advice = "use streams of one log; of a set, those of one shard (Sharded::shard_of)";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_advice(advice));
        }
        self.streams.shared().append_batch(&self.steps)
    }
}

/// The locked stripes of all streams of a batch.
struct Locked<'d> {
    /// Their numbers, ascending: so batches do not wait for each other in a circle.
    numbers: Vec<u32>,
    stripes: Vec<MutexGuard<'d, Stripe>>,
}

impl<'d> Locked<'d> {
    fn new(directory: &'d Directory, steps: &[Step<'_>]) -> Locked<'d> {
        let mut numbers: Vec<u32> = steps.iter().map(|step| step.id().slot() % STRIPES).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let stripes = numbers.iter().map(|&number| directory.lock(number)).collect();
        Locked { numbers, stripes }
    }

    fn of(&mut self, id: StreamId) -> &mut Stripe {
        let number = id.slot() % STRIPES;
        let at = self.numbers.binary_search(&number).unwrap_or_default();
        &mut self.stripes[at]
    }
}

/// The records of a batch, encoded one behind the other.
#[derive(Debug, Default)]
struct Encoded {
    bytes: Vec<u8>,
    /// The stream of each record, its tag, and where it ends in `bytes`.
    records: Vec<(StreamId, u16, usize)>,
    /// The index of each entry.
    indexes: Vec<u64>,
}

impl Encoded {
    /// Ends a record, which is the last in `bytes`.
    fn end(&mut self, id: StreamId, tag: u16) {
        self.records.push((id, tag, self.bytes.len()));
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = (StreamId, u16, &[u8])> + Clone {
        let mut begin = 0;
        self.records.iter().map(move |&(id, tag, end)| {
            let bytes = &self.bytes[begin..end];
            begin = end;
            (id, tag, bytes)
        })
    }
}

impl Shared {
    fn append_batch(&self, steps: &[Step<'_>]) -> Result<BatchTicket<'_>> {
        let mut locked = Locked::new(&self.directory, steps);
        let encoded = self.encode_batch(steps, &mut locked)?;
        let _taken = self.check_room_for_steps(steps, &encoded)?;
        let payloads = encoded.iter().map(|(_, tag, bytes)| (tag, bytes));
        let log = self.wal.append_batch_tagged(payloads)?;
        let mut hubs = Vec::new();
        for ((id, tag, bytes), &lsn) in encoded.iter().zip(log.lsns()) {
            let stripe = locked.of(id);
            if tag == record::ENTRY {
                hubs.extend(self.push(stripe, id, lsn, bytes.len()));
            } else if let Some(Record::Value { key, value, .. }) = Record::decode(tag, bytes) {
                self.count(stripe, id, lsn, bytes.len());
                stripe.live(id)?.set_value(key, value, self.segments.of(lsn));
            }
        }
        drop(locked);
        hubs.into_iter().for_each(|hub| hub.wake());
        Ok(BatchTicket::new(log.into(), encoded.indexes))
    }

    fn check_room_for_steps(&self, steps: &[Step<'_>], encoded: &Encoded) -> Result<Taken<'_>> {
        let records = encoded.iter().map(|(_, _, bytes)| framed_bytes(bytes.len()));
        let bytes = records.sum::<u64>() + framed_bytes(0);
        if steps.iter().all(|step| matches!(step, Step::Ack { .. })) {
            self.check_room_for_position(bytes)
        } else if steps.iter().any(|step| matches!(step, Step::Append { .. })) {
            self.check_room(bytes)
        } else {
            self.check_room_for_value(bytes)
        }
    }

    /// Checks and encodes all steps.
    fn encode_batch(&self, steps: &[Step<'_>], locked: &mut Locked<'_>) -> Result<Encoded> {
        let mut encoded = Encoded::default();
        let len_of = |step: &Step<'_>| match step {
            Step::Append { data, .. } => record::MAX_ENTRY_HEADER_BYTES + data.len(),
            Step::Value { .. } | Step::Ack { .. } => 0,
        };
        encoded.bytes.reserve(steps.iter().map(len_of).sum());
        encoded.records.reserve(steps.len());
        // How many entries of the batch each stream has got so far, and the values that it sets.
        let (mut nexts, mut values) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        for step in steps {
            let id = step.id();
            let slot = locked.of(id).live(id)?;
            match step {
                Step::Append { data, .. } => {
                    let next = nexts.entry(id).or_insert_with(|| slot.next());
                    encoded.bytes.extend_from_slice(EntryHeader::new(id, *next).as_bytes());
                    encoded.bytes.extend_from_slice(data);
                    encoded.end(id, record::ENTRY);
                    encoded.indexes.push(*next);
                    *next += 1;
                }
                Step::Value { key, value, .. } => {
                    values.entry(id).or_default().push((&key[..], *value));
                    record::put_value(&mut encoded.bytes, id, key, *value);
                    encoded.end(id, record::VALUE);
                }
                Step::Ack { consumer, index } => {
                    let after = consumer.after_ack(slot, *index)?.encode();
                    record::put_value(&mut encoded.bytes, id, consumer.key(), Some(&after));
                    encoded.end(id, record::VALUE);
                }
            }
        }
        for (id, changes) in values {
            self.check_values(locked.of(id).live(id)?.values(), changes)?;
        }
        Ok(encoded)
    }
}
