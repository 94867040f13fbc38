//! Files of a small log that are missing, empty, cut, swapped, duplicated, foreign, zeroed or
//! without a valid header, and files of another log above its end, one or two at a time, chosen by
//! seeds. The log was closed, dropped after
//! a sync, or killed after a sync, and is opened in the same boot or in another one.
//!
//! Every record was acknowledged. What may come of a shape, and nothing else:
//! - *whole*: the open returns every record.
//! - *refused*: a typed error, and no file has changed.
//! - *found when read*: an open that does not verify all returns a log in which reading ends with
//!   `Corrupt`, and `get` returns each record that can still be read.
//! - *unproven*: the log was killed, and nothing that is left proves that the last records were
//!   synced (the exception of G8). Only these may be gone.
//!
//! A file that the log did not make stays as it is.
//!
//! A verification decides as the open does.
//!
//! A seed is one shape of each of the six logs. `PALISADE_SEEDS` sets how many seeds are run.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table, and what failed")]

#[path = "common/dice.rs"]
mod dice;
#[path = "common/seeds.rs"]
mod seeds;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use palisade::sim::SimDisk;
use palisade::{Error, ErrorKind, Lsn, Options, Verify, Wal};
use palisade_core::inspect::{Inspector, Outcome, Salvaged};
use palisade_store::FileOptions;

use crate::dice::Dice;
use crate::seeds::Seeded;

const SEGMENT_BYTES: u64 = 4096;
const SEGMENTS: u64 = 6;
/// The seeds that `cargo test` runs.
const USUAL: u64 = 340;

#[derive(Debug)]
struct Entry {
    lsn: Lsn,
    data: Vec<u8>,
    /// The durable watermark that the record has noted.
    noted: Lsn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Closed,
    Dropped,
    Killed,
}

/// A log that has ended, and what was in it.
#[derive(Debug)]
struct Subject {
    end: End,
    is_same_boot: bool,
    disk: SimDisk,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Missing,
    Empty,
    Cut,
    Swapped,
    Duplicated,
    Foreign,
    Zeroed,
    Headless,
    Added,
}

const KINDS: [Kind; 9] = [
    Kind::Missing,
    Kind::Empty,
    Kind::Cut,
    Kind::Swapped,
    Kind::Duplicated,
    Kind::Foreign,
    Kind::Zeroed,
    Kind::Headless,
    Kind::Added,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Whole,
    Refused,
    WhenRead,
    Unproven,
}

/// Records above a cut that could still be read, and that an open removed as a torn tail.
static READABLE_REMOVED: AtomicU64 = AtomicU64::new(0);

type Files = BTreeMap<String, Vec<u8>>;
type Counts = BTreeMap<(End, bool, Kind, Found), u64>;

fn open(disk: &SimDisk, verify: Verify) -> palisade::Result<Wal> {
    let mut files = FileOptions::new();
    files.segment_bytes = Some(SEGMENT_BYTES);
    let log = Options::new().buffer_bytes(4096).verify(verify);
    Wal::with_store(disk.open(&files)?, log)
}

/// Appends records of random lengths with a sync now and then, and at last one for all.
fn subject(seed: u64, end: End, is_same_boot: bool) -> Subject {
    let (disk, mut dice) = (SimDisk::new(seed), Dice::new(seed));
    let wal = open(&disk, Verify::Tail).unwrap();
    let mut entries = Vec::new();
    let sync_every = dice.pick(&[2, 6, 20, u64::MAX]);
    while wal.reserved_lsn() < Lsn::new((SEGMENTS - 1) * SEGMENT_BYTES + dice.below(3000)) {
        let data = vec![dice.next() as u8; dice.below(500) as usize];
        let noted = wal.durable_lsn();
        entries.push(Entry { lsn: wal.append(&data).unwrap().lsn(), data, noted });
        if dice.once_in(sync_every) {
            wal.sync().unwrap();
        }
    }
    wal.sync().unwrap();
    match end {
        End::Closed => wal.close().unwrap(),
        End::Dropped => drop(wal),
        End::Killed => {
            disk.kill();
            drop(wal);
        }
    }
    if is_same_boot {
        disk.restart();
    } else {
        disk.reboot();
    }
    Subject { end, is_same_boot, disk, entries }
}

fn contents(disk: &SimDisk) -> Files {
    let names = disk.files().into_iter().filter(|name| name != "lock");
    names.map(|name| (name.clone(), disk.file(&name).unwrap())).collect()
}

fn segment(number: u64) -> String {
    format!("segment-{number:020}")
}

/// Gives a file of `disk`, or two, another shape.
fn change(disk: &SimDisk, other: &Files, kind: Kind, dice: &mut Dice) {
    let names: Vec<String> = contents(disk).into_keys().collect();
    let is_segment = |name: &&String| name.starts_with("segment-");
    let segments: Vec<String> = names.iter().filter(is_segment).cloned().collect();
    let any_segment =
        |dice: &mut Dice| segments[dice.below(segments.len() as u64) as usize].clone();
    let name = if dice.once_in(12) { "meta".to_owned() } else { any_segment(dice) };
    let Some(bytes) = disk.file(&name) else { return };
    match kind {
        Kind::Missing => disk.remove_file(&name),
        Kind::Empty => disk.set_file(&name, Vec::new()),
        Kind::Cut => {
            let len = dice.below(bytes.len().max(1) as u64) as usize;
            disk.set_file(&name, bytes[..len].to_vec());
        }
        Kind::Swapped => {
            let second = any_segment(dice);
            let kept = disk.file(&second).unwrap();
            disk.set_file(&second, bytes);
            disk.set_file(&name, kept);
        }
        Kind::Duplicated => {
            let number = dice.below(SEGMENTS + 4);
            disk.set_file(&segment(number), bytes);
        }
        Kind::Foreign => disk.set_file(&name, other.get(&name).cloned().unwrap_or_default()),
        Kind::Zeroed => disk.set_file(&name, vec![0; bytes.len()]),
        Kind::Headless => {
            let flipped = bytes.iter().enumerate();
            let flipped = flipped.map(|(at, byte)| if at == 50 { !byte } else { *byte });
            disk.set_file(&name, flipped.collect());
        }
        Kind::Added => {
            let above = segment(SEGMENTS + dice.below(20));
            disk.set_file(&above, other.get(&name).cloned().unwrap_or_default());
        }
    }
}

/// The records that can still be read, each by its LSN.
fn readable(disk: &SimDisk) -> Result<BTreeMap<Lsn, Vec<u8>>, Error> {
    let mut found = BTreeMap::new();
    let mut salvage = Inspector::new(disk.reader()?).salvage(None)?;
    while let Some(item) = salvage.next()? {
        if let Salvaged::Record(record) = item {
            found.insert(record.lsn(), record.data().to_vec());
        }
    }
    Ok(found)
}

impl Subject {
    /// Whether the state, or the log buffer, proves that all of the records were synced.
    fn is_proven(&self) -> bool {
        self.end != End::Killed || self.is_same_boot
    }

    /// Changes one or two files and checks what the tools and the opens make of it.
    fn check(&self, other: &Files, kind: Kind, seed: u64) -> Found {
        let mut dice = Dice::new(seed);
        let disk = self.disk.fork(seed);
        disk.restart();
        change(&disk, other, kind, &mut dice);
        let second = dice.pick(&KINDS);
        let has_second = dice.once_in(3);
        if has_second {
            change(&disk, other, second, &mut dice);
        }
        let may_be_torn = kind == Kind::Cut || has_second && second == Kind::Cut;
        let before = contents(&disk);
        let readable = readable(&disk);
        let verdict = disk.reader().and_then(|reader| Inspector::new(reader).verify_deep(1));
        let [full, tail] = [Verify::Full, Verify::Tail].map(|verify| {
            let disk = disk.fork(seed + 1);
            disk.restart();
            let opened = open(&disk, verify);
            if let Err(error) = &opened {
                assert!(contents(&disk) == before, "a refused open has changed a file: {error}");
                assert!(is_typed(error), "{error}");
            }
            opened.map(|wal| {
                let found = self.read(&wal, readable.as_ref().ok(), verify, may_be_torn);
                self.check_files_of_others(&wal, &disk, &before);
                found
            })
        });
        let is_corrupt = verdict.as_ref().is_ok_and(|verdict| verdict.outcome == Outcome::Corrupt);
        let text = format!("{verdict:?}, opened {full:?} and {tail:?}");
        if let (Ok(_), Ok(_)) = (&verdict, &full) {
            assert!(!is_corrupt, "the open returns what a verification calls damaged: {text}");
        }
        // Without the meta file the tools rebuild the state from headers, and an open is refused.
        let has_meta = disk.file("meta") == self.disk.file("meta");
        if full.is_err() && has_meta {
            assert!(
                is_corrupt || verdict.is_err(),
                "refused, and a verification finds no damage: {text}"
            );
        }
        assert!(full.is_err() || tail.is_ok(), "{text}");
        tail.unwrap_or(Found::Refused)
    }

    /// Truncates the prefix of the log and checks that it removes no file that it did not make.
    fn check_files_of_others(&self, wal: &Wal, disk: &SimDisk, before: &Files) {
        let _ = wal.truncate_before(wal.durable_lsn());
        let own = contents(&self.disk);
        for (name, bytes) in before.iter().filter(|(name, _)| !own.contains_key(*name)) {
            assert!(disk.file(name).as_ref() == Some(bytes), "{name} is gone, or has changed");
        }
    }

    /// Reads the log, which opened, and says what became of the records.
    fn read(
        &self,
        wal: &Wal,
        readable: Option<&BTreeMap<Lsn, Vec<u8>>>,
        verify: Verify,
        may_be_torn: bool,
    ) -> Found {
        let mut found = BTreeMap::new();
        let mut records = wal.records().unwrap();
        let end = loop {
            match records.next() {
                Ok(Some(record)) => drop(found.insert(record.lsn(), record.data().to_vec())),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let is_own = |lsn: &Lsn, data: &Vec<u8>| {
            let index = self.entries.binary_search_by_key(lsn, |entry| entry.lsn);
            index.is_ok_and(|index| self.entries[index].data == *data)
        };
        assert!(found.iter().all(|(lsn, data)| is_own(lsn, data)), "a record that nobody appended");
        let none = BTreeMap::new();
        let readable = readable.unwrap_or(&none);
        if let Some(error) = end {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(verify, Verify::Tail, "{error}");
            let kept = |(lsn, data): (&Lsn, &Vec<u8>)| {
                wal.get(*lsn).is_ok_and(|record| record.data() == data)
            };
            assert!(readable.iter().all(kept), "a readable record above the damage is gone");
            return Found::WhenRead;
        }
        let missing: Vec<&Entry> =
            self.entries.iter().filter(|entry| !found.contains_key(&entry.lsn)).collect();
        let Some(first) = missing.first() else { return Found::Whole };
        assert_eq!(found.len() + missing.len(), self.entries.len());
        assert!(!self.is_proven(), "the acknowledged record at {} is gone", first.lsn);
        assert!(found.keys().all(|lsn| *lsn < first.lsn), "a hole at {}", first.lsn);
        let is_left = |entry: &&Entry| readable.contains_key(&entry.lsn);
        // Only a cut can look like a torn tail, above which nothing counts.
        let left = missing.iter().filter(|entry| is_left(entry)).count();
        assert!(may_be_torn || left == 0, "a readable record is gone");
        // Relaxed: a count.
        READABLE_REMOVED.fetch_add(left as u64, Ordering::Relaxed);
        let proven = self.entries.iter().filter(is_left).map(|entry| entry.noted).max();
        let proven = proven.unwrap_or_default();
        assert!(proven <= first.lsn, "gone from {} on, proven to {proven}", first.lsn);
        Found::Unproven
    }
}

fn is_typed(error: &Error) -> bool {
    use ErrorKind::{Corrupt, Foreign, NotFound, Unsupported};
    matches!(error.kind(), Corrupt | Foreign | NotFound | Unsupported)
}

fn print(counts: &Counts) {
    println!("| log | shape | whole | refused | found when read | unproven |");
    println!("|---|---|---:|---:|---:|---:|");
    let rows: std::collections::BTreeSet<_> =
        counts.keys().map(|(end, boot, kind, _)| (*end, *boot, *kind)).collect();
    for (end, is_same_boot, kind) in rows {
        let of = |found| counts.get(&(end, is_same_boot, kind, found)).copied().unwrap_or(0);
        let [whole, refused] = [of(Found::Whole), of(Found::Refused)];
        let [read, unproven] = [of(Found::WhenRead), of(Found::Unproven)];
        let boot = if is_same_boot { "same boot" } else { "another boot" };
        println!("| {end:?}, {boot} | {kind:?} | {whole} | {refused} | {read} | {unproven} |");
    }
}

/// What came of one shape of each log.
#[derive(Debug)]
struct Shapes {
    seed: u64,
    /// The log and the shape that is checked, then what was found of each.
    current: Option<(End, bool, Kind)>,
    counts: Counts,
}

impl Seeded for Shapes {
    fn new(seed: u64) -> Shapes {
        Shapes { seed, current: None, counts: Counts::new() }
    }

    fn run(&mut self) {
        for end in [End::Closed, End::Dropped, End::Killed] {
            for is_same_boot in [true, false] {
                let kind = KINDS[(self.seed % KINDS.len() as u64) as usize];
                self.current = Some((end, is_same_boot, kind));
                let log = subject(self.seed, end, is_same_boot);
                let other = contents(&subject(self.seed + 1_000_000, end, is_same_boot).disk);
                let found = log.check(&other, kind, self.seed);
                *self.counts.entry((end, is_same_boot, kind, found)).or_default() += 1;
            }
        }
    }

    fn describe(&self) -> String {
        format!("{:?}", self.current)
    }
}

/// Protection: headers are durable before names, and names in order; the marks of the log buffer,
/// the evidence that a close or a drop leaves in the state, and the last frame of a closed log.
#[test]
fn a_log_with_altered_files_returns_every_record_or_an_error() {
    let counts = Mutex::new(Counts::new());
    seeds::sweep("-p palisade --test file_shapes", USUAL, |shapes: Shapes| {
        let mut counts = counts.lock().unwrap();
        for (key, count) in shapes.counts {
            *counts.entry(key).or_default() += count;
        }
    });
    let counts = counts.into_inner().unwrap();
    print(&counts);
    let removed = READABLE_REMOVED.load(Ordering::Relaxed);
    println!("readable records above a cut that were removed: {removed}");
    let of = |found| counts.keys().filter(|key| key.3 == found).count();
    for found in [Found::Whole, Found::Refused, Found::WhenRead, Found::Unproven] {
        assert!(
            seeds::number("PALISADE_SEEDS").is_some() || of(found) > 0,
            "no shape was {found:?}"
        );
    }
}
