//! `palisade demo-fill`: fills the disk of a log, frees space, and checks that the log continues.
//!
//! 1. Fill the disk. Remove a file. The log continues in the same epoch.
//! 2. Fill the disk again. Truncate the log's start. The log continues in the same epoch.
//! 3. Fill the disk again. Drop the log and open it while the disk is full.
//! 4. Truncate again. The log continues.
//!
//! At the end the log must hold every record that it accepted and that was not truncated, and no
//! other. If the log buffer is on the heap, the drop of step 3 may lose records that were not
//! durable.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palisade::inspect::Inspector;
use palisade::{ErrorKind, Lsn, OpenMode, Wal};

use super::content::Origin;
use crate::args::{FillArgs, log_options};
use crate::exit::Failure;

const RECORD_BYTES: usize = 8 << 10;
/// Records between two syncs while the disk fills.
const SYNC_EVERY: usize = 16;
/// Records that are committed once there is space.
const COMMITS: usize = 16;
/// How long to wait for space. Some file systems free the space of a removed file later.
const SPACE_TIMEOUT: Duration = Duration::from_secs(20);
/// A disk that takes more records is too large for this demonstration.
const MOST_RECORDS: usize = 1 << 18;

/// Runs the demonstration and prints what happened.
///
/// # Errors
/// `Check`: a record is missing, the log holds a foreign record, its epoch has changed, or it still
/// lacks space after space was freed. `Usage`: the disk is too large. `Io`, `Log`: a file or the
/// log failed otherwise. `OutputClosed`: the output was closed.
pub(crate) fn run(args: &FillArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut print =
        |text: &str| writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::output);
    let reserve =
        |name| Ballast::make(&args.dir.with_extension(name), 2 * args.segment_bytes as usize);
    let (for_state, for_open) = (reserve("state")?, reserve("open")?);
    let fill = fill_and_free(args, for_state, &mut print)?;
    let mut fill = reopen_on_full_disk(args, fill, for_open, &mut print)?;
    fill.check()?;
    let new_first = (fill.first_kept + fill.lsns.len()) / 2;
    fill.truncate_before(new_first)?;
    fill.commit_more()?;
    fill.check()?;
    let (all, kept) = (fill.lsns.len(), fill.lsns.len() - fill.first_kept);
    fill.wal.close()?;
    print(&format!("check held: {all} records accepted, {kept} of them kept, none missing"))
}

type PrintLine<'a> = &'a mut dyn FnMut(&str) -> Result<(), Failure>;

/// Runs steps 1 and 2, and fills the disk for step 3.
fn fill_and_free(
    args: &FillArgs,
    for_state: Ballast,
    print: PrintLine<'_>,
) -> Result<Fill, Failure> {
    let ballast = Ballast::make(&args.dir.with_extension("ballast"), args.ballast_bytes)?;
    let options = log_options(Some(args.segment_bytes), Some(args.buffer_bytes));
    let wal = options.open_mode(OpenMode::CreateNew).open(&args.dir)?;
    let epoch = Inspector::open(&args.dir)?.state()?.epoch;
    let mut fill = Fill { wal, seed: super::random(), lsns: Vec::new(), first_kept: 0 };

    let count = fill.until_full()?;
    print(&format!("full after {count} records"))?;
    fill.check()?;
    ballast.remove()?;
    fill.commit_more()?;
    let count = fill.until_full()?;
    print(&format!("space from a removed file: full again after {count} more records"))?;
    let new_first = fill.lsns.len() / 2;
    if let Err(error) = fill.wal.truncate_before(fill.lsns[new_first]) {
        // On a file system that copies on write, even the new state needs space.
        if error.kind() != ErrorKind::NoSpace {
            return Err(error.into());
        }
        for_state.remove()?;
        print("truncate_before had no space for the log's state; freed some")?;
    }
    fill.truncate_before(new_first)?;
    fill.commit_more()?;
    fill.check()?;
    let count = fill.until_full()?;
    print(&format!("space from truncate_before: full again after {count} more records"))?;
    if Inspector::open(&args.dir)?.state()?.epoch != epoch {
        return Err(Failure::Check("the log did not stay in its epoch".into()));
    }
    Ok(fill)
}

/// Runs step 3: drops the log and opens it on the full disk.
fn reopen_on_full_disk(
    args: &FillArgs,
    fill: Fill,
    for_open: Ballast,
    print: PrintLine<'_>,
) -> Result<Fill, Failure> {
    let Fill { wal, seed, mut lsns, first_kept } = fill;
    let (durable, survives_kill) = (wal.durable_lsn(), wal.stats().appends_survive_kill);
    drop(wal);
    let options = log_options(Some(args.segment_bytes), Some(args.buffer_bytes))
        .open_mode(OpenMode::MustExist);
    let wal = match options.open(&args.dir) {
        Ok(wal) => {
            print("opened while the disk was full")?;
            wal
        }
        // The open copies records that only the log buffer held into segments. If the prepared
        // segments are too small for them, it needs space.
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            for_open.remove()?;
            print("no space for the buffer's records on the full disk; freed some and opened")?;
            options.open(&args.dir)?
        }
        Err(error) => return Err(error.into()),
    };
    if !survives_kill {
        // A log buffer on the heap is gone. Records that were durable must be there.
        let end = wal.recovery_report().end;
        if end < durable {
            return Err(Failure::Check(format!("durable up to LSN {durable}, recovered to {end}")));
        }
        lsns.retain(|lsn| *lsn < end);
    }
    Ok(Fill { wal, seed, lsns, first_kept })
}

/// A log that is being filled, and the records that it accepted.
struct Fill {
    wal: Wal,
    seed: u64,
    /// The LSN of each record that the log accepted, in order. A record's number is its index here.
    lsns: Vec<Lsn>,
    /// The number of the first record that was not truncated.
    first_kept: usize,
}

impl Fill {
    fn record(&self, number: usize) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES];
        Origin { seed: self.seed, thread: 0, seq: number as u64 }.fill(&mut record);
        record
    }

    /// Appends until an append lacks space, with a sync now and then. Returns the number of records
    /// that the log accepted.
    fn until_full(&mut self) -> Result<usize, Failure> {
        let before = self.lsns.len();
        while self.lsns.len() < MOST_RECORDS {
            match self.wal.append(&self.record(self.lsns.len())) {
                Ok(ticket) => self.lsns.push(ticket.lsn()),
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    return Ok(self.lsns.len() - before);
                }
                Err(error) => return Err(Failure::Log(error)),
            }
            if self.lsns.len().is_multiple_of(SYNC_EVERY) {
                match self.wal.sync() {
                    Err(error) if error.kind() != ErrorKind::NoSpace => {
                        return Err(Failure::Log(error));
                    }
                    // A sync without space loses nothing: the log buffer still takes records.
                    _ => {}
                }
            }
        }
        Err(Failure::Usage("the disk is too large to be filled".into()))
    }

    /// Truncates all records before record `number`, as soon as there is space to save the state.
    fn truncate_before(&mut self, number: usize) -> Result<(), Failure> {
        self.with_space(|wal| wal.truncate_before(self.lsns[number]))?;
        self.first_kept = number;
        Ok(())
    }

    /// Repeats `call` while it lacks space, for [`SPACE_TIMEOUT`] at most.
    fn with_space(&self, call: impl Fn(&Wal) -> palisade::Result<()>) -> Result<(), Failure> {
        let start = Instant::now();
        while let Err(error) = call(&self.wal) {
            if error.kind() != ErrorKind::NoSpace {
                return Err(Failure::Log(error));
            }
            if start.elapsed() > SPACE_TIMEOUT {
                let text = format!("space was freed, but the log still lacks it: {error}");
                return Err(Failure::Check(text));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Makes all records durable once there is space, and commits more.
    fn commit_more(&mut self) -> Result<(), Failure> {
        self.with_space(|wal| wal.sync())?;
        for _ in 0..COMMITS {
            let lsn = self.wal.commit(&self.record(self.lsns.len()))?;
            self.lsns.push(lsn);
        }
        Ok(())
    }

    /// Checks that every record from the first one kept on is there, in order. On a full disk, only
    /// the records that the log could write can be read.
    fn check(&self) -> Result<(), Failure> {
        let mut records = self.wal.records()?;
        let mut number = self.first_kept;
        loop {
            match records.next() {
                Ok(Some(record)) => {
                    let expected = Origin { seed: self.seed, thread: 0, seq: number as u64 };
                    let is_known = self.lsns.get(number) == Some(&record.lsn());
                    if !is_known || Origin::of(record.data()) != Some(expected) {
                        return Err(violation(number, "another record is at its LSN"));
                    }
                    number += 1;
                }
                // The log cannot write the records in its buffer, so nobody can read them yet.
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                Err(error) => return Err(Failure::Log(error)),
                Ok(None) if number == self.lsns.len() => break,
                Ok(None) => return Err(violation(number, "it is missing, and the log ends")),
            }
        }
        let is_durable = |lsn: &Lsn| *lsn < self.wal.durable_lsn();
        match self.lsns.get(number) {
            Some(lsn) if is_durable(lsn) => Err(violation(number, "it was durable and is missing")),
            _ => Ok(()),
        }
    }
}

fn violation(number: usize, what: &str) -> Failure {
    Failure::Check(format!("record {number}: {what}"))
}

/// A file that takes up space until it is removed.
struct Ballast(PathBuf);

impl Ballast {
    fn make(path: &Path, bytes: usize) -> Result<Ballast, Failure> {
        let failure = Failure::at("write", path);
        let mut file = File::create(path).map_err(failure)?;
        let mut piece = vec![0; 1 << 20];
        for seq in 0..bytes.div_ceil(piece.len()) as u64 {
            // Random bytes, which no file system can compress.
            Origin { seed: 0, thread: 0, seq }.fill(&mut piece);
            file.write_all(&piece).map_err(failure)?;
        }
        file.sync_all().map_err(failure)?;
        Ok(Ballast(path.to_path_buf()))
    }

    fn remove(self) -> Result<(), Failure> {
        let failure = |source| Failure::io("could not remove the ballast", source);
        fs::remove_file(&self.0).map_err(failure)?;
        // Some file systems free the space with their next commit, which this sync causes.
        File::open(self.0.parent().unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())
            .map_err(failure)
    }
}
