//! `palisade dump --follow`: prints records as a writer hands them to the operating system.
//!
//! Each poll reads the files again, from the place where the last poll stopped. It never reads the
//! log buffer. If the writer truncates records before they are printed, or a suffix that was
//! printed, a note on standard error reports it.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use palisade::inspect::{Inspector, Salvaged, State};
use palisade::{Error, ErrorKind, Lsn};

use crate::args::DumpArgs;
use crate::dump::{self, Print};
use crate::exit::Failure;
use crate::output;

/// Headers that contradict each other count as damage after this time. A writer that truncates
/// passes through such a state.
const PATIENCE: Duration = Duration::from_secs(2);
/// After this time without progress, search for records above the gap.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// Every record begins at a multiple of this.
const ALIGN_BYTES: u64 = 8;
/// Attempts of `check_from`, because a writer may add a record during one.
const LOOKS: usize = 3;

/// Prints the records that the arguments ask for, and those that a writer adds, until `args.limit`
/// of them are printed or the output is closed.
///
/// # Errors
/// `Truncated`, `NotARecord`: no record begins at `args.from`. `Corrupt`: the log is damaged. Else
/// those of reading the log and of `out`.
pub(crate) fn run(args: &DumpArgs, out: &mut impl Write) -> Result<(), Failure> {
    let log = dump::open(&args.log.dir)?;
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
        if follow.poll()? {
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
    /// Where the next record is expected.
    next: Lsn,
    /// The log's state before the last poll of its records.
    state: State,
    /// The newest epoch that `skip_to` has passed; before that, the newest one at the start.
    epoch: u64,
    /// Records that may still be printed.
    left: u64,
    /// Polls since `next` last moved.
    idle: u32,
    /// When `next` last moved.
    idle_since: Instant,
    /// Since when the headers contradict each other, if they do.
    failing_since: Option<Instant>,
    /// The LSN of the last note of `note_what_follows`.
    noted: Option<Lsn>,
    /// LSN and state that `check_idle` has already checked without a writer.
    checked: Option<(Lsn, State)>,
}

impl<W: Write> Follow<'_, W> {
    /// Prints the records that are there from `next` on. Returns whether `next` has moved.
    fn poll(&mut self) -> Result<bool, Failure> {
        let before = self.next;
        match self.print_new() {
            Ok(()) => self.failing_since = None,
            // The next poll goes on from here.
            Err(Failure::Error(error)) if error.kind() == ErrorKind::Truncated => {}
            Err(Failure::Error(error)) if is_passing(&error) && self.is_patient() => {}
            Err(failure) => return Err(failure),
        }
        Ok(self.next > before)
    }

    fn print_new(&mut self) -> Result<(), Failure> {
        self.state = self.log.state()?;
        let mut records = self.log.records(Some(self.next))?;
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
            self.failing_since = None;
            self.skip_to(record.lsn())?;
            (self.print)(self.out, &record).map_err(Failure::output)?;
            self.next = record.next_lsn();
            self.left -= 1;
        }
        self.skip_to(records.position())
    }

    fn is_patient(&mut self) -> bool {
        self.failing_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE
    }

    /// Passes over a range without records. If a new epoch begins in it, prints a note about LSNs
    /// that have no record, or were truncated after they were printed.
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
                    "the log has no records from LSN {end} to {base}: a truncation removed them, \
                     or the log continued at LSN {base} after a crash"
                ))?;
            }
        }
        self.next = to;
        Ok(())
    }

    /// Returns an error if the log is damaged at `next` and no writer runs. Beside a writer it only
    /// prints a note. Checks less and less often, because each check reads the log and tries its
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

    /// Notes once for each LSN that no record begins there although later ones exist: either a
    /// write is in progress, or the log is damaged.
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
        output::note(self.out, text)
    }
}

/// Refuses a start below the head, one that is no multiple of 8, and one below the end of the log
/// where no frame begins. Accepts the end of an epoch, and each multiple of 8 from the end of the
/// log on.
fn check_from(log: &Inspector, state: &State, from: Lsn) -> Result<(), Failure> {
    if from < state.head {
        let (head, text) = (state.head, "lies below the log, which begins at LSN");
        return Err(Error::new(ErrorKind::Truncated, format!("LSN {from} {text} {head}")).into());
    }
    if !from.as_u64().is_multiple_of(ALIGN_BYTES) {
        return dump::begins_at(Some(from), None);
    }
    for _ in 0..LOOKS {
        let mut records = match log.records(Some(from)) {
            Ok(records) => records,
            // A writer may be truncating. The first polls try again for a while.
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let has_frame = match records.next() {
            Err(error) if is_passing(&error) => return Ok(()),
            found => found?.is_some() || records.position() > from,
        };
        if has_frame || from >= log.end()? {
            return Ok(());
        }
    }
    dump::begins_at(Some(from), record_above_gap(log, from)?)
}

/// Returns whether a listing beside a writer that truncates can fail with `error`.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Truncated)
}

/// Returns the LSN of the first record above `from`, or none if a valid record begins at `from` or
/// no record follows.
fn record_above_gap(log: &Inspector, from: Lsn) -> Result<Option<Lsn>, Failure> {
    let mut salvage = log.salvage(Some(from))?;
    let Some(Salvaged::Gap(_)) = salvage.next()? else { return Ok(None) };
    Ok(match salvage.next()? {
        Some(Salvaged::Record(record)) => Some(record.lsn()),
        _ => None,
    })
}

/// Waits for the next poll, or until the output is closed.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn wait(time: Duration) -> Result<(), Failure> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    let stdout = io::stdout();
    // Requests no events: `poll` always reports a closed reader.
    let mut files = [PollFd::new(&stdout, PollFlags::empty())];
    let limit = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut files, Some(&limit)) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => Err(Failure::OutputClosed),
        Err(error) => Err(Failure::io("wait for the next poll")(error.into())),
    }
}

/// Waits for the next poll. On these systems a closed output is detected only at the next write.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn wait(time: Duration) -> Result<(), Failure> {
    std::thread::sleep(time);
    Ok(())
}
