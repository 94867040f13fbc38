//! What others do to a log's folder: it is moved, replaced or removed while the log is open; names
//! in it stand for something else than files.

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};

use palisade::disk::OsDisk;

use crate::prelude::*;

/// Far more records than the segments hold that are prepared ahead.
const ENOUGH: u64 = 20_000;

/// A folder's names, each with what it stands for; files with their bytes, links with where they
/// lead to.
fn names(folder: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let described = entries.map(|entry| {
        let kind = entry.file_type().unwrap();
        let bytes = match (kind.is_file(), kind.is_symlink()) {
            (true, _) => fs::read(entry.path()).unwrap(),
            (_, true) => fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes(),
            _ => Vec::new(),
        };
        (entry.file_name().into_string().unwrap(), (format!("{kind:?}"), bytes))
    });
    described.collect()
}

fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// A killed log with a file of each kind.
fn killed_log() -> (tempfile::TempDir, PathBuf) {
    let (_dir, path, wal) = log_on_files(small());
    append(&wal, 0..300, 240);
    wal.sync().unwrap();
    let (dir, copy) = copy_as_killed(&path);
    for name in ["spare-000077", "meta.tmp", "reserve"] {
        fs::write(copy.join(name), b"left by an interrupted making").unwrap();
    }
    (dir, copy)
}

/// Puts something else into the place of `name`, opens the log, and expects a refusal that names
/// it, with nothing changed in the folder.
fn refused(path: &Path, name: &str, replace: impl FnOnce(&Path)) -> Error {
    let (_copy, copy) = copy_as_killed(path);
    let file = copy.join(name);
    replace(&file);
    let before = names(&copy);
    let error = small().open(&copy).unwrap_err();
    assert!(names(&copy) == before, "a refused folder is left as it is: {error}");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Foreign, Some(&*file)), "{error}");
    error
}

const FILES: [&str; 6] =
    ["lock", "meta", "meta.tmp", "reserve", "spare-000077", "segment-00000000000000000000"];

/// Protection: each file is opened relative to the folder, and no link in it is followed.
#[test]
fn a_link_in_place_of_a_file_is_refused_with_its_target_intact() {
    let (_dir, path) = killed_log();
    let (_outside, outside) = folder();
    fs::create_dir(&outside).unwrap();
    for name in FILES {
        let target = outside.join(name);
        let error = refused(&path, name, |file| {
            fs::rename(file, &target).unwrap();
            symlink(&target, file).unwrap();
        });
        assert!(error.to_string().contains("a symbolic link"), "{error}");
        assert!(fs::read(&target).unwrap() == snapshot(&path)[name], "{name} was changed");
        refused(&path, name, |file| {
            fs::remove_file(file).unwrap();
            symlink(outside.join("missing"), file).unwrap();
        });
        assert!(!outside.join("missing").exists(), "{name} made a file elsewhere");
    }
}

/// Protection: files are opened without waiting, and looked at before they are used.
#[test]
fn a_fifo_or_folder_in_place_of_a_file_is_refused_at_once() {
    let (_dir, path) = killed_log();
    for name in FILES {
        let fifo = refused(&path, name, |file| {
            fs::remove_file(file).unwrap();
            make_fifo(file);
        });
        assert!(fifo.to_string().contains("a FIFO"), "{fifo}");
        let folder = refused(&path, name, |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        });
        assert!(folder.to_string().contains("a folder"), "{folder}");
    }
    // Tools look without a lock, and do not wait either.
    let segment = path.join("segment-00000000000000000000");
    fs::remove_file(&segment).unwrap();
    make_fifo(&segment);
    let error = Inspector::open(&path).unwrap().verify().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
}

/// Appends and commits until the log refuses; gives how many records were acknowledged.
fn commit_until_refused(wal: &Wal, from: u64) -> (u64, Error) {
    for number in from..from + ENOUGH {
        if let Err(error) = wal.commit(&record(number, 240)) {
            return (number, error);
        }
    }
    panic!("nobody noticed that the folder is gone");
}

/// A log on the heap, which syncs nothing by itself.
fn options() -> Options {
    heap().spare_segments(0)
}

/// Lets `replace` do something to the folder of an open log, which has to be noticed before the
/// next segment is made, for good. Returns how many records were acknowledged.
fn is_noticed(path: &Path, replace: impl FnOnce()) -> u64 {
    let wal = options().open(path).unwrap();
    wal.commit(&record(0, 240)).unwrap();
    replace();
    let (acknowledged, error) = commit_until_refused(&wal, 1);
    assert_eq!((error.kind(), error.path()), (ErrorKind::Poisoned, Some(path)), "{error}");
    assert!(error.to_string().contains("moved, removed or replaced"), "{error}");
    // A program can tell this failure from those of a device, after which it opens the log again.
    assert_eq!(error.io_kind(), Some(io::ErrorKind::NotFound), "{error}");
    let advice = error.advice_of_cause().unwrap();
    for part in ["was moved", "was removed, restore", "OpenMode::MustExist", "uuid()"] {
        assert!(advice.contains(part) && error.to_string().contains(advice), "{error}");
    }
    let again = wal.append(&record(0, 240)).unwrap_err();
    // The first one also names the record that the failed commit had appended.
    assert!(error.to_string().starts_with(&again.to_string()), "it is for good: {again}");
    acknowledged
}

/// The kind is that of a log that is missing; the text tells them apart.
#[test]
fn a_folder_that_is_moved_during_an_open_keeps_its_records() {
    let (dir, path, wal) = log_on_files(options());
    append(&wal, 0..10, 240);
    wal.sync().unwrap();
    drop(wal);
    let (from, moved) = (path.clone(), dir.path().join("moved"));
    let (disk, to) = (FaultDisk::new(Arc::new(OsDisk)), moved.clone());
    disk.watch(move |call| {
        if call.kind == CallKind::Rename && !to.exists() {
            fs::rename(&from, &to).unwrap();
        }
        Ok(())
    });
    let error = options().open_on(Arc::new(disk), &path).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*path)), "{error}");
    assert!(error.to_string().contains("moved, removed or replaced"), "{error}");
    holds(&moved, 10);
}

/// Another log with records of its own, closed.
fn make_other(path: &Path) {
    let wal = options().open(path).unwrap();
    for number in 0..300 {
        wal.append(&record(1_000_000 + number, 240)).unwrap();
    }
    wal.close().unwrap();
}

fn holds(path: &Path, acknowledged: u64) {
    let found = numbers(&options().open(path).unwrap());
    assert!(found.len() as u64 >= acknowledged, "{} of {acknowledged} records", found.len());
    assert_eq!(found, all(found.len() as u64));
}

/// Protection: the folder is open; its path is looked at before each segment, and followed never.
#[test]
fn a_replaced_folder_is_noticed_and_the_other_log_is_unchanged() {
    let (dir, path) = folder();
    let moved = dir.path().join("moved");
    let mut before = None;
    let acknowledged = is_noticed(&path, || {
        fs::rename(&path, &moved).unwrap();
        make_other(&path);
        before = Some(snapshot(&path));
    });
    assert!(Some(snapshot(&path)) == before, "the other log was changed");
    holds(&moved, acknowledged);
}

/// Protection: the same, where the path is a link that is made to lead elsewhere.
#[test]
fn a_redirected_link_is_noticed_and_the_other_log_is_unchanged() {
    let (dir, path) = folder();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    fs::create_dir(&first).unwrap();
    symlink(&first, &path).unwrap();
    make_other(&second);
    let before = snapshot(&second);
    let acknowledged = is_noticed(&path, || {
        fs::remove_file(&path).unwrap();
        symlink(&second, &path).unwrap();
    });
    assert!(snapshot(&second) == before, "the other log was changed");
    holds(&first, acknowledged);
}

/// Protection: the same, where nothing takes its place.
#[test]
fn a_folder_that_is_gone_is_noticed() {
    let (dir, path) = folder();
    let moved = dir.path().join("moved");
    let acknowledged = is_noticed(&path, || fs::rename(&path, &moved).unwrap());
    holds(&moved, acknowledged);
    // The preparer may make a file while the others are removed.
    is_noticed(&path, || while fs::remove_dir_all(&path).is_err() {});
}

/// Protection: states are saved and segments freed in the log's own folder only, or not at all.
#[test]
fn a_truncation_in_a_replaced_folder_changes_no_other_log() {
    let (dir, path) = folder();
    let moved = dir.path().join("moved");
    let wal = options().open(&path).unwrap();
    let places = append(&wal, 0..1200, 240);
    wal.sync().unwrap();
    fs::rename(&path, &moved).unwrap();
    make_other(&path);
    let before = snapshot(&path);
    let refusals = [
        wal.truncate_before(places[1000]).unwrap_err(),
        wal.truncate_after(places[1100]).unwrap_err(),
        wal.clone().close().unwrap_err(),
    ];
    for error in refusals {
        assert_eq!(error.path(), Some(&*path), "{error}");
        assert_ne!(error.kind(), ErrorKind::NoSpace, "{error}");
    }
    assert!(snapshot(&path) == before, "the other log was changed");
    drop(wal);
    holds(&moved, 1200);
}

/// Protection: the folder that holds the log's is opened relative to it.
#[test]
fn a_new_log_behind_a_link_makes_folder_and_link_names_durable() {
    let (dir, link) = folder();
    let dir = fs::canonicalize(dir.path()).unwrap();
    let real = dir.join("real/log");
    fs::create_dir_all(&real).unwrap();
    symlink(&real, &link).unwrap();
    let parents = BTreeSet::from([dir.clone(), dir.join("real")]);
    assert!(synced_by_an_open(&link).is_superset(&parents));
}

/// The folders that the open of the log at `path` syncs.
fn synced_by_an_open(path: &Path) -> BTreeSet<PathBuf> {
    let (disk, synced) = (FaultDisk::new(Arc::new(OsDisk)), Arc::<Mutex<BTreeSet<_>>>::default());
    let noted = Arc::clone(&synced);
    disk.watch(move |call| {
        if call.kind == CallKind::SyncFolder {
            noted.lock().unwrap().insert(fs::canonicalize(call.name).unwrap());
        }
        Ok(())
    });
    drop(small().open_on(Arc::new(disk), path).unwrap());
    synced.lock().unwrap().clone()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// What the umask leaves of `mode`.
fn unmasked(mode_bits: u32) -> u32 {
    let (_dir, path) = folder();
    fs::File::options().create_new(true).write(true).mode(mode_bits).open(&path).unwrap();
    mode(&path)
}

/// Protection: other users of the machine get no rights that nobody has given to them.
#[test]
fn files_of_a_log_are_private_unless_the_options_allow_more() {
    for (options, file, folder_mode) in
        [(small(), 0o600, 0o700), (small().file_mode(0o640), 0o640, 0o750)]
    {
        let (_dir, path, wal) = log_on_files(options);
        let places = append(&wal, 0..600, 240);
        wal.truncate_before(places[500]).unwrap();
        wal.close().unwrap();
        assert_eq!(mode(&path), unmasked(folder_mode));
        let names = snapshot(&path);
        assert!(names.len() >= 5, "lock, meta, buffer, a segment and a spare");
        for name in names.keys() {
            assert_eq!(mode(&path.join(name)), unmasked(file), "{name}");
        }
    }
}

/// Protection: a file that has other names is not recycled.
#[test]
fn a_backup_of_hard_links_keeps_its_records() {
    let (_dir, path, wal) = log_on_files(small());
    append(&wal, 0..600, 240);
    wal.close().unwrap();
    let (_backup, backup) = folder();
    fs::create_dir(&backup).unwrap();
    for name in snapshot(&path).keys() {
        fs::hard_link(path.join(name), backup.join(name)).unwrap();
    }
    let wal = small().open(&path).unwrap();
    wal.truncate_before(wal.durable_lsn()).unwrap();
    append(&wal, 600..2000, 240);
    wal.close().unwrap();
    let (_copy, copy) = copy_as_killed(&backup);
    // The last segment, which both have, shows later records, too.
    assert!(numbers(&small().open(&copy).unwrap()).starts_with(&all(600)));
}

/// Protection: an open takes the rights away that an open with a wider `file_mode` gave, because a
/// user that may read the lock file can lock it, and so keep the log from being opened.
#[test]
fn a_lock_file_that_others_may_read_becomes_its_users_own() {
    let (_dir, path, wal) = log_on_files(small());
    wal.close().unwrap();
    let lock = path.join("lock");
    for (before, after) in [(0o644, 0o600), (0o400, 0o400)] {
        fs::set_permissions(&lock, fs::Permissions::from_mode(before)).unwrap();
        let opened = small().open(&path);
        assert_eq!(mode(&lock), after);
        drop(opened);
    }
}

#[test]
fn permissions_without_the_owner_or_with_other_bits_are_refused() {
    for mode in [0o000, 0o400, 0o200, 0o077, 0o1600, 0o4600, u32::MAX] {
        let (_dir, path) = folder();
        let error = small().file_mode(mode).open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(!path.exists());
    }
}
