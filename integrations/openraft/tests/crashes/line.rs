//! What the tests call, in the types of each line of openraft.

use std::error::Error;
use std::fmt::Debug;
use std::io::Cursor;

use futures_util::FutureExt;
use openraft_09::RaftLogReader as _;
use openraft_09::storage::{RaftLogStorage as _, RaftLogStorageExt as _};
use openraft_010::RaftLogReader as _;
use openraft_010::storage::RaftLogStorage as _;
use palisade_openraft::{v09, v010};
use palisade_streams::{Stream, Streams};

/// The term and the index of an entry.
pub(crate) type Id = (u64, u64);
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// All that a group keeps. It is the model, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) vote: Option<u64>,
    pub(crate) committed: Option<Id>,
    pub(crate) purged: Option<Id>,
    pub(crate) entries: Vec<(Id, String)>,
}

impl Group {
    pub(crate) fn last(&self) -> Option<Id> {
        self.entries.last().map(|(id, _)| *id).or(self.purged)
    }

    pub(crate) fn next(&self) -> u64 {
        self.last().map_or(0, |(_, index)| index + 1)
    }

    pub(crate) fn first(&self) -> u64 {
        let first = self.entries.first().map(|((_, index), _)| *index);
        first.or_else(|| self.purged.map(|(_, index)| index + 1)).unwrap_or(0)
    }

    /// Returns whether an append to it can begin at any index.
    pub(crate) fn is_unplaced(&self) -> bool {
        self.last().is_none()
    }
}

/// A line of openraft: its log of one group.
pub(crate) trait Line: Debug + Sized {
    fn open(streams: &Streams, name: &str) -> palisade::Result<Self>;
    /// Appends, and waits until openraft hears that the entries are durable if `waits`.
    async fn add(&mut self, entries: &[(Id, String)], waits: bool) -> Outcome<()>;
    async fn remove_from(&mut self, from: u64) -> Outcome<()>;
    async fn remove_to(&mut self, to: Id) -> Outcome<()>;
    async fn set_vote(&mut self, term: u64) -> Outcome<()>;
    async fn set_committed(&mut self, id: Id) -> Outcome<()>;
    /// Reads all, and checks that the calls agree with each other.
    async fn read_all(&mut self) -> Outcome<Group>;
    /// Reads from `from` on by the limited call.
    async fn read_limited(&mut self, from: u64) -> Outcome<Vec<Id>>;
    fn stream(&self) -> &Stream;

    /// Returns the index at which the stream says that the log begins, if nothing was purged.
    fn start(&self) -> palisade::Result<Option<u64>> {
        let bytes = self.stream().value("start")?.expect("an open sets it");
        let (_line, purged, index) = postcard::from_bytes::<(u8, bool, u64)>(&bytes)
            .expect("a start begins with the line, and whether and what was purged");
        Ok((!purged).then_some(index))
    }
}

openraft_09::declare_raft_types!(pub(crate) Types09: D = String, R = ());
openraft_010::declare_raft_types!(pub(crate) Types010: D = String, R = ());

pub(crate) type Line09 = v09::LogStore<Types09>;
pub(crate) type Line010 = v010::LogStore<Types010>;

fn id_09((term, index): Id) -> openraft_09::LogId<u64> {
    openraft_09::LogId::new(openraft_09::CommittedLeaderId::new(term, 0), index)
}

fn of_09(id: openraft_09::LogId<u64>) -> Id {
    (id.leader_id.term, id.index)
}

impl Line for Line09 {
    fn open(streams: &Streams, name: &str) -> palisade::Result<Self> {
        v09::LogStore::open(streams, name)
    }

    async fn add(&mut self, entries: &[(Id, String)], waits: bool) -> Outcome<()> {
        let entries = entries.iter().map(|(id, data)| openraft_09::Entry::<Types09> {
            log_id: id_09(*id),
            payload: openraft_09::EntryPayload::Normal(data.clone()),
        });
        let appended = self.blocking_append(entries.collect::<Vec<_>>());
        if waits {
            return Ok(appended.await?);
        }
        // The call has appended when it first waits.
        Ok(appended.now_or_never().transpose().map(drop)?)
    }

    async fn remove_from(&mut self, from: u64) -> Outcome<()> {
        Ok(self.truncate(id_09((9, from))).await?)
    }

    async fn remove_to(&mut self, to: Id) -> Outcome<()> {
        Ok(self.purge(id_09(to)).await?)
    }

    async fn set_vote(&mut self, term: u64) -> Outcome<()> {
        Ok(self.save_vote(&openraft_09::Vote::new(term, 0)).await?)
    }

    async fn set_committed(&mut self, id: Id) -> Outcome<()> {
        Ok(self.save_committed(Some(id_09(id))).await?)
    }

    async fn read_all(&mut self) -> Outcome<Group> {
        let state = self.get_log_state().await?;
        let entries = self.get_log_reader().await.try_get_log_entries(..).await?;
        let entries = entries.into_iter().map(|entry| match entry.payload {
            openraft_09::EntryPayload::Normal(data) => (of_09(entry.log_id), data),
            other => panic!("{other:?} was not appended"),
        });
        let group = Group {
            vote: self.read_vote().await?.map(|vote| vote.leader_id().term),
            committed: self.read_committed().await?.map(of_09),
            purged: state.last_purged_log_id.map(of_09),
            entries: entries.collect(),
        };
        assert_eq!(state.last_log_id.map(of_09), group.last());
        Ok(group)
    }

    async fn read_limited(&mut self, from: u64) -> Outcome<Vec<Id>> {
        let mut reader = self.get_log_reader().await;
        let entries = reader.limited_get_log_entries(from, u64::MAX).await?;
        Ok(entries.into_iter().map(|entry| of_09(entry.log_id)).collect())
    }

    fn stream(&self) -> &Stream {
        self.stream()
    }
}

type Id010 = openraft_010::type_config::alias::LogIdOf<Types010>;

fn id_010((term, index): Id) -> Id010 {
    openraft_010::testing::log_id::<Types010>(term, 0, index)
}

fn of_010(id: Id010) -> Id {
    (id.committed_leader_id().term, id.index())
}

impl Line for Line010 {
    fn open(streams: &Streams, name: &str) -> palisade::Result<Self> {
        v010::LogStore::open(streams, name)
    }

    async fn add(&mut self, entries: &[(Id, String)], waits: bool) -> Outcome<()> {
        use openraft_010::entry::RaftEntry as _;
        use openraft_010::storage::IOFlushed;
        use openraft_010::type_config::TypeConfigExt as _;
        use openraft_010::type_config::alias::EntryOf;

        let entries = entries
            .iter()
            .map(|(id, data)| EntryOf::<Types010>::new_normal(id_010(*id), data.clone()));
        let entries = entries.collect::<Vec<_>>();
        if waits {
            let (flushed, wait) = Types010::oneshot();
            self.append(entries, IOFlushed::signal(flushed)).await?;
            return Ok(wait.await??);
        }
        Ok(self.append(entries, IOFlushed::noop()).await?)
    }

    async fn remove_from(&mut self, from: u64) -> Outcome<()> {
        Ok(self.truncate_after(from.checked_sub(1).map(|last| id_010((9, last)))).await?)
    }

    async fn remove_to(&mut self, to: Id) -> Outcome<()> {
        Ok(self.purge(id_010(to)).await?)
    }

    async fn set_vote(&mut self, term: u64) -> Outcome<()> {
        Ok(self.save_vote(&openraft_010::impls::Vote::new(term, 0)).await?)
    }

    async fn set_committed(&mut self, id: Id) -> Outcome<()> {
        Ok(self.save_committed(Some(id_010(id))).await?)
    }

    async fn read_all(&mut self) -> Outcome<Group> {
        let state = self.get_log_state().await?;
        let mut reader = self.get_log_reader().await;
        let entries = reader.try_get_log_entries(..).await?;
        let entries = entries.into_iter().map(|entry| match entry.payload {
            openraft_010::EntryPayload::Normal(data) => (of_010(entry.log_id), data),
            other => panic!("{other:?} was not appended"),
        });
        let group = Group {
            vote: reader.read_vote().await?.map(|vote| vote.leader_id.term),
            committed: self.read_committed().await?.map(of_010),
            purged: state.last_purged_log_id.map(of_010),
            entries: entries.collect(),
        };
        assert_eq!(state.last_log_id.map(of_010), group.last());
        Ok(group)
    }

    async fn read_limited(&mut self, from: u64) -> Outcome<Vec<Id>> {
        let mut reader = self.get_log_reader().await;
        let entries = reader.limited_get_log_entries(from, u64::MAX).await?;
        Ok(entries.into_iter().map(|entry| of_010(entry.log_id)).collect())
    }

    fn stream(&self) -> &Stream {
        self.stream()
    }
}
