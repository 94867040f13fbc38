//! Many seeds, on all cores; a failing one is printed with what replays it.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use palisade::sim::WriteBackFailure;

use crate::history::History;

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 600;
/// Seeds that are run twice.
const SAME_SEEDS: u64 = 60;
/// Progress is told so often.
const TELL_EVERY: u64 = 1000;

/// A seed that found a violation.
struct Failure {
    seed: u64,
    /// How the device fails.
    device: WriteBackFailure,
    what: String,
    trace: String,
}

#[test]
fn seeds_of_random_crashes_lose_nothing() {
    let first = number("PALISADE_FIRST_SEED").unwrap_or(0);
    let seeds = number("PALISADE_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let points = Mutex::new(BTreeSet::new());
    let failures = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    // Relaxed: the counter shares out seeds, it orders nothing.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds {
                        return;
                    }
                    match run_seed(first + index) {
                        Ok(found) => points.lock().unwrap().extend(found),
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                    if (index + 1).is_multiple_of(TELL_EVERY) {
                        eprintln!("{} of {seeds} seeds", index + 1);
                    }
                }
            });
        }
    });
    report(&failures.into_inner().unwrap());
    let points = points.into_inner().unwrap();
    println!("{seeds} seeds from {first} on: no violation, {} distinct crash points", points.len());
    if number("PALISADE_POINTS").is_some() {
        points.iter().for_each(|point| println!("  {point}"));
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let run = |seed| {
        let mut history = History::new(seed);
        history.run();
        history.session.describe()
    };
    for seed in 0..SAME_SEEDS {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

fn run_seed(seed: u64) -> Result<BTreeSet<String>, Failure> {
    let mut history = History::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| history.run()));
    let mut session = history.session;
    match outcome {
        Ok(()) => Ok(std::mem::take(&mut session.crash_points)),
        Err(panic) => {
            let (device, what) = (session.shape.failure, text_of(panic.as_ref()));
            Err(Failure { seed, device, what, trace: session.describe() })
        }
    }
}

/// Fails with everything that one needs to look at the first failing seed.
fn report(failures: &[Failure]) {
    let Some(first) = failures.iter().min_by_key(|failure| failure.seed) else { return };
    eprintln!("{}", first.trace);
    for failure in failures {
        eprintln!("seed {}, {:?}: {}", failure.seed, failure.device, failure.what);
    }
    let seed = first.seed;
    panic!(
        "{} seeds failed; the first, {seed}: {}\nrun it again with PALISADE_FIRST_SEED={seed} \
         PALISADE_SEEDS=1 cargo test -p palisade --test powerloss seeds_of_random_crashes",
        failures.len(),
        first.what,
    );
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// The number in an environment variable, if there is one. Anything else is no default: a run of
/// other seeds than were asked for shows nothing.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, expected a number")))
}
