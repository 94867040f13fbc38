use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use lsm_tree::AbstractTree;
use palisade::disk::Disk;
use palisade::{Lsn, Wal};

use crate::change::Change;
use crate::engine::{Engine, lock, lock_in_drop};
use crate::open::{CATALOGUE, catalogue_key};
use crate::{Batch, Error, Keyspace, Options, Result, Snapshot};

/// A database: keyspaces that share one log.
///
/// All clones are handles of the same database, as are its keyspaces, batches, snapshots and
/// iterators. Any number of threads may use them. The drop of the last handle ends the background
/// thread and keeps every write from a kill, as the drop of a log does. Until then the folder
/// cannot be opened again.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path();
/// use palisade_lsm::Database;
///
/// let database = Database::open(path)?;
/// let accounts = database.keyspace_or_create("accounts")?;
/// accounts.put("alice", "90")?; // returned: survives power loss
/// assert_eq!(accounts.get("alice")?.as_deref(), Some(b"90".as_slice()));
///
/// let mut transfer = database.batch();
/// transfer.put(&accounts, "alice", "80")?;
/// transfer.put(&accounts, "bob", "110")?;
/// transfer.commit()?; // both or none
/// database.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Database(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    engine: Arc<Engine>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    fn stop(&self) {
        lock_in_drop(&self.engine.writer).is_closed = true;
        self.engine.room.notify_all();
        self.engine.work.notify_all();
        if let Some(worker) = lock_in_drop(&self.worker).take() {
            // After a panic of the thread, the next write returns `Stopped`, or panics if the
            // thread had the writers' lock.
            drop(worker.join());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The numbers of a database at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The bytes in the memtables that no flush has taken yet.
    pub memtable_bytes: u64,
    /// The number of memtables that a flush has sealed, and not yet written to tables.
    pub sealed_memtables: usize,
    /// The bytes of the log that an open would replay.
    pub log_bytes: u64,
    /// The number of tables of all keyspaces.
    pub tables: usize,
    /// The bytes of the data blocks of the tables. `lsm-tree` does not count indexes and filters.
    pub table_bytes: u64,
    /// The bytes of data blocks that flushes have written since the open.
    pub flushed_bytes: u64,
    /// The bytes of data blocks that compactions have written since the open. A table that a
    /// compaction only moves to another level does not count.
    pub compacted_bytes: u64,
    /// The greatest number of runs in level 0 that a keyspace has. At 20, a flush first merges
    /// them; writers wait if the memtables are full meanwhile.
    pub most_runs: usize,
    /// How often a writer has waited for a flush.
    pub stalls: u64,
    /// How many snapshots there are.
    pub snapshots: usize,
    /// The LSN of the oldest snapshot. While it exists, memtables stay in memory after their flush.
    pub oldest_snapshot: Option<Lsn>,
    /// The LSN below which all changes are visible and durable.
    pub durable_lsn: Lsn,
}

impl Database {
    /// Opens the database in the folder `path` with the default options, or makes it.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open(path)
    }

    pub(crate) fn open_with(
        options: &Options,
        disk: Arc<dyn Disk>,
        log: &Path,
        folder: &Path,
    ) -> Result<Database> {
        let engine = Arc::new(Engine::open(options, disk, log, folder)?);
        let start = |engine: Arc<Engine>| {
            let named = thread::Builder::new().name("palisade-lsm".into());
            named.spawn(move || engine.run()).map_err(Error::io(folder))
        };
        let worker = options.is_background.then(|| start(Arc::clone(&engine))).transpose()?;
        Ok(Database(Arc::new(Handle { engine, worker: Mutex::new(worker) })))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn is_same(&self, other: &Database) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes a keyspace. After `Ok` it survives power loss. The call waits for the device. Other
    /// threads can find the keyspace before that, and also after an error of the wait.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyExists`]; [`Error::InvalidArgument`] for an empty name; [`Error::Tables`]
    /// and [`Error::Io`] if its folder cannot be made; as [`Keyspace::put`].
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        let engine = self.engine();
        let _one_at_a_time = lock(&engine.creation);
        if name.is_empty() {
            return Err(Error::InvalidArgument("a keyspace has a name"));
        }
        if self.keyspace(name).is_ok() {
            return Err(Error::AlreadyExists(name.into()));
        }
        let number = u32::try_from(engine.keyspaces().len());
        let number = number.map_err(|_| Error::InvalidArgument("there are too many keyspaces"))?;
        // First the folder, then the record: a replay of the record finds the folder.
        let tables = engine.setup.create(number, name)?;
        let key = catalogue_key(number);
        let change = Change { keyspace: CATALOGUE, key: &key, value: Some(name.as_bytes()) };
        let mut record = Vec::new();
        change.encode(&mut record)?;
        let appended = engine.append(&record);
        // If the record is in the log, its number is taken, also if it is not durable.
        if appended.as_ref().map_or_else(Error::is_appended, |_| true) {
            engine.add(Arc::clone(&tables));
        }
        engine.wait(&appended?)?;
        Ok(Keyspace::new(self.clone(), number, tables))
    }

    /// Returns a keyspace that exists. The call does not wait for the device.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]: make it with [`create_keyspace`](Database::create_keyspace).
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let keyspaces = self.engine().keyspaces();
        let found = (1..).zip(keyspaces.iter().skip(1)).find(|(_, tables)| tables.name == name);
        let (number, tables) = found.ok_or_else(|| Error::NotFound(name.into()))?;
        Ok(Keyspace::new(self.clone(), number, Arc::clone(tables)))
    }

    /// Returns a keyspace, and makes it if it does not exist. Blocks and promises as
    /// [`create_keyspace`](Database::create_keyspace).
    ///
    /// # Errors
    ///
    /// As [`create_keyspace`](Database::create_keyspace), without [`Error::AlreadyExists`].
    pub fn keyspace_or_create(&self, name: &str) -> Result<Keyspace> {
        match self.keyspace(name) {
            Err(Error::NotFound(_)) => match self.create_keyspace(name) {
                Err(Error::AlreadyExists(_)) => self.keyspace(name), // another thread made it
                created => created,
            },
            found => found,
        }
    }

    /// Returns the names of all keyspaces, in the order in which they were made.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        let keyspaces = self.engine().keyspaces();
        keyspaces.iter().skip(1).map(|tables| tables.name.clone()).collect()
    }

    /// Returns an empty batch: changes of several keys and keyspaces, which happen all or not at
    /// all.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }

    /// Returns a snapshot of all changes that no crash can take back. It lacks the changes that
    /// were appended and are not durable yet. The call does not wait.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.clone(), Engine::horizon)
    }

    /// Returns a snapshot of the newest changes. A crash can take the last ones back until
    /// [`Snapshot::is_durable`] is true. The call does not wait.
    #[must_use]
    pub fn newest_snapshot(&self) -> Snapshot {
        Snapshot::new(self.clone(), Engine::applied)
    }

    /// Makes all earlier changes durable. The call waits for the device. If the log is at its
    /// `max_bytes`, the call flushes.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] as `Wal::sync`. After `NoSpace` nothing is lost: see [`flush`](Self::flush).
    pub fn sync(&self) -> Result<()> {
        Ok(self.engine().with_space(|| self.engine().wal.sync())?)
    }

    /// Writes all earlier changes to tables and truncates the log, so that an open replays nothing.
    /// The call waits for the device, and for a flush or a step of compaction that is running.
    ///
    /// The background thread does this by itself whenever the memtables are full, or
    /// [the log](crate::Options::memtable_bytes) is.
    ///
    /// # Errors
    ///
    /// - [`Error::Stopped`] with the cause. Nothing that was acknowledged is lost, and the engine
    ///   takes no more writes: open the database again.
    /// - [`Error::Log`] with the kind `NoSpace` or `NoFiles`: the log lacks space or file
    ///   descriptors. Nothing is lost, and the engine goes on. Drop the tails and holds of the log
    ///   and remove its cursors, or free space on its disk, and call again.
    /// - [`Error::Log`] with the kind `Closed` after a close.
    pub fn flush(&self) -> Result<()> {
        self.engine().flush()
    }

    /// Merges all tables of each keyspace, and drops changes that no reader needs. The call reads
    /// and writes all tables. A flush waits for it, and so may writers.
    ///
    /// # Errors
    ///
    /// As [`flush`](Database::flush).
    pub fn compact(&self) -> Result<()> {
        self.engine().compact()
    }

    /// Returns the numbers of the database. The call does not wait for the device.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        let (memtable_bytes, stalls, flushed_bytes, compacted_bytes) = {
            let writer = lock(&engine.writer);
            (writer.active_bytes, writer.stalls, writer.flushed_bytes, writer.compacted_bytes)
        };
        let (snapshots, oldest_snapshot) = {
            let snapshots = lock(&engine.snapshots);
            (snapshots.values().sum(), snapshots.keys().next().map(|at| Lsn::new(*at)))
        };
        let most_runs = engine.most_runs();
        let keyspaces = engine.keyspaces();
        Stats {
            memtable_bytes,
            sealed_memtables: keyspaces
                .iter()
                .map(|tables| tables.tree.sealed_memtable_count())
                .sum(),
            log_bytes: engine.wal.live_bytes(),
            tables: keyspaces.iter().map(|tables| tables.tree.table_count()).sum(),
            table_bytes: keyspaces.iter().map(|tables| tables.tree.disk_space()).sum(),
            flushed_bytes,
            compacted_bytes,
            most_runs,
            stalls,
            snapshots,
            oldest_snapshot,
            durable_lsn: Lsn::new(engine.horizon()),
        }
    }

    /// Returns the log below, for its statistics, tails and backups. Do not append to it and do not
    /// truncate it. A test of recovery may `abandon` it, and then drops all handles of the database
    /// before it opens the folder again: the background thread uses the tables until then.
    #[must_use]
    pub fn log(&self) -> &Wal {
        &self.engine().wal
    }

    /// Ends the background thread and closes the log. After `Ok` all changes survive power loss,
    /// and the next open reads the log from its head without a check for torn records. The call
    /// waits for the device, and for a flush or a step of compaction that is running.
    ///
    /// Other handles can still read. Their writes, flushes and compactions return [`Error::Log`]
    /// with the kind `Closed`. Drop all of them, also snapshots and iterators, before you open the
    /// folder again: they use the tables.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] as `Wal::close`.
    pub fn close(self) -> Result<()> {
        // A log without space needs a flush first, and there is none after the stop.
        let _ = self.sync();
        self.0.stop();
        // Waits for the step of another thread. None begins after it.
        let _last = lock_in_drop(&self.engine().maintenance);
        Ok(self.engine().wal.clone().close()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Locks `mutex` in a thread that panics.
    fn poison<T: Send>(mutex: &Mutex<T>) {
        let panics = || {
            let _guard = lock(mutex);
            panic!("on purpose");
        };
        thread::scope(|scope| scope.spawn(panics).join().unwrap_err());
    }

    /// Ends a wait that would never end.
    const LONG: std::time::Duration = std::time::Duration::from_secs(60);

    #[test]
    fn a_keyspace_is_made_and_written_while_a_compaction_runs() {
        let folder = tempfile::tempdir().unwrap();
        let database = Options::new().background(false).open(folder.path()).unwrap();
        let keyspace = database.create_keyspace("k").unwrap();
        let running = lock(&database.engine().maintenance);
        thread::scope(|scope| {
            let before = Arc::strong_count(&keyspace.tables);
            let compaction = scope.spawn(|| database.compact());
            while Arc::strong_count(&keyspace.tables) == before {
                thread::yield_now();
            }
            // The compaction has the list of keyspaces, and waits for its turn.
            let (done, is_done) = std::sync::mpsc::channel();
            let other = database.clone();
            thread::spawn(move || {
                let made = other.create_keyspace("other").unwrap();
                made.put("key", "value").unwrap();
                done.send(()).unwrap();
            });
            let finished = is_done.recv_timeout(LONG);
            drop(running);
            compaction.join().unwrap().unwrap();
            finished.expect("it waits for the compaction");
        });
    }

    #[test]
    fn after_a_panic_of_a_flush_no_writer_waits_for_another() {
        for is_background in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let options = Options::new().background(is_background).memtable_bytes(64 << 10);
            let database = options.open(folder.path()).unwrap();
            let keyspace = database.create_keyspace("k").unwrap();
            let panics = || database.engine().one_at_a_time::<()>(|| panic!("on purpose"));
            thread::scope(|scope| scope.spawn(panics).join().unwrap_err());
            let (done, is_done) = std::sync::mpsc::channel();
            let writer = keyspace.clone();
            thread::spawn(move || {
                let write = || writer.append_put("key", [7; 1000]).err();
                done.send((0..1000).find_map(|_| write())).unwrap();
            });
            let refused = is_done.recv_timeout(LONG).expect("the writer waits");
            assert!(matches!(refused, Some(Error::Stopped(_))), "{refused:?}");
            assert!(matches!(database.flush(), Err(Error::Stopped(_))));
        }
    }

    #[test]
    fn memtables_kept_by_a_snapshot_are_released_without_writes() {
        let folder = tempfile::tempdir().unwrap();
        let database = Options::new().background(false).open(folder.path()).unwrap();
        let [idle, busy] = ["idle", "busy"].map(|name| database.create_keyspace(name).unwrap());
        idle.put("key", "value").unwrap();
        let snapshot = database.snapshot();
        for _ in 0..5 {
            idle.put("key", "value").unwrap();
            database.flush().unwrap();
        }
        let kept = || idle.tables.tree.version_free_list_len();
        assert!(kept() >= 5, "{}", kept());
        drop(snapshot);
        busy.put("key", "value").unwrap();
        database.flush().unwrap();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_drop_after_a_panic_with_a_lock_does_not_panic() {
        for is_background in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let options = Options::new().background(is_background);
            let database = options.open(folder.path()).unwrap();
            database.create_keyspace("k").unwrap().put("key", "value").unwrap();
            let snapshot = database.snapshot();
            poison(&database.engine().writer);
            poison(&database.engine().snapshots);
            poison(&database.0.worker);
            drop(snapshot);
            drop(database);
            let keyspace = options.open(folder.path()).unwrap().keyspace("k").unwrap();
            assert_eq!(keyspace.get("key").unwrap().unwrap(), b"value");
        }
    }
}
