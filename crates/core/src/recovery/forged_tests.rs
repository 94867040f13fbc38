//! What must hold for folders with forged headers that validate, as many as fit. The work of an
//! open, a verification and a salvage stays in proportion to the bytes in the folder.
//!
//! Steps are counted, not time.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_store::sync::Mutex;
use palisade_store::{BadHeader, Predecessor, ReadStore, Segment, SegmentHeader, State};

use super::Scanner;
use super::discarded::LOOKS;
use super::layout::Layout;
use super::scan::OldLogBuffer;
use super::verify::{self, BadPlace, Effort};
use crate::frame::{EpochSeed, HEADER_BYTES, Header, Kind, LAG_UNKNOWN};
use crate::inspect::{Inspector, Outcome, Salvage};
use crate::reader::FrameReader;
use crate::{ErrorKind, Lsn, Uuid};

const READ_AHEAD_BYTES: usize = 4096;
const UUID: Uuid = Uuid([5; 16]);

/// Segments with their bytes, and how much of them was read.
#[derive(Debug)]
struct Forged {
    state: State,
    segments: BTreeMap<u64, (std::result::Result<SegmentHeader, BadHeader>, Vec<u8>)>,
    listings: Mutex<u64>,
    bytes_read: Mutex<u64>,
}

impl Forged {
    fn new(segment_bytes: u64) -> Forged {
        let state = State {
            uuid: UUID,
            segment_bytes,
            buffer_bytes: 4096,
            epoch: 0,
            epoch_base: Lsn::ZERO,
            epoch_salt: 0,
            head: Lsn::ZERO,
            checkpoint: Lsn::ZERO,
            clean_end: Lsn::ZERO,
            clean: false,
            epochs: Vec::new(),
            codec: None,
            cursors: Vec::new(),
            bases: Vec::new(),
        };
        let (listings, bytes_read) = (Mutex::new(0), Mutex::new(0));
        Forged { state, segments: BTreeMap::new(), listings, bytes_read }
    }

    fn bytes(&self) -> u64 {
        self.segments.values().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    fn base(&self, number: u64) -> Lsn {
        Lsn::new(number * self.state.segment_bytes)
    }
}

impl ReadStore for Forged {
    fn state(&self) -> crate::Result<State> {
        Ok(self.state.clone())
    }

    fn segments(&self) -> crate::Result<Vec<Segment>> {
        *self.listings.lock() += 1;
        let all = self.segments.iter();
        Ok(all.map(|(&number, (header, _))| Segment { number, header: header.clone() }).collect())
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> crate::Result<usize> {
        let number = at.segment(self.state.segment_bytes);
        let Some((_, bytes)) = self.segments.get(&number) else { return Ok(0) };
        let rest = bytes.get(at.bytes_since(self.base(number)) as usize..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        *self.bytes_read.lock() += len as u64;
        Ok(len)
    }

    fn place(&self) -> String {
        "forged".into()
    }
}

/// How a header lies about its frame.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// It claims all up to the end, and its payload's checksum is wrong.
    ToTheEnd,
    /// The same, with so many bytes.
    Claims(u64),
    /// It is a member of a batch that is not there, and its payload's checksum would hold.
    Member,
}

/// Returns `len` bytes at `at` that are one forged header after the other.
fn forged(at: Lsn, len: usize, seed: EpochSeed, lie: Lie) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // From the end, so that a checksum covers what lies behind.
    for offset in (0..len - HEADER_BYTES).step_by(HEADER_BYTES).rev() {
        let room = len - offset - HEADER_BYTES;
        let (payload, is_member) = match lie {
            Lie::ToTheEnd => (room, false),
            Lie::Claims(bytes) => (room.min(bytes as usize), false),
            Lie::Member => (room, true),
        };
        let behind = offset + HEADER_BYTES;
        let checksum = crate::crc32c_append(0, &bytes[behind..behind + payload]);
        let checksum = if is_member { checksum } else { !checksum };
        let header = Header::new(Kind::Data, 0, payload as u32, checksum);
        let header = Header { flags: u8::from(is_member), durable_lag: 0, ..header };
        let header = header.encode(seed, at.plus(offset as u64));
        bytes[offset..behind].copy_from_slice(&header);
    }
    bytes
}

const LIES: [Lie; 5] =
    [Lie::ToTheEnd, Lie::Claims(0), Lie::Claims(100), Lie::Claims(3000), Lie::Member];

/// The bytes of a forged segment.
const BYTES: u64 = 256 << 10;

/// Returns a store with one segment of forged headers, and a reader of it.
fn forged_segment(seed: EpochSeed, lie: Lie) -> (Arc<Forged>, FrameReader) {
    let mut store = Forged::new(2 * BYTES);
    let header = SegmentHeader { number: 0, base: Lsn::ZERO, epoch: 1, salt: 9, predecessor: None };
    store.segments.insert(0, (Ok(header), forged(Lsn::ZERO, BYTES as usize, seed, lie)));
    let store = Arc::new(store);
    let as_reader = Arc::clone(&store) as Arc<dyn ReadStore>;
    (store, FrameReader::new(as_reader, 2 * BYTES, READ_AHEAD_BYTES))
}

/// Checks the work of a search in a segment of headers that lie about their frames.
#[test]
fn a_search_through_forged_headers_reads_each_byte_a_few_times() {
    let seed = EpochSeed::new(UUID, 1, 9);
    for lie in LIES {
        let (store, mut reader) = forged_segment(seed, lie);
        assert_eq!(reader.find(Lsn::new(8), Lsn::new(BYTES), &[seed]).unwrap(), None);
        let read = *store.bytes_read.lock();
        assert!(read <= 3 * BYTES, "{lie:?}: {read} bytes were read, there are {BYTES}");
    }
}

/// Checks the work of a search in a log buffer of such headers.
#[test]
fn a_search_of_a_forged_log_buffer_reads_each_byte_a_few_times() {
    let seed = EpochSeed::new(UUID, 1, 9);
    for lie in LIES {
        let (store, reader) = forged_segment(seed, lie);
        let (ring_bytes, segment_bytes) = (BYTES, 2 * BYTES);
        let (durable, written) = (Lsn::ZERO, Lsn::ZERO);
        let mut buffer = OldLogBuffer { reader, ring_bytes, segment_bytes, durable, written };
        assert_eq!(buffer.find_after(Lsn::ZERO, seed).unwrap(), None, "{lie:?}");
        let read = *store.bytes_read.lock();
        assert!(read <= 4 * BYTES, "{lie:?}: {read} bytes were read, there are {BYTES}");
    }
}

/// Encodes a record without a payload at `at`, which claims that all below `durable` was durable.
fn record(at: Lsn, seed: EpochSeed, durable: Option<Lsn>) -> Vec<u8> {
    let durable_lag = durable.map_or(LAG_UNKNOWN, |durable| at.bytes_since(durable));
    let header = Header { durable_lag, ..Header::new(Kind::Data, 0, 0, 0) };
    header.encode(seed, at).to_vec()
}

/// Checks that a file out of reach whose header does not validate is no part of the log, unless it
/// holds records of the log: their LSNs are not used again, and what they prove to have been
/// durable has to be there.
#[test]
fn records_in_a_stray_file_count_though_its_header_does_not() {
    const BYTES: u64 = 64 << 10;
    const FAR_ABOVE: u64 = 1 << 30;
    let seed = EpochSeed::new(UUID, 1, 9);
    let own = |number: u64, base: Lsn| {
        let header = SegmentHeader { number, base, epoch: 1, salt: 9, predecessor: None };
        (Ok(header), record(base, seed, Some(base)))
    };
    let scan = |stray: &dyn Fn(Lsn) -> Vec<u8>| {
        let mut store = Forged::new(BYTES);
        store.segments.insert(0, own(0, Lsn::ZERO));
        let base = store.base(FAR_ABOVE);
        store
            .segments
            .insert(FAR_ABOVE, (Err(BadHeader::Damaged("it is empty".into())), stray(base)));
        let store: Arc<dyn ReadStore> = Arc::new(store);
        let layout = Arc::new(Layout::read(store.as_ref()).unwrap());
        assert_eq!(layout.strays, [FAR_ABOVE]);
        assert_eq!(layout.highest_end, Lsn::new(BYTES));
        let bytes = READ_AHEAD_BYTES;
        let mut scanner = Scanner::new(&store, &layout, None, bytes).unwrap();
        scanner.run().map(|scan| scan.end.plus(scan.torn_bytes))
    };
    let end = Lsn::new(HEADER_BYTES as u64);
    let stray_end = Lsn::new(FAR_ABOVE * BYTES + HEADER_BYTES as u64);
    assert_eq!(scan(&|_| Vec::new()).unwrap(), end);
    assert_eq!(scan(&|_| vec![0x5a; 5000]).unwrap(), end);
    let older = EpochSeed::new(UUID, 0, 9);
    assert_eq!(scan(&|base| record(base, older, None)).unwrap(), end);
    assert_eq!(scan(&|base| record(base, seed, Some(Lsn::ZERO))).unwrap(), stray_end);
    let error = scan(&|base| record(base, seed, Some(base))).unwrap_err();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(end)), "{error}");
}

/// Returns the bad places that a deep verification names in a log of six segments of padding, with
/// zeros in the second to the fourth.
fn deep_bad_places(change: impl FnOnce(&mut Forged)) -> Vec<BadPlace> {
    const BYTES: u64 = 64 << 10;
    let seed = EpochSeed::new(UUID, 1, 9);
    let mut store = Forged::new(BYTES);
    (store.state.epoch, store.state.epoch_salt) = (1, 9);
    store.state.checkpoint = store.base(5);
    for number in 0..6 {
        let base = store.base(number);
        let header = SegmentHeader { number, base, epoch: 1, salt: 9, predecessor: None };
        let (padding, used) = crate::frame::padding(seed, base, BYTES, LAG_UNKNOWN);
        let mut bytes = vec![0; BYTES as usize];
        if !matches!(number, 1..=3) {
            bytes[..used].copy_from_slice(&padding[..used]);
        }
        store.segments.insert(number, (Ok(header), bytes));
    }
    change(&mut store);
    let verdict = Inspector::new(store).verify_deep(1).unwrap();
    assert_eq!(verdict.outcome, Outcome::Corrupt);
    let is_base = |bad: &BadPlace| bad.lsn == Lsn::new(bad.segment * BYTES);
    assert!(verdict.bad_places.iter().all(is_base), "{verdict:?}");
    verdict.bad_places
}

/// Checks that each segment which one gap covers is damaged.
#[test]
fn a_deep_verification_names_each_segment_of_a_gap() {
    let segments = |change: fn(&mut Forged)| -> Vec<u64> {
        deep_bad_places(change).into_iter().map(|bad| bad.segment).collect()
    };
    assert_eq!(segments(|_| {}), [1, 2, 3]);
    // Without its first segment the log has no layout, so only the salvage finds bad places.
    let without_first = segments(|store| drop(store.segments.remove(&0)));
    assert_eq!(without_first, [0, 1, 2, 3]);
    // Of segments that are missing, the first is named: a state can claim any number of them.
    let claims_more = segments(|store| store.state.checkpoint = Lsn::new(1 << 59));
    assert_eq!(claims_more, [1, 2, 3, 6]);
}

/// Forges so many segments, each an epoch of its own, whose header names the one before and an end
/// of it: the greatest number of discarded ranges that a folder can have. Every `damaged`th header
/// is lost.
fn forged_epochs(count: u64, damaged: u64) -> Forged {
    const SEGMENT_BYTES: u64 = 4096;
    let mut store = Forged::new(SEGMENT_BYTES);
    for number in 0..count {
        let base = store.base(number);
        let (epoch, salt) = (number + 1, number * 7);
        let predecessor = (number > 0).then(|| {
            let end = Lsn::new(base.as_u64() - SEGMENT_BYTES / 2);
            Predecessor { epoch: epoch - 1, end }
        });
        let header = SegmentHeader { number, base, epoch, salt, predecessor };
        let seed = EpochSeed::new(UUID, epoch, salt);
        let bytes = forged(base, SEGMENT_BYTES as usize, seed, LIES[number as usize % LIES.len()]);
        let header = match number % damaged {
            1 => Err(BadHeader::Damaged("forged, and damaged".into())),
            _ => Ok(header),
        };
        store.segments.insert(number, (header, bytes));
    }
    store
}

/// Returns the steps up to here.
fn steps(store: &Forged) -> [u64; 3] {
    [*store.listings.lock(), *store.bytes_read.lock(), LOOKS.get()]
}

/// Returns the steps of a layout and a scan, of a check of all segments, and of a salvage.
fn work_on(store: Forged) -> [u64; 3] {
    LOOKS.set(0);
    let store = Arc::new(store);
    let as_reader = Arc::clone(&store) as Arc<dyn ReadStore>;
    if let Ok(layout) = Layout::read(store.as_ref()) {
        let layout = Arc::new(layout);
        let bytes = READ_AHEAD_BYTES;
        let mut scanner = Scanner::new(&as_reader, &layout, None, bytes).unwrap();
        // Whatever it is taken for.
        let _ = scanner.run();
        let effort = Effort { read_ahead_bytes: bytes, threads: 1, ends_at_first: false };
        let end = layout.newest().unwrap().base;
        verify::check(&as_reader, &layout.state, &layout.spans, end, effort, &mut |_| {}).unwrap();
    }
    Salvage::new(&as_reader, None, READ_AHEAD_BYTES).unwrap().count(|_| {}).unwrap();
    steps(&store)
}

/// Checks the work on many small segments with forged epochs and predecessors.
#[test]
fn a_folder_of_forged_epochs_takes_steps_in_proportion_to_it() {
    for damaged in [u64::MAX, 3, 2] {
        let [few, many] = [256, 4096].map(|count| forged_epochs(count, damaged));
        let bytes = many.bytes();
        let (few, many) = (work_on(few), work_on(many));
        assert!(many[0] == few[0] && many[0] <= 2, "the folder is listed once or twice: {many:?}");
        assert!(many[1] <= 6 * bytes, "{} of {bytes} bytes were read", many[1]);
        // Sixteen times as many, and a bisection's four steps more.
        assert!(many[2] <= 16 * 2 * few[2], "{} looks at ranges, {} before", many[2], few[2]);
    }
}
