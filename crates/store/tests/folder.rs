//! A log's folder on a real disk: what an open finds, refuses and changes there; the segments,
//! their names, their recycling. The tests of the crate `palisade` have the refusals that users
//! meet.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use palisade_store::{
    Epoch, ErrorKind, FileOptions, FileReader, FileStore, Lsn, Predecessor, ReadStore,
};
use tempfile::TempDir;

const SEGMENT_BYTES: u64 = 65_536;
const EPOCH: Epoch = Epoch {
    number: 1,
    salt: 99,
    base: Lsn::ZERO,
    predecessor: Predecessor { epoch: 0, end: Lsn::ZERO },
};

fn temp() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn small() -> FileOptions {
    FileOptions { segment_bytes: Some(SEGMENT_BYTES), ..FileOptions::default() }
}

fn begun(folder: &Path, options: &FileOptions, segments: u64) -> FileStore {
    let store = FileStore::open(folder, options).unwrap();
    store.begin_epoch(&EPOCH, &[]).unwrap();
    store.prepare(Lsn::new(segments * SEGMENT_BYTES)).unwrap();
    store
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8 + 1).collect()
}

fn read_all(store: &dyn ReadStore, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        let count = store.read(Lsn::new(at + done as u64), &mut bytes[done..]).unwrap();
        if count == 0 {
            break;
        }
        done += count;
    }
    bytes.truncate(done);
    bytes
}

fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("segment-{number:020}"))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn bytes_written_across_segment_ends_come_back() {
    let temp = temp();
    let store = begun(temp.path(), &small(), 4);
    let content = pattern(200_000);
    let pieces: Vec<IoSlice<'_>> = content.chunks(7_001).map(IoSlice::new).collect();
    store.write(Lsn::new(100), &pieces).unwrap();
    store.sync(Lsn::new(100), Lsn::new(200_100)).unwrap();
    assert_eq!(read_all(&store, 100, content.len()), content);
    let reader = FileReader::open(temp.path()).unwrap();
    assert_eq!(read_all(&reader, 100, content.len()), content);
    let mut into = [0; 2048];
    let rest = store.read(Lsn::new(SEGMENT_BYTES - 1000), &mut into).unwrap();
    assert_eq!(rest, 1000, "a read ends with its segment");
    assert_eq!(store.read(Lsn::new(900 * SEGMENT_BYTES), &mut into).unwrap(), 0);
    drop(store);
    let again = FileStore::open(temp.path(), &small()).unwrap();
    assert_eq!(read_all(&again, 100, content.len()), content);
}

#[test]
fn segments_are_listed_with_their_headers() {
    let temp = temp();
    let store = begun(temp.path(), &small(), 3);
    store.close();
    let listed = store.segments().unwrap();
    assert_eq!(listed, FileReader::open(temp.path()).unwrap().segments().unwrap());
    let numbers: Vec<u64> = listed.iter().map(|found| found.number).collect();
    assert_eq!(numbers[..3], [0, 1, 2]);
    let first = listed[0].header.as_ref().unwrap();
    assert_eq!((first.epoch, first.salt, first.predecessor), (1, 99, Some(EPOCH.predecessor)));
    let second = listed[1].header.as_ref().unwrap();
    assert_eq!((second.base, second.predecessor), (Lsn::new(SEGMENT_BYTES), None));
}

#[test]
fn a_damaged_header_is_reported_and_does_not_stop_the_listing() {
    let temp = temp();
    drop(begun(temp.path(), &small(), 2));
    flip(&segment_path(temp.path(), 1), 50);
    let listed = FileReader::open(temp.path()).unwrap().segments().unwrap();
    assert!(listed[0].header.is_ok());
    assert!(listed[1].header.as_ref().unwrap_err().to_string().contains("checksum"));
}

#[test]
fn only_whole_segments_are_released() {
    let temp = temp();
    let store = begun(temp.path(), &small(), 2);
    store.release(Lsn::ZERO, Lsn::new(2 * SEGMENT_BYTES - 1)).unwrap();
    assert!(!segment_path(temp.path(), 0).exists());
    assert!(segment_path(temp.path(), 1).exists());
}

#[test]
fn spares_follow_what_the_log_takes_between_releases() {
    let temp = temp();
    let mut options = small();
    options.spare_segments = 2;
    let store = begun(temp.path(), &options, 9);
    store.close();
    store.release(Lsn::ZERO, Lsn::new(8 * SEGMENT_BYTES)).unwrap();
    assert_eq!(spares(temp.path()), 8, "as many as there were, up to four times the option");
    for number in 8..60 {
        store.prepare(Lsn::new((number + 2) * SEGMENT_BYTES)).unwrap();
        store.release(Lsn::ZERO, Lsn::new((number + 1) * SEGMENT_BYTES)).unwrap();
    }
    assert_eq!(spares(temp.path()), 2, "the option, where the log takes little");
    let left = store.segments().unwrap();
    assert!(left.iter().all(|found| found.number >= 60));
}

/// Checks rounds that take and release the same number of segments.
#[cfg(target_os = "linux")]
#[test]
fn a_log_of_steady_size_makes_no_more_segment_files() {
    use std::os::unix::fs::MetadataExt;
    let temp = temp();
    let mut options = small();
    options.spare_segments = 2;
    let store = begun(temp.path(), &options, 1);
    store.close();
    let mut files = Vec::new();
    for round in 1..6 {
        store.prepare(Lsn::new((4 * round + 1) * SEGMENT_BYTES)).unwrap();
        store.release(Lsn::ZERO, Lsn::new(4 * round * SEGMENT_BYTES)).unwrap();
        let entries = fs::read_dir(temp.path()).unwrap().map(Result::unwrap);
        let logs = entries.filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("spare-") || name.starts_with("segment-")
        });
        let mut inodes: Vec<u64> = logs.map(|entry| entry.metadata().unwrap().ino()).collect();
        inodes.sort_unstable();
        files.push(inodes);
    }
    // The first rounds still make what the log takes.
    assert!(files[2..].windows(2).all(|two| two[0] == two[1]), "{files:?}");
}

#[test]
fn an_epoch_goes_on_behind_its_last_segment() {
    let temp = temp();
    drop(begun(temp.path(), &small(), 3));
    let store = FileStore::open(temp.path(), &small()).unwrap();
    let last = store.segments().unwrap().last().unwrap().number;
    store.resume_epoch(&EPOCH, Lsn::new(100)).unwrap();
    assert!(store.prepared() >= Lsn::new((last + 1) * SEGMENT_BYTES));
    store.prepare(Lsn::new((last + 3) * SEGMENT_BYTES)).unwrap();
    let header = store.segments().unwrap().last().unwrap().header.clone().unwrap();
    assert_eq!((header.epoch, header.salt, header.predecessor), (1, 99, None));
}

fn spares(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("spare-")).count()
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
    assert_eq!((state.segment_bytes, state.epoch, state.clean), (SEGMENT_BYTES, 0, true));
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
    flip(&path, 200);
    let bytes = fs::read(&path).unwrap();
    let one_is_enough = FileStore::open(temp.path(), &small()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes, "opening alone does not mend");
    drop(one_is_enough);
    // The second copy begins behind 16 KiB.
    flip(&path, (16 << 10) + 200);
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
