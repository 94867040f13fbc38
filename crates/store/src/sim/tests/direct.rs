//! Direct writes: durable when they return, anything before.

use memmap2::{MmapMut, MmapOptions};
use palisade_core::store::{Epoch, Predecessor, ReadStore, Store};
use palisade_core::{ErrorKind, Lsn};

use super::*;
use crate::SyncMethod;

fn block(byte: u8) -> MmapMut {
    let mut block = MmapOptions::new().len(4096).map_anon().unwrap();
    block.fill(byte);
    block
}

fn open_direct(process: &dyn Disk) -> Box<dyn DiskFile> {
    process.open(&path("file"), Access::Direct).unwrap()
}

fn write(file: &dyn DiskFile, at: u64, byte: u8) -> std::io::Result<usize> {
    file.write_at(at, &[IoSlice::new(&block(byte))])
}

fn is_all(bytes: &[u8], expected: u8) -> bool {
    bytes.iter().all(|&byte| byte == expected)
}

#[test]
fn a_direct_write_that_returned_survives_and_takes_nothing_else_with_it() {
    let disk = SimDisk::new(1);
    let process = begin(&disk);
    let file = durable_file(process.as_ref(), "file", &[b'o'; 3 * 4096]);
    write_bytes(file.as_ref(), 8192, &[b'u'; 512]).unwrap();
    let direct = open_direct(process.as_ref());
    assert_eq!(write(direct.as_ref(), 4096, b'n').unwrap(), 4096);
    // Behind the end: the length is durable with it.
    assert_eq!(write(direct.as_ref(), 4 * 4096, b'n').unwrap(), 4096);
    assert_eq!(disk.unsynced_sectors(), 1, "the buffered write is");
    disk.lose_power_choosing(&mut |_| Fate::Drop);
    let bytes = disk.file("file").unwrap();
    assert_eq!(bytes.len(), 5 * 4096);
    assert!(is_all(&bytes[4096..8192], b'n') && is_all(&bytes[4 * 4096..], b'n'));
    assert!(is_all(&bytes[..4096], b'o') && is_all(&bytes[8192..3 * 4096], b'o'));
}

#[test]
fn a_direct_write_that_is_met_in_the_middle_may_leave_anything_of_it() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let process = begin(&disk);
        drop(durable_file(process.as_ref(), "file", &[b'o'; 3 * 4096]));
        let direct = open_direct(process.as_ref());
        // Its write, or its sync.
        disk.crash_at(disk.calls() + seed % 2);
        write(direct.as_ref(), 4096, b'n').unwrap_err();
        disk.lose_power();
        let bytes = disk.file("file").unwrap();
        assert!(is_all(&bytes[..4096], b'o') && is_all(&bytes[8192..], b'o'), "seed {seed}");
        let news = bytes[4096..8192].chunks(512).filter(|sector| is_all(sector, b'n')).count();
        let olds = bytes[4096..8192].chunks(512).filter(|sector| is_all(sector, b'o')).count();
        seen.insert(match (news, olds) {
            (8, _) => "new",
            (_, 8) => "old",
            (1.., 1..) => "mixed",
            _ => "garbled",
        });
    }
    assert!(["mixed", "new", "old"].iter().all(|outcome| seen.contains(outcome)), "{seen:?}");
}

#[test]
fn a_direct_write_fails_as_a_write_and_as_a_sync() {
    for kind in [CallKind::Write, CallKind::Sync] {
        let disk = SimDisk::new(3);
        let process = begin(&disk);
        drop(durable_file(process.as_ref(), "file", &[b'o'; 4096]));
        let direct = open_direct(process.as_ref());
        disk.fail(Fault::nth(kind, 0, FaultKind::Eio));
        write(direct.as_ref(), 0, b'n').unwrap_err();
        // Another one, later, says nothing about it (M3).
        write(direct.as_ref(), 4096, b'l').unwrap();
        disk.lose_power_choosing(&mut |_| Fate::Drop);
        let bytes = disk.file("file").unwrap();
        assert!(!is_all(&bytes[..4096], b'n'), "{kind:?}");
        assert!(is_all(&bytes[4096..8192], b'l'), "{kind:?}");
    }
}

#[test]
fn a_direct_write_out_of_place_is_refused() {
    let disk = SimDisk::new(1);
    let process = begin(&disk);
    drop(durable_file(process.as_ref(), "file", &[b'o'; 8192]));
    let direct = open_direct(process.as_ref());
    let refused = |at, bytes: &[u8]| {
        let error = direct.write_at(at, &[IoSlice::new(bytes)]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    };
    let block = block(b'n');
    refused(512, &block);
    refused(0, &block[..512]);
    assert!(is_all(&disk.file("file").unwrap(), b'o'));
}

fn begun(disk: &SimDisk) -> SimStore {
    let mut files = FileOptions::new();
    files.segment_bytes = Some(8192);
    files.sync_method = SyncMethod::Direct;
    let store = disk.open(&files).unwrap();
    let predecessor = Predecessor { epoch: 0, end: Lsn::ZERO };
    store.begin_epoch(&Epoch { number: 1, salt: 3, base: Lsn::ZERO, predecessor }).unwrap();
    store.prepare(Lsn::new(3 * 8192)).unwrap();
    store
}

fn write_durable(store: &SimStore, at: u64, byte: u8) -> Result<()> {
    let pair = [block(byte), block(byte)];
    store.write_durable(Lsn::new(at), &pair.each_ref().map(|block| IoSlice::new(block)))
}

/// The log's bytes as power loss left them.
fn log(disk: &SimDisk) -> Vec<u8> {
    let (reader, mut log) = (disk.reader().unwrap(), vec![0; 3 * 8192]);
    for (number, segment) in log.chunks_mut(8192).enumerate() {
        reader.read(Lsn::new(number as u64 * 8192), segment).unwrap();
    }
    log
}

#[test]
fn durable_writes_of_a_store_survive_in_whatever_order_they_came() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let store = begun(&disk);
        assert_eq!(store.writes_in_flight(), 4);
        write_durable(&store, 12_288, 2).unwrap();
        write_durable(&store, 4096, 1).unwrap();
        disk.crash_at(disk.calls() + seed % 2);
        store.write_durable(Lsn::ZERO, &[IoSlice::new(&block(9))]).unwrap_err();
        disk.lose_power();
        let log = log(&disk);
        assert!(is_all(&log[12_288..20_480], 2), "seed {seed}");
        assert!(is_all(&log[4096..12_288], 1), "seed {seed}");
    }
}

#[test]
fn a_durable_write_that_failed_stays_failed_and_one_that_lacked_space_does_not() {
    for (kind, fault) in [
        (CallKind::Write, FaultKind::Eio),
        (CallKind::Sync, FaultKind::Eio),
        (CallKind::Write, FaultKind::NoSpace),
        (CallKind::Sync, FaultKind::NoSpace),
    ] {
        let disk = SimDisk::new(7);
        let store = begun(&disk);
        disk.fail(Fault::nth(kind, 0, fault));
        let error = write_durable(&store, 0, 1).unwrap_err();
        let again = write_durable(&store, 0, 1);
        if fault == FaultKind::Eio {
            assert_eq!(error.kind(), ErrorKind::Io, "{kind:?}");
            assert_eq!(again.unwrap_err().kind(), ErrorKind::Io, "{kind:?}");
            continue;
        }
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{kind:?}");
        again.unwrap();
        disk.lose_power_choosing(&mut |_| Fate::Drop);
        assert!(is_all(&log(&disk)[..8192], 1), "{kind:?}");
    }
}

/// G6: what the page cache has lost is not written again.
#[test]
fn lack_of_space_that_shows_with_the_sync_of_an_unaligned_write_is_a_failure() {
    let disk = SimDisk::new(7);
    let store = begun(&disk);
    let blocks = [0; 3 * 4096];
    let odd = &blocks[blocks.as_ptr().align_offset(4096) + 8..][..4096];
    let write = || store.write_durable(Lsn::ZERO, &[IoSlice::new(odd)]).unwrap_err().kind();
    disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::NoSpace));
    assert_eq!([write(), write()], [ErrorKind::Io, ErrorKind::Io]);
}

#[test]
fn a_durable_write_comes_through_short_and_interrupted_calls() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let store = begun(&disk);
        disk.fail(Fault::rate(2, FaultKind::ShortWrite).only(CallKind::Write));
        disk.fail(Fault::rate(3, FaultKind::Interrupted).only(CallKind::Write));
        write_durable(&store, 4096, 5).unwrap();
        disk.lose_power();
        assert!(is_all(&log(&disk)[4096..12_288], 5), "seed {seed}");
    }
}
