//! The open: recover the log, open the tables, replay, start.
//!
//! | path | content |
//! |---|---|
//! | `engine` | the version of this layout, and the UUID of the log |
//! | `log` | the log |
//! | `lock` | empty; locked while a handle of the database exists |
//! | `tables/0` | the catalogue: a keyspace from numbers to names of keyspaces |
//! | `tables/N` | the tables of keyspace `N` |
//! | `tables/flushed` | up to which LSN the tables have all changes: `flushed.rs` |
//!
//! The file `engine` is written last, so without it no open was ever completed: there are no
//! records and no keyspaces. A folder without this file that has some has lost a part.
//!
//! The log is opened first, and its lock decides between two opens. A lock of the file `lock` keeps
//! others from the tables until the last handle is dropped, also after a close of the log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, RwLock};

use lsm_tree::config::{CompressionPolicy, FilterPolicy, RestartIntervalPolicy};
use lsm_tree::{AbstractTree, Cache, Config, DescriptorTable, Guard, SequenceNumberCounter};
use palisade::disk::Disk;
use palisade::{Lsn, OpenMode, Wal};

use crate::change::{self, Change};
use crate::engine::{Engine, Tables, Writer};
use crate::list::{self, CURRENT};
use crate::space::Segments;
use crate::{Error, Options, Result, flushed};

/// The number of the catalogue.
pub(crate) const CATALOGUE: u32 = 0;
const VERSION: &str = "palisade-lsm 1";
const IDENTITY: &str = "engine";
const LOCK: &str = "lock";
const OPEN_TABLES: usize = 400;

/// What the trees of all keyspaces share.
pub(crate) struct Setup {
    pub(crate) folder: PathBuf,
    cache: Arc<Cache>,
    files: Arc<DescriptorTable>,
    compression: CompressionPolicy,
    filters: FilterPolicy,
    /// The counter from which `lsm-tree` takes the seqno of a list of tables.
    pub(crate) seqno: SequenceNumberCounter,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Setup {
    fn new(folder: &Path, options: &Options) -> Setup {
        Setup {
            folder: folder.join("tables"),
            cache: Arc::new(Cache::with_capacity_bytes(options.cache_bytes)),
            files: Arc::new(DescriptorTable::new(OPEN_TABLES)),
            compression: options.compression.policy(),
            filters: options.filters(),
            seqno: SequenceNumberCounter::default(),
        }
    }

    /// Opens the tables of a keyspace that exists.
    fn open(&self, number: u32, name: &str) -> Result<Arc<Tables>> {
        let path = self.folder.join(number.to_string());
        if !path.join(CURRENT).try_exists().map_err(Error::io(&path))? {
            return Err(Error::Mismatch(format!("{} has no tables", path.display())));
        }
        self.create(number, name)
    }

    /// Makes the folder of a keyspace, durably, or opens it.
    pub(crate) fn create(&self, number: u32, name: &str) -> Result<Arc<Tables>> {
        let path = self.folder.join(number.to_string());
        // Only the log counts what is visible, so `lsm-tree` gets a counter that no code reads.
        let config = Config::new(&path, self.seqno.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::clone(&self.cache))
            .use_descriptor_table(Some(Arc::clone(&self.files)))
            .data_block_restart_interval_policy(RestartIntervalPolicy::new([10, 16])) // fjall's
            .filter_policy(self.filters.clone())
            .data_block_compression_policy(self.compression.clone());
        list::check(&path)?;
        let tree = config.open().map_err(Error::tables(&path))?;
        // `lsm-tree` syncs what is in the folder, but not the name of the folder.
        sync_folder(&self.folder)?;
        Ok(Arc::new(Tables { name: name.to_owned(), path, tree }))
    }
}

impl Engine {
    pub(crate) fn open(
        options: &Options,
        disk: Arc<dyn Disk>,
        log: &Path,
        folder: &Path,
    ) -> Result<Engine> {
        let setup = Setup::new(folder, options);
        make_folder(folder)?;
        make_folder(&setup.folder)?;
        // A process that died may have made the folders and not synced their names.
        sync_folder(folder)?;
        if read_text(&folder.join(IDENTITY))?.is_none() {
            sync_parent(folder)?;
        }
        let wal = open_log(options, disk, log, folder)?;
        let found = format!("{VERSION} {}", wal.uuid());
        let is_new = check_identity(folder, &setup, &wal, &found)?;
        let tables_lock = lock_tables(folder, &wal)?;

        if is_new {
            setup.create(CATALOGUE, "")?;
        }
        let mut keyspaces = vec![setup.open(CATALOGUE, "")?];
        for (number, name) in catalogue(&keyspaces[0])? {
            add(&mut keyspaces, &setup, number, &name)?;
        }
        flushed::check(&setup.folder, &wal, &keyspaces)?;
        let active_bytes = replay(&wal, &setup, &mut keyspaces)?;
        // After a crash this is above the end of the last record. A truncation there moves the head
        // to this LSN, so the file `flushed` must have it.
        let end = wal.reserved_lsn();
        let segments = Segments::new(&wal, end, options.memtable_bytes)?;
        if is_new {
            flushed::write(&setup.folder, wal.head_lsn(), &keyspaces)?;
            write_file(folder, IDENTITY, &found)?;
        }
        Ok(Engine {
            wal,
            options: options.clone(),
            setup,
            keyspaces: RwLock::new(keyspaces),
            creation: Mutex::default(),
            writer: Mutex::new(Writer {
                // All LSNs in the tables are below the end, and all later ones at or above it.
                last: Lsn::new(end.as_u64() - 1),
                end,
                active_bytes,
                sealed_bytes: 0,
                segments,
                is_short: false,
                stalls: 0,
                flushed_bytes: 0,
                compacted_bytes: 0,
                is_compaction_due: true,
                is_closed: false,
                failure: None,
            }),
            room: Condvar::new(),
            work: Condvar::new(),
            maintenance: Mutex::default(),
            applied: AtomicU64::new(end.as_u64()),
            snapshots: Mutex::new(BTreeMap::new()),
            _tables_lock: tables_lock,
        })
    }
}

fn open_log(options: &Options, disk: Arc<dyn Disk>, log: &Path, folder: &Path) -> Result<Wal> {
    // Without its log a database has lost what the tables lack: that is no new one.
    let mode = match read_text(&folder.join(IDENTITY))? {
        None => OpenMode::CreateIfMissing,
        Some(_) => OpenMode::MustExist,
    };
    // LSN 0 stays free: to `lsm-tree` a reader at 0 is one that sees nothing.
    let log_options = options.log.clone().open_mode(mode).first_lsn(Lsn::new(1));
    Ok(log_options.open_on(disk, log)?)
}

/// Takes the lock of the tables. If another process has it, closes the log, so that the next open
/// finds the log as it was.
fn lock_tables(folder: &Path, wal: &Wal) -> Result<TablesLock> {
    let taken = TablesLock::take(folder);
    if taken.is_err() {
        wal.close()?;
    }
    taken
}

/// Checks that the log is the one of the tables. Returns whether the database is new: then no open
/// of it was ever completed.
fn check_identity(folder: &Path, setup: &Setup, wal: &Wal, found: &str) -> Result<bool> {
    if wal.head_lsn() == Lsn::ZERO {
        let what = "the log begins at LSN 0, where no log of this engine does";
        return Err(Error::Mismatch(what.into()));
    }
    // Under the lock of the log: another process may have made the database meanwhile.
    match read_text(&folder.join(IDENTITY))? {
        Some(identity) if identity == found => Ok(false),
        Some(identity) => Err(Error::Mismatch(format!(
            "the log is `{found}`, and the tables are of `{identity}`"
        ))),
        None => {
            let first = setup.folder.join("1");
            // A new log has its head at its second segment, and each flush moves the head.
            let is_used = wal.head_lsn().as_u64() != wal.segment_bytes()
                || wal.records()?.next()?.is_some()
                || first.try_exists().map_err(Error::io(&first))?;
            if is_used {
                let path = folder.join(IDENTITY);
                return Err(Error::Mismatch(format!(
                    "the file {} is missing beside a log or tables that were in use",
                    path.display()
                )));
            }
            Ok(true)
        }
    }
}

/// Applies all records above the highest LSN in the tables of their keyspace. Returns the bytes
/// that the memtables have then.
///
/// A flush seals all memtables at one end of the log. So if a table has a record, the tables of
/// this keyspace have all records below. A record that is applied again does no harm: it has the
/// same seqno. This happens when a compaction has dropped the change with the highest LSN.
fn replay(wal: &Wal, setup: &Setup, keyspaces: &mut Vec<Arc<Tables>>) -> Result<u64> {
    let highest = |tables: &Arc<Tables>| tables.tree.get_highest_persisted_seqno();
    let persisted: Vec<_> = keyspaces.iter().map(highest).collect();
    let (mut bytes, mut end) = (0, wal.head_lsn());
    let mut records = wal.records()?;
    while let Some(record) = records.next()? {
        let lsn = record.lsn();
        end = record.next_lsn();
        if record.tag() != change::TAG {
            return Err(Error::Unsupported { lsn });
        }
        for change in change::decode(record.data()) {
            let change = change.ok_or(Error::Unsupported { lsn })?;
            let number = change.keyspace as usize;
            if persisted.get(number).is_some_and(|highest| *highest >= Some(lsn.as_u64())) {
                continue;
            }
            let tables = keyspaces.get(number).ok_or_else(|| {
                Error::Mismatch(format!(
                    "the record at LSN {lsn} is in keyspace {number}, which is not there"
                ))
            })?;
            bytes += tables.apply(lsn, &change);
            if let Change { keyspace: CATALOGUE, key, value: Some(name) } = change {
                let (number, name) = entry(key, name).ok_or(Error::Unsupported { lsn })?;
                add(keyspaces, setup, number, &name)?;
            }
        }
    }
    match persisted.iter().flatten().max() {
        Some(highest) if *highest >= end.as_u64() => Err(Error::Mismatch(format!(
            "the tables have the change at LSN {highest}, and the log ends at {end}"
        ))),
        _ => Ok(bytes),
    }
}

/// Opens a keyspace that the catalogue has.
fn add(keyspaces: &mut Vec<Arc<Tables>>, setup: &Setup, number: u32, name: &str) -> Result<()> {
    match (number as usize).cmp(&keyspaces.len()) {
        std::cmp::Ordering::Less => {}
        std::cmp::Ordering::Equal => keyspaces.push(setup.open(number, name)?),
        std::cmp::Ordering::Greater => {
            return Err(Error::Mismatch(format!(
                "the catalogue lacks keyspace {}",
                keyspaces.len()
            )));
        }
    }
    Ok(())
}

/// The key of a keyspace in the catalogue. Big-endian: so the catalogue is in order.
pub(crate) fn catalogue_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn entry(key: &[u8], name: &[u8]) -> Option<(u32, String)> {
    Some((u32::from_be_bytes(key.try_into().ok()?), String::from_utf8(name.to_vec()).ok()?))
}

fn catalogue(tables: &Tables) -> Result<Vec<(u32, String)>> {
    let entries = tables.tree.iter(u64::MAX, None).map(|guard| {
        let (key, name) = guard.into_inner().map_err(Error::tables(&tables.path))?;
        entry(&key, &name).ok_or_else(|| Error::Mismatch("the catalogue has other keys".into()))
    });
    entries.collect()
}

/// Reads a text file, if it is there. Other bytes than text are damage, which no text is equal to.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path)(error)),
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
    }
}

/// Writes a file, durably, so that a crash leaves what was there before, or all of `text`.
pub(crate) fn write_file(folder: &Path, name: &str, text: &str) -> Result<()> {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(Error::io(&path))?;
    sync_folder(folder)
}

/// A lock of the tables.
#[derive(Debug)]
pub(crate) struct TablesLock {
    file: File,
    process: u32,
}

impl TablesLock {
    fn take(folder: &Path) -> Result<TablesLock> {
        let path = folder.join(LOCK);
        // Writable: NFS locks no other file.
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(Error::io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            // A file system without locks: the lock of the log is what there is.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
            Err(TryLockError::WouldBlock) => {
                let text = "the database was closed, and has handles that use its tables";
                let locked = palisade::Error::new(palisade::ErrorKind::Locked, text);
                let advice = "drop all handles, snapshots and iterators";
                return Err(locked.at_path(&path).with_advice(advice).into());
            }
        }
        Ok(TablesLock { file, process: std::process::id() })
    }
}

impl Drop for TablesLock {
    fn drop(&mut self) {
        // A forked child may have the file, too: to close it would not be enough. The child itself
        // must not end the lock of its parent.
        if self.process == std::process::id() {
            let _ = self.file.unlock();
        }
    }
}

/// Makes a folder, unless it is there. Its parent must exist: a durable name needs a durable one.
fn make_folder(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(Error::io(folder)),
    }
}

fn sync_parent(folder: &Path) -> Result<()> {
    match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(parent) => sync_folder(parent),
        None => Ok(()),
    }
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|opened| opened.sync_all()).map_err(Error::io(folder))
}
