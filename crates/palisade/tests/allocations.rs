//! Appends and commits allocate nothing once the log runs; an open allocates little, whatever the
//! lengths in the log say.
//!
//! A counting allocator stands in for the system's in this test program. It counts for those
//! threads only that ask for it, so that the log's background threads may do as they like.

#[path = "common/counting_allocator.rs"]
mod counting_allocator;
#[path = "common/stored_bytes.rs"]
mod stored_bytes;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;

use counting_allocator::{COUNT, LARGEST};
use palisade::inspect::{Inspector, Outcome};
use palisade::{Codec, ErrorKind, Lz4, MemStore, Options, Result, Verify, Wal, Zstd};
use palisade_core::frame::{EpochSeed, Header, Kind};
use palisade_store::{ReadStore, State};
use std::io::IoSlice;
use tempfile::TempDir;

/// How often this thread allocates while `run` runs.
fn allocations_of(run: impl FnOnce()) -> u64 {
    COUNT.with(|count| count.set(Some(0)));
    run();
    COUNT.with(Cell::take).expect("set above")
}

/// The most bytes that this thread asks for at once while `run` runs.
fn largest_of(run: impl FnOnce()) -> usize {
    LARGEST.with(|largest| largest.set(0));
    run();
    LARGEST.with(Cell::get)
}

/// Vectors that grow to the number of threads do so in the first windows; an allocation per
/// call shows in every one.
const WINDOWS: usize = 20;

/// A log whose segment is large enough for a whole test.
fn log() -> (TempDir, Wal) {
    log_with(Options::new())
}

fn log_with(options: Options) -> (TempDir, Wal) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path: PathBuf = dir.path().join("log");
    (dir, options.segment_bytes(64 << 20).buffer_bytes(1 << 20).open(path).unwrap())
}

fn assert_none_in_some_window(what: &str, mut window: impl FnMut()) {
    let counts: Vec<u64> = (0..WINDOWS).map(|_| allocations_of(&mut window)).collect();
    assert!(counts.contains(&0), "{what}: {counts:?}");
}

#[test]
fn the_allocator_counts() {
    assert_eq!(allocations_of(|| drop(std::hint::black_box(Box::new(1)))), 1);
    assert_eq!(allocations_of(|| drop(std::hint::black_box(vec![0_u8; 100]))), 1);
    assert_eq!(largest_of(|| drop(std::hint::black_box(vec![0_u8; 100]))), 100);
}

fn inspector(store: &MemStore) -> Inspector {
    Inspector::open_on(Arc::new(store.disk().clone()), "/log").unwrap()
}

/// Everything is verified by this thread, so that its allocations are counted.
fn frugal() -> Options {
    let options = Options::new().buffer_bytes(1 << 14).verify(Verify::Full);
    options.read_ahead_bytes(1 << 16).verify_threads(1)
}

#[test]
fn an_open_verifies_long_records_within_its_read_buffer() {
    let store = MemStore::new(64 << 20);
    let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(32 << 20)).unwrap();
    for _ in 0..3 {
        wal.commit(&vec![7; 15 << 20]).unwrap();
    }
    drop(wal);
    let bytes = largest_of(|| {
        let wal = Wal::with_store(store.clone(), frugal()).unwrap();
        assert_eq!(wal.recovery_report().records, 3);
    });
    assert!(bytes <= 1 << 17, "{bytes} bytes at once");
    let inspector = inspector(&store);
    let bytes = largest_of(|| assert_eq!(inspector.verify_deep(1).unwrap().records, 3));
    assert!(bytes <= 1 << 20, "{bytes} bytes at once");
}

#[test]
fn a_length_that_lies_costs_no_memory_though_its_checksum_holds() {
    let store = MemStore::new(16 << 30);
    let wal = Wal::with_store(store.clone(), frugal()).unwrap();
    wal.commit(b"record").unwrap();
    let at = wal.reserved_lsn();
    drop(wal);
    let State { uuid, epoch, epoch_salt, .. } = store.reader().unwrap().state().unwrap();
    let seed = EpochSeed::new(uuid, epoch, epoch_salt);
    for (kind, len) in [(Kind::Data, u32::MAX), (Kind::Data, 500 << 20), (Kind::Batch, 1 << 29)] {
        let header = Header::new(kind, 0, len, 0).encode(seed, at);
        store.damage(at, &header).unwrap();
        let inspector = inspector(&store);
        let bytes = largest_of(|| {
            let mut records = inspector.records(None).unwrap();
            assert!(records.next().unwrap().is_some() && records.next().unwrap().is_none());
            let verdict = inspector.verify().unwrap();
            // Only a record could be as long as the shortest says: it is torn.
            let is_short = len < 1 << 29;
            let outcome = if is_short { Outcome::TornTail } else { Outcome::Unclean };
            assert_eq!((verdict.outcome, verdict.end), (outcome, at));
            drop(inspector.verify_deep(1).unwrap());
            let mut salvage = inspector.salvage(None).unwrap();
            while salvage.next().unwrap().is_some() {}
        });
        assert!(bytes <= 4 << 20, "a length of {len}: {bytes} bytes at once");
        let bytes = largest_of(|| {
            frugal().dry_run_in(store.open().unwrap()).unwrap();
        });
        assert!(bytes <= 1 << 17, "a length of {len}: {bytes} bytes at once");
    }
}

#[test]
fn an_append_allocates_nothing() -> Result<()> {
    let (_dir, wal) = log();
    let data = [7; 100];
    let parts = [IoSlice::new(&data[..40]), IoSlice::new(&data[40..])];
    let batch: [&[u8]; 3] = [&data, &[], &data[..9]];
    // Each window goes through the buffer about once, so that pieces are written and it wraps.
    assert_none_in_some_window("append", || {
        for _ in 0..2000 {
            drop(wal.append(&data).unwrap());
            drop(wal.append_tagged(3, &data).unwrap());
            drop(wal.append_vectored(&parts).unwrap());
        }
    });
    // Its ticket has the LSNs of its records.
    let counts = (0..WINDOWS).map(|_| allocations_of(|| drop(wal.append_batch(&batch).unwrap())));
    assert!(counts.min() <= Some(1), "append_batch");
    assert_none_in_some_window("try_append", || {
        for _ in 0..2000 {
            // Without room it gives an error, which must not allocate either.
            drop(wal.try_append(&data));
        }
    });
    wal.close()
}

fn check_appends_and_reads(codec: impl Codec) -> Result<()> {
    let (_dir, wal) = log_with(Options::new().codec(codec));
    let data = [7; 1000];
    let parts = [IoSlice::new(&data[..400]), IoSlice::new(&data[400..])];
    assert_none_in_some_window("append", || {
        for _ in 0..500 {
            drop(wal.append(&data).unwrap());
            drop(wal.append_vectored(&parts).unwrap());
            drop(wal.append(b"too short to be encoded").unwrap());
        }
    });
    let batch = [&data; 3];
    let counts = (0..WINDOWS).map(|_| allocations_of(|| drop(wal.append_batch(batch).unwrap())));
    assert!(counts.min() <= Some(1), "append_batch");
    wal.sync()?;
    let mut records = wal.records()?;
    assert_none_in_some_window("Records::next", || {
        for _ in 0..1000 {
            records.next().unwrap().expect("there are more");
        }
    });
    wal.close()
}

#[test]
fn neither_an_append_nor_a_reader_allocates_for_a_codec() -> Result<()> {
    check_appends_and_reads(Lz4::new())?;
    check_appends_and_reads(Zstd::new())
}

/// The log takes less than the length that is claimed.
#[test]
fn a_false_decoded_length_with_a_valid_checksum_takes_no_memory() {
    for which in [0, 1] {
        let stored = [&[which; 100][..], &(64_u32 << 20).to_le_bytes()].concat();
        let bytes = largest_of(|| {
            let error = stored_bytes::read_stored_bytes(&stored).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        });
        assert!(bytes <= 1 << 20, "{bytes} bytes at once");
    }
}

#[test]
fn an_append_in_place_allocates_only_where_the_buffer_wraps() -> Result<()> {
    let (_dir, wal) = log();
    let append_some = || {
        for _ in 0..20_000 {
            drop(wal.append_with(100, |_, bytes| bytes.fill(1)).unwrap());
        }
    };
    // The first pieces start the thread that writes them.
    append_some();
    for _ in 0..5 {
        let start = wal.reserved_lsn().as_u64();
        let count = allocations_of(append_some);
        let wraps = wal.reserved_lsn().as_u64() / (1 << 20) - start / (1 << 20);
        assert!(count <= wraps, "{count} allocations, {wraps} wraps");
    }
    wal.close()
}

#[test]
fn a_commit_of_a_single_thread_allocates_nothing() -> Result<()> {
    let (_dir, wal) = log();
    assert_none_in_some_window("commit", || {
        for n in 0..50_u32 {
            wal.commit(&n.to_le_bytes()).unwrap();
            wal.append(&n.to_le_bytes()).unwrap().wait().unwrap();
            wal.sync().unwrap();
        }
    });
    wal.close()
}

#[test]
fn commits_of_four_threads_allocate_nothing() -> Result<()> {
    const THREADS: usize = 4;
    let (_dir, wal) = log();
    let barrier = Barrier::new(THREADS);
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let window = |_| {
                        barrier.wait();
                        allocations_of(|| (0..50).for_each(|_| commit_some(&wal)))
                    };
                    (0..WINDOWS).map(window).collect::<Vec<u64>>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let totals: Vec<u64> =
        (0..WINDOWS).map(|window| counts.iter().map(|of_thread| of_thread[window]).sum()).collect();
    assert!(totals.contains(&0), "{totals:?}");
    wal.close()
}

fn commit_some(wal: &Wal) {
    drop(wal.append(b"appended").unwrap());
    wal.commit(b"committed").unwrap();
}
