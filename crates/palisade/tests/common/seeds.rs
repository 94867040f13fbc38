//! Runs of many seeds on all cores. A seed that fails or hangs is printed with the command that
//! runs it again.
//!
//! `PALISADE_FIRST_SEED`, `PALISADE_SEEDS` and `PALISADE_SECONDS` say which seeds are run;
//! `PALISADE_STAY=1` keeps a hanging process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Progress is reported so often.
const REPORT_EVERY: u64 = 500;
/// A seed that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one seed determines.
pub(crate) trait Seeded {
    fn new(seed: u64) -> Self;

    /// Panics where a check fails.
    fn run(&mut self);

    /// What a failing seed prints beside the panic's text.
    fn describe(&self) -> String;
}

/// Seeds that are under way, each with its beginning.
type UnderWay = Mutex<Vec<(u64, Instant)>>;

/// Runs the seeds that the environment names, or as many as `usual`; hands each run that passed to
/// `done`. Fails with all that one needs to look at the first failing seed. `test` are the
/// arguments with which `cargo test` runs the caller.
pub(crate) fn sweep<S: Seeded>(test: &str, usual: u64, done: impl Fn(S) + Sync) {
    let first = number("PALISADE_FIRST_SEED").unwrap_or(0);
    let seeds = number("PALISADE_SEEDS").unwrap_or(usual);
    let end = number("PALISADE_SECONDS").map(|n| Instant::now() + Duration::from_secs(n));
    let (next, ran) = (AtomicU64::new(0), AtomicU64::new(0));
    let (failures, under_way) = (Mutex::new(Vec::new()), UnderWay::default());
    let work = || {
        while end.is_none_or(|end| Instant::now() < end) {
            // Relaxed: the counters share out and count seeds, they order nothing.
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= seeds {
                return;
            }
            under_way.lock().unwrap().push((first + index, Instant::now()));
            match run_one(first + index) {
                Ok(passed) => done(passed),
                Err(failure) => failures.lock().unwrap().push((first + index, failure)),
            }
            under_way.lock().unwrap().retain(|(seed, _)| *seed != first + index);
            let ran = ran.fetch_add(1, Ordering::Relaxed) + 1;
            if ran.is_multiple_of(REPORT_EVERY) {
                eprintln!("{ran} of {seeds} seeds");
            }
        }
    };
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&under_way, &is_done));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        // Release: the watch sees it at its next look; it reads nothing else.
        is_done.store(true, Ordering::Release);
        watch.thread().unpark();
    });
    report(test, &mut failures.into_inner().unwrap());
    println!("{} seeds from {first} on: no violation", ran.into_inner());
}

fn run_one<S: Seeded>(seed: u64) -> Result<S, (String, String)> {
    let mut run = S::new(seed);
    match catch_unwind(AssertUnwindSafe(|| run.run())) {
        Ok(()) => Ok(run),
        Err(panic) => Err((text_of(panic.as_ref()), run.describe())),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

fn report(test: &str, failures: &mut [(u64, (String, String))]) {
    failures.sort();
    let Some((seed, (text, description))) = failures.first() else { return };
    eprintln!("{description}");
    for (seed, (text, _)) in failures.iter() {
        eprintln!("seed {seed}: {text:.500}");
    }
    panic!(
        "{} seeds failed; the first, {seed}: {text}\nrun it again with \
         PALISADE_FIRST_SEED={seed} PALISADE_SEEDS=1 cargo test {test}",
        failures.len(),
    );
}

/// Ends the process when a seed hangs.
fn watch(under_way: &UnderWay, is_done: &AtomicBool) {
    while !is_done.load(Ordering::Acquire) {
        thread::park_timeout(Duration::from_secs(1));
        for (seed, begun) in under_way.lock().unwrap().iter() {
            if begun.elapsed() > PATIENCE {
                eprintln!("seed {seed} hangs");
                if number("PALISADE_STAY").is_none() {
                    std::process::abort();
                }
            }
        }
    }
}

/// The number in an environment variable, if there is one. Anything else is no default: a run of
/// other seeds than were asked for shows nothing.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, expected a number")))
}
