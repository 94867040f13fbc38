//! For `verification/filesystems.sh`: fills the disk of a log, frees space, and checks that the log
//! continues.
//!
//! 1. Fill the disk. Remove a file. The log continues in the same epoch.
//! 2. Fill the disk again. Truncate the log's start. The log continues in the same epoch.
//! 3. Fill the disk again. Drop the log and open it while the disk is full.
//! 4. Truncate again. The log continues.
//!
//! At the end the log must hold every record that it accepted and that was not truncated, and no
//! other. If the log buffer is on the heap, the drop of step 3 may lose records that were not
//! durable.

#[path = "../../../../crates/cli/src/demo/content.rs"]
#[expect(dead_code, reason = "the demo uses the rest")]
mod content;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use palisade::inspect::Inspector;
use palisade::{ErrorKind, Lsn, OpenMode, Options, Wal};

use self::content::Origin;

const RECORD_BYTES: usize = 8 << 10;
/// Records between two syncs while the disk fills.
const SYNC_EVERY: usize = 16;
/// Records that are committed once there is space.
const COMMITS: usize = 16;
/// How long to wait for space. Some file systems free the space of a removed file later.
const SPACE_TIMEOUT: Duration = Duration::from_secs(20);
/// A disk that takes more records is too large for this demonstration.
const MOST_RECORDS: usize = 1 << 18;

/// What the content of all records begins from.
const SEED: u64 = 1;

/// Fills a small disk, frees space, and checks that the log on it continues.
#[derive(Parser, Debug)]
struct FillArgs {
    /// Folder of the log, on the disk that is to be filled: absent or empty.
    dir: PathBuf,
    /// Size of a file beside the log, which is removed to free space.
    #[arg(long, default_value_t = 16 << 20)]
    ballast_bytes: usize,
    #[arg(long, default_value_t = 4 << 20)]
    segment_bytes: u64,
    #[arg(long, default_value_t = 1 << 20)]
    buffer_bytes: usize,
}

impl FillArgs {
    fn options(&self) -> Options {
        Options::new().segment_bytes(self.segment_bytes).buffer_bytes(self.buffer_bytes)
    }
}

fn main() -> Result<()> {
    let args = FillArgs::parse();
    let reserve =
        |name| Ballast::make(&args.dir.with_extension(name), 2 * args.segment_bytes as usize);
    let (for_state, for_open) = (reserve("state")?, reserve("open")?);
    let fill = fill_and_free(&args, for_state)?;
    let mut fill = reopen_on_full_disk(&args, fill, for_open)?;
    fill.check()?;
    let new_first = (fill.first_kept + fill.lsns.len()) / 2;
    fill.truncate_before(new_first)?;
    fill.commit_more()?;
    fill.check()?;
    let (all, kept) = (fill.lsns.len(), fill.lsns.len() - fill.first_kept);
    fill.wal.close()?;
    print(&format!("check held: {all} records accepted, {kept} of them kept, none missing"))
}

fn print(text: &str) -> Result<()> {
    writeln!(io::stdout(), "{text}").context("could not write to standard output")
}

/// Runs steps 1 and 2, and fills the disk for step 3.
fn fill_and_free(args: &FillArgs, for_state: Ballast) -> Result<Fill> {
    let ballast = Ballast::make(&args.dir.with_extension("ballast"), args.ballast_bytes)?;
    let wal = args.options().open_mode(OpenMode::CreateNew).open(&args.dir)?;
    let epoch = Inspector::open(&args.dir)?.state()?.epoch;
    let mut fill = Fill { wal, lsns: Vec::new(), first_kept: 0 };

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
    let is_same = Inspector::open(&args.dir)?.state()?.epoch == epoch;
    ensure!(is_same, "the log did not stay in its epoch");
    Ok(fill)
}

/// Runs step 3: drops the log and opens it on the full disk.
fn reopen_on_full_disk(args: &FillArgs, fill: Fill, for_open: Ballast) -> Result<Fill> {
    let Fill { wal, mut lsns, first_kept } = fill;
    let (durable, survives_kill) = (wal.durable_lsn(), wal.stats().appends_survive_kill);
    drop(wal);
    let options = args.options().open_mode(OpenMode::MustExist);
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
        ensure!(end >= durable, "durable up to LSN {durable}, recovered to {end}");
        lsns.retain(|lsn| *lsn < end);
    }
    Ok(Fill { wal, lsns, first_kept })
}

/// A log that is being filled, and the records that it accepted.
struct Fill {
    wal: Wal,
    /// The LSN of each record that the log accepted, in order. A record's number is its index here.
    lsns: Vec<Lsn>,
    /// The number of the first record that was not truncated.
    first_kept: usize,
}

impl Fill {
    fn record(number: usize) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES];
        Origin { seed: SEED, thread: 0, seq: number as u64 }.fill(&mut record);
        record
    }

    /// Appends until an append lacks space, with a sync now and then. Returns the number of records
    /// that the log accepted.
    fn until_full(&mut self) -> Result<usize> {
        let before = self.lsns.len();
        while self.lsns.len() < MOST_RECORDS {
            match self.wal.append(&Fill::record(self.lsns.len())) {
                Ok(ticket) => self.lsns.push(ticket.lsn()),
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    return Ok(self.lsns.len() - before);
                }
                Err(error) => return Err(error.into()),
            }
            if self.lsns.len().is_multiple_of(SYNC_EVERY) {
                match self.wal.sync() {
                    Err(error) if error.kind() != ErrorKind::NoSpace => {
                        return Err(error.into());
                    }
                    // A sync without space loses nothing: the log buffer still takes records.
                    _ => {}
                }
            }
        }
        bail!("the disk is too large to be filled")
    }

    /// Truncates all records before record `number`, as soon as there is space to save the state.
    fn truncate_before(&mut self, number: usize) -> Result<()> {
        self.with_space(|wal| wal.truncate_before(self.lsns[number]))?;
        self.first_kept = number;
        Ok(())
    }

    /// Repeats `call` while it lacks space, for [`SPACE_TIMEOUT`] at most.
    fn with_space(&self, call: impl Fn(&Wal) -> palisade::Result<()>) -> Result<()> {
        let start = Instant::now();
        while let Err(error) = call(&self.wal) {
            if error.kind() != ErrorKind::NoSpace {
                return Err(error.into());
            }
            if start.elapsed() > SPACE_TIMEOUT {
                return Err(error).context("space was freed, but the log still lacks it");
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Makes all records durable once there is space, and commits more.
    fn commit_more(&mut self) -> Result<()> {
        self.with_space(|wal| wal.sync())?;
        for _ in 0..COMMITS {
            let lsn = self.wal.commit(&Fill::record(self.lsns.len()))?;
            self.lsns.push(lsn);
        }
        Ok(())
    }

    /// Checks that every record from the first one kept on is there, in order. On a full disk, only
    /// the records that the log could write can be read.
    fn check(&self) -> Result<()> {
        let mut records = self.wal.records()?;
        let mut number = self.first_kept;
        loop {
            match records.next() {
                Ok(Some(record)) => {
                    let expected = Origin { seed: SEED, thread: 0, seq: number as u64 };
                    let is_known = self.lsns.get(number) == Some(&record.lsn());
                    if !is_known || Origin::of(record.data()) != Some(expected) {
                        bail!("record {number}: another record is at its LSN");
                    }
                    number += 1;
                }
                // The log cannot write the records in its buffer, so nobody can read them yet.
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                Err(error) => return Err(error.into()),
                Ok(None) if number == self.lsns.len() => break,
                Ok(None) => bail!("record {number}: it is missing, and the log ends"),
            }
        }
        let is_durable = |lsn: &Lsn| *lsn < self.wal.durable_lsn();
        match self.lsns.get(number) {
            Some(lsn) if is_durable(lsn) => {
                bail!("record {number}: it was durable and is missing")
            }
            _ => Ok(()),
        }
    }
}

/// A file that takes up space until it is removed.
struct Ballast(PathBuf);

impl Ballast {
    fn make(path: &Path, bytes: usize) -> Result<Ballast> {
        let mut file = File::create(path)?;
        let mut piece = vec![0; 1 << 20];
        for seq in 0..bytes.div_ceil(piece.len()) as u64 {
            // Random bytes, which no file system can compress.
            Origin { seed: 0, thread: 0, seq }.fill(&mut piece);
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        Ok(Ballast(path.to_path_buf()))
    }

    fn remove(self) -> Result<()> {
        fs::remove_file(&self.0)?;
        // Some file systems free the space with their next commit, which this sync causes.
        File::open(self.0.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(())
    }
}
