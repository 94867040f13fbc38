//! What an open does with a log whose file or folder was moved, copied or removed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use palisade::disk::{DEFAULT_FILE_MODE, Disk, DiskFolder, MemDisk};
use wal_db::{FileStore, Lsn, Result, SegmentedStore, Wal, WalError, WalStore};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The folder of the log at `path`.
fn folder(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.palisade", path.display()))
}

/// Moves a log.
fn rename(from: &Path, to: &Path) {
    fs::rename(folder(from), folder(to)).unwrap();
    fs::rename(from, to).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn contents<S: WalStore>(wal: &Wal<S>) -> Vec<Vec<u8>> {
    wal.iter().unwrap().map(|record| record.unwrap().into_data()).collect()
}

fn io_error<T: std::fmt::Debug>(result: Result<T>) -> (ErrorKind, String) {
    match result.unwrap_err() {
        WalError::Io { source, .. } => (source.kind(), source.to_string()),
        other => panic!("{other}"),
    }
}

fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    io_error(result).0
}

#[cfg(unix)]
#[test]
fn an_open_log_that_moved_is_not_emptied_through_its_old_path() {
    let place = Place::new();
    let (old, new) = (place.path("old"), place.path("new"));
    let wal = Wal::open(&old).unwrap();
    wal.append_and_sync(b"precious").unwrap();
    rename(&old, &new);
    let (kind, text) = io_error(Wal::open(&old));
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("drop all handles"), "{text}");
    fs::write(&old, b"").unwrap();
    assert_eq!(kind_of(Wal::open(&old)), ErrorKind::NotFound);
    assert_eq!(contents(&wal), [b"precious"]);

    // A copy of the log in its old place is another log.
    fs::copy(&new, &old).unwrap();
    copy_folder(&folder(&new), &folder(&old));
    assert_eq!(kind_of(Wal::open(&old)), ErrorKind::AlreadyExists);
    fs::remove_file(&old).unwrap();
    assert_eq!(kind_of(Wal::open(&old)), ErrorKind::AlreadyExists);
    fs::remove_dir_all(folder(&old)).unwrap();

    drop(wal);
    assert_eq!(contents(&Wal::open(&new).unwrap()), [b"precious"]);
    assert!(Wal::open(&old).unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn an_open_log_that_moved_gets_no_second_writer_at_its_new_path() {
    let place = Place::new();
    let (old, new) = (place.path("old"), place.path("new"));
    let wal = Wal::open(&old).unwrap();
    wal.append_and_sync(b"precious").unwrap();
    rename(&old, &new);
    assert_eq!(kind_of(Wal::open(&new)), ErrorKind::ResourceBusy);
    // As if the file had been removed.
    fs::rename(&new, &old).unwrap();
    assert_eq!(kind_of(Wal::open(&new)), ErrorKind::AlreadyExists);
    fs::rename(&old, &new).unwrap();
    assert_eq!(contents(&wal), [b"precious"]);
    drop(wal);
    assert_eq!(contents(&Wal::open(&new).unwrap()), [b"precious"]);
}

/// Removes the folder of a log that is open: its thread may add a segment meanwhile.
#[cfg(unix)]
fn remove_folder(path: &Path) {
    while let Err(error) = fs::remove_dir_all(path) {
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    }
}

#[cfg(unix)]
#[test]
fn an_open_log_whose_folder_was_removed_is_not_returned() {
    let place = Place::new();
    let path = place.path("wal.log");
    let wal = Wal::open(&path).unwrap();
    remove_folder(&folder(&path));
    assert_eq!(kind_of(Wal::open(&path)), ErrorKind::NotFound);
    fs::remove_file(&path).unwrap();
    assert_eq!(kind_of(Wal::open(&path)), ErrorKind::NotFound);
    drop(wal);
    Wal::open(&path).unwrap().append_and_sync(b"next").unwrap();
    assert_eq!(contents(&Wal::open(&path).unwrap()), [b"next"]);

    let segmented = place.path("segmented");
    let wal = Wal::open_segmented(&segmented, 1 << 20).unwrap();
    remove_folder(&segmented);
    assert_eq!(kind_of(Wal::open_segmented(&segmented, 1 << 20)), ErrorKind::NotFound);
    drop(wal);
    let wal = Wal::open_segmented(&segmented, 1 << 20).unwrap();
    wal.append_and_sync(b"next").unwrap();
}

#[test]
fn a_backup_of_the_folder_keeps_its_records_and_gets_a_file() {
    let place = Place::new();
    let (path, backup) = (place.path("wal.log"), place.path("backup"));
    Wal::open(&path).unwrap().append(b"emptied").unwrap();
    fs::remove_file(&path).unwrap();
    Wal::open(&path).unwrap().log().clone().abandon();
    let wal = Wal::open(&path).unwrap();
    wal.append(b"one").unwrap();
    wal.append(&vec![2; 1 << 20]).unwrap();
    wal.log().backup_to(folder(&backup)).unwrap();

    let records = |wal: &Wal| wal.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
    let restored = Wal::open(&backup).unwrap();
    assert!(contents(&restored) == contents(&wal));
    assert_eq!(records(&restored)[0].lsn(), Lsn::new(0));
    drop(restored);
    // With a copy of the file LSNs are the same, too.
    fs::copy(&path, &backup).unwrap();
    assert!(records(&Wal::open(&backup).unwrap()) == records(&wal));
    // From now on it has a file, and a removal of the file empties it.
    Wal::open(&backup).unwrap().append(b"three").unwrap();
    assert_eq!(Wal::open(&backup).unwrap().iter().unwrap().count(), 3);
    fs::remove_file(&backup).unwrap();
    assert!(Wal::open(&backup).unwrap().is_empty());
}

#[test]
fn a_backup_that_is_older_than_the_file_keeps_its_lsns_apart() {
    let place = Place::new();
    let (path, backup) = (place.path("wal.log"), place.path("backup"));
    let wal = Wal::open(&path).unwrap();
    let lsns = [wal.append(b"one").unwrap(), wal.append(b"two").unwrap()];
    wal.log().backup_to(&backup).unwrap();
    drop(wal);
    fs::remove_file(&path).unwrap();
    Wal::open(&path).unwrap().append(b"after the backup").unwrap();

    fs::remove_dir_all(folder(&path)).unwrap();
    fs::rename(&backup, folder(&path)).unwrap();
    for _ in 0..2 {
        let wal = Wal::open(&path).unwrap();
        let found: Vec<_> = wal.iter().unwrap().map(|record| record.unwrap().lsn()).collect();
        assert_eq!(found, lsns);
        assert_eq!(wal.iter_from(lsns[1]).unwrap().count(), 1);
    }
}

#[test]
fn a_backup_on_another_disk_keeps_its_records_and_gets_a_file() {
    let disk = MemDisk::new();
    disk.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
    let open = |path| Wal::with_store(FileStore::open_on(Arc::new(disk.clone()), path).unwrap());
    let wal = open("/db/wal.log").unwrap();
    wal.append(b"record").unwrap();
    wal.log().backup_on(Arc::new(disk.clone()), "/db/backup.palisade").unwrap();
    assert_eq!(contents(&open("/db/backup").unwrap()), [b"record"]);
    assert_eq!(contents(&open("/db/backup").unwrap()), [b"record"]);
    let folder = disk.open_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
    folder.remove("backup").unwrap();
    assert!(open("/db/backup").unwrap().is_empty());
}

#[test]
fn opens_on_one_disk_share_the_log() {
    let memory = MemDisk::new();
    memory.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let open = |disk: &Arc<dyn Disk>| {
        Wal::with_store(FileStore::open_on(Arc::clone(disk), "/db/wal.log").unwrap())
    };
    let segmented = |disk: &Arc<dyn Disk>| {
        let store = SegmentedStore::open_on(Arc::clone(disk), "/db/wal", 1 << 20).unwrap();
        Wal::with_store(store)
    };
    let (wal, segments) = (open(&disk).unwrap(), segmented(&disk).unwrap());
    wal.append(b"record").unwrap();
    segments.append(b"another").unwrap();
    assert_eq!(contents(&open(&disk).unwrap()), [b"record"]);
    assert_eq!(contents(&segmented(&disk).unwrap()), [b"another"]);
    // Nothing says that it is the same disk.
    let same: Arc<dyn Disk> = Arc::new(memory);
    assert_eq!(kind_of(open(&same)), ErrorKind::ResourceBusy);
    assert_eq!(kind_of(segmented(&same)), ErrorKind::ResourceBusy);
    // The same path on another disk is another log.
    let other = MemDisk::new();
    other.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
    assert!(open(&(Arc::new(other) as Arc<dyn Disk>)).unwrap().is_empty());
}

/// The second name of the file of the log at `path`.
fn second_name(path: &Path) -> PathBuf {
    folder(path).join("wal-db-file")
}

#[cfg(unix)]
#[test]
fn each_open_gives_the_file_the_second_name_that_it_lacks() {
    let place = Place::new();
    let path = place.path("wal.log");
    let open = || Wal::open(&path).unwrap();
    // A crash in the first open; a copy; a name of an older file.
    let losses: [fn(&Path); 3] = [
        |path| fs::remove_file(second_name(path)).unwrap(),
        |path| {
            fs::rename(folder(path), path.with_extension("away")).unwrap();
            copy_folder(&path.with_extension("away"), &folder(path));
            fs::remove_dir_all(path.with_extension("away")).unwrap();
        },
        |path| {
            fs::copy(path, path.with_extension("copy")).unwrap();
            fs::rename(path.with_extension("copy"), second_name(path)).unwrap();
        },
    ];
    for lose in losses {
        open().append(b"precious").unwrap();
        lose(&path);
        drop(open());
        fs::rename(&path, place.path("renamed")).unwrap();
        assert_eq!(kind_of(Wal::open(&path)), ErrorKind::AlreadyExists);
        fs::rename(place.path("renamed"), &path).unwrap();
    }
    // A second handle does so, too.
    let wal = open();
    fs::remove_file(second_name(&path)).unwrap();
    drop(open());
    fs::rename(&path, place.path("renamed")).unwrap();
    assert_eq!(kind_of(Wal::open(&path)), ErrorKind::AlreadyExists);
    assert_eq!(contents(&wal), [b"precious"; 3]);
}

#[cfg(unix)]
#[test]
fn a_crash_while_the_second_name_is_made_is_no_rename() {
    let place = Place::new();
    let path = place.path("wal.log");
    Wal::open(&path).unwrap().append(b"emptied").unwrap();
    fs::remove_file(second_name(&path)).unwrap();
    fs::hard_link(&path, folder(&path).join("wal-db-file.new-link")).unwrap();
    drop(Wal::open(&path).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(Wal::open(&path).unwrap().is_empty());
}

#[test]
fn a_copy_of_the_folder_without_its_file_is_not_emptied() {
    let place = Place::new();
    let (path, copy) = (place.path("wal.log"), place.path("copy"));
    Wal::open(&path).unwrap().append(b"precious").unwrap();
    copy_folder(&folder(&path), &folder(&copy));
    let (kind, text) = io_error(Wal::open(&copy));
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("copy the file `wal-db-file`"), "{text}");

    fs::copy(second_name(&copy), &copy).unwrap();
    assert_eq!(contents(&Wal::open(&copy).unwrap()), [b"precious"]);
    // The file is that of the copy from now on.
    fs::remove_file(&copy).unwrap();
    assert!(Wal::open(&copy).unwrap().is_empty());
    assert_eq!(contents(&Wal::open(&path).unwrap()), [b"precious"]);
}

/// A disk on which another process acts just before a folder is opened for the `at`th time.
struct Interrupted {
    disk: MemDisk,
    at: u32,
    opens: AtomicU32,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupted").finish_non_exhaustive()
    }
}

impl Disk for Interrupted {
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        self.disk.create_folder(path, file_mode)
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        if self.opens.fetch_add(1, Ordering::Relaxed) == self.at
            && let Some(act) = self.act.lock().unwrap().take()
        {
            act();
        }
        self.disk.open_folder(path, file_mode)
    }
}

#[test]
fn of_two_processes_that_see_a_removal_only_one_empties_the_log() {
    let mut acted = 0;
    for at in 0..20 {
        let disk = MemDisk::new();
        disk.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
        let open = {
            let disk = disk.clone();
            move || {
                let store = FileStore::open_on(Arc::new(disk.clone()), "/db/wal.log").unwrap();
                Wal::with_store(store)
            }
        };
        open().unwrap().append(b"emptied").unwrap();
        disk.open_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap().remove("wal.log").unwrap();

        let other = open.clone();
        let has_acted = Arc::new(AtomicU32::new(0));
        let acts = Arc::clone(&has_acted);
        let interrupted = Interrupted {
            disk,
            at,
            opens: AtomicU32::new(0),
            act: Mutex::new(Some(Box::new(move || {
                // Later than its lock, the other process is kept away.
                let Ok(wal) = other() else { return };
                acts.fetch_add(1, Ordering::Relaxed);
                assert!(wal.is_empty());
                wal.append_and_sync(b"acknowledged").unwrap();
                assert_eq!(wal.iter().unwrap().next().unwrap().unwrap().lsn(), Lsn::new(0));
            }))),
        };
        let store = FileStore::open_on(Arc::new(interrupted), "/db/wal.log").unwrap();
        let is_empty = Wal::with_store(store).unwrap().is_empty();
        let records = || -> Vec<_> {
            let wal = open().unwrap();
            wal.iter().unwrap().map(|record| record.unwrap()).collect()
        };
        assert_eq!(is_empty, has_acted.load(Ordering::Relaxed) == 0);
        if has_acted.load(Ordering::Relaxed) > 0 {
            let found = records();
            assert_eq!(found.len(), 1, "at {at}");
            assert_eq!((found[0].lsn(), found[0].data()), (Lsn::new(0), &b"acknowledged"[..]));
            acted += 1;
        } else {
            assert!(records().is_empty(), "at {at}");
        }
    }
    assert!(acted > 2, "{acted}");
}

#[cfg(unix)]
#[test]
fn a_log_that_was_emptied_and_got_no_file_appends_nothing_more() {
    let place = Place::new();
    let path = place.path("wal.log");
    let wal = Wal::open(&path).unwrap();
    wal.append_and_sync(b"emptied").unwrap();
    fs::remove_file(&path).unwrap();
    // The file cannot be written under this name.
    fs::create_dir(place.path("wal.log.palisade-new")).unwrap();
    Wal::open(&path).unwrap_err();
    wal.append_and_sync(b"refused").unwrap_err();
    wal.append(b"refused").unwrap_err();
    assert_eq!(kind_of(Wal::open(&path)), ErrorKind::ResourceBusy);
    drop(wal);
    fs::remove_dir(place.path("wal.log.palisade-new")).unwrap();
    let wal = Wal::open(&path).unwrap();
    wal.append_and_sync(b"next").unwrap();
    drop(wal);
    assert_eq!(contents(&Wal::open(&path).unwrap()), [b"next"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_name_that_cannot_be_made_fails_the_open() {
    let place = Place::new();
    let path = place.path("wal.log");
    Wal::open(&path).unwrap().append(b"precious").unwrap();
    fs::remove_file(second_name(&path)).unwrap();
    fs::create_dir(folder(&path).join("wal-db-file.new-link")).unwrap();
    Wal::open(&path).unwrap_err();
    fs::remove_dir(folder(&path).join("wal-db-file.new-link")).unwrap();
    assert_eq!(contents(&Wal::open(&path).unwrap()), [b"precious"]);
}

/// The folder of the log is on another device, so its file can have no hard link there.
#[cfg(target_os = "linux")]
#[test]
fn without_hard_links_a_missing_file_is_no_removal() {
    let place = Place::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path("wal.log");
    std::os::unix::fs::symlink(memory.path().join("log"), folder(&path)).unwrap();
    fs::create_dir(memory.path().join("log")).unwrap();
    let ways: [fn(&Path) -> io::Result<()>; 2] =
        [|path| fs::rename(path, path.with_extension("away")), |path| fs::remove_file(path)];
    for leave in ways {
        Wal::open(&path).unwrap().append(b"precious").unwrap();
        leave(&path).unwrap();
        let (kind, text) = io_error(Wal::open(&path));
        assert_eq!(kind, ErrorKind::NotFound);
        assert!(text.contains("copy the file `wal-db-file`"), "{text}");
        fs::copy(second_name(&path), &path).unwrap();
    }
    assert_eq!(contents(&Wal::open(&path).unwrap()), [b"precious"; 2]);
}

#[cfg(unix)]
#[test]
fn the_second_name_of_another_log_says_nothing_about_a_removal() {
    let place = Place::new();
    let (path, other) = (place.path("wal.log"), place.path("other"));
    Wal::open(&path).unwrap().append(b"precious").unwrap();
    drop(Wal::open(&other).unwrap());
    fs::remove_file(&other).unwrap();
    fs::rename(second_name(&other), second_name(&path)).unwrap();
    fs::rename(&path, place.path("away")).unwrap();
    assert_eq!(kind_of(Wal::open(&path)), ErrorKind::NotFound);
    fs::rename(place.path("away"), &path).unwrap();
    assert_eq!(contents(&Wal::open(&path).unwrap()), [b"precious"]);
}

#[cfg(unix)]
#[test]
fn an_open_log_takes_a_copy_of_its_file_for_its_own() {
    let place = Place::new();
    let path = place.path("wal.log");
    let wal = Wal::open(&path).unwrap();
    wal.append(b"emptied").unwrap();
    fs::rename(&path, place.path("away")).unwrap();
    fs::copy(place.path("away"), &path).unwrap();
    drop(Wal::open(&path).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(Wal::open(&path).unwrap().is_empty());
    assert!(wal.is_empty());
}

#[cfg(unix)]
#[test]
fn with_a_third_name_a_missing_file_is_no_removal() {
    let place = Place::new();
    let path = place.path("wal.log");
    Wal::open(&path).unwrap().append(b"precious").unwrap();
    fs::hard_link(&path, place.path("third")).unwrap();
    fs::remove_file(&path).unwrap();
    let (kind, text) = io_error(Wal::open(&path));
    assert_eq!(kind, ErrorKind::AlreadyExists);
    assert!(text.contains("another hard link"), "{text}");
    fs::remove_file(place.path("third")).unwrap();
    assert!(Wal::open(&path).unwrap().is_empty());
}
