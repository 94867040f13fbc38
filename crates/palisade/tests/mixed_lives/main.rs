//! Random lives of one log on a simulated disk, each opened with other options, against a plain list
//! of what was appended.
//!
//! `powerloss` beside it asks the same of one set of options for a log's whole life. Here each open,
//! also one that fails, rolls them anew: buffer, policy, spares, padding, zero filling, what is
//! verified. So a life finds what another kind of life left. It shares no line with that harness,
//! neither history nor oracle: what one of them takes for granted, the other one may see. The disk
//! (in place or not, powersafe or not, how it fails) and the segment size are
//! the log's.
//!
//! `PALISADE_FIRST_SEED`, `PALISADE_SEEDS` and `PALISADE_SECONDS` say which seeds are run;
//! `PALISADE_THREADS=1` gives each life threads, `PALISADE_CLOSES=1` has every log closed more often
//! than not, `PALISADE_TRACE=1` prints a failed seed's calls. A seed without threads means the same in
//! each run. `PALISADE_STAY=1` keeps a hanging process.

#![expect(clippy::print_stderr, reason = "progress and figures of long runs")]

mod appends;
mod checks;
mod cuts;
mod device;
mod dice;
#[path = "../common/epoch_list.rs"]
mod epoch_list;
mod faults;
mod headers;
#[path = "../common/kept.rs"]
mod kept;
mod life;
mod model;
mod options;
mod reads;
mod recover;
mod steps;
mod threads;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::life::Run;

/// A seed that takes longer hangs.
const PATIENCE_SECONDS: u64 = 60;

#[test]
fn lives_with_other_options_each_lose_nothing() {
    let first = number("PALISADE_FIRST_SEED").unwrap_or(0);
    let seeds = number("PALISADE_SEEDS").unwrap_or(100);
    let until = Instant::now() + Duration::from_secs(number("PALISADE_SECONDS").unwrap_or(100_000));
    let watch = Watch::begin();
    let mut failures = Vec::new();
    let mut done = 0;
    for seed in first..first + seeds {
        if Instant::now() > until {
            break;
        }
        watch.begins(seed);
        let mut run = Run::new(seed);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run.run())) {
            report(seed, &run, panic.as_ref());
            run.disk.kill();
            failures.push(seed);
        }
        done += 1;
        if done % 500 == 0 {
            eprintln!("{done} seeds, {} failures", failures.len());
        }
    }
    watch.begins(Watch::NO_SEED);
    eprintln!("{done} seeds from {first}: failed {failures:?}");
    assert!(failures.is_empty());
}

fn report(seed: u64, run: &Run, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    let text = text.unwrap_or_default();
    let (what, fixed, opening) = (&run.what, &run.fixed, &run.opening);
    eprintln!(
        "seed {seed}, {:?}: {text:.500}\n   in {what} | {fixed:?} | {opening:?}",
        fixed.failure
    );
    eprintln!(
        "again: PALISADE_FIRST_SEED={seed} PALISADE_SEEDS=1 cargo test -p palisade \
         --test mixed_lives -- --nocapture"
    );
    if number("PALISADE_TRACE").is_some() {
        eprintln!("{}\n{:?}", run.disk.trace().join("\n"), run.disk.files());
    }
}

/// Ends the process when a seed hangs.
struct Watch {
    start: Instant,
    seed: Arc<AtomicU64>,
    /// Seconds after `start`.
    begun: Arc<AtomicU64>,
}

impl Watch {
    const NO_SEED: u64 = u64::MAX;

    fn begin() -> Watch {
        let start = Instant::now();
        let (seed, begun) = (Arc::new(AtomicU64::new(Watch::NO_SEED)), Arc::default());
        let watch = Watch { start, seed: Arc::clone(&seed), begun: Arc::clone(&begun) };
        std::thread::spawn(move || {
            loop {
                std::thread::park_timeout(Duration::from_secs(5));
                let (seed, begun) = (seed.load(Ordering::SeqCst), begun.load(Ordering::SeqCst));
                if seed != Watch::NO_SEED && start.elapsed().as_secs() > begun + PATIENCE_SECONDS {
                    eprintln!("HANG in seed {seed}");
                    if number("PALISADE_STAY").is_none() {
                        std::process::abort();
                    }
                }
            }
        });
        watch
    }

    fn begins(&self, seed: u64) {
        self.seed.store(seed, Ordering::SeqCst);
        self.begun.store(self.start.elapsed().as_secs(), Ordering::SeqCst);
    }
}

/// The environment's number `name`, if there is one.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
