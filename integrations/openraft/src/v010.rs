//! `RaftLogStorage` of openraft 0.10.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft_010::entry::RaftEntry;
use openraft_010::storage::{IOFlushed, RaftLogStorage};
use openraft_010::type_config::TypeConfigExt;
use openraft_010::type_config::alias::{LogIdOf, VoteOf};

use openraft_010::{LogState, OptionalSend, RaftLogReader, RaftTypeConfig};
use palisade::Result;
use palisade_streams::{Stream, Streams};

use crate::group::{COMMITTED, Group, VOTE};

const LINE: u8 = 10;

/// The log of one Raft group.
///
/// `append` returns when the entries are in the log, and reports to openraft when they are durable.
/// So openraft appends again while earlier entries wait for the device. `save_vote` and
/// `truncate_after` return when they are durable. `save_committed` and `purge` do not wait: a later
/// change that is durable makes them so, and openraft repeats them if they are lost.
///
/// Reads and appends use the calling thread as [`Stream::get`] and [`Stream::append`] do: an append
/// waits only while the log buffer is full. An error ends the node of openraft, as it does with any
/// log: mend the cause, and open the log anew.
#[derive(Debug)]
pub struct LogStore<C: RaftTypeConfig> {
    group: Arc<Group<LogIdOf<C>>>,
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
        Ok(LogStore { group: Arc::new(Group::open(streams, name.as_ref(), LINE)?) })
    }

    /// Returns the stream of the group, for example for its bounds. Do not change it.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.group.stream()
    }
}

/// A reader of the log of one Raft group, which openraft makes for its tasks.
#[derive(Debug)]
pub struct LogReader<C: RaftTypeConfig> {
    group: Arc<Group<LogIdOf<C>>>,
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogReader<C> {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<C::Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        Ok(self.group.read(range)?)
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<C>>> {
        Ok(self.group.load(VOTE)?)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<C::Entry>> {
        Ok(self.group.read_limited(start..end)?)
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let (purged, last) = self.group.state::<C::Entry>()?;
        let last = last.map(|entry| entry.log_id());
        Ok(LogState { last_log_id: last.or_else(|| purged.clone()), last_purged_log_id: purged })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        LogReader { group: Arc::clone(&self.group) }
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> io::Result<()> {
        self.group.save(VOTE, vote)?.await?;
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> io::Result<()> {
        self.group.save(COMMITTED, &committed)?;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<C>>> {
        Ok(self.group.load(COMMITTED)?.flatten())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| (entry.index(), entry));
        let ticket = self.group.append(entries)?;
        drop(C::spawn(async move {
            callback.io_completed(ticket.await.map(drop).map_err(Into::into));
        }));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> io::Result<()> {
        let from = last_log_id.map_or(0, |log_id| log_id.index() + 1);
        self.group.truncate(from)?.await?;
        Ok(())
    }

    async fn purge(&mut self, log_id: LogIdOf<C>) -> io::Result<()> {
        Ok(self.group.purge(log_id.index(), log_id)?)
    }
}
