//! The state machine: a map in memory, and snapshots in a file.
//!
//! A restart loads the snapshot, and openraft applies the committed entries above it again. So the
//! snapshot must be durable before openraft purges the entries that it holds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use openraft_09::storage::RaftStateMachine;
use openraft_09::{
    BasicNode, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftSnapshotBuilder,
    Snapshot, SnapshotMeta, StorageError, StoredMembership,
};
use serde::{Deserialize, Serialize};

openraft_09::declare_raft_types!(
    /// The types of the store: a write is a key and its value.
    pub(crate) Types: D = (String, String), R = (),
);

type Outcome<T> = Result<T, StorageError<u64>>;
type Meta = SnapshotMeta<u64, BasicNode>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct State {
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    map: BTreeMap<String, String>,
}

/// A handle of the state machine. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    folder: Arc<Path>,
    state: Arc<Mutex<State>>,
}

impl Machine {
    /// Loads the last snapshot in `folder`.
    pub(crate) fn open(folder: &Path) -> io::Result<Machine> {
        fs::create_dir_all(folder)?;
        let machine = Machine { folder: folder.into(), state: Arc::default() };
        if let Some((_, data)) = machine.load()? {
            *machine.state() = decode(&data)?;
        }
        Ok(machine)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the state")
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.state().map.get(key).cloned()
    }

    pub(crate) fn map(&self) -> BTreeMap<String, String> {
        self.state().map.clone()
    }

    fn path(&self) -> PathBuf {
        self.folder.join("snapshot")
    }

    fn load(&self) -> io::Result<Option<(Meta, Vec<u8>)>> {
        match fs::read(self.path()) {
            Ok(bytes) => decode(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the snapshot in one durable step.
    fn save(&self, meta: &Meta, data: &[u8]) -> io::Result<()> {
        let new = self.folder.join("snapshot.new");
        let bytes = postcard::to_stdvec(&(meta, data)).map_err(io::Error::other)?;
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.path())?;
        File::open(&self.folder)?.sync_all()
    }
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(io::Error::other)
}

fn failed(verb: ErrorVerb) -> impl Fn(io::Error) -> StorageError<u64> {
    move |error| StorageError::from_io_error(ErrorSubject::Snapshot(None), verb, error)
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Outcome<Snapshot<Types>> {
        let state = self.state().clone();
        let data = postcard::to_stdvec(&state).map_err(io::Error::other);
        let data = data.map_err(failed(ErrorVerb::Write))?;
        let snapshot_id = state.applied.map_or_else(String::new, |id| id.to_string());
        let (last_log_id, last_membership) = (state.applied, state.membership);
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        self.save(&meta, &data).map_err(failed(ErrorVerb::Write))?;
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(data)) })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Machine;

    async fn applied_state(
        &mut self,
    ) -> Outcome<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Outcome<Vec<()>>
    where
        I: IntoIterator<Item = openraft_09::Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state();
        let apply = |entry: openraft_09::Entry<Types>| {
            state.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal((key, value)) => drop(state.map.insert(key, value)),
                EntryPayload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
        };
        Ok(entries.into_iter().map(apply).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Outcome<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Outcome<()> {
        let data = snapshot.into_inner();
        let state = decode(&data).map_err(failed(ErrorVerb::Read))?;
        self.save(meta, &data).map_err(failed(ErrorVerb::Write))?;
        *self.state() = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Outcome<Option<Snapshot<Types>>> {
        let found = self.load().map_err(failed(ErrorVerb::Read))?;
        Ok(found.map(|(meta, data)| Snapshot { meta, snapshot: Box::new(Cursor::new(data)) }))
    }
}
