//! A log at its limit fails a commit, loses none, and is free after the next open. Kills alone
//! never fill it.

use std::io;
use std::sync::Arc;

use palisade::ErrorKind;
use palisade::disk::MemDisk;
use palisade::sim::{CallKind, Effect, FaultDisk, Target};
use palisade_redb::{Options, PalisadeBackend};
use redb::{
    Builder, CommitError, Database, ReadableDatabase, StorageBackend, StorageError, TableDefinition,
};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");
const SEGMENT: u64 = 64 << 10;

/// Returns options with a limit of so many segments, and without another cause of a checkpoint.
fn limited(segments: u64) -> Options {
    Options::new().log(limited_log(segments)).log_bytes(1 << 30).memory_bytes(1 << 30)
}

fn limited_log(segments: u64) -> palisade::Options {
    let log = palisade::Options::new().segment_bytes(SEGMENT).buffer_bytes(64 << 10);
    log.max_bytes(segments * (SEGMENT + 4096))
}

fn open(options: &Options, disk: &MemDisk) -> PalisadeBackend {
    options.clone().open_on(Arc::new(disk.clone()), "/db").unwrap()
}

fn database(backend: &PalisadeBackend) -> Database {
    Builder::new().create_with_backend(backend.clone()).unwrap()
}

fn put(db: &Database, key: u64, len: usize) -> Result<(), CommitError> {
    let transaction = db.begin_write().map_err(|_| CommitError::from(StorageError::PreviousIo))?;
    transaction.open_table(TABLE).unwrap().insert(key, &vec![7; len][..]).unwrap();
    transaction.commit()
}

fn has(db: &Database, key: u64) -> bool {
    let transaction = db.begin_read().unwrap();
    transaction.open_table(TABLE).unwrap().get(key).unwrap().is_some()
}

fn segments(backend: &PalisadeBackend) -> u64 {
    backend.log().space().unwrap().segments
}

#[test]
fn a_checkpoint_comes_before_the_limit() {
    for most in [4, 6, 12] {
        let disk = MemDisk::new();
        let options = limited(most);
        let db = database(&open(&options, &disk));
        for key in 0..300 {
            put(&db, key, 50 + key as usize * 10).unwrap();
        }
        drop(db);
        let db = database(&open(&options, &disk));
        assert!((0..300).all(|key| has(&db, key)));
    }
}

/// Two records fill three quarters of a segment here, so changes take more than their pages.
#[test]
fn changes_up_to_nine_segments_fit_into_a_log_of_twelve() {
    let backend = open(&limited(12), &MemDisk::new());
    let mut synced = 0;
    for pages in (1..95).flat_map(|pages| [pages, pages / 2, 95 - pages]) {
        backend.write(0, &vec![7; pages * 4096]).unwrap();
        backend.sync_data().unwrap_or_else(|error| panic!("{pages} pages: {error}"));
        synced += pages;
    }
    assert!(synced > 9000);
}

#[test]
fn a_full_log_fails_the_commit_and_loses_none() {
    let disk = MemDisk::new();
    let options = limited(6);
    let db = database(&open(&options, &disk));
    (1..10).for_each(|key| put(&db, key, 50).unwrap());
    // No checkpoint makes room for a change that is longer than the log may be.
    let CommitError::Storage(StorageError::Io(error)) =
        put(&db, 10, 8 * SEGMENT as usize).unwrap_err()
    else {
        panic!("another error")
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let text = error.to_string();
    assert!(text.contains("open the database again") && !text.contains("truncate"), "{text}");
    drop(db);

    for round in 0..3 {
        let backend = open(&options, &disk);
        assert!(segments(&backend) <= 3, "round {round}: {}", segments(&backend));
        let db = database(&backend);
        assert!((1..10).all(|key| has(&db, key)), "round {round}");
        put(&db, 20 + round, 50).unwrap();
        assert!(put(&db, 10, 8 * SEGMENT as usize).is_err());
        backend.log().clone().abandon();
    }
    let db = database(&open(&options, &disk));
    assert!((20..23).all(|key| has(&db, key)));
}

/// The limit is the one that the README asks for: twice `memory_bytes`, and four segments.
#[test]
fn with_the_documented_room_a_log_is_never_full() {
    for pads in [false, true] {
        let disk = MemDisk::new();
        let options = limited(2 * 2 + 4).memory_bytes(2 * SEGMENT);
        let options = options.log(limited_log(2 * 2 + 4).pad_to_block(pads));
        let builder = &mut Builder::new();
        let backend = open(&options, &disk);
        let db = builder.set_cache_size(64 << 10).create_with_backend(backend).unwrap();
        for round in 0..30_u64 {
            let transaction = db.begin_write().unwrap();
            let mut table = transaction.open_table(TABLE).unwrap();
            for key in 0..200 {
                table.insert(round * 200 + key, &[round as u8; 3000][..]).unwrap();
            }
            drop(table);
            transaction.commit().unwrap_or_else(|error| panic!("round {round}, {pads}: {error}"));
        }
        // One write of redb, which is longer than all of the log may be.
        put(&db, 6000, 16 * SEGMENT as usize).unwrap();
        assert!(has(&db, 0) && has(&db, 6000));
        // Changes of one page, each of which ends a block if the log pads.
        (7000..7500).for_each(|key| put(&db, key, 50).unwrap());
    }
}

/// A log that an open with a higher limit has filled.
#[test]
fn an_open_frees_a_log_that_is_above_its_limit() {
    let disk = MemDisk::new();
    let mut backend = open(&limited(1 << 20), &disk);
    let db = database(&backend);
    (0..60).for_each(|key| put(&db, key, 9000).unwrap());
    assert!(segments(&backend) > 8);
    for round in 0..3 {
        backend.log().clone().abandon();
        backend = open(&limited(4), &disk);
        assert!(segments(&backend) <= 2, "round {round}: {}", segments(&backend));
        let db = database(&backend);
        assert!((0..60 + round).all(|key| has(&db, key)));
        put(&db, 60 + round, 50).unwrap();
    }
}

#[test]
fn an_open_frees_a_log_that_has_only_a_part_of_a_change() {
    let disk = MemDisk::new();
    for _ in 0..3 {
        let backend = open(&limited(6), &disk);
        assert!(segments(&backend) <= 2, "{}", segments(&backend));
        backend.write(0, &[7; 8 * SEGMENT as usize]).unwrap();
        assert_eq!(backend.sync_data().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}

#[test]
fn a_full_disk_fails_the_commit_until_there_is_space() {
    let memory = MemDisk::new();
    let disk = FaultDisk::new(Arc::new(memory.clone()));
    let backend = limited(1 << 20).open_on(Arc::new(disk.clone()), "/db").unwrap();
    let db = database(&backend);
    put(&db, 1, 9000).unwrap();
    disk.set((CallKind::Write, Target::Segment), Effect::NoSpace);
    disk.set((CallKind::Write, Target::Other), Effect::NoSpace);
    let CommitError::Storage(StorageError::Io(error)) = put(&db, 2, 9000).unwrap_err() else {
        panic!("another error")
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    backend.log().clone().abandon();
    for target in [Target::Segment, Target::Other] {
        disk.set((CallKind::Write, target), Effect::Pass);
    }
    let backend = limited(1 << 20).open_on(Arc::new(disk.clone()), "/db").unwrap();
    let db = database(&backend);
    assert!(has(&db, 1));
    put(&db, 3, 9000).unwrap();
}

/// Each of the opens begins the checkpoint, which takes a segment beyond the limit only once.
#[test]
fn opens_that_fail_do_not_let_a_full_log_grow() {
    let memory = MemDisk::new();
    let disk = FaultDisk::new(Arc::new(memory.clone()));
    let backend = open(&limited(1 << 20), &memory);
    let db = database(&backend);
    (0..60).for_each(|key| put(&db, key, 9000).unwrap());
    let most = segments(&backend) + 4;
    backend.log().clone().abandon();
    disk.set((CallKind::Sync, Target::Other), Effect::Eio);
    for round in 0..12 {
        let error = limited(4).open_on(Arc::new(disk.clone()), "/db").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "round {round}: {error}");
    }
    let log = palisade::Options::new().buffer_bytes(64 << 10);
    let wal = log.open_on(Arc::new(memory.clone()), "/db/log").unwrap();
    let found = wal.space().unwrap().segments;
    assert!(found <= most, "{found} segments");
    drop(wal);
    let db = database(&open(&limited(4), &memory));
    assert!((0..60).all(|key| has(&db, key)));
}

/// The record of a checkpoint that has failed is not taken for one of what was committed later.
#[test]
fn a_checkpoint_that_failed_is_not_taken_for_a_later_one() {
    let memory = MemDisk::new();
    let disk = FaultDisk::new(Arc::new(memory.clone()));
    let backend = limited(1 << 20).open_on(Arc::new(disk.clone()), "/db").unwrap();
    let db = database(&backend);
    (0..60).for_each(|key| put(&db, key, 9000).unwrap());
    disk.set((CallKind::Sync, Target::Other), Effect::Eio);
    assert_eq!(backend.checkpoint().unwrap_err().kind(), ErrorKind::Io);
    backend.log().clone().abandon();
    for _ in 0..2 {
        let backend = open(&limited(1 << 20), &memory);
        let db = database(&backend);
        assert!((0..60).all(|key| has(&db, key)));
        put(&db, 60, 50).unwrap();
        backend.log().clone().abandon();
        // Its open makes a checkpoint.
        let backend = open(&limited(8), &memory);
        assert!(segments(&backend) <= 2, "{}", segments(&backend));
        backend.log().clone().abandon();
    }
    assert!(has(&database(&open(&limited(4), &memory)), 60));
}

/// Each unclean end costs the log a segment, whatever it has.
#[test]
fn a_process_that_is_killed_again_and_again_keeps_its_log_short() {
    for is_limited in [false, true] {
        let disk = MemDisk::new();
        // Without the limit, `log_bytes` are 16 segments.
        let options = limited(if is_limited { 24 } else { 1 << 20 });
        let options = if is_limited { options } else { options.log_bytes(16 * SEGMENT) };
        for life in 0..100 {
            let backend = open(&options, &disk);
            let db = database(&backend);
            assert!(life == 0 || has(&db, life - 1));
            put(&db, life, 50).unwrap();
            let found = segments(&backend);
            assert!(found <= if is_limited { 24 } else { 18 }, "life {life}: {found} segments");
            backend.log().clone().abandon();
        }
    }
}

/// What a reader of the log keeps, no checkpoint frees.
#[test]
fn a_hold_of_the_log_does_not_make_each_commit_a_checkpoint() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    let log = palisade::Options::new().segment_bytes(4 * SEGMENT).buffer_bytes(64 << 10);
    let options = Options::new().log(log).log_bytes(16 * SEGMENT);
    let backend = options.open_on(Arc::new(disk.clone()), "/db").unwrap();
    let db = database(&backend);
    let hold = backend.log().hold(backend.log().head_lsn()).unwrap();
    // `log_bytes` are four segments. How long a commit is depends on how redb was compiled.
    for key in 0.. {
        put(&db, key, 50).unwrap();
        if segments(&backend) > 8 {
            break;
        }
    }
    let found = segments(&backend);
    let syncs = disk.count((CallKind::Sync, Target::Other)) as u64;
    assert!(syncs <= found, "{syncs} syncs for {found} segments");
    drop(hold);
}

#[test]
fn a_cursor_of_the_log_is_refused_and_loses_nothing() {
    let disk = MemDisk::new();
    let log = palisade::Options::new().segment_bytes(SEGMENT).buffer_bytes(64 << 10);
    let options = Options::new().log(log).memory_bytes(2 * SEGMENT);
    let backend = open(&options, &disk);
    let db = Builder::new().set_cache_size(64 << 10).create_with_backend(backend.clone()).unwrap();
    put(&db, 0, 3000).unwrap();
    drop(backend.log().create_cursor("slow", None, u64::MAX).unwrap());
    // Longer than the memory, so it writes pages to the base file behind a checkpoint.
    let transaction = db.begin_write().unwrap();
    let mut table = transaction.open_table(TABLE).unwrap();
    let full = (1..200).try_for_each(|key| table.insert(key, &[7; 3000][..]).map(drop));
    drop(table);
    full.and_then(|()| transaction.commit().map_err(|_| StorageError::PreviousIo)).unwrap_err();
    backend.log().remove_cursor("slow").unwrap();
    drop((db, backend));
    let mut db = database(&open(&options, &disk));
    assert!(db.check_integrity().unwrap());
    assert!(has(&db, 0));
    put(&db, 1, 3000).unwrap();
}

#[test]
fn a_change_that_fills_segments_badly_fits_after_a_checkpoint() {
    let backend = open(&limited(300), &MemDisk::new());
    while segments(&backend) < 150 {
        backend.write(0, &[7; 4096 * 6]).unwrap();
        backend.sync_data().unwrap();
    }
    // Of 98 segments, but it takes about 157.
    backend.write(0, &vec![7; 4096 * 1564]).unwrap();
    backend.sync_data().unwrap();
}
