//! Progress bars on standard error, if that is a terminal. Those of copies and reads come after one
//! second, that of the doctor at once.

use std::fs;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use palisade::inspect::Inspector;
use palisade::{CopyProgress, CopyStep};

/// When the bar of a copy or a read comes.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(200);
/// How a bar looks that counts bytes.
const BYTES: &str = "{msg} {bar:30} {bytes} of {total_bytes}, {eta} left";

/// Makes a bar that goes away when it is dropped.
fn bar(total: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let bar = ProgressBar::new(total).with_finish(ProgressFinish::AndClear);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Makes a bar for a measurement of `steps` steps, with a message for what is measured.
pub(crate) fn measuring(steps: u64) -> ProgressBar {
    bar(steps, "{bar:30} {msg}")
}

/// Does the work of a repair, a restore or a backup, which reports after every few MiB how far it
/// is.
pub(crate) fn in_steps<T>(work: impl FnOnce(&mut dyn FnMut(CopyProgress)) -> T) -> T {
    let start = Instant::now();
    let mut shown = None;
    work(&mut |progress| {
        if start.elapsed() < PATIENCE {
            return;
        }
        let bar = shown.get_or_insert_with(|| bar(progress.total, BYTES));
        bar.set_message(match progress.step {
            CopyStep::Check => "checking",
            CopyStep::Count => "counting",
            _ => "copying",
        });
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    })
}

/// Does work that reads the files of a log and does not report how far it is. The bar shows what
/// this process has read, or, where the system does not count that, only for how long.
pub(crate) fn while_reading<T>(log: &Inspector, work: impl FnOnce(&ProgressBar) -> T) -> T {
    if !io::stderr().is_terminal() {
        return work(&ProgressBar::hidden());
    }
    // The work reports what is wrong with the log.
    let bytes = log.state().map_or(0, |state| state.segment_bytes);
    let total = log.segments().map_or(0, |segments| bytes.saturating_mul(segments.len() as u64));
    let bar = bar(total, if bytes_read().is_some() { BYTES } else { "{msg} {spinner} {elapsed}" });
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar.set_message("reading");
    let (working, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| watch(&bar, ended));
        // It ends the watch, also if the work panics.
        let _working = working;
        work(&bar)
    })
}

/// Does work that prints the records of a log, with the bar of [`while_reading`] if standard output
/// is a file: records on a terminal show that the work goes on.
pub(crate) fn while_printing<T>(log: &Inspector, work: impl FnOnce(&ProgressBar) -> T) -> T {
    match fs::metadata("/dev/stdout").is_ok_and(|output| output.is_file()) {
        true => while_reading(log, work),
        false => work(&ProgressBar::hidden()),
    }
}

fn watch(bar: &ProgressBar, ended: mpsc::Receiver<()>) {
    let before = bytes_read().unwrap_or_default();
    let mut patience = PATIENCE;
    while ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        patience = TICK;
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let read = bytes_read().unwrap_or_default().saturating_sub(before);
        bar.set_position(read.min(bar.length().unwrap_or(u64::MAX)));
        bar.tick();
    }
}

/// Returns how many bytes this process has read, as far as the system counts them.
fn bytes_read() -> Option<u64> {
    let counters = fs::read_to_string("/proc/self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("rchar: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_comes_only_when_patience_has_ended() {
        let shown = ProgressBar::hidden();
        let (working, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| watch(&shown, ended));
            fs::read(std::env::current_exe().unwrap()).unwrap();
            assert_eq!(shown.position(), 0);
            thread::sleep(PATIENCE + 2 * TICK);
            drop(working);
        });
        assert_eq!(shown.position() > 0, bytes_read().is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_counts_what_a_process_reads() {
        let file = std::env::current_exe().unwrap();
        let before = bytes_read().unwrap();
        let bytes = fs::read(file).unwrap().len() as u64;
        assert!(bytes_read().unwrap() >= before + bytes);
    }
}
