//! A key-value store on the log: atomic writes, reads of one moment, snapshots, replay.
//!
//! `cargo run -p palisade --example key_value`
//!
//! - A write is one record. The store appends and applies it under one lock, so memory has the
//!   order of the log. It waits for the disk without the lock, so that writers share a sync.
//! - A view reads at the durable LSN. It never shows what a crash can take back.
//! - A snapshot is a file with all values, and the LSN at which the replay continues. The log is
//!   truncated there.
//!
//! The store reaches its files through `palisade::disk`. So the tests can run all of it on a
//! simulated disk, and let the process die at each call.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use palisade::disk::{Access, Disk, DiskFile, DiskFolder, OsDisk};
use palisade::{DEFAULT_FILE_MODE, Lsn, OpenMode, Options, ReplayFrom, Ticket, Wal, crc32c_append};

const SNAPSHOT: &str = "snapshot";
const NEW_SNAPSHOT: &str = "snapshot.new";
/// The length of a value in a change that removes the key.
const NO_VALUE: u32 = u32::MAX;

/// A key, and its new value; `None` removes the key.
type Change<'a> = (&'a [u8], Option<&'a [u8]>);

struct Version {
    /// The LSN of the record that wrote it; 0 if it is from the snapshot.
    lsn: Lsn,
    value: Option<Vec<u8>>,
}

#[derive(Default)]
struct State {
    /// The versions of each key, in LSN order.
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    /// The end of the last record that is in `versions`.
    applied: Lsn,
}

impl State {
    fn apply(&mut self, lsn: Lsn, end: Lsn, changes: &[u8]) {
        for (key, value) in decode(changes) {
            let version = Version { lsn, value: value.map(<[u8]>::to_vec) };
            self.versions.entry(key.to_vec()).or_default().push(version);
        }
        self.applied = end;
    }

    /// Drops the versions that no view at or above `oldest` reads.
    fn prune(&mut self, oldest: Lsn) {
        self.versions.retain(|_, versions| {
            let below = versions.partition_point(|version| version.lsn < oldest);
            versions.drain(..below.saturating_sub(1));
            let is_removed = |version: &Version| version.lsn < oldest && version.value.is_none();
            !(versions.len() == 1 && is_removed(&versions[0]))
        });
    }

    /// Returns the bytes of a snapshot: a checksum, `applied`, and the newest values.
    fn image(&self) -> Vec<u8> {
        let newest = self.versions.iter().filter_map(|(key, versions)| {
            let value = versions.last()?.value.as_deref()?;
            Some((key.as_slice(), Some(value)))
        });
        let body = [self.applied.as_u64().to_le_bytes().to_vec(), encode(newest)].concat();
        [crc32c_append(0, &body).to_le_bytes().to_vec(), body].concat()
    }

    fn from_image(image: &[u8]) -> Option<State> {
        let (checksum, body) = image.split_first_chunk()?;
        if crc32c_append(0, body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (applied, changes) = body.split_first_chunk()?;
        let mut state = State::default();
        state.apply(Lsn::ZERO, Lsn::new(u64::from_le_bytes(*applied)), changes);
        Some(state)
    }
}

struct Store {
    /// The mutex lets one thread save at a time.
    folder: Mutex<Arc<dyn DiskFolder>>,
    wal: Wal,
    state: RwLock<State>,
    /// How many views there are at each LSN.
    views: Mutex<BTreeMap<Lsn, usize>>,
}

impl Store {
    /// Opens the store in the folder `path`, or makes it. Loads the snapshot, then replays the
    /// records above it.
    fn open(disk: &Arc<dyn Disk>, path: &Path, options: &Options) -> io::Result<Store> {
        disk.create_folder(path, DEFAULT_FILE_MODE)?;
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        disk.open_folder(parent, DEFAULT_FILE_MODE)?.sync()?;
        let folder = disk.open_folder(path, DEFAULT_FILE_MODE)?;
        let snapshot = read_snapshot(&*folder)?;
        // With a snapshot an empty log in the place of the lost one would be a loss of data.
        let has_snapshot = snapshot.is_some();
        let mode = if has_snapshot { OpenMode::MustExist } else { OpenMode::CreateIfMissing };
        let options = options.clone().open_mode(mode);
        let recovery = options.recover_on(Arc::clone(disk), path.join("wal"))?;

        let mut state = snapshot.unwrap_or_default();
        // `Truncated`: this is not the last snapshot.
        let begin = if has_snapshot { state.applied.into() } else { ReplayFrom::Head };
        let mut records = recovery.records(begin)?;
        while let Some(record) = records.next()? {
            state.apply(record.lsn(), record.next_lsn(), record.data());
        }
        Ok(Store {
            folder: Mutex::new(folder),
            wal: recovery.start(),
            state: RwLock::new(state),
            views: Mutex::default(),
        })
    }

    /// Makes all of `changes`, or none. When it returns `Ok`, they survive power loss.
    fn write(&self, changes: &[Change<'_>]) -> io::Result<()> {
        self.append(changes)?.wait()?;
        Ok(())
    }

    /// Appends and applies `changes`. They show in no view before the ticket is durable.
    fn append(&self, changes: &[Change<'_>]) -> io::Result<Ticket<'_>> {
        let record = encode(changes.iter().copied());
        let mut state = self.state.write().unwrap();
        let appended = self.wal.append(&record);
        let lsn = match &appended {
            Ok(ticket) => ticket.lsn(),
            // With an appended LSN the record is in the log, so memory must have it, too.
            Err(error) => error.appended_lsn().ok_or_else(|| error.clone())?,
        };
        // No other thread appends meanwhile, so the end of the log is the end of the record.
        state.apply(lsn, self.wal.reserved_lsn(), &record);
        Ok(appended?)
    }

    /// Returns a view of the newest moment that no crash takes back.
    fn view(&self) -> View<'_> {
        // The lock keeps a save from dropping the versions of this moment.
        let mut views = self.views.lock().unwrap();
        let at = self.wal.durable_lsn();
        *views.entry(at).or_default() += 1;
        View { store: self, at }
    }

    /// Writes a snapshot, and truncates the log below it. A crash between two steps leaves a
    /// snapshot, and a log with all records above it.
    fn save(&self) -> io::Result<()> {
        let folder = self.folder.lock().unwrap();
        let (applied, image) = {
            let views = self.views.lock().unwrap();
            let mut state = self.state.write().unwrap();
            let oldest = views.keys().next().copied().unwrap_or(Lsn::LIMIT);
            state.prune(oldest.min(self.wal.durable_lsn()));
            (state.applied, state.image())
        };
        self.wal.sync()?; // a snapshot must not have what the log can still lose
        let file = folder.open(NEW_SNAPSHOT, Access::Fresh)?;
        write_all(&*file, &image)?;
        file.sync_data()?;
        folder.rename(NEW_SNAPSHOT, SNAPSHOT)?;
        folder.sync()?;
        self.wal.truncate_before(applied)?;
        Ok(())
    }
}

/// The store at one moment. Later writes do not change what it shows.
struct View<'s> {
    store: &'s Store,
    at: Lsn,
}

impl View<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let state = self.store.state.read().unwrap();
        let versions = state.versions.get(key)?;
        versions.iter().rev().find(|version| version.lsn < self.at)?.value.clone()
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        let mut views = self.store.views.lock().unwrap();
        if let Some(count) = views.get_mut(&self.at) {
            *count -= 1;
        }
        views.retain(|_, count| *count > 0);
    }
}

fn encode<'a>(changes: impl Iterator<Item = Change<'a>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in changes {
        let value_len = value.map_or(NO_VALUE, |value| value.len() as u32);
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend(value_len.to_le_bytes());
        bytes.extend(key);
        bytes.extend(value.unwrap_or_default());
    }
    bytes
}

/// Returns the changes. The log and the snapshot check their bytes, so there is no error here.
fn decode(mut bytes: &[u8]) -> impl Iterator<Item = Change<'_>> {
    std::iter::from_fn(move || {
        let (key_len, rest) = bytes.split_first_chunk()?;
        let (value_len, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
        let value_len = u32::from_le_bytes(*value_len);
        let has_value = value_len != NO_VALUE;
        let (value, rest) =
            rest.split_at_checked(if has_value { value_len as usize } else { 0 })?;
        bytes = rest;
        Some((key, has_value.then_some(value)))
    })
}

fn read_snapshot(folder: &dyn DiskFolder) -> io::Result<Option<State>> {
    let file = match folder.open(SNAPSHOT, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut image = vec![0; file.len()? as usize];
    let mut done = 0;
    while done < image.len() {
        match file.read_at(done as u64, &mut image[done..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    let state = State::from_image(&image);
    state.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "damaged snapshot"))
}

fn write_all(file: &dyn DiskFile, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += file.write_at(done as u64, &[IoSlice::new(&bytes[done..])])?;
    }
    Ok(())
}

/// Moves 10 from one account to the other. Each run continues where the last one ended.
fn main() -> io::Result<()> {
    let folder = std::env::temp_dir().join("palisade-key-value");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let store = Store::open(&disk, &folder, &Options::new())?;
    let amount = |view: &View<'_>, name: &[u8]| {
        let bytes = view.get(name).unwrap_or_else(|| 100_i64.to_le_bytes().to_vec());
        bytes.try_into().map_or(0, i64::from_le_bytes)
    };

    let before = store.view();
    let (alice, bob) = (amount(&before, b"alice") - 10, amount(&before, b"bob") + 10);
    let (alice, bob) = (alice.to_le_bytes(), bob.to_le_bytes());
    store.write(&[(b"alice", Some(&alice)), (b"bob", Some(&bob)), (b"note", None)])?;
    let after = store.view();
    for (name, view) in [("before", &before), ("after", &after)] {
        println!("{name}: alice {}, bob {}", amount(view, b"alice"), amount(view, b"bob"));
    }
    store.save()?;
    println!("saved in {}: {} bytes of log are left", folder.display(), store.wal.live_bytes());
    Ok(store.wal.close()?)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use palisade::disk::MemDisk;
    use palisade::sim::{CallKind, Effect, FaultDisk, SimDisk, Target};

    use super::*;

    fn open(disk: Arc<dyn Disk>) -> io::Result<Store> {
        let options = Options::new().segment_bytes(64 << 10).buffer_bytes(4 << 10);
        Store::open(&disk, Path::new("/store"), &options)
    }

    /// Gives both keys the values 1 to 9, one after the other. After 3, 6 and 9 it saves, and does
    /// not wait for the value itself. Returns the last value that it may count on.
    fn work(disk: &SimDisk) -> u8 {
        let mut acknowledged = 0;
        let mut work = || -> io::Result<()> {
            let store = open(disk.as_disk())?;
            for value in 1..=9 {
                let changes: [Change<'_>; 2] =
                    [(b"left", Some(&[value])), (b"right", Some(&[value]))];
                if value % 3 == 0 {
                    store.append(&changes)?;
                    store.save()?;
                } else {
                    store.write(&changes)?;
                }
                acknowledged = value;
            }
            Ok(())
        };
        assert!(work().is_err() == disk.is_dead());
        acknowledged
    }

    #[test]
    fn a_crash_at_any_call_loses_no_acknowledged_write() {
        for call in 0.. {
            let disk = SimDisk::new(call);
            disk.crash_at(call);
            let acknowledged = work(&disk);
            if !disk.is_dead() {
                assert!(call > 50, "only {call} calls");
                assert_eq!(acknowledged, 9);
                return;
            }
            for fate in 0..3 {
                let after = disk.fork(fate);
                after.lose_power();
                let store = open(after.as_disk()).unwrap();
                let view = store.view();
                let found = view.get(b"left").map_or(0, |value| value[0]);
                let context = format!("call {call}, fate {fate}");
                assert!((acknowledged..=acknowledged + 1).contains(&found), "{context}");
                assert_eq!(view.get(b"right").map_or(0, |value| value[0]), found, "{context}");
            }
        }
    }

    #[test]
    fn a_view_shows_only_what_is_durable() {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let store = open(Arc::new(disk.clone())).unwrap();
        store.write(&[(b"key", Some(b"old"))]).unwrap();
        let syncs = (CallKind::Sync, Target::Segment);
        disk.set(syncs, Effect::Hold);
        thread::scope(|scope| {
            let writer = scope.spawn(|| store.write(&[(b"key", Some(b"new"))]).unwrap());
            while !disk.is_holding(syncs) {
                thread::yield_now();
            }
            // The record is in the log and in memory, and its sync is not done.
            let during = store.view();
            let shown = during.get(b"key").unwrap();
            disk.set(syncs, Effect::Pass);
            writer.join().unwrap();
            assert_eq!(shown, b"old");
            assert_eq!(during.get(b"key").unwrap(), b"old");
            assert_eq!(store.view().get(b"key").unwrap(), b"new");
        });
    }

    #[test]
    fn a_snapshot_takes_the_place_of_the_records() {
        let disk = MemDisk::new();
        let store = open(Arc::new(disk.clone())).unwrap();
        store.write(&[(b"kept", Some(b"1")), (b"removed", Some(b"1"))]).unwrap();
        store.write(&[(b"removed", None)]).unwrap();
        store.save().unwrap();
        assert!(store.wal.is_empty().unwrap());
        store.write(&[(b"later", Some(b"2"))]).unwrap();
        drop(store);

        let store = open(Arc::new(disk.clone())).unwrap();
        let view = store.view();
        assert_eq!(view.get(b"kept").unwrap(), b"1");
        assert_eq!(view.get(b"removed"), None);
        assert_eq!(view.get(b"later").unwrap(), b"2");
        assert_eq!(store.wal.records().unwrap().into_iter().count(), 1);
    }

    #[test]
    fn a_save_keeps_the_versions_of_open_views() {
        let store = open(Arc::new(MemDisk::new())).unwrap();
        store.write(&[(b"key", Some(b"1"))]).unwrap();
        let first = store.view();
        for value in 2..=4_u8 {
            store.write(&[(b"key", Some(&[value]))]).unwrap();
        }
        store.save().unwrap();
        assert_eq!(first.get(b"key").unwrap(), b"1");
        assert_eq!(store.view().get(b"key").unwrap(), [4]);
        drop(first);
        store.save().unwrap();
        assert_eq!(store.state.read().unwrap().versions[b"key".as_slice()].len(), 1);
    }

    #[test]
    fn a_lost_log_is_refused() {
        let disk = SimDisk::new(1);
        let store = open(disk.as_disk()).unwrap();
        store.write(&[(b"key", Some(b"1"))]).unwrap();
        store.save().unwrap();
        drop(store);
        for name in disk.files_in("/store/wal") {
            disk.remove_file(&format!("/store/wal/{name}"));
        }
        let error = open(disk.as_disk()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
