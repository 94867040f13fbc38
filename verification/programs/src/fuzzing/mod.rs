//! Bodies of the fuzz targets: what must hold for any bytes whatever.
//!
//! They run in three places: under cargo-fuzz (`fuzz/`, feature `fuzzing`), over the committed
//! corpus, and over inputs made from it by a seeded mutator (`cargo test`). A body panics where a
//! promise is broken. The mutator knows the form of its input: it flips, cuts, swaps and copies,
//! but it never makes a checksum right, so that nothing it makes can be a record that nobody
//! appended. Where it seals a block again after changing a field, the image says so, and less is
//! asked of what comes back.

mod image;
mod mutate;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palisade_store::block::{self, BLOCK_BYTES};
use palisade_store::disk::MemDisk;
use palisade_store::segment::header::{self, LogOf};
use palisade_store::{FileOptions, FileReader, FileStore, OpenMode, meta};

pub use self::image::Image;
pub use self::mutate::mutate;
use palisade_core::frame::{EpochSeed, HEADER_BYTES, Header, Kind};
use palisade_core::inspect::{Inspector, Outcome};
use palisade_core::{ErrorKind, Lsn, Options, Repair, Result, Uuid, Wal};

/// Far above what an open of a small folder takes; it only bounds a loop that does not end.
const LONGEST: Duration = Duration::from_secs(30);
const RING_BYTES: usize = 4096;
/// The folder in which the log lies.
const FOLDER: &str = "/log";
/// Bytes with which an input of [`frame_decode`] begins: UUID, epoch, salt, LSN.
pub(crate) const FRAME_PREFIX_BYTES: usize = 40;

fn number_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |field| u64::from_le_bytes(field.try_into().unwrap_or([0; 8])))
}

/// Decodes the frames in `input`: UUID, epoch, salt and LSN of the first (40 bytes), then bytes.
///
/// # Panics
/// If a frame is longer than its room or not aligned, or if a header does not come back as it
/// was encoded.
pub fn frame_decode(input: &[u8]) {
    let Some((prefix, bytes)) = input.split_at_checked(FRAME_PREFIX_BYTES) else { return };
    let mut uuid = Uuid([0; 16]);
    uuid.0.copy_from_slice(&prefix[..16]);
    let seed = EpochSeed::new(uuid, number_at(prefix, 16), number_at(prefix, 24));
    let start = Lsn::new((number_at(prefix, 32) % Lsn::LIMIT.as_u64()) & !7);
    let mut offset = 0;
    while offset < bytes.len() {
        let (at, rest) = (start.plus(offset as u64), &bytes[offset..]);
        for room in [0, 8, 24, rest.len() as u64, u64::MAX] {
            if let Some(header) = Header::decode(rest, seed, at, room) {
                assert!(header.frame_bytes <= room, "{header:?} in {room} bytes");
                assert!(header.frame_bytes >= 8 && header.frame_bytes.is_multiple_of(8));
                let payload = rest.get(HEADER_BYTES..).unwrap_or(&[]);
                let len = payload.len().min(header.payload_bytes as usize);
                assert!(header.kind != Kind::Padding || header.matches(&payload[..len]));
                assert!(header.durable(at).is_none_or(|durable| durable <= at));
            }
        }
        round_trip(rest, seed, at);
        let decoded = Header::decode(rest, seed, at, rest.len() as u64);
        offset += decoded.map_or(8, |header| header.frame_bytes as usize);
    }
}

/// Checks that a header with fields out of `bytes` decodes to itself, and that neither another LSN
/// nor a flipped bit lets it decode.
fn round_trip(bytes: &[u8], seed: EpochSeed, at: Lsn) {
    let Some(&[kind, member, ..]) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    let kind = match kind % 6 {
        0 | 1 => Kind::Data,
        2 => Kind::Batch,
        3 => Kind::Padding,
        4 => Kind::Mark,
        _ => Kind::Unknown { number: kind | 0x80, may_ignore: member & 2 != 0 },
    };
    let (sizes, lag) = (number_at(bytes, 8), number_at(bytes, 16));
    let header = Header {
        flags: member & 3,
        durable_lag: lag,
        ..Header::new(kind, number_at(bytes, 2) as u16, sizes as u32, (sizes >> 32) as u32)
    };
    let encoded = header.encode(seed, at);
    assert_eq!(Header::decode(&encoded, seed, at, u64::MAX), Some(header));
    assert_eq!(Header::decode(&encoded, seed, at.plus(8), u64::MAX), None, "one place only");
    let mut flipped = encoded;
    let bit = number_at(bytes, 0) as usize % (HEADER_BYTES * 8);
    flipped[bit / 8] ^= 1 << (bit % 8);
    // A flip that makes it a short padding is caught by that one's checksum.
    assert_eq!(Header::decode(&flipped, seed, at, u64::MAX), None, "bit {bit}");
}

/// Decodes `input`, with zeros behind it, as the block of a segment and as a copy of the meta file;
/// as it is, and with its checksum made right.
///
/// # Panics
/// If a decoded block does not come back as it was encoded.
pub fn segment_header(input: &[u8]) {
    let mut sealed = [0; BLOCK_BYTES];
    let len = input.len().min(BLOCK_BYTES);
    sealed[..len].copy_from_slice(&input[..len]);
    decode_block(input);
    decode_block(&sealed);
    for magic in [b"PALISEGM", b"PALIMETA"] {
        sealed[..8].copy_from_slice(magic);
        block::seal(&mut sealed);
        decode_block(&sealed);
    }
}

fn decode_block(bytes: &[u8]) {
    let mut uuid = Uuid([0; 16]);
    uuid.0.copy_from_slice(bytes.get(24..40).unwrap_or(&[0; 16]));
    let (number, segment_bytes) = (number_at(bytes, 40), number_at(bytes, 56));
    if let Ok(found) = header::decode(bytes, uuid, segment_bytes, number) {
        let codec = header::log_of(bytes).ok().and_then(|log| log.codec);
        let log = LogOf { uuid, segment_bytes, codec };
        let again = header::encode(&found, &log);
        if codec.is_some() {
            assert_eq!(header::log_of(&again), Ok(log));
        }
        assert_eq!(header::decode(&again, uuid, segment_bytes, number), Ok(found));
        assert!(header::decode(&again, Uuid([0x55; 16]), segment_bytes, number).is_err());
        assert!(header::decode(&again, uuid, segment_bytes, number ^ 1).is_err());
    }
    if let Ok(found) = meta::decode(bytes) {
        let again = meta::decode(&meta::encode(&found));
        assert_eq!(again, Ok(found));
    }
}

/// Opens the folder that `input`, an [`Image`], stands for.
///
/// # Panics
/// If the open neither fails typed, with every byte unchanged, nor gives records that were
/// appended, in order and without a gap; or if the next open gives other ones.
pub fn open_folder(input: &[u8]) {
    let Some(image) = Image::decode(input) else { return };
    let disk = image.disk();
    let start = Instant::now();
    look(&disk);
    let before = Image::of(&disk);
    match open(&disk) {
        Err(error) => {
            let kinds = [
                ErrorKind::Corrupt,
                ErrorKind::Foreign,
                ErrorKind::Unsupported,
                ErrorKind::OutOfRange,
            ];
            assert!(kinds.contains(&error.kind()), "{error}");
            repair(&disk, &image);
            assert_eq!(without_lock(Image::of(&disk)), without_lock(before), "{error}");
        }
        Ok(wal) => {
            let first = numbers(&wal);
            if !image.is_resealed {
                check(&image, &first);
            }
            let was_closed = wal.recovery_report().clean;
            drop(wal);
            look(&disk);
            reopen(&disk, &first, was_closed, image.is_resealed);
        }
    }
    assert!(start.elapsed() < LONGEST, "it took {:?}", start.elapsed());
}

/// Returns the files but the lock file, which an open makes before there is anything to refuse.
fn without_lock(image: Image) -> Vec<(String, Vec<u8>)> {
    image.files.into_iter().filter(|(name, _)| name != "lock").collect()
}

/// Repairs the log from its first bad place on, and checks that the copy opens and has the records
/// that the report counts. The caller checks that the folder is unchanged.
fn repair(disk: &MemDisk, image: &Image) {
    let plan = |from| Repair::plan_on(Arc::new(disk.clone()), Path::new(FOLDER), from, &mut |_| {});
    // It names the first bad place, if there is a log at all.
    let Err(error) = plan(Lsn::new(Lsn::LIMIT.as_u64() - 8)) else { return };
    let Some(bad) = error.lsn().filter(|_| error.kind() == ErrorKind::OutOfRange) else { return };
    if let Ok(verdict) = read(disk).and_then(|log| Inspector::new(log).verify_deep(1))
        && verdict.outcome == Outcome::Corrupt
        // Else no LSN is left for the copy.
        && bad < Lsn::LIMIT
    {
        assert_eq!(verdict.end, bad, "a verification proposes another LSN: {verdict:?}");
    }
    let Ok(planned) = plan(bad) else { return };
    // On a disk of its own: its log buffer is none of the damaged log's.
    let into = MemDisk::new();
    let report = planned.write_on(Arc::new(into.clone()), Path::new(FOLDER), &mut |_| {});
    let report = report.expect("what was planned is written");
    let found = numbers(&open(&into).expect("a copy opens"));
    assert_eq!((found.numbers.len() + found.strangers) as u64, report.records);
    if !image.is_resealed {
        check(image, &found);
    }
}

/// Runs the tools that read a log. None of them may panic or run for ever.
fn look(disk: &MemDisk) {
    let Ok(reader) = read(disk) else { return };
    let inspector = Inspector::new(reader);
    drop(inspector.verify());
    drop(inspector.verify_deep(1));
    if let Ok(mut salvage) = inspector.salvage(None) {
        // A read error is passed over by the next call.
        while !matches!(salvage.next(), Ok(None)) {}
    }
    if let Ok(mut records) = inspector.records(None) {
        while let Ok(Some(_)) = records.next() {}
    }
}

fn read(disk: &MemDisk) -> Result<FileReader> {
    FileReader::open_on(Arc::new(disk.clone()), Path::new(FOLDER))
}

fn open(disk: &MemDisk) -> Result<Wal> {
    open_with(disk, &FileOptions { open_mode: OpenMode::MustExist, ..FileOptions::default() })
}

/// Opens the log. Segments may be smaller than users may choose.
fn open_with(disk: &MemDisk, files: &FileOptions) -> Result<Wal> {
    let store = FileStore::open_on_any(Arc::new(disk.clone()), Path::new(FOLDER), files)?;
    Wal::with_store(store, Options::new().buffer_bytes(RING_BYTES))
}

/// What a log holds, and whether it could be read to its end.
#[derive(Debug, PartialEq, Eq)]
struct LogContent {
    numbers: Vec<u64>,
    strangers: usize,
    error: Option<ErrorKind>,
}

fn numbers(wal: &Wal) -> LogContent {
    let mut found = LogContent { numbers: Vec::new(), strangers: 0, error: None };
    let mut records = match wal.records() {
        Ok(records) => records,
        Err(error) => return LogContent { error: Some(error.kind()), ..found },
    };
    loop {
        match records.next() {
            Ok(Some(record)) => match image::number_of(record.data()) {
                Some(number) => found.numbers.push(number),
                None => found.strangers += 1,
            },
            Ok(None) => return found,
            Err(error) => {
                found.error = Some(error.kind());
                return found;
            }
        }
    }
}

fn check(image: &Image, found: &LogContent) {
    assert_eq!(found.strangers, 0, "records that nobody appended");
    assert!(matches!(found.error, None | Some(ErrorKind::Corrupt)), "{:?}", found.error);
    assert!(found.numbers.is_sorted_by(|one, next| one < next), "{:?}", found.numbers);
    let Some(&last) = found.numbers.last() else { return };
    // A record of the ring that is damaged looks like one whose thread died. In the same boot it
    // is passed over, unless a record appended after a sync proves that it was durable.
    let may_be_hole = |n: u64| image.is_same_boot && (n >= image.synced || last < image.synced);
    let missing = (image.first..last).find(|n| !found.numbers.contains(n) && !may_be_hole(*n));
    assert_eq!(missing, None, "missing among {:?}", found.numbers);
}

/// Checks G5: the next open reports what the first one has reported.
fn reopen(disk: &MemDisk, first: &LogContent, was_closed: bool, is_resealed: bool) {
    match open(disk) {
        Ok(wal) => assert_eq!(numbers(&wal), *first),
        Err(error) => {
            // A log that was closed opens without a look at most headers and records: damage shows
            // when it is read, and at the next unclean open.
            let is_late = error.kind() == ErrorKind::Corrupt
                && (was_closed || first.error == Some(ErrorKind::Corrupt));
            assert!(is_resealed || is_late, "it opened a moment ago: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
