//! Files whose checksums hold and whose numbers lie: what they ask for is not believed, and costs
//! no memory and no endless loop.

use crate::prelude::*;

const BLOCK_BYTES: usize = 4096;
/// Where the meta file has its second copy.
const SECOND_COPY_AT: usize = 16 << 10;

/// Puts `value` at `at` of the block that begins at `block` of the file, and mends its checksum.
fn forge(file: &Path, block: usize, at: usize, value: u64) {
    let mut bytes = fs::read(file).unwrap();
    bytes[block + at..block + at + 8].copy_from_slice(&value.to_le_bytes());
    let checksum = crc32c_append(0, &bytes[block + 12..block + BLOCK_BYTES]);
    bytes[block + 8..block + 12].copy_from_slice(&checksum.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

fn all_ways() -> [Options; 2] {
    [Verify::Tail, Verify::Full].map(|verify| small().verify(verify))
}

fn killed() -> (tempfile::TempDir, std::path::PathBuf) {
    let (dir, path, wal) = log_on_files(heap());
    for _ in 0..400 {
        wal.append(&[5; 300]).unwrap();
    }
    wal.sync().unwrap();
    (dir, path)
}

/// Opens, tools and repairs refuse the log in `path`, or survive it, and change nothing of it.
fn assert_survived(path: &Path, what: &str) {
    let before = snapshot(path);
    for options in all_ways() {
        if let Err(error) = options.dry_run(path) {
            assert!(error.kind() != ErrorKind::Io, "{what}: {error}");
        }
    }
    if let Ok(log) = Inspector::open(path) {
        // Damage is an outcome, not an error.
        log.verify().unwrap();
        log.verify_deep(2).unwrap();
        if let Ok(mut salvage) = log.salvage(None) {
            while salvage.next().is_ok_and(|next| next.is_some()) {}
        }
    }
    // A plan keeps what validates, or is refused.
    for from in [0, 24, 80_000, 1 << 59] {
        match Repair::plan(path, Lsn::new(from), &mut |_| {}) {
            Ok(repair) => assert!(repair.report().base >= Lsn::new(from)),
            Err(error) => assert_ne!(error.kind(), ErrorKind::Io, "{error}"),
        }
    }
    assert!(snapshot(path) == before, "{what}");
}

const LIES: [u64; 8] =
    [1 << 40, (1 << 60) - 65_536, (1 << 60) - 1, 1 << 60, 1 << 63, u64::MAX - 65_535, u64::MAX, 7];

#[test]
fn impossible_numbers_in_the_state_are_refused_or_survived() {
    let (_dir, path) = killed();
    let meta = path.join("meta");
    let genuine = fs::read(&meta).unwrap();
    for at in [48, 56, 64, 72, 88, 96, 104, 112] {
        for lie in LIES {
            fs::write(&meta, &genuine).unwrap();
            forge(&meta, 0, at, lie);
            forge(&meta, SECOND_COPY_AT, at, lie);
            assert_survived(&path, &format!("{at} {lie:#x}"));
        }
    }
}

#[test]
fn numbers_in_a_segments_header_that_no_log_can_have_are_damage() {
    let (_dir, path) = killed();
    for segment in [0, 1] {
        let file = path.join(format!("segment-{segment:020}"));
        let genuine = fs::read(&file).unwrap();
        for at in [40, 48, 56, 64, 72, 80, 88, 96] {
            for lie in LIES {
                fs::write(&file, &genuine).unwrap();
                forge(&file, 0, at, lie);
                let mut salvage = Inspector::open(&path).unwrap().salvage(None).unwrap();
                while salvage.next().unwrap().is_some() {}
                assert_survived(&path, &format!("{segment} {at} {lie:#x}"));
            }
        }
        fs::write(&file, &genuine).unwrap();
    }
}
