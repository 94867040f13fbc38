//! `palisade demo-fill`: fills the disk that the log lies on, frees space, and goes on.
//!
//! Three times the log meets a full disk: once space comes from a file that is removed, once from
//! `truncate_before`, and the third time the log is dropped and opened again while the disk is
//! full. In between it goes on without being opened again, in the same epoch. At the end every
//! record that was acknowledged and not truncated has to be there, and no other.

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
/// Records that share a sync.
const GROUP: usize = 16;
/// File systems may take a while to give back what was removed.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than this fits no disk that this is meant for.
const MOST_RECORDS: usize = 1 << 18;

/// Runs the demonstration and says what happened.
///
/// # Errors
/// `Check` if anything acknowledged is missing, anything foreign is there, or the log does not go
/// on; `Io` and `Log` if something else fails.
pub(crate) fn run(args: &FillArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut say =
        |text: &str| writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::output);
    let reserve =
        |name| Ballast::make(&args.dir.with_extension(name), 2 * args.segment_bytes as usize);
    let (for_state, for_open) = (reserve("state")?, reserve("open")?);
    let fill = fill_and_go_on(args, for_state, &mut say)?;
    let mut fill = open_again(args, fill, for_open, &mut say)?;
    fill.check()?;
    let cut = (fill.head + fill.places.len()) / 2;
    fill.truncate_before(cut)?;
    fill.go_on()?;
    fill.check()?;
    let (all, held) = (fill.places.len(), fill.places.len() - fill.head);
    fill.wal.close()?;
    say(&format!("check held: {all} records acknowledged, {held} of them kept, none missing"))
}

type Say<'a> = &'a mut dyn FnMut(&str) -> Result<(), Failure>;

/// Full, space from a removed file, full, space from a truncation, full: all in one epoch.
fn fill_and_go_on(args: &FillArgs, for_state: Ballast, say: Say<'_>) -> Result<Fill, Failure> {
    let ballast = Ballast::make(&args.dir.with_extension("ballast"), args.ballast_bytes)?;
    let options = log_options(Some(args.segment_bytes), Some(args.buffer_bytes));
    let wal = options.open_mode(OpenMode::CreateNew).open(&args.dir)?;
    let epoch = Inspector::open(&args.dir)?.state()?.epoch;
    let mut fill = Fill { wal, seed: super::random(), places: Vec::new(), head: 0 };

    let count = fill.until_full()?;
    say(&format!("full after {count} records"))?;
    fill.check()?;
    ballast.remove()?;
    fill.go_on()?;
    let count = fill.until_full()?;
    say(&format!("space from a removed file: went on, full again after {count} more records"))?;
    let cut = fill.places.len() / 2;
    if let Err(error) = fill.wal.truncate_before(fill.places[cut]) {
        // Where the file system copies on write, even the new state has to have a place.
        if error.kind() != ErrorKind::NoSpace {
            return Err(error.into());
        }
        for_state.remove()?;
        say("truncate_before had no place for the log's state; freed some")?;
    }
    fill.truncate_before(cut)?;
    fill.go_on()?;
    fill.check()?;
    let count = fill.until_full()?;
    say(&format!("space from truncate_before: went on, full again after {count} more records"))?;
    if Inspector::open(&args.dir)?.state()?.epoch != epoch {
        return Err(Failure::Check("the log did not stay in its epoch".into()));
    }
    Ok(fill)
}

/// Drops the log and opens it on the full disk.
fn open_again(
    args: &FillArgs,
    fill: Fill,
    for_open: Ballast,
    say: Say<'_>,
) -> Result<Fill, Failure> {
    let Fill { wal, seed, mut places, head } = fill;
    let (durable, keeps_all) = (wal.durable_lsn(), wal.stats().appends_survive_kill);
    drop(wal);
    let options = log_options(Some(args.segment_bytes), Some(args.buffer_bytes))
        .open_mode(OpenMode::MustExist);
    let wal = match options.open(&args.dir) {
        Ok(wal) => {
            say("opened while the disk was full")?;
            wal
        }
        // What only the buffer held needs a place, too: the one limit of opening on a full disk.
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            for_open.remove()?;
            say("the buffer's records had no place on the full disk; opened with space")?;
            options.open(&args.dir)?
        }
        Err(error) => return Err(error.into()),
    };
    if !keeps_all {
        // A heap buffer's records go with it; what was durable does not.
        let end = wal.recovery_report().end;
        if end < durable {
            return Err(Failure::Check(format!("durable up to LSN {durable}, recovered to {end}")));
        }
        places.retain(|lsn| *lsn < end);
    }
    Ok(Fill { wal, seed, places, head })
}

/// A log that is being filled, and what was acknowledged.
struct Fill {
    wal: Wal,
    seed: u64,
    /// Of all records that were appended, in order.
    places: Vec<Lsn>,
    /// The number of the first that was not truncated.
    head: usize,
}

impl Fill {
    fn record(&self, number: usize) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES];
        Origin { seed: self.seed, thread: 0, seq: number as u64 }.fill(&mut record);
        record
    }

    /// Appends and syncs until both lack space; says how many records were taken.
    fn until_full(&mut self) -> Result<usize, Failure> {
        let before = self.places.len();
        while self.places.len() < MOST_RECORDS {
            match self.wal.append(&self.record(self.places.len())) {
                Ok(ticket) => self.places.push(ticket.lsn()),
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    return Ok(self.places.len() - before);
                }
                Err(error) => return Err(Failure::Log(error)),
            }
            if self.places.len().is_multiple_of(GROUP) {
                match self.wal.sync() {
                    Err(error) if error.kind() != ErrorKind::NoSpace => {
                        return Err(Failure::Log(error));
                    }
                    // Without space the buffer still takes some.
                    _ => {}
                }
            }
        }
        Err(Failure::Usage("the disk is too large to be filled".into()))
    }

    /// Truncates once there is space for that.
    fn truncate_before(&mut self, number: usize) -> Result<(), Failure> {
        self.with_space(|wal| wal.truncate_before(self.places[number]))?;
        self.head = number;
        Ok(())
    }

    /// Calls until there is space.
    fn with_space(&self, call: impl Fn(&Wal) -> palisade::Result<()>) -> Result<(), Failure> {
        let start = Instant::now();
        while let Err(error) = call(&self.wal) {
            if error.kind() != ErrorKind::NoSpace {
                return Err(Failure::Log(error));
            }
            if start.elapsed() > PATIENCE {
                let text = format!("there is space, and the log does not go on: {error}");
                return Err(Failure::Check(text));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// With space again, everything becomes durable, and more is taken.
    fn go_on(&mut self) -> Result<(), Failure> {
        self.with_space(|wal| wal.sync())?;
        for _ in 0..GROUP {
            let lsn = self.wal.commit(&self.record(self.places.len()))?;
            self.places.push(lsn);
        }
        Ok(())
    }

    /// Every record from the head on is there, in order, up to where the disk is full.
    fn check(&self) -> Result<(), Failure> {
        let mut records = self.wal.records()?;
        let mut number = self.head;
        loop {
            match records.next() {
                Ok(Some(record)) => {
                    let expected = Origin { seed: self.seed, thread: 0, seq: number as u64 };
                    let is_known = self.places.get(number) == Some(&record.lsn());
                    if !is_known || Origin::of(record.data()) != Some(expected) {
                        return Err(violation(number, "another record is in its place"));
                    }
                    number += 1;
                }
                // What the buffer holds can be read once there is space for it.
                Err(error) if error.kind() == ErrorKind::NoSpace => break,
                Err(error) => return Err(Failure::Log(error)),
                Ok(None) if number == self.places.len() => break,
                Ok(None) => return Err(violation(number, "the log ends before it")),
            }
        }
        let is_durable = |lsn: &Lsn| *lsn < self.wal.durable_lsn();
        match self.places.get(number) {
            Some(lsn) if is_durable(lsn) => Err(violation(number, "it is durable, and missing")),
            _ => Ok(()),
        }
    }
}

fn violation(number: usize, what: &str) -> Failure {
    Failure::Check(format!("record {number}: {what}"))
}

/// Space that can be given back.
struct Ballast(PathBuf);

impl Ballast {
    fn make(path: &Path, bytes: usize) -> Result<Ballast, Failure> {
        let failure = |source| Failure::io(format!("could not write {}", path.display()), source);
        let mut file = File::create(path).map_err(failure)?;
        let mut piece = vec![0; 1 << 20];
        for seq in 0..bytes.div_ceil(piece.len()) as u64 {
            // Bytes that no file system makes smaller.
            Origin { seed: 0, thread: 0, seq }.fill(&mut piece);
            file.write_all(&piece).map_err(failure)?;
        }
        file.sync_all().map_err(failure)?;
        Ok(Ballast(path.to_path_buf()))
    }

    fn remove(self) -> Result<(), Failure> {
        let failure = |source| Failure::io("could not remove the ballast", source);
        fs::remove_file(&self.0).map_err(failure)?;
        // Some file systems give space back with their next commit.
        File::open(self.0.parent().unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())
            .map_err(failure)
    }
}
