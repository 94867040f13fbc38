//! Bars on standard error, if that is a terminal, for work that takes longer than a second.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use palisade::inspect::Inspector;
use palisade::{CopyProgress, CopyStep, Lsn};

use crate::exit::Failure;

/// The bar comes after this time.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(200);
/// A look at the clock costs more than a short record, so there is one for so many bytes.
const BYTES_PER_LOOK: u64 = 256 << 10;

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Makes a bar for a measurement of `steps` steps, with a message for what is measured. The bar
/// goes away when it is dropped.
pub(crate) fn measuring(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_style(style("{bar:30} {msg}"));
    bar.with_finish(ProgressFinish::AndClear)
}

/// A bar that counts bytes. It goes away with this value.
#[derive(Debug)]
pub(crate) struct Bar {
    /// Hidden until it is due.
    bar: ProgressBar,
    due: Instant,
    /// What is done at the next look at the clock.
    next_look: u64,
}

impl Bar {
    /// Makes a bar for work on `total` bytes. It appears if the work takes longer than a second.
    pub(crate) fn new(message: &'static str, total: u64) -> Bar {
        Bar::due_at(Instant::now() + PATIENCE, message, total)
    }

    fn due_at(due: Instant, message: &'static str, total: u64) -> Bar {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = style("{msg} {bar:30} {bytes} of {total_bytes}, {eta} left");
        Bar { bar: bar.with_style(style).with_message(message), due, next_look: 0 }
    }

    /// Shows that so many bytes are done.
    pub(crate) fn show(&mut self, done: u64) {
        if done < self.next_look {
            return;
        }
        self.next_look = done.saturating_add(BYTES_PER_LOOK);
        if Instant::now() < self.due {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done.min(self.bar.length().unwrap_or(u64::MAX)));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Does the work of a repair, a restore or a backup. It has a step after the other, and each shows
/// a bar if the user has waited for all of them together for long enough.
pub(crate) fn in_steps<T>(work: impl FnOnce(&mut dyn FnMut(CopyProgress)) -> T) -> T {
    let due = Instant::now() + PATIENCE;
    let mut shown: Option<(CopyStep, Bar)> = None;
    work(&mut |progress| {
        if shown.as_ref().is_none_or(|(step, _)| *step != progress.step) {
            let message = match progress.step {
                CopyStep::Check => "checking",
                CopyStep::Count => "counting",
                _ => "copying",
            };
            shown = Some((progress.step, Bar::due_at(due, message, progress.total)));
        }
        if let Some((_, bar)) = &mut shown {
            bar.bar.set_length(progress.total);
            bar.show(progress.done);
        }
    })
}

/// The bar of a walk over the records of a log, which go to standard output.
#[derive(Debug)]
pub(crate) struct Walk(Option<(Lsn, Bar)>);

impl Walk {
    /// Begins a walk at `from`, or at the head. Shows nothing unless standard error is a terminal
    /// and the records go to a file: records on a terminal, or a reader behind a pipe, show that
    /// the walk goes on.
    ///
    /// # Errors
    /// Those of reading the log's state and its segments.
    pub(crate) fn new(log: &Inspector, from: Option<Lsn>) -> Result<Walk, Failure> {
        if !io::stderr().is_terminal() || !goes_to_file() {
            return Ok(Walk(None));
        }
        let state = log.state()?;
        let from = from.unwrap_or(state.head).max(state.head);
        let last = log.segments()?.last().map_or(0, |segment| segment.number.saturating_add(1));
        let end = match state.clean {
            true => state.clean_end.as_u64(),
            false => last.saturating_mul(state.segment_bytes),
        };
        let total = end.saturating_sub(from.as_u64());
        Ok(Walk(Some((from, Bar::new("reading", total)))))
    }

    pub(crate) fn show(&mut self, at: Lsn) {
        if let Some((from, bar)) = &mut self.0 {
            bar.show(at.as_u64().saturating_sub(from.as_u64()));
        }
    }

    /// Prints something to standard error while the bar is away.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        match &self.0 {
            Some((_, bar)) => bar.bar.suspend(print),
            None => print(),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn goes_to_file() -> bool {
    use rustix::fs::{FileType, fstat};

    let output = fstat(io::stdout());
    output.is_ok_and(|output| FileType::from_raw_mode(output.st_mode).is_file())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn goes_to_file() -> bool {
    false
}

/// Does work that reads the files of a log and does not report how far it is. The bar shows what
/// this process has read, or, where the system does not count that, only for how long.
pub(crate) fn while_reading<T>(log: &Inspector, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    // The work reports what is wrong with the log.
    let bytes = log.state().map_or(0, |state| state.segment_bytes);
    let total = log.segments().map_or(0, |segments| bytes.saturating_mul(segments.len() as u64));
    let (working, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || watch(total, &ended));
        // It ends the watch, also if the work panics.
        let _working = working;
        work()
    })
}

fn watch(total: u64, ended: &mpsc::Receiver<()>) {
    let before = bytes_read();
    if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let mut bar = Bar::due_at(Instant::now(), "reading", total);
    if before.is_none() {
        bar.bar.set_style(style("{msg} {spinner} {elapsed}"));
    }
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let read = bytes_read().zip(before).map(|(now, before)| now.saturating_sub(before));
        bar.show(read.unwrap_or_default());
        bar.bar.tick();
    }
}

/// Returns how many bytes this process has read, as far as the system counts them.
fn bytes_read() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("rchar: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_comes_only_when_patience_has_ended() {
        let total = 10 * BYTES_PER_LOOK;
        let hour = Duration::from_secs(3600);
        let mut patient = Bar::due_at(Instant::now() + hour, "reading", total);
        patient.show(BYTES_PER_LOOK);
        assert_eq!(patient.bar.position(), 0);
        let mut bar = Bar::due_at(Instant::now(), "reading", total);
        bar.show(BYTES_PER_LOOK);
        let shown = bar.bar.clone();
        assert_eq!((shown.position(), shown.length()), (BYTES_PER_LOOK, Some(total)));
        bar.show(BYTES_PER_LOOK + 1);
        assert_eq!(shown.position(), BYTES_PER_LOOK, "too near to the last look");
        bar.show(100 * BYTES_PER_LOOK);
        assert_eq!(shown.position(), total, "more than all is all");
        drop(bar);
        assert!(shown.is_finished());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_counts_what_a_process_reads() {
        let file = std::env::current_exe().unwrap();
        let before = bytes_read().unwrap();
        let bytes = std::fs::read(file).unwrap().len() as u64;
        assert!(bytes_read().unwrap() >= before + bytes);
    }
}
