//! Batches: changes of several streams that recovery returns all together or not at all.

use palisade::{Error, ErrorKind, Result};

use crate::record::StreamId;
use crate::streams::{Stream, Streams};
use crate::ticket::BatchTicket;
use crate::write::VALUE_OVERHEAD;

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
    pub(crate) steps: Vec<Step<'s>>,
    has_foreign: bool,
}

#[derive(Debug)]
pub(crate) enum Step<'s> {
    Append { id: StreamId, data: &'s [u8] },
    Value { id: StreamId, key: &'s [u8], value: Option<&'s [u8]> },
}

impl Step<'_> {
    pub(crate) fn id(&self) -> StreamId {
        match self {
            Step::Append { id, .. } | Step::Value { id, .. } => *id,
        }
    }
}

impl<'s> Batch<'s> {
    pub(crate) fn new(streams: &'s Streams) -> Batch<'s> {
        Batch { streams, steps: Vec::new(), has_foreign: false }
    }

    /// Returns the bytes of the values of stream `id` that the batch sets before `step`.
    pub(crate) fn values_of(&self, id: StreamId, step: &Step<'_>) -> usize {
        let before = self.steps.iter().take_while(|other| !std::ptr::eq(*other, step));
        let bytes = |step: &Step<'_>| match step {
            Step::Value { id: of, key, value: Some(value) } if *of == id => {
                key.len() + value.len() + VALUE_OVERHEAD
            }
            _ => 0,
        };
        before.map(bytes).sum()
    }

    /// Adds an entry to the end of `stream`.
    pub fn append(self, stream: &Stream, data: &'s [u8]) -> Batch<'s> {
        self.with(stream, Step::Append { id: stream.id(), data })
    }

    /// Sets a value of `stream`.
    pub fn put(self, stream: &Stream, key: &'s [u8], value: &'s [u8]) -> Batch<'s> {
        self.with(stream, Step::Value { id: stream.id(), key, value: Some(value) })
    }

    /// Removes a value of `stream`.
    pub fn remove_value(self, stream: &Stream, key: &'s [u8]) -> Batch<'s> {
        self.with(stream, Step::Value { id: stream.id(), key, value: None })
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
    /// `InvalidArgument`: the batch is empty, or one of the streams belongs to another log.
    /// `NotFound`: one of the streams was deleted. `TooLarge`: all changes together take more than
    /// the longest record. Else as [`Stream::append`]. In all cases nothing was changed.
    pub fn apply(self) -> Result<BatchTicket<'s>> {
        if self.has_foreign {
            let text = "a stream of the batch belongs to another log";
            let advice = "use streams of one log; of a set, those of one shard (Sharded::shard_of)";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_advice(advice));
        }
        self.streams.shared().append_batch(&self)
    }
}
