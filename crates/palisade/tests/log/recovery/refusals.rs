//! G8: what is wrong is refused with a precise error, and not one byte is changed.

use crate::content::places;
use crate::prelude::*;

const HEADER_BLOCK: usize = 4096;

/// A killed log of four segments, of which the last has the checkpoint and a few records.
fn killed_log() -> (TempDir, PathBuf) {
    let (_dir, path, wal) = log_on_files(heap());
    let lsns = append(&wal, 0..800, 240);
    assert_eq!(lsns[799].segment(SEGMENT_BYTES), 3);
    wal.checkpoint(lsns[795]).unwrap();
    copy_as_killed(&path)
}

/// Refused as damaged in `number`; with its files put back, whole again.
fn refused_as_corrupt(path: &Path, number: u64, damage: impl FnOnce(&Path)) -> Error {
    let (_copy, copy) = copy_as_killed(path);
    damage(&copy);
    let error = refused(&heap(), &copy);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.segment(), Some(number), "{error}");
    error
}

/// Protection: what the options say is compared with what the log has before anything is written.
#[test]
fn another_segment_size_is_refused() {
    let (_dir, path) = killed_log();
    for bytes in [128 << 10, 68 << 10, 64 << 20] {
        let error = refused(&heap().segment_bytes(bytes), &path);
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        for part in ["65536", &bytes.to_string(), path.to_str().unwrap()] {
            assert!(error.to_string().contains(part), "`{part}` is not in {error}");
        }
    }
    // Without a size, the log's counts.
    let wal = Options::new().buffer_bytes(1 << 14).open(&path).unwrap();
    assert_eq!(numbers(&wal).len(), 800);
    drop(wal);
    assert_eq!(numbers(&heap().open(&path).unwrap()).len(), 800);
}

/// Gives the sealed block at `offset` a version or feature bits that nobody knows, and seals it.
fn make_newer(file: &Path, offset: usize, field: usize) {
    let mut bytes = fs::read(file).unwrap();
    let block = &mut bytes[offset..offset + HEADER_BLOCK];
    block[field..field + 4].copy_from_slice(&64_u32.to_le_bytes());
    let checksum = crc32c_append(0, &block[12..]);
    block[8..12].copy_from_slice(&checksum.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

/// Protection: version and incompatible feature bits are looked at in every block.
#[test]
fn a_newer_version_is_refused() {
    for field in [12, 16] {
        for number in 0..4 {
            let (_dir, path) = killed_log();
            make_newer(&segment(&path, number), 0, field);
            let error = refused(&heap(), &path);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(field != 12 || error.to_string().contains("version 64"), "{error}");
            assert_eq!(error.segment(), Some(number), "{error}");
        }
        let (_dir, path) = killed_log();
        make_newer(&path.join("meta"), 0, field);
        assert_eq!(refused(&heap(), &path).kind(), ErrorKind::Unsupported, "one copy suffices");
        make_newer(&path.join("meta"), 16_384, field);
        let error = refused(&heap(), &path);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(field != 12 || error.to_string().contains("version 64"), "{error}");
        assert_eq!(error.path(), Some(&*path.join("meta")), "{error}");
        assert_eq!(Inspector::open(&path).unwrap_err().kind(), ErrorKind::Unsupported);
        fs::remove_file(path.join("lock")).unwrap();
        assert_eq!(refused(&heap(), &path).kind(), ErrorKind::Unsupported, "no lock is made");
    }
}

/// Protection: numbers are looked at before anything is reckoned with them, whatever the checksum
/// says.
#[test]
fn a_state_with_numbers_that_no_log_can_have_is_refused() {
    // Buffer, epoch, base, head, checkpoint, clean end.
    for field in [56, 64, 72, 88, 96, 104] {
        for value in [u64::MAX, u64::MAX - 7, (1 << 60) + 8] {
            let (_dir, path) = killed_log();
            let file = path.join("meta");
            let mut bytes = fs::read(&file).unwrap();
            for block in bytes.chunks_mut(HEADER_BLOCK) {
                block[field..field + 8].copy_from_slice(&value.to_le_bytes());
                let checksum = crc32c_append(0, &block[12..]);
                block[8..12].copy_from_slice(&checksum.to_le_bytes());
            }
            fs::write(&file, bytes).unwrap();
            let error = refused(&heap(), &path);
            let is_typed = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::OutOfRange);
            assert!(is_typed, "field {field}, {value}: {error}");
        }
    }
}

/// Protection: every segment from the head to the floor has to be there.
#[test]
fn a_missing_middle_segment_is_refused() {
    let (_dir, path) = killed_log();
    for number in 0..4 {
        refused_as_corrupt(&path, number, |copy| fs::remove_file(segment(copy, number)).unwrap());
    }
}

/// A log of four segments and one sync after all appends: no record was reserved after the sync, so
/// no record proves it. The last handle was dropped if the log `is_dropped`, else it was killed.
fn synced_once(is_dropped: bool) -> (TempDir, PathBuf) {
    let (dir, path, wal) = log_on_files(heap());
    append(&wal, 0..900, 240);
    wal.sync().unwrap();
    assert_eq!(wal.durable_lsn().segment(SEGMENT_BYTES), 3);
    if is_dropped {
        drop(wal);
        return (dir, path);
    }
    copy_as_killed(&path)
}

/// Protection: names become durable in the order of the segments, headers before names. So a
/// segment that is missing below another one, or has no header, was lost later.
#[test]
fn without_proof_of_a_sync_a_lost_segment_or_header_is_refused() {
    let (_dir, path) = synced_once(false);
    for number in 0..3 {
        refused_as_corrupt(&path, number, |copy| fs::remove_file(segment(copy, number)).unwrap());
    }
    for number in 0..4 {
        refused_as_corrupt(&path, number, |copy| fs::write(segment(copy, number), []).unwrap());
        refused_as_corrupt(&path, number, |copy| flip(&segment(copy, number), 50));
    }
}

/// Protection: the drop of the last handle saves how far the log is durable. The log buffer of a
/// copy, or after a restart, does not show it.
#[test]
fn a_dropped_log_without_its_last_segments_is_refused() {
    let (_dir, path) = synced_once(true);
    let end = Inspector::open(&path).unwrap().state().unwrap().clean_end;
    assert_eq!(end.segment(SEGMENT_BYTES), 3);
    refused_as_corrupt(&path, 3, |copy| {
        for number in (3..).take_while(|number| segment(copy, *number).exists()) {
            fs::remove_file(segment(copy, number)).unwrap();
        }
    });
    refused_as_corrupt(&path, 3, |copy| {
        let file = fs::File::options().write(true).open(segment(copy, 3)).unwrap();
        file.set_len(HEADER_BLOCK as u64 + end.as_u64() % SEGMENT_BYTES - 1).unwrap();
    });
}

/// Protection: a header names its segment's number and base.
#[test]
fn swapped_segments_are_refused() {
    let (_dir, path) = killed_log();
    for (one, other) in [(0, 1), (1, 2), (0, 3), (2, 3)] {
        let error = refused_as_corrupt(&path, one, |copy| {
            let (first, second) = (segment(copy, one), segment(copy, other));
            let kept = fs::read(&first).unwrap();
            fs::rename(&second, &first).unwrap();
            fs::write(&second, kept).unwrap();
        });
        assert!(error.to_string().contains(&format!("segment {other}")), "{error}");
    }
}

/// Protection: the same with their headers right: the records' checksums cover their LSNs.
#[test]
fn segments_with_swapped_bodies_return_no_record_out_of_place() {
    let (_dir, path) = killed_log();
    let (last, before) =
        (fs::read(segment(&path, 3)).unwrap(), fs::read(segment(&path, 2)).unwrap());
    let body = [&last[..HEADER_BLOCK], &before[HEADER_BLOCK..]].concat();
    let error = refused_as_corrupt(&path, 3, |copy| fs::write(segment(copy, 3), body).unwrap());
    assert_eq!(error.lsn(), Some(Lsn::new(3 * SEGMENT_BYTES)), "{error}");
}

/// Protection: a file that is too short for its header has none.
#[test]
fn a_zero_length_segment_is_refused() {
    let (_dir, path) = killed_log();
    for number in 0..4 {
        for len in [0, 1, 100, HEADER_BLOCK - 1] {
            refused_as_corrupt(&path, number, |copy| {
                let file = fs::File::options().write(true).open(segment(copy, number)).unwrap();
                file.set_len(len as u64).unwrap();
            });
        }
    }
}

/// Protection: what is missing at a segment's end reads as missing, not as the end of the log.
#[test]
fn a_segment_that_is_too_short_below_the_floor_is_refused() {
    let (_dir, path) = killed_log();
    refused_as_corrupt(&path, 3, |copy| {
        let file = fs::File::options().write(true).open(segment(copy, 3)).unwrap();
        file.set_len(HEADER_BLOCK as u64 + 500).unwrap();
    });
}

/// Protection: a header names its log.
#[test]
fn a_segment_copied_from_another_log_is_refused() {
    let (_dir, path) = killed_log();
    let (_other_dir, other) = killed_log();
    assert_eq!(places(&path), places(&other), "record for record in the same places");
    for number in 0..4 {
        let error = refused_as_corrupt(&path, number, |copy| {
            fs::copy(segment(&other, number), segment(copy, number)).unwrap();
        });
        // In the last one it is the checkpoint, which has no record any more, that tells.
        assert!(number == 3 || error.to_string().contains("is of log"), "{error}");
    }
}

/// Protection: the same under this log's own header: the records' seed is another one.
#[test]
fn records_copied_from_another_log_are_refused() {
    let (_dir, path) = killed_log();
    let (_other_dir, other) = killed_log();
    let own = fs::read(segment(&path, 3)).unwrap();
    let strange = fs::read(segment(&other, 3)).unwrap();
    let mixed = [&own[..HEADER_BLOCK], &strange[HEADER_BLOCK..]].concat();
    let error = refused_as_corrupt(&path, 3, |copy| fs::write(segment(copy, 3), mixed).unwrap());
    assert_eq!(error.lsn(), Some(Lsn::new(3 * SEGMENT_BYTES)), "{error}");
}

/// The files of a log on a disk in memory, with their bytes.
fn files_on(disk: &MemDisk) -> Vec<(String, Vec<u8>)> {
    let folder = disk.open_folder(Path::new("/log"), 0o600).unwrap();
    let read = |name: String| {
        let file = folder.open(&name, Access::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        (name, bytes)
    };
    folder.list().unwrap().into_iter().map(read).collect()
}

/// Protection: the look for a memory file system comes before recovery moves the end of the log.
#[test]
fn a_mapped_buffer_without_a_memory_file_system_is_refused() {
    let mapped = Options::new().segment_bytes(64 << 10).buffer(BufferKind::Mapped);
    let disk = MemDisk::new().without_buffers().without_threads();
    let open = || mapped.open_on(Arc::new(disk.clone()), "/log");
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("mount one, or use BufferKind::Auto"), "{error}");
    assert!(disk.open_folder(Path::new("/log"), 0o600).is_err(), "no log was made");
    let heap = mapped.clone().buffer(BufferKind::Auto);
    let wal = heap.open_on(Arc::new(disk.clone()), "/log").unwrap();
    wal.commit(b"record").unwrap();
    disk.kill();
    drop(wal);
    let before = files_on(&disk);
    assert_eq!(open().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(files_on(&disk) == before, "a log that a crash left is left as it is");
}
