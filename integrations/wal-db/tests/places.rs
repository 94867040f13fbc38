//! What an open does with a log whose file or folder was moved, copied or removed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use wal_db::{Result, Wal, WalError, WalStore};

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
fn an_open_log_that_was_moved_is_not_emptied_through_its_old_path() {
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
fn an_open_log_that_was_moved_gets_no_second_writer_through_its_new_path() {
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

#[cfg(unix)]
#[test]
fn an_open_log_whose_folder_was_removed_is_not_returned() {
    let place = Place::new();
    let path = place.path("wal.log");
    let wal = Wal::open(&path).unwrap();
    fs::remove_dir_all(folder(&path)).unwrap();
    assert_eq!(kind_of(Wal::open(&path)), ErrorKind::NotFound);
    fs::remove_file(&path).unwrap();
    assert_eq!(kind_of(Wal::open(&path)), ErrorKind::NotFound);
    drop(wal);
    Wal::open(&path).unwrap().append_and_sync(b"next").unwrap();
    assert_eq!(contents(&Wal::open(&path).unwrap()), [b"next"]);

    let segmented = place.path("segmented");
    let wal = Wal::open_segmented(&segmented, 1 << 20).unwrap();
    fs::remove_dir_all(&segmented).unwrap();
    assert_eq!(kind_of(Wal::open_segmented(&segmented, 1 << 20)), ErrorKind::NotFound);
    drop(wal);
    let wal = Wal::open_segmented(&segmented, 1 << 20).unwrap();
    wal.append_and_sync(b"next").unwrap();
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
