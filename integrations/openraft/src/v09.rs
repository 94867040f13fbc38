//! `RaftLogStorage` of openraft 0.9.

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft_09::storage::{LogFlushed, RaftLogStorage};
use openraft_09::{
    AsyncRuntime, ErrorSubject, ErrorVerb, LogId, LogState, OptionalSend, RaftLogId, RaftLogReader,
    RaftTypeConfig, StorageError, Vote,
};
use palisade::Result;
use palisade_streams::{Stream, Streams};

use crate::group::{COMMITTED, Group, VOTE};

const LINE: u8 = 9;

type LogResult<T, C> = std::result::Result<T, StorageError<<C as RaftTypeConfig>::NodeId>>;

/// The log of one Raft group.
///
/// `append` returns when the entries are in the log, and reports to openraft when they are durable.
/// `save_vote` and `truncate` return when they are durable. `save_committed` and `purge` do not
/// wait: a later change that is durable makes them so, and openraft repeats them if they are lost.
///
/// Reads and appends use the calling thread as [`Stream::get`] and [`Stream::append`] do: an append
/// waits only while the log buffer is full. An error ends the node of openraft, as it does with any
/// log: mend the cause, and open the log anew.
#[derive(Debug)]
pub struct LogStore<C: RaftTypeConfig> {
    reader: LogReader<C>,
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// Opens the log of the group `name` in `streams`, or makes it. Returns when all that the group
    /// has is durable: openraft takes that for granted.
    ///
    /// Blocks for a device sync if something in `streams` is not durable yet, and for two or three
    /// if it makes the log. At most one `LogStore` of a group may exist.
    ///
    /// # Errors
    /// `Foreign`: the stream `name` has something else, or a group of another line of openraft.
    /// `Corrupt`: the group's types have changed. Else as [`Streams::stream_or_create`].
    pub fn open(streams: &Streams, name: impl AsRef<[u8]>) -> Result<LogStore<C>> {
        let group = Arc::new(Group::open(streams, name.as_ref(), LINE)?);
        Ok(LogStore { reader: LogReader { group } })
    }

    /// Returns the stream of the group, for example for its bounds. Do not change it.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.reader.group.stream()
    }

    fn group(&self) -> &Group<LogId<C::NodeId>> {
        &self.reader.group
    }
}

/// A reader of the log of one Raft group, which openraft makes for its tasks.
#[derive(Debug)]
pub struct LogReader<C: RaftTypeConfig> {
    group: Arc<Group<LogId<C::NodeId>>>,
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogReader<C> {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> LogResult<Vec<C::Entry>, C>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.group.read(range).map_err(read_logs)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> LogResult<Vec<C::Entry>, C> {
        self.group.read_limited(start..end).map_err(read_logs)
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> LogResult<Vec<C::Entry>, C>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.reader.try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> LogResult<Vec<C::Entry>, C> {
        self.reader.limited_get_log_entries(start, end).await
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> LogResult<LogState<C>, C> {
        let (purged, last) = self.group().state::<C::Entry>().map_err(read_logs)?;
        let last = last.map(|entry| entry.get_log_id().clone());
        Ok(LogState { last_log_id: last.or_else(|| purged.clone()), last_purged_log_id: purged })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        LogReader { group: Arc::clone(&self.reader.group) }
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> LogResult<(), C> {
        let saved = match self.group().save(VOTE, vote) {
            Ok(ticket) => ticket.await,
            Err(error) => Err(error),
        };
        saved.map(drop).map_err(|error| storage_error(ErrorSubject::Vote, ErrorVerb::Write, error))
    }

    async fn read_vote(&mut self) -> LogResult<Option<Vote<C::NodeId>>, C> {
        let vote = self.group().load(VOTE);
        vote.map_err(|error| storage_error(ErrorSubject::Vote, ErrorVerb::Read, error))
    }

    async fn save_committed(&mut self, committed: Option<LogId<C::NodeId>>) -> LogResult<(), C> {
        self.group().save(COMMITTED, &committed).map(drop).map_err(write_logs)
    }

    async fn read_committed(&mut self) -> LogResult<Option<LogId<C::NodeId>>, C> {
        self.group().load(COMMITTED).map(Option::flatten).map_err(read_logs)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> LogResult<(), C>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| (entry.get_log_id().index, entry));
        let ticket = self.group().append(entries).map_err(write_logs)?;
        drop(C::AsyncRuntime::spawn(async move {
            callback.log_io_completed(ticket.await.map(drop).map_err(Into::into));
        }));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> LogResult<(), C> {
        let ticket = self.group().truncate(log_id.index).map_err(write_logs)?;
        ticket.await.map(drop).map_err(write_logs)
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> LogResult<(), C> {
        self.group().purge(log_id.index, log_id).map_err(write_logs)
    }
}

fn storage_error<N: openraft_09::NodeId>(
    subject: ErrorSubject<N>,
    verb: ErrorVerb,
    error: palisade::Error,
) -> StorageError<N> {
    StorageError::from_io_error(subject, verb, error.into())
}

fn read_logs<N: openraft_09::NodeId>(error: palisade::Error) -> StorageError<N> {
    storage_error(ErrorSubject::Logs, ErrorVerb::Read, error)
}

fn write_logs<N: openraft_09::NodeId>(error: palisade::Error) -> StorageError<N> {
    storage_error(ErrorSubject::Logs, ErrorVerb::Write, error)
}
