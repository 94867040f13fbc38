//! `palisade dump --follow`: prints records as a writer hands them to the operating system.
//!
//! Each poll looks at the files anew, from the place where the last one stopped. The log buffer is
//! never read. What the writer did to the records that were to be printed next is a note on
//! standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use palisade::inspect::{Inspector, Salvaged, State};
use palisade::{Error, ErrorKind, Lsn};

use crate::args::DumpArgs;
use crate::dump::{self, Print};
use crate::exit::Failure;

/// Headers that contradict each other count as damage after this time. A writer that truncates
/// passes through such a state.
const PATIENCE: Duration = Duration::from_secs(2);
/// After this time without a record, a look at what lies above is worth its reads.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// Every record begins at a multiple of this.
const ALIGN_BYTES: u64 = 8;
/// A writer may write a record between two reads of one look at the files.
const LOOKS: usize = 3;

/// Prints the records that the arguments ask for, and those that a writer adds, until nobody reads
/// them any more.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &DumpArgs, out: &mut impl Write) -> Result<(), Failure> {
    let log = dump::open(&args.dir)?;
    let state = log.state()?;
    if let Some(from) = args.from {
        check_from(&log, &state, from)?;
    }
    let mut follow = Follow {
        next: args.from.unwrap_or(state.head),
        epoch: state.epoch,
        state,
        left: args.limit.unwrap_or(u64::MAX),
        log,
        print: dump::print_as(args),
        out,
        idle: 0,
        idle_since: Instant::now(),
        failing_since: None,
        noted: None,
        checked: None,
    };
    while follow.left > 0 {
        if follow.print_new()? {
            (follow.idle, follow.idle_since) = (0, Instant::now());
        } else {
            follow.idle = follow.idle.saturating_add(1);
            follow.check_idle()?;
        }
        follow.out.flush().map_err(Failure::output)?;
        if follow.left > 0 {
            wait(Duration::from_millis(args.poll_ms))?;
        }
    }
    Ok(())
}

struct Follow<'a, W> {
    log: Inspector,
    print: Print<W>,
    out: &'a mut W,
    /// Where the next record is looked for.
    next: Lsn,
    /// The log's state before the last look at its records.
    state: State,
    /// The newest epoch that was there at the start, or that a note has named.
    epoch: u64,
    left: u64,
    /// Polls without a record since the last one with a record.
    idle: u32,
    idle_since: Instant,
    failing_since: Option<Instant>,
    /// The place of the last note on what follows.
    noted: Option<Lsn>,
    /// The place, and the state without a writer, that need no second check.
    checked: Option<(Lsn, State)>,
}

impl<W: Write> Follow<'_, W> {
    /// Prints what is there from `next` on. Returns whether it got any further.
    fn print_new(&mut self) -> Result<bool, Failure> {
        let before = self.next;
        self.state = self.log.state()?;
        let mut records = match self.log.records(Some(self.next)) {
            Ok(records) => records,
            Err(error) if error.kind() == ErrorKind::Corrupt && self.is_patient() => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        self.failing_since = None;
        // The records begin at the head if that is above what was asked for.
        let from = records.position();
        if from > self.next {
            let next = self.next;
            let what = "before this command could print it";
            self.note(format_args!("the writer truncated LSN {next} to {from} {what}"))?;
            self.next = from;
        }
        while self.left > 0
            && let Some(record) = records.next()?
        {
            self.skip_to(record.lsn())?;
            (self.print)(self.out, &record).map_err(Failure::output)?;
            self.next = record.next_lsn();
            self.left -= 1;
        }
        self.skip_to(records.position())?;
        Ok(self.next > before)
    }

    fn is_patient(&mut self) -> bool {
        self.failing_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE
    }

    /// Passes over a range without records. If a new epoch lies behind it, a note says what became
    /// of the old one.
    fn skip_to(&mut self, to: Lsn) -> Result<(), Failure> {
        if to <= self.next {
            return Ok(());
        }
        let headers = self.log.segments()?.into_iter().filter_map(|segment| segment.header.ok());
        let next = self.next;
        for header in headers.filter(|header| header.base > next && header.base <= to) {
            let Some(before) = header.predecessor.filter(|_| header.epoch > self.epoch) else {
                continue;
            };
            let (end, base) = (before.end, header.base);
            self.epoch = header.epoch;
            if end < next {
                self.note(format_args!(
                    "the writer truncated the log from LSN {end} on, which was printed up to LSN \
                     {next}; the log continues at LSN {base}"
                ))?;
            } else if end < base {
                self.note(format_args!(
                    "the log has no records from LSN {end} to {base}: the writer truncated them, \
                     or a crash left the range"
                ))?;
            }
        }
        self.next = to;
        Ok(())
    }

    /// Refuses to wait at damage. The checks grow rare, because each reads the log, and tries its
    /// lock.
    fn check_idle(&mut self) -> Result<(), Failure> {
        if !self.idle.is_power_of_two() || self.log.has_rebuilt_state() {
            return Ok(());
        }
        let place = (self.next, self.state.clone());
        if self.failing_since.is_some() || self.checked.as_ref() == Some(&place) {
            return Ok(());
        }
        if self.log.has_writer()? {
            return self.note_what_follows();
        }
        dump::may_end_at(self.next, &self.log, &self.state)?;
        self.checked = Some(place);
        Ok(())
    }

    /// Says once for each place that records follow and none begins here. It may be damage, or a
    /// writer that is held up in the middle of a write.
    fn note_what_follows(&mut self) -> Result<(), Failure> {
        let next = self.next;
        if self.idle_since.elapsed() < IDLE_TIME || self.noted == Some(next) {
            return Ok(());
        }
        if let Some(found) = record_above_gap(&self.log, next)? {
            self.noted = Some(next);
            self.note(format_args!(
                "no valid record at LSN {next}, though one follows at LSN {found}: a write that is \
                 not complete, or damage"
            ))?;
        }
        Ok(())
    }

    fn note(&mut self, text: impl Display) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)?;
        // Where standard error is gone, the LSNs of the records still tell it.
        let _ = writeln!(io::stderr(), "note: {text}");
        Ok(())
    }
}

/// Refuses a start within a record, or below the head. The end of the log is a start, too: the next
/// record will begin there.
fn check_from(log: &Inspector, state: &State, from: Lsn) -> Result<(), Failure> {
    if from < state.head {
        let (head, text) = (state.head, "lies below the log, which begins at LSN");
        return Err(Error::new(ErrorKind::Truncated, format!("LSN {from} {text} {head}")).into());
    }
    if !from.as_u64().is_multiple_of(ALIGN_BYTES) {
        return dump::begins_at(Some(from), None);
    }
    let mut found = None;
    for _ in 0..LOOKS {
        found = record_above_gap(log, from)?;
        if found.is_none() {
            return Ok(());
        }
    }
    dump::begins_at(Some(from), found)
}

/// The first record above `from`, if something else than a valid record lies between.
fn record_above_gap(log: &Inspector, from: Lsn) -> Result<Option<Lsn>, Failure> {
    let mut salvage = log.salvage(Some(from))?;
    let Some(Salvaged::Gap(_)) = salvage.next()? else { return Ok(None) };
    Ok(match salvage.next()? {
        Some(Salvaged::Record(record)) => Some(record.lsn()),
        _ => None,
    })
}

/// Waits for the next poll, or until nobody reads the output any more.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn wait(time: Duration) -> Result<(), Failure> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    let stdout = io::stdout();
    // No event is asked for: the system reports a closed reader in any case.
    let mut files = [PollFd::new(&stdout, PollFlags::empty())];
    let limit = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut files, Some(&limit)) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => Err(Failure::OutputClosed),
        Err(error) => Err(Failure::io("could not wait for the next poll", error.into())),
    }
}

/// Waits for the next poll. Here a closed output shows with the next record only.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn wait(time: Duration) -> Result<(), Failure> {
    std::thread::sleep(time);
    Ok(())
}
