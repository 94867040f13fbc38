//! The state machine: a map in memory, and snapshots in a file.
//!
//! A restart loads the snapshot, and openraft applies the committed entries above it again. So the
//! snapshot must be durable before openraft purges the entries that it holds.
//! The syncs in `save` are for that. No run of the example tests them: it kills processes only, and
//! what a process has written outlives it without a sync.
//!
//! The values of a key are 1, 2, 3 and so on, and its writer waits for each. So the machine finds a
//! write that is missing, and one that comes again changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use openraft_09::storage::RaftStateMachine;
use openraft_09::{
    BasicNode, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftSnapshotBuilder,
    Snapshot, SnapshotMeta, StorageError, StoredMembership,
};
use serde::{Deserialize, Serialize};

openraft_09::declare_raft_types!(
    /// The types of the store: a write is a key and its value.
    pub(crate) Types: D = (String, u64), R = (),
);

type Outcome<T> = Result<T, StorageError<u64>>;
type Meta = SnapshotMeta<u64, BasicNode>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct State {
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    map: BTreeMap<String, u64>,
}

impl State {
    /// Applies an entry, which must be above those that were applied.
    fn apply(&mut self, entry: openraft_09::Entry<Types>) -> io::Result<()> {
        let index = entry.log_id.index;
        if let Some(last) = self.applied.filter(|last| last.index >= index) {
            let text = format!("entry {index} comes after entry {}", last.index);
            return Err(io::Error::other(text));
        }
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal((key, value)) => {
                let last = self.map.get(&key).copied().unwrap_or(0);
                if value > last + 1 {
                    let text = format!("write {value} of {key} comes after write {last}");
                    return Err(io::Error::other(text));
                }
                self.map.insert(key, value.max(last));
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
        }
        self.applied = Some(entry.log_id);
        Ok(())
    }
}

/// How many snapshots a process has made and got.
#[derive(Debug, Default)]
struct Counts {
    built: AtomicU64,
    installed: AtomicU64,
}

/// A handle of the state machine. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    folder: Arc<Path>,
    state: Arc<Mutex<State>>,
    /// The last log id of the snapshot in the file, if there is one.
    stored: Arc<Mutex<Option<LogId<u64>>>>,
    counts: Arc<Counts>,
}

impl Machine {
    /// Loads the last snapshot in `folder`.
    pub(crate) fn open(folder: &Path) -> io::Result<Machine> {
        fs::create_dir_all(folder)?;
        if let Some(parent) = folder.canonicalize()?.parent() {
            File::open(parent)?.sync_all()?; // the folder's name
        }
        let machine = Machine {
            folder: folder.into(),
            state: Arc::default(),
            stored: Arc::default(),
            counts: Arc::default(),
        };
        if let Some((meta, data)) = machine.load()? {
            *machine.state() = decode(&data)?;
            *machine.stored() = meta.last_log_id;
        }
        Ok(machine)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the state")
    }

    fn stored(&self) -> MutexGuard<'_, Option<LogId<u64>>> {
        self.stored.lock().expect("no thread panics while it holds the file")
    }

    pub(crate) fn get(&self, key: &str) -> Option<u64> {
        self.state().map.get(key).copied()
    }

    pub(crate) fn map(&self) -> BTreeMap<String, u64> {
        self.state().map.clone()
    }

    /// Returns how many snapshots this process has made, and how many it has got.
    pub(crate) fn snapshots(&self) -> (u64, u64) {
        // Relaxed: only the numbers count.
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.counts.built), load(&self.counts.installed))
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

    /// Replaces the snapshot in one durable step, unless the file has it or a newer one: openraft
    /// may install a snapshot while it builds another one.
    fn save(&self, meta: &Meta, data: &[u8]) -> io::Result<()> {
        let mut stored = self.stored();
        if stored.is_some() && *stored >= meta.last_log_id {
            return Ok(());
        }
        let new = self.folder.join("snapshot.new");
        let bytes = postcard::to_stdvec(&(meta, data)).map_err(io::Error::other)?;
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.path())?;
        File::open(&self.folder)?.sync_all()?;
        *stored = meta.last_log_id;
        Ok(())
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
        self.counts.built.fetch_add(1, Ordering::Relaxed);
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
        let applied = entries.into_iter().map(|entry| state.apply(entry));
        applied.collect::<io::Result<_>>().map_err(|error| {
            StorageError::from_io_error(ErrorSubject::StateMachine, ErrorVerb::Write, error)
        })
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
        let new: State = decode(&data).map_err(failed(ErrorVerb::Read))?;
        self.save(meta, &data).map_err(failed(ErrorVerb::Write))?;
        let mut state = self.state();
        if new.applied >= state.applied {
            *state = new;
        }
        self.counts.installed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Outcome<Option<Snapshot<Types>>> {
        let found = self.load().map_err(failed(ErrorVerb::Read))?;
        Ok(found.map(|(meta, data)| Snapshot { meta, snapshot: Box::new(Cursor::new(data)) }))
    }
}
