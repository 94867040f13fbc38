//! The handles: all streams of a log, and one stream.

use std::path::Path;
use std::sync::Arc;

use palisade::{Error, ErrorKind, Result, Wal};
use palisade_store::sync::{JoinHandle, Mutex, is_current, spawn};

use crate::batch::Batch;
use crate::directory::{Directory, STRIPES};
use crate::open::OpenReport;
use crate::options::Options;
use crate::positions::user_key;
use crate::record::StreamId;
use crate::shared::Shared;
use crate::stats::{Pinned, Stats};
use crate::ticket::Ticket;
use crate::write::not_found;

/// A log of many streams. A handle is cheap to clone, and each clone is the same log.
///
/// Threads and tasks can use it at the same time. Each [`Stream`] keeps the log open, too. The drop
/// of the last handle of either kind waits for the keeper's step, and ends the log as the drop of
/// the last [`Wal`] does.
#[derive(Clone, Debug)]
pub struct Streams {
    owner: Arc<Owner>,
}

/// Ends the keeper's thread when the last handle is dropped.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    report: OpenReport,
    thread: Mutex<Option<JoinHandle>>,
}

impl Owner {
    fn stop(&self) {
        self.shared.keeper.stop();
        // In a statement of its own, so that the lock is free while the thread ends.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && !is_current(&thread)
        {
            // It cannot panic: a panic of the disk below has poisoned the log.
            let _ = thread.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Streams {
    pub(crate) fn start(shared: Shared, report: OpenReport, has_thread: bool) -> Result<Streams> {
        let shared = Arc::new(shared);
        let keep = {
            let shared = Arc::clone(&shared);
            move || shared.keep()
        };
        let thread = has_thread.then(|| spawn("palisade-streams", keep)).transpose();
        let thread = thread.map_err(|error| Error::io("start the keeper's thread", error))?;
        Ok(Streams { owner: Arc::new(Owner { shared, report, thread: Mutex::new(thread) }) })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.owner.shared
    }

    fn handle(&self, id: StreamId, name: &[u8]) -> Stream {
        Stream { streams: self.clone(), id, name: name.into() }
    }

    /// Opens the log of streams in the folder `path`, or makes it, with the default settings.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Streams> {
        Options::new().open(path)
    }

    /// Makes a stream. A name is any 1 to 1024 bytes.
    ///
    /// Waits until the stream is durable. If only the wait fails, the stream is there:
    /// [`stream_or_create`](Streams::stream_or_create) waits again. To make many, call
    /// [`create_many`](Streams::create_many).
    ///
    /// # Errors
    /// `InvalidArgument`: the name is empty or too long. `AlreadyExists`: there is a stream of this
    /// name. `OutOfRange`: the log has no id left. Else as [`Stream::append`].
    pub fn create(&self, name: impl AsRef<[u8]>) -> Result<Stream> {
        let name = name.as_ref();
        let (id, ticket) = self.shared().create(name)?;
        ticket.wait()?;
        Ok(self.handle(id, name))
    }

    /// Makes streams, and waits once for all of them.
    ///
    /// # Errors
    /// As [`create`](Streams::create). The streams before the one that failed exist then, but the
    /// call has not waited for them: call [`sync`](Streams::sync).
    pub fn create_many<N: AsRef<[u8]>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Stream>> {
        let make = |name: N| self.create_unsynced(name.as_ref());
        let made = names.into_iter().map(make).collect::<Result<Vec<_>>>()?;
        self.sync()?;
        Ok(made)
    }

    /// Makes a stream, and does not wait until it is durable.
    pub(crate) fn create_unsynced(&self, name: &[u8]) -> Result<Stream> {
        let (id, _ticket) = self.shared().create(name)?;
        Ok(self.handle(id, name))
    }

    /// Returns the stream of this name.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    pub fn stream(&self, name: impl AsRef<[u8]>) -> Result<Stream> {
        let name = name.as_ref();
        let found = self.shared().directory.lock(Directory::stripe_of(name)).find(name);
        found.map(|id| self.handle(id, name)).ok_or_else(|| not_found(name))
    }

    /// Returns the stream of this name, and makes it if there is none.
    ///
    /// Waits only if it makes the stream, or if a stream was made and is not durable yet: by
    /// another thread, or by a call whose wait has failed.
    ///
    /// # Errors
    /// As [`create`](Streams::create).
    pub fn stream_or_create(&self, name: impl AsRef<[u8]>) -> Result<Stream> {
        let name = name.as_ref();
        loop {
            let found = {
                let stripe = self.shared().directory.lock(Directory::stripe_of(name));
                let home = |id| stripe.slot(id).map(|slot| slot.home);
                stripe.find(name).map(|id| (id, home(id), stripe.last_made))
            };
            if let Some((id, home, made)) = found {
                self.shared().wait_for_made(made, home)?;
                return Ok(self.handle(id, name));
            }
            match self.create(name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    /// Returns the names of all streams, in no order. Streams that are made or deleted meanwhile
    /// may be there or not.
    #[must_use]
    pub fn list(&self) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        for number in 0..STRIPES {
            let stripe = self.shared().directory.lock(number);
            let of_streams = stripe.slots().filter(|(_, slot)| slot.is_named());
            names.extend(of_streams.map(|(id, _)| stripe.name_of(id).to_vec()));
        }
        names
    }

    /// Deletes the stream of this name with all its entries and values. Handles of the stream
    /// return `NotFound` from then on. A stream of the same name that is made later is another one.
    ///
    /// # Errors
    /// `NotFound`: there is no such stream. Else as [`Stream::truncate_before`].
    pub fn delete(&self, name: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        self.shared().delete(name.as_ref())
    }

    /// Begins a batch: changes of several streams that happen all together or not at all.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Waits until everything that was changed before the call survives power loss.
    ///
    /// # Errors
    /// As [`Wal::sync`].
    pub fn sync(&self) -> Result<()> {
        self.shared().wal.sync()
    }

    /// Returns what keeps the log from being released: the streams with something in the lowest
    /// segment, and what they have there. Empty if that segment is the one of the tail.
    ///
    /// If a stream is named here for long, the engine does not truncate it, and its entries cannot
    /// be moved within the budget ([`Options::move_percent`]). Visits all entries of the streams
    /// that it names.
    #[must_use]
    pub fn pinned(&self) -> Vec<Pinned> {
        self.shared().pinned()
    }

    /// Returns the numbers of the log and of its streams.
    ///
    /// Visits all streams, and waits for the lock of each stripe.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// Returns what the open found.
    #[must_use]
    pub fn open_report(&self) -> &OpenReport {
        &self.owner.report
    }

    /// Does one step of the keeper's work: releases segments, moves entries, or writes a footer.
    /// Returns whether there may be more to do. Blocks for some device syncs at most.
    ///
    /// The keeper's thread calls it, unless [`Options::background`] is false. Do not call it within
    /// a callback for released segments: it would wait for itself.
    ///
    /// # Errors
    /// As [`Stream::append`], [`Wal::truncate_before`], [`Wal::checkpoint`] and [`Wal::get`].
    /// Nothing is lost: call again later.
    pub fn maintain(&self) -> Result<bool> {
        self.shared().maintain()
    }

    /// Returns the log below, for example for [`Wal::space`] or [`Wal::backup_to`].
    ///
    /// Do not append, truncate or set the checkpoint with it: the next open refuses a log with a
    /// record that is not of a stream, and a truncation or a checkpoint can lose entries.
    #[must_use]
    pub fn log(&self) -> &Wal {
        &self.shared().wal
    }

    /// Ends the keeper's thread, and the log as [`Wal::close`] does. Do not call it within a
    /// callback for released segments: it would wait for itself.
    ///
    /// # Errors
    /// As [`Wal::close`].
    pub fn close(&self) -> Result<()> {
        self.owner.stop();
        self.shared().wal.close()
    }
}

/// One stream: a log of its own, whose entries have the indexes 0, 1, 2 and so on.
///
/// All calls return `NotFound` once the stream was deleted.
#[derive(Clone, Debug)]
pub struct Stream {
    streams: Streams,
    id: StreamId,
    name: Arc<[u8]>,
}

impl Stream {
    pub(crate) fn shared(&self) -> &Shared {
        self.streams.shared()
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Returns the stream's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns all streams of the log.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Appends an entry. Its index is the ticket's.
    ///
    /// Waits as [`Wal::append`] does, and for other changes under the same lock: 1024 locks serve
    /// all streams.
    ///
    /// # Durability
    /// As [`Wal::append`]. A wait for the ticket makes the entry survive power loss, and with it
    /// all earlier changes of all streams.
    ///
    /// # Errors
    /// As [`Wal::append`]. `NoSpace`: also if the log would take the segments that are kept for
    /// truncations; [`Streams::pinned`] says what to truncate. `TooLarge`: the entry and its header
    /// of at most 20 bytes take more than the longest record. `NotFound`: the stream was deleted.
    pub fn append(&self, data: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        self.shared().append(self.id, data.as_ref())
    }

    /// Appends an entry, waits until it survives power loss, and returns its index.
    ///
    /// # Errors
    /// As [`append`](Stream::append) and [`Ticket::wait`].
    pub fn commit(&self, data: impl AsRef<[u8]>) -> Result<u64> {
        self.append(data)?.wait()
    }

    /// Removes the entries below `first`, which can be the index of the next entry: then the
    /// stream is empty. If `first` is at or below the first entry, changes nothing.
    ///
    /// Only appends a record: the keeper frees space later. If a crash comes before a wait for the
    /// ticket has returned, the entries can be back.
    ///
    /// # Errors
    /// `OutOfRange`: `first` is above the index of the next entry. `NotFound`: the stream was
    /// deleted. `NoSpace`: also if only what is kept for the keeper's copies is left
    /// below [`max_bytes`](palisade::Options::max_bytes); call again when the keeper has released
    /// what was truncated before. Else as [`Wal::append`].
    pub fn truncate_before(&self, first: u64) -> Result<Ticket<'_>> {
        self.shared().truncate_before(self.id, first)
    }

    /// Removes the entries above `last`, which stays. The next entry that is appended has index
    /// `last + 1`.
    ///
    /// If `last` is the index below the first entry, the stream is empty afterwards. To remove
    /// entry 0, too, call [`truncate_from`](Stream::truncate_from).
    ///
    /// # Errors
    /// `Truncated`: `last + 1` is below the first entry. `OutOfRange`: `last + 1` is above the
    /// index of the next entry. Else as [`truncate_before`](Stream::truncate_before).
    pub fn truncate_after(&self, last: u64) -> Result<Ticket<'_>> {
        self.truncate_from(last.saturating_add(1))
    }

    /// Removes entry `next` and those above it. The next entry that is appended has this index.
    ///
    /// # Errors
    /// As [`truncate_after`](Stream::truncate_after), for `next` in the place of `last + 1`.
    pub fn truncate_from(&self, next: u64) -> Result<Ticket<'_>> {
        self.shared().truncate_from(self.id, next)
    }

    /// Sets the value of `key`: a small one, such as a vote, a position or a schema.
    ///
    /// All keys and values of a stream take at most 64 KiB or a quarter of the longest record,
    /// whichever is less. Each counts 16 bytes more, and so does each consumer. A truncation does
    /// not change values.
    ///
    /// At the limit of the log's space values can still be set where appends return `NoSpace`, in
    /// half of each of two segments, less what the last append took of the first. So the engine can
    /// save what it must know before it truncates.
    ///
    /// # Errors
    /// `TooLarge`: the values would take more. Else as [`append`](Stream::append).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        self.shared().put(self.id, &user_key(key.as_ref()), Some(value.as_ref()))
    }

    /// Removes the value of `key`, if there is one.
    ///
    /// # Errors
    /// As [`put`](Stream::put).
    pub fn remove_value(&self, key: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        self.shared().put(self.id, &user_key(key.as_ref()), None)
    }
}
