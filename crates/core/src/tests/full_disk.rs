//! Fault injection for G7: a whole log over a disk that is full for a while.

use std::time::{Duration, Instant};

use palisade_store::testing::TestDisk;
use palisade_store::{BufferKind, FileOptions, FileStore, ReadStore};

use super::support::{records, with_buffer};
use crate::{Error, ErrorKind, Lsn, Wal};

const SEGMENT_BYTES: u64 = 64 << 10;
/// 16 KiB of ring and a few segments hold fewer records of 500 bytes.
const MORE_THAN_FITS: u64 = 2000;

fn store(disk: &TestDisk, buffer: BufferKind) -> FileStore {
    let options =
        FileOptions { segment_bytes: Some(SEGMENT_BYTES), buffer, ..FileOptions::default() };
    disk.open(&options).unwrap()
}

fn log(store: FileStore) -> Wal {
    Wal::with_store(store, with_buffer(1 << 14)).unwrap()
}

fn data(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(60)
}

fn numbers(wal: &Wal) -> Vec<u64> {
    let number = |found: Vec<u8>| {
        let number = u64::from_le_bytes(*found.first_chunk().unwrap());
        assert_eq!(found, data(number));
        number
    };
    records(wal).into_iter().map(|(_, found)| number(found)).collect()
}

fn is_full<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
}

/// Appends until the disk and the buffer are full. Adds the LSNs of the appended records to
/// `places`.
fn fill_up(wal: &Wal, places: &mut Vec<Lsn>) {
    loop {
        let number = places.len() as u64;
        assert!(number < MORE_THAN_FITS, "the disk has to show that it is full");
        match wal.append(&data(number)) {
            Ok(ticket) => places.push(ticket.lsn()),
            Err(error) => return is_full::<()>(Err(error)),
        }
    }
}

/// Fills up as `fill_up` does, until each call returns `NoSpace`. The preparer may have begun a
/// spare before the disk was full: a leader that finds none fails, and the next one takes it.
fn fill_up_for_good(wal: &Wal, places: &mut Vec<Lsn>) {
    loop {
        fill_up(wal, places);
        let committed = wal.commit(&data(places.len() as u64));
        places.extend(committed.as_ref().map_or_else(Error::appended_lsn, |lsn| Some(*lsn)));
        let flushed = [wal.sync().map(drop), wal.flush_to_os(*places.last().unwrap()).map(drop)];
        if committed.is_err() && flushed.iter().all(Result::is_err) {
            is_full(committed);
            return flushed.into_iter().for_each(is_full);
        }
    }
}

#[test]
fn a_disk_that_was_full_loses_nothing_and_keeps_the_epoch() {
    for buffer in [BufferKind::Mapped, BufferKind::Heap] {
        let disk = TestDisk::new();
        let wal = log(store(&disk, buffer));
        let mut places: Vec<Lsn> =
            (0..200).map(|number| wal.append(&data(number)).unwrap().lsn()).collect();
        wal.sync().unwrap();
        for _ in 0..3 {
            disk.fill(true);
            fill_up_for_good(&wal, &mut places);
            disk.fill(false);
            wal.sync().unwrap();
            places.push(wal.commit(&data(places.len() as u64)).unwrap());
            assert_eq!(numbers(&wal), (0..places.len() as u64).collect::<Vec<_>>());
        }
        let epoch = wal.recovery_report().epoch;
        wal.close().unwrap();
        let again = store(&disk, buffer);
        assert_eq!(again.state().unwrap().epoch, epoch, "the same epoch went on");
        assert_eq!(numbers(&log(again)), (0..places.len() as u64).collect::<Vec<_>>());
    }
}

/// Checks that the space that `truncate_before` frees is enough: nothing else is freed on this
/// disk.
#[test]
fn a_truncation_frees_the_space_that_a_full_disk_lacks() {
    let disk = TestDisk::new();
    let wal = log(store(&disk, BufferKind::Mapped));
    let mut places: Vec<Lsn> =
        (0..1000).map(|number| wal.append(&data(number)).unwrap().lsn()).collect();
    wal.sync().unwrap();
    disk.fill(true);
    fill_up(&wal, &mut places);
    // Two segments at least.
    wal.truncate_before(places[900]).unwrap();
    let start = Instant::now();
    while let Err(error) = wal.sync() {
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(start.elapsed() < Duration::from_secs(10), "the freed segments have to be used");
        palisade_store::sync::yield_now();
    }
    places.push(wal.commit(&data(places.len() as u64)).unwrap());
    assert_eq!(numbers(&wal), (900..places.len() as u64).collect::<Vec<_>>());
}

/// Checks a write in the middle of a segment that has to grow: it must get the blocks of the
/// spares, which a truncation made of segments.
#[test]
fn spares_are_given_up_for_a_write_that_lacks_space() {
    const LARGE: u64 = 2 << 20;
    let disk = TestDisk::new();
    let options = FileOptions {
        segment_bytes: Some(LARGE),
        buffer: BufferKind::Heap,
        zero_fill: false,
        ..FileOptions::default()
    };
    let wal = log(disk.open(&options).unwrap());
    let large = |number: u64| number.to_le_bytes().repeat(500);
    let mut places: Vec<Lsn> =
        (0..2000).map(|number| wal.append(&large(number)).unwrap().lsn()).collect();
    wal.sync().unwrap();
    disk.fill(true);
    loop {
        match wal.append(&large(places.len() as u64)) {
            Ok(ticket) => places.push(ticket.lsn()),
            Err(error) => break is_full::<()>(Err(error)),
        }
    }
    disk.free_by_removal();
    is_full(wal.sync());
    wal.truncate_before(places[1800]).unwrap();
    wal.sync().unwrap();
    places.push(wal.commit(&large(places.len() as u64)).unwrap());
    let found: Vec<_> = records(&wal).into_iter().map(|(_, data)| data).collect();
    assert!(found == (1800..places.len() as u64).map(large).collect::<Vec<_>>());
}
