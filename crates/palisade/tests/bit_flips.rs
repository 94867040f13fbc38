//! Every single bit of a small log is flipped in turn: of each segment file, of both copies of the
//! state, of the log buffer's block, marks and ring; in the same boot and in another one; of logs
//! that were killed or dropped with records above *durable*, and of one that was closed.
//!
//! What may come of a flip, and nothing else:
//! - *harmless*: every record is there, as it was appended.
//! - *torn*: the records from the flipped one on are gone. None of them was acknowledged.
//! - *padded*: only the flipped one is gone, in the same boot, and its only bytes were those in
//!   the ring: nothing tells it from the record of a thread that died. It was not acknowledged.
//! - *refused*: a typed error names the segment, the record or the file; no byte was changed.
//! - *found when read*: an open looks at what can be torn, and this lies below it. The scan, and
//!   `get`, give `Corrupt` with the flipped record's LSN, and every other record as it was.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table, and what failed")]

#[path = "bit_flips/flip.rs"]
mod flip;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use palisade::sim::SimDisk;
use palisade::{Error, ErrorKind, Lsn, Options, Wal, framed_bytes};
use palisade_store::FileOptions;

use crate::flip::{BLOCK_BYTES, Flip, Part, RING_BYTES, SEGMENT_BYTES, Sweep, is_buffer};

/// So many bytes of a file are one piece of work.
const PIECE_BYTES: usize = 128;
/// So many failures are shown, and end a thread's part.
const SHOWN: usize = 10;

/// A record; those of a batch end together.
#[derive(Debug)]
struct Entry {
    lsn: Lsn,
    /// The place of the frame that holds it: its own, or its batch's.
    frame: Lsn,
    end: Lsn,
    data: Vec<u8>,
}

/// A log in one boot, and what was in it.
#[derive(Debug)]
struct Subject {
    name: &'static str,
    disk: SimDisk,
    files: BTreeMap<String, Vec<u8>>,
    entries: Vec<Entry>,
    /// Everything that ends at or below it was acknowledged.
    durable: Lsn,
    /// Everything below it is in the segment files.
    written: Lsn,
    is_same_boot: bool,
}

/// How a log ended that nobody closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Harmless,
    Torn,
    Padded,
    Refused,
    FoundWhenRead,
}

type Counts = BTreeMap<(&'static str, Part, Outcome), u64>;

fn open(disk: &SimDisk) -> palisade::Result<Wal> {
    let mut files = FileOptions::new();
    files.segment_bytes = Some(SEGMENT_BYTES);
    files.spare_segments = 0;
    files.zero_fill = false;
    let log = Options::new().buffer_bytes(RING_BYTES as usize);
    let log = log.read_ahead_bytes(4096);
    Wal::with_store(disk.open(&files)?, log)
}

/// Appends records of many sizes, and a batch, until the log ends in its third segment.
fn fill(wal: &Wal) -> Vec<Entry> {
    let mut entries = Vec::new();
    for number in 0_u8.. {
        let data = |len: usize| vec![number ^ 0x5a; len];
        if number == 5 {
            let datas = [data(70), data(0), data(133)];
            let records: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
            let ticket = wal.append_batch(&records).unwrap();
            let mut lsn = ticket.lsn();
            for data in datas {
                let next = lsn.plus(framed_bytes(data.len()));
                let frame = Lsn::new(ticket.lsn().as_u64() - 24);
                entries.push(Entry { lsn, frame, end: ticket.end_lsn(), data });
                lsn = next;
            }
            continue;
        }
        append(wal, &mut entries, data(usize::from(number) * 97 % 500));
        if number.is_multiple_of(7) {
            wal.sync().unwrap();
        }
        if wal.reserved_lsn() > Lsn::new(2 * SEGMENT_BYTES + 900) {
            return entries;
        }
    }
    entries
}

fn append(wal: &Wal, entries: &mut Vec<Entry>, data: Vec<u8>) {
    let ticket = wal.append(&data).unwrap();
    entries.push(Entry { lsn: ticket.lsn(), frame: ticket.lsn(), end: ticket.end_lsn(), data });
}

/// A log that was killed, or whose last handle was dropped, with records above *durable*: two that
/// the operating system has, two that only the buffer had. A drop writes these to the segments.
fn not_closed(end: End, is_same_boot: bool) -> Subject {
    let disk = SimDisk::new(1);
    let wal = open(&disk).unwrap();
    let mut entries = fill(&wal);
    wal.sync().unwrap();
    let durable = wal.durable_lsn();
    append(&wal, &mut entries, vec![0xc3; 150]);
    append(&wal, &mut entries, vec![0x3c; 41]);
    wal.flush_to_os(entries.last().unwrap().lsn).unwrap();
    let written = entries.last().unwrap().end;
    // What only the log buffer has ends with the boot.
    if is_same_boot {
        append(&wal, &mut entries, vec![0x99; 120]);
        append(&wal, &mut entries, vec![0x66; 77]);
    }
    if end == End::Killed {
        disk.kill();
    }
    drop(wal);
    let written = if end == End::Dropped { entries.last().unwrap().end } else { written };
    disk.kill();
    let name = match (end, is_same_boot) {
        (End::Killed, true) => "killed, same boot",
        (End::Killed, false) => "killed, another boot",
        (End::Dropped, true) => "dropped, same boot",
        (End::Dropped, false) => "dropped, another boot",
    };
    subject(name, disk, entries, [durable, written], is_same_boot)
}

fn closed(is_same_boot: bool) -> Subject {
    let disk = SimDisk::new(2);
    let wal = open(&disk).unwrap();
    let entries = fill(&wal);
    wal.close().unwrap();
    disk.kill();
    let end = entries.last().unwrap().end;
    let name = if is_same_boot { "closed, same boot" } else { "closed, another boot" };
    subject(name, disk, entries, [end, end], is_same_boot)
}

fn subject(
    name: &'static str,
    disk: SimDisk,
    entries: Vec<Entry>,
    [durable, written]: [Lsn; 2],
    is_same_boot: bool,
) -> Subject {
    if is_same_boot {
        disk.restart()
    } else {
        disk.reboot()
    }
    let files = contents(&disk);
    let segments = files.keys().filter(|name| name.starts_with("segment-")).count();
    assert!(segments >= 3, "{:?}", disk.files());
    Subject { name, disk, files, entries, durable, written, is_same_boot }
}

fn contents(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let files = disk.files().into_iter().chain(disk.buffers());
    files.map(|name| (name.clone(), disk.file(&name).unwrap())).collect()
}

impl Subject {
    /// Flips one bit, opens the log, reads everything, and says what came of it. `spare` is a disk
    /// that an open has refused before, and left as it was.
    fn outcome(&self, flip: Flip<'_>, spare: &mut Option<SimDisk>) -> Result<Outcome, String> {
        let disk = spare.take().unwrap_or_else(|| self.disk.fork(3));
        disk.restart();
        let mut bytes = self.files[flip.file].clone();
        bytes[flip.byte] ^= 1 << flip.bit;
        disk.set_file(flip.file, bytes.clone());
        match open(&disk) {
            Ok(wal) => {
                let outcome = self.read(&wal, flip);
                // What the log does when it is dropped is of no interest.
                disk.kill();
                outcome
            }
            Err(error) => {
                self.check_unchanged(&disk, flip.file, &bytes)?;
                disk.kill();
                disk.set_file(flip.file, self.files[flip.file].clone());
                *spare = Some(disk);
                self.check_refusal(&error, flip).map(|()| Outcome::Refused)
            }
        }
    }

    /// The error is of a kind for damage, and names what was flipped.
    fn check_refusal(&self, error: &Error, flip: Flip<'_>) -> Result<(), String> {
        use ErrorKind::{Corrupt, Foreign, Unsupported};
        if !matches!(error.kind(), Corrupt | Foreign | Unsupported) {
            return Err(format!("refused with {error}"));
        }
        let names_file = error.path().is_some_and(|path| path.ends_with(flip.file));
        let names_segment = flip.segment().is_some() && error.segment() == flip.segment();
        let frame = error.lsn().and_then(|lsn| self.frame_at(lsn));
        let names_record = frame.is_some_and(|(from, to)| flip.lies_in(from, to));
        let is_named = match flip.part() {
            Part::SegmentBody => names_record && names_segment,
            _ => names_file || names_segment,
        };
        if is_named { Ok(()) } else { Err(format!("refused for another place: {error}")) }
    }

    /// No file came, went or changed but by the flip.
    fn check_unchanged(&self, disk: &SimDisk, file: &str, flipped: &[u8]) -> Result<(), String> {
        if !contents(disk).keys().eq(self.files.keys()) {
            return Err("a file was made or removed by an open that was refused".into());
        }
        for (name, before) in &self.files {
            let expected = if name == file { flipped } else { before };
            if disk.file(name).as_deref() != Some(expected) {
                return Err(format!("{name} was changed by an open that was refused"));
            }
        }
        Ok(())
    }

    /// The frame that begins at `lsn`: a record's, a batch's, or what lies between two of them: the
    /// padding of a reservation that met a segment's end, on both sides of it, or a mark.
    fn frame_at(&self, lsn: Lsn) -> Option<(Lsn, Lsn)> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.frame == lsn) {
            return Some((lsn, entry.end));
        }
        let is_behind_one = self.entries.iter().any(|entry| entry.end == lsn);
        let is_padding = lsn.as_u64().is_multiple_of(SEGMENT_BYTES);
        let end = Lsn::new((lsn.as_u64() / SEGMENT_BYTES + 1) * SEGMENT_BYTES);
        let next = self.entries.iter().map(|entry| entry.frame).find(|frame| *frame > lsn);
        (is_behind_one || is_padding).then_some((lsn, next.unwrap_or(end).min(end)))
    }

    fn read(&self, wal: &Wal, flip: Flip<'_>) -> Result<Outcome, String> {
        let mut found = Vec::new();
        let mut records = wal.records().map_err(|error| format!("records: {error}"))?;
        let damage = loop {
            match records.next() {
                Ok(Some(record)) => found.push((record.lsn(), record.data().to_vec())),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = damage {
            return self.found_when_read(wal, &found, &error, flip);
        }
        let is_there = |entry: &&Entry| found.iter().any(|(lsn, _)| *lsn == entry.lsn);
        let missing: Vec<&Entry> = self.entries.iter().filter(|entry| !is_there(entry)).collect();
        let present: Vec<&Entry> = self.entries.iter().filter(is_there).collect();
        same(&found, &present)?;
        if matches!(flip.part(), Part::SegmentBody | Part::Ring) {
            self.get_all(wal, &present, &missing)?;
        }
        let Some(first) = missing.first() else { return Ok(Outcome::Harmless) };
        if first.end <= self.durable {
            return Err(format!("the acknowledged record at {} is missing", first.lsn));
        }
        let is_suffix = present.iter().all(|entry| entry.end <= first.frame);
        let is_of_buffer = self.written <= first.lsn;
        let is_to_blame = match flip.part() {
            Part::BufferBlock | Part::Marks => is_of_buffer && is_suffix,
            Part::Ring => is_of_buffer && flip.lies_in(first.frame, first.end),
            Part::SegmentBody => flip.lies_in(first.frame, first.end),
            Part::SegmentHeader | Part::Meta => false,
        };
        if !is_to_blame {
            return Err(format!("the record at {} is missing for no reason", first.lsn));
        }
        match (is_suffix, self.is_same_boot && missing.len() == 1 && is_of_buffer) {
            (true, _) => Ok(Outcome::Torn),
            (false, true) => Ok(Outcome::Padded),
            (false, false) => Err(format!("the record at {} is missing", first.lsn)),
        }
    }

    /// Reading stopped: at the flipped record, and all others are there.
    fn found_when_read(
        &self,
        wal: &Wal,
        found: &[(Lsn, Vec<u8>)],
        error: &Error,
        flip: Flip<'_>,
    ) -> Result<Outcome, String> {
        let lsn = error.lsn().filter(|_| error.kind() == ErrorKind::Corrupt);
        let frame = lsn.and_then(|lsn| self.frame_at(lsn));
        let Some((from, to)) = frame.filter(|(from, to)| flip.lies_in(*from, *to)) else {
            return Err(format!("reading fails for another place: {error}"));
        };
        let below: Vec<&Entry> = self.entries.iter().filter(|entry| entry.end <= from).collect();
        if found.len() != below.len() {
            return Err(format!("{} records before the one at {from}", found.len()));
        }
        same(found, &below)?;
        let is_hit = |entry: &&Entry| from <= entry.lsn && entry.lsn < to;
        let (hit, others): (Vec<_>, Vec<_>) = self.entries.iter().partition(is_hit);
        // Of a batch, only the members that are damaged themselves need fail.
        let hit = if hit.len() > 1 { Vec::new() } else { hit };
        self.get_all(wal, &others, &hit)?;
        Ok(Outcome::FoundWhenRead)
    }

    /// `get` gives each of `there`, and none of `gone`. (`NotARecord` where the header does not
    /// validate: an LSN alone does not tell damage from a caller's mistake, a scan does.)
    fn get_all(&self, wal: &Wal, there: &[&Entry], gone: &[&Entry]) -> Result<(), String> {
        for entry in there {
            match wal.get(entry.lsn) {
                Ok(record) if record.data() == entry.data => {}
                Ok(_) => return Err(format!("get({}) gives other bytes", entry.lsn)),
                Err(error) => return Err(format!("get: {error}")),
            }
        }
        match gone.iter().find(|entry| wal.get(entry.lsn).is_ok()) {
            Some(entry) => Err(format!("get({}) gives what the scan does not", entry.lsn)),
            None => Ok(()),
        }
    }

    fn has_unsynced(&self) -> bool {
        self.durable < self.written
    }

    fn swept_files(&self) -> impl Iterator<Item = (&str, usize)> {
        let is_swept =
            |name: &str| name == "meta" || is_buffer(name) || name.starts_with("segment-");
        let files = self.files.iter().filter(move |(name, _)| is_swept(name));
        files.map(|(name, bytes)| (name.as_str(), bytes.len()))
    }
}

fn same(found: &[(Lsn, Vec<u8>)], expected: &[&Entry]) -> Result<(), String> {
    for (index, (lsn, data)) in found.iter().enumerate() {
        let is_it =
            expected.get(index).is_some_and(|entry| entry.lsn == *lsn && entry.data == *data);
        if !is_it {
            return Err(format!("record {index}, at {lsn}, was never appended so"));
        }
    }
    Ok(())
}

/// A run of bytes of one file of one log.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    subject: &'a Subject,
    file: &'a str,
    from: usize,
    to: usize,
    sweep: Sweep,
}

impl Piece<'_> {
    fn flip_all(&self, counts: &mut Counts, failures: &mut Vec<String>) {
        let mut spare = None;
        for byte in self.from..self.to {
            let of_byte = Flip { file: self.file, byte, bit: (byte % 8) as u32 };
            // After a clean close nobody looks into the ring.
            let is_ignored = of_byte.part() == Part::Ring && !self.subject.has_unsynced();
            let least = if is_ignored { Sweep::All } else { of_byte.sweep() };
            let is_all = self.sweep >= least;
            let bits = if is_all { 0..8 } else { of_byte.bit..of_byte.bit + 1 };
            for bit in bits {
                let flip = Flip { bit, ..of_byte };
                let outcome =
                    catch_unwind(AssertUnwindSafe(|| self.subject.outcome(flip, &mut spare)));
                match outcome.unwrap_or_else(|_| Err("a panic".into())) {
                    Ok(outcome) => {
                        let key = (self.subject.name, flip.part(), outcome);
                        *counts.entry(key).or_default() += 1;
                    }
                    Err(text) => failures.push(format!("{}: {flip:?}: {text}", self.subject.name)),
                }
            }
        }
    }
}

fn sweep_all(pieces: &[Piece<'_>]) -> (Counts, Vec<String>) {
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Counts::new(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut counts, mut failures) = (Counts::new(), Vec::new());
                // Relaxed: the counter shares out pieces, it orders nothing.
                while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    piece.flip_all(&mut counts, &mut failures);
                    if failures.len() >= SHOWN {
                        break;
                    }
                }
                let mut total = total.lock().unwrap();
                for (key, count) in counts {
                    *total.0.entry(key).or_default() += count;
                }
                total.1.append(&mut failures);
            });
        }
    });
    total.into_inner().unwrap()
}

fn print(counts: &Counts) {
    use Outcome::{FoundWhenRead, Harmless, Padded, Refused, Torn};
    let rows: std::collections::BTreeSet<_> =
        counts.keys().map(|(name, part, _)| (*name, *part)).collect();
    println!("| log | part | harmless | torn | padded | refused | found when read |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for (name, part) in rows {
        let of = |outcome| counts.get(&(name, part, outcome)).copied().unwrap_or(0);
        let [harmless, torn, padded] = [of(Harmless), of(Torn), of(Padded)];
        let [refused, found] = [of(Refused), of(FoundWhenRead)];
        println!("| {name} | {part:?} | {harmless} | {torn} | {padded} | {refused} | {found} |");
    }
}

/// Protection: checksums over everything, the floor, two copies of the state, two slots of the sync
/// line. All bits of fields and records are flipped in the killed log in the same boot, which reads
/// all kinds of files; all bits of fields in the others, and one of each other byte. With
/// `PALISADE_EVERY_BIT` it is all bits of all files of all logs.
#[test]
fn every_single_bit_of_a_log_of_three_segments_flipped_in_turn() {
    let is_whole = std::env::var_os("PALISADE_EVERY_BIT").is_some();
    let first = not_closed(End::Killed, true);
    let others = [
        not_closed(End::Killed, false),
        not_closed(End::Dropped, true),
        not_closed(End::Dropped, false),
        closed(true),
        closed(false),
    ];
    let others = others.iter().map(|subject| (subject, Sweep::Fields));
    let mut pieces = Vec::new();
    for (subject, sweep) in [(&first, Sweep::Records)].into_iter().chain(others) {
        let sweep = if is_whole { Sweep::All } else { sweep };
        for (file, len) in subject.swept_files() {
            for from in (0..len).step_by(PIECE_BYTES) {
                let to = len.min(from + PIECE_BYTES);
                pieces.push(Piece { subject, file, from, to, sweep });
            }
        }
    }
    let (counts, failures) = sweep_all(&pieces);
    print(&counts);
    failures.iter().take(SHOWN).for_each(|failure| eprintln!("{failure}"));
    assert!(failures.is_empty(), "{} flips were not noticed, or did harm", failures.len());
    check_counts(&counts);
}

/// The sweep has met what it is about.
fn check_counts(counts: &Counts) {
    let of = |name: &str, part, outcome| {
        let with_name = counts.iter().filter(|((of, ..), _)| of.starts_with(name));
        let fits = with_name.filter(|((_, p, o), _)| (*p, *o) == (part, outcome));
        fits.map(|(_, count)| count).sum::<u64>()
    };
    for outcome in [Outcome::Harmless, Outcome::Refused, Outcome::FoundWhenRead] {
        assert!(of("killed", Part::SegmentBody, outcome) > 0, "{outcome:?}");
    }
    assert!(of("killed, same", Part::SegmentHeader, Outcome::Refused) >= 3 * BLOCK_BYTES);
    assert!(of("killed, same", Part::Meta, Outcome::Harmless) >= 2 * BLOCK_BYTES);
    assert!(of("killed", Part::Ring, Outcome::Torn) > 0);
    assert!(of("killed, same", Part::Ring, Outcome::Padded) > 0);
    for outcome in [Outcome::Harmless, Outcome::Torn, Outcome::Refused, Outcome::FoundWhenRead] {
        assert!(of("dropped", Part::SegmentBody, outcome) > 0, "{outcome:?}");
    }
    assert!(of("dropped", Part::SegmentBody, Outcome::Refused) > 0);
    assert_eq!(of("closed", Part::Ring, Outcome::Torn), 0);
    assert!(of("closed", Part::SegmentHeader, Outcome::Refused) > 0);
    // The open of a closed log reads the header of its last segment only.
    assert!(of("closed", Part::SegmentHeader, Outcome::Harmless) > 0);
}
