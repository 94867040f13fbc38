//! Files whose checksums hold and whose numbers lie: what they ask for is not believed, and costs
//! no memory and no endless loop.

use std::fs;
use std::path::Path;

use palisade::inspect::{Inspector, Outcome};
use palisade::store::{ReadStore, State};
use palisade::{
    BufferKind, ErrorKind, Lsn, MemStore, Options, RecoveryPolicy, Repair, Verify, Wal,
    crc32c_append,
};
use palisade_core::frame::{EpochSeed, HEADER_BYTES, Header, Kind};

use crate::folder::{contents, folder, small, snapshot};
use crate::watchdog::guarded;

const BLOCK_BYTES: usize = 4096;

/// Puts `value` at `at` of the block that begins at `block` of the file, and mends its checksum.
fn forge(file: &Path, block: usize, at: usize, value: u64) {
    let mut bytes = fs::read(file).unwrap();
    bytes[block + at..block + at + 8].copy_from_slice(&value.to_le_bytes());
    let checksum = crc32c_append(0, &bytes[block + 12..block + BLOCK_BYTES]);
    bytes[block + 8..block + 12].copy_from_slice(&checksum.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

fn all_ways() -> Vec<Options> {
    let policies = [RecoveryPolicy::Strict, RecoveryPolicy::RequireClean];
    let verify = [Verify::Tail, Verify::Full];
    let with = |policy| verify.map(|verify| small().recovery(policy).verify(verify));
    policies.into_iter().flat_map(with).collect()
}

fn killed() -> (tempfile::TempDir, std::path::PathBuf) {
    let (dir, path) = folder();
    let wal = small().buffer(BufferKind::Heap).open(&path).unwrap();
    for _ in 0..400 {
        wal.append(&[5; 300]).unwrap();
    }
    wal.sync().unwrap();
    (dir, path)
}

/// A plan keeps what validates, or is refused.
fn plan_repairs(path: &Path) {
    for from in [0, 24, 80_000, 1 << 59] {
        match Repair::plan(path, Lsn::new(from), &mut |_| {}) {
            Ok(repair) => assert!(repair.report().base >= Lsn::new(from)),
            Err(error) => assert_ne!(error.kind(), ErrorKind::Io, "{error}"),
        }
    }
}

const LIES: [u64; 8] =
    [1 << 40, (1 << 60) - 65_536, (1 << 60) - 1, 1 << 60, 1 << 63, u64::MAX - 65_535, u64::MAX, 7];

#[test]
fn numbers_in_the_state_that_no_log_can_have_are_refused_or_survived() {
    guarded(|| {
        let (_dir, path) = killed();
        let meta = path.join("meta");
        let genuine = fs::read(&meta).unwrap();
        for at in [48, 56, 64, 72, 88, 96, 104, 112] {
            for lie in LIES {
                fs::write(&meta, &genuine).unwrap();
                forge(&meta, 0, at, lie);
                forge(&meta, BLOCK_BYTES, at, lie);
                let before = snapshot(&path);
                for options in all_ways() {
                    if let Err(error) = options.dry_run(&path) {
                        assert!(error.kind() != ErrorKind::Io, "{at} {lie:#x}: {error}");
                    }
                }
                if let Ok(log) = Inspector::open(&path) {
                    // Damage is an outcome, not an error.
                    log.verify().unwrap();
                    log.verify_deep(2).unwrap();
                    if let Ok(mut salvage) = log.salvage(None) {
                        while salvage.next().is_ok_and(|next| next.is_some()) {}
                    }
                }
                plan_repairs(&path);
                assert!(snapshot(&path) == before, "{at} {lie:#x}");
            }
        }
    });
}

#[test]
fn numbers_in_a_segments_header_that_no_log_can_have_are_damage() {
    guarded(|| {
        let (_dir, path) = killed();
        for segment in [0, 1] {
            let file = path.join(format!("segment-{segment:020}"));
            let genuine = fs::read(&file).unwrap();
            for at in [40, 48, 56, 64, 72, 80, 88, 96] {
                for lie in LIES {
                    fs::write(&file, &genuine).unwrap();
                    forge(&file, 0, at, lie);
                    let before = snapshot(&path);
                    for options in all_ways() {
                        if let Err(error) = options.dry_run(&path) {
                            assert!(error.kind() != ErrorKind::Io, "{at} {lie:#x}: {error}");
                        }
                    }
                    let log = Inspector::open(&path).unwrap();
                    let _ = log.verify_deep(2).unwrap();
                    let mut salvage = log.salvage(None).unwrap();
                    while salvage.next().unwrap().is_some() {}
                    plan_repairs(&path);
                    assert!(snapshot(&path) == before, "{at} {lie:#x}");
                }
            }
            fs::write(&file, &genuine).unwrap();
        }
    });
}

/// A frame whose header is genuine and claims more than any log can have written, in a segment of
/// 16 GiB: believing it would take 4 GiB.
#[test]
fn a_length_that_no_record_can_have_is_not_believed_though_its_checksum_holds() {
    let store = MemStore::new(16 << 30);
    let options = || Options::new().buffer_bytes(1 << 14);
    let wal = Wal::with_store(store.clone(), options()).unwrap();
    let first = wal.commit(b"first").unwrap();
    let at = wal.reserved_lsn();
    drop(wal);
    let State { uuid, epoch, epoch_salt, .. } = store.state().unwrap();
    let seed = EpochSeed::new(uuid, epoch, epoch_salt);
    for len in [u32::MAX, (512 << 20) - 16, 1 << 30] {
        let header = Header::new(Kind::Data, 0, len, 0).encode(seed, at);
        assert_eq!(header.len(), HEADER_BYTES);
        store.damage(at, &header).unwrap();
        let verdict = palisade_core::inspect::Inspector::new(store.clone()).verify().unwrap();
        assert_eq!((verdict.outcome, verdict.end), (Outcome::Unclean, at));
    }
    let wal = Wal::with_store(store, options()).unwrap();
    assert_eq!(contents(&wal).unwrap(), [(first, b"first".to_vec())]);
}

/// Names of segments are the only count that recovery goes by.
#[test]
fn segments_far_away_cost_what_they_are_not_what_lies_between() {
    guarded(|| {
        let (_dir, path) = killed();
        let number = (1_u64 << 44) - 2;
        let far = path.join(format!("segment-{number:020}"));
        fs::copy(path.join(format!("segment-{:020}", 1)), &far).unwrap();
        for options in all_ways() {
            let found = options.dry_run(&path);
            if let Err(error) = &found {
                assert!(error.kind() != ErrorKind::Io, "{error}");
            }
        }
        let _ = Inspector::open(&path).unwrap().verify_deep(2).unwrap();
        // Its header is of another place: it is no part of the log.
        assert_eq!(small().open(&path).unwrap().recovery_report().strays, [number]);
    });
}
