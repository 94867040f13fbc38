//! What opening refuses, and that it changes nothing then.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use palisade_core::store::{ReadStore, Store};
use palisade_core::{ErrorKind, Lsn, crc32c_append};
use palisade_store::{FileOptions, FileReader, FileStore, OpenMode};
use tempfile::TempDir;

const BLOCK_BYTES: usize = 4096;

fn temp() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options(change: impl FnOnce(&mut FileOptions)) -> FileOptions {
    let mut options = FileOptions::default();
    options.segment_bytes = Some(65_536);
    change(&mut options);
    options
}

fn small() -> FileOptions {
    options(|_| {})
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
fn refused(folder: &Path, options: &FileOptions, kind: ErrorKind) {
    let before = content(folder);
    let error = FileStore::open(folder, options).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.path().map(|path| path.starts_with(folder)), Some(true), "{error}");
    assert_eq!(content(folder), before, "a refused folder stays as it is");
}

fn made(folder: &Path) {
    drop(FileStore::open(folder, &small()).unwrap());
}

/// Gives both copies in the meta file another version, with checksums that hold.
fn make_newer(folder: &Path) {
    let path = folder.join("meta");
    let mut bytes = fs::read(&path).unwrap();
    for copy in bytes.chunks_exact_mut(BLOCK_BYTES) {
        copy[12..16].copy_from_slice(&2_u32.to_le_bytes());
        let checksum = crc32c_append(0, &copy[12..]);
        copy[8..12].copy_from_slice(&checksum.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_log_is_made_once_and_found_again() {
    let temp = temp();
    let folder = temp.path().join("log");
    let store = FileStore::open(&folder, &small()).unwrap();
    let state = store.state().unwrap();
    assert_eq!((state.segment_bytes, state.epoch, state.clean), (65_536, 0, true));
    drop(store);
    let any_size = options(|options| options.segment_bytes = None);
    let again = FileStore::open(&folder, &any_size).unwrap();
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
fn options_out_of_range_are_invalid() {
    let temp = temp();
    for bytes in [0, 4096, 70_000, 1 << 50] {
        let options = options(|options| options.segment_bytes = Some(bytes));
        let error = FileStore::open(temp.path().join("log"), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bytes}: {error}");
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
    }
    let error = FileStore::open("", &small()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(content(temp.path()).is_empty());
}

#[test]
fn missing_logs_are_not_found_where_they_must_exist() {
    let temp = temp();
    let must_exist = options(|options| options.open_mode = OpenMode::MustExist);
    refused(temp.path(), &must_exist, ErrorKind::NotFound);
    let missing = temp.path().join("log");
    let error = FileStore::open(&missing, &must_exist).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(FileReader::open(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(content(temp.path()).is_empty());
}

#[test]
fn only_the_last_folder_of_a_path_is_made() {
    let temp = temp();
    let error = FileStore::open(temp.path().join("mount/log"), &small()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(content(temp.path()).is_empty());
}

#[test]
fn a_log_that_is_there_is_not_made_anew() {
    let temp = temp();
    made(temp.path());
    let create_new = options(|options| options.open_mode = OpenMode::CreateNew);
    refused(temp.path(), &create_new, ErrorKind::AlreadyExists);
}

#[test]
fn a_file_in_place_of_the_folder_is_foreign() {
    let temp = temp();
    let path = temp.path().join("log");
    fs::write(&path, "text").unwrap();
    assert_eq!(FileStore::open(&path, &small()).unwrap_err().kind(), ErrorKind::Foreign);
    let below = FileStore::open(path.join("log"), &small()).unwrap_err();
    assert_eq!(below.kind(), ErrorKind::NotFound, "{below}");
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

#[test]
fn folders_that_hold_something_else_are_foreign() {
    let files: [(&str, &[u8]); 5] = [
        ("notes.txt", b"mine"),
        ("meta", b"mine"),
        ("meta", b""),
        ("segment-00000000000000000000", b""),
        ("buffer", b"PALIRING"),
    ];
    for (name, bytes) in files {
        let temp = temp();
        fs::write(temp.path().join(name), bytes).unwrap();
        refused(temp.path(), &small(), ErrorKind::Foreign);
        fs::write(temp.path().join("lock"), "").unwrap();
        refused(temp.path(), &small(), ErrorKind::Foreign);
    }
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
fn later_formats_are_unsupported() {
    let temp = temp();
    made(temp.path());
    make_newer(temp.path());
    refused(temp.path(), &small(), ErrorKind::Unsupported);
    fs::remove_file(temp.path().join("lock")).unwrap();
    refused(temp.path(), &small(), ErrorKind::Unsupported);
    assert_eq!(FileReader::open(temp.path()).unwrap_err().kind(), ErrorKind::Unsupported);
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
    refused(temp.path(), &small(), ErrorKind::Corrupt);
    fs::remove_file(temp.path().join("lock")).unwrap();
    refused(temp.path(), &small(), ErrorKind::Corrupt);
}

#[test]
fn another_segment_size_is_a_mismatch() {
    let temp = temp();
    made(temp.path());
    let other = options(|options| options.segment_bytes = Some(131_072));
    refused(temp.path(), &other, ErrorKind::Mismatch);
}

#[test]
fn an_open_log_is_locked_and_readers_see_its_writer() {
    let temp = temp();
    let store = FileStore::open(temp.path(), &small()).unwrap();
    refused(temp.path(), &small(), ErrorKind::Locked);
    let reader = FileReader::open(temp.path()).unwrap();
    assert!(reader.has_writer().unwrap());
    drop(store);
    assert!(!reader.has_writer().unwrap());
    made(temp.path());
}

#[cfg(unix)]
#[test]
fn a_folder_without_write_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let temp = temp();
    let folder = temp.path().join("log");
    for is_made in [false, true] {
        if is_made {
            made(&folder);
        } else {
            fs::create_dir(&folder).unwrap();
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
        // A privileged user may write everywhere: there is nothing to be refused then.
        if fs::write(folder.join("probe"), "").is_err() {
            refused(&folder, &small(), ErrorKind::PermissionDenied);
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let _ = fs::remove_file(folder.join("probe"));
    }
}
