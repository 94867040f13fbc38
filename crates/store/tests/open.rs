//! What an open of a folder finds there, refuses and changes. The tests of the crate `palisade`
//! have the refusals that users meet.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use palisade_core::store::{ReadStore, Store};
use palisade_core::{ErrorKind, Lsn};
use palisade_store::{FileOptions, FileReader, FileStore};
use tempfile::TempDir;

fn temp() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn small() -> FileOptions {
    let mut options = FileOptions::default();
    options.segment_bytes = Some(65_536);
    options
}

/// Every name in the folder with its bytes.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap_or_default())
        })
        .collect()
}

#[track_caller]
fn refused(folder: &Path, kind: ErrorKind) {
    let before = content(folder);
    let error = FileStore::open(folder, &small()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.path().map(|path| path.starts_with(folder)), Some(true), "{error}");
    assert_eq!(content(folder), before, "a refused folder stays as it is");
}

fn made(folder: &Path) {
    drop(FileStore::open(folder, &small()).unwrap());
}

#[test]
fn a_log_is_made_once_and_found_again() {
    let temp = temp();
    let folder = temp.path().join("log");
    assert_eq!(FileReader::open(&folder).unwrap_err().kind(), ErrorKind::NotFound);
    let store = FileStore::open(&folder, &small()).unwrap();
    let state = store.state().unwrap();
    assert_eq!((state.segment_bytes, state.epoch, state.clean), (65_536, 0, true));
    drop(store);
    // Without a size, the log's counts.
    let again = FileStore::open(&folder, &FileOptions::default()).unwrap();
    assert_eq!(again.state().unwrap(), state);
    assert_eq!(again.path(), folder);
    assert_eq!(FileReader::open(&folder).unwrap().state().unwrap(), state);
}

#[test]
fn saved_states_are_found_again() {
    let temp = temp();
    let store = FileStore::open(temp.path(), &small()).unwrap();
    let mut state = store.state().unwrap();
    for head in [64, 128, 192] {
        state.head = Lsn::new(head);
        store.save_state(&state).unwrap();
    }
    assert_eq!(FileReader::open(temp.path()).unwrap().state().unwrap(), state);
    drop(store);
    assert_eq!(FileStore::open(temp.path(), &small()).unwrap().state().unwrap(), state);
}

#[test]
fn what_an_interrupted_making_left_is_no_obstacle() {
    let temp = temp();
    fs::write(temp.path().join("lock"), "").unwrap();
    fs::write(temp.path().join("meta.tmp"), "PALI").unwrap();
    made(temp.path());
    assert!(!temp.path().join("meta.tmp").exists());
}

#[test]
fn a_damaged_state_is_corrupt() {
    let temp = temp();
    made(temp.path());
    let path = temp.path().join("meta");
    let mut bytes = fs::read(&path).unwrap();
    bytes[200] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let one_is_enough = FileStore::open(temp.path(), &small()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes, "opening alone does not mend");
    drop(one_is_enough);
    // The second copy begins behind 16 KiB.
    bytes[(16 << 10) + 200] ^= 1;
    fs::write(&path, &bytes).unwrap();
    refused(temp.path(), ErrorKind::Corrupt);
    fs::remove_file(temp.path().join("lock")).unwrap();
    refused(temp.path(), ErrorKind::Corrupt);
}

#[test]
fn an_open_log_is_locked_and_readers_see_its_writer() {
    let temp = temp();
    let store = FileStore::open(temp.path(), &small()).unwrap();
    refused(temp.path(), ErrorKind::Locked);
    let reader = FileReader::open(temp.path()).unwrap();
    assert!(reader.has_writer().unwrap());
    drop(store);
    assert!(!reader.has_writer().unwrap());
    made(temp.path());
}
