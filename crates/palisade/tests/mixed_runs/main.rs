//! Random process runs of one log on a simulated disk, each opened with other options, against a
//! plain list of what was appended.
//!
//! `powerloss` beside it asks the same of one set of options for all runs of a log. Here each open,
//! also one that fails, rolls them anew: buffer, policy, spares, padding, zero filling, what is
//! verified. So a run finds what another kind of run left. The two share dice, devices and the
//! sweep of seeds, and neither history nor oracle: what one of them takes for granted, the other
//! one may see. The disk (in place or not, powersafe or not, how it fails) and the segment size are
//! the log's.
//!
//! `PALISADE_THREADS=1` gives each run threads, `PALISADE_CLOSES=1` has every log closed more often
//! than not; `common/seeds.rs` names the rest. A seed without threads means the same each time.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress and figures of long runs")]

mod appends;
mod background;
mod checks;
#[path = "../common/codecs.rs"]
mod codecs;
#[path = "../common/device.rs"]
mod device;
#[path = "../common/dice.rs"]
mod dice;
#[path = "../common/epoch_list.rs"]
mod epoch_list;
mod faults;
mod headers;
#[path = "../common/kept.rs"]
mod kept;
#[path = "../common/masked.rs"]
mod masked;
mod model;
#[path = "../common/numbered.rs"]
mod numbered;
mod options;
mod reads;
mod recover;
mod run;
#[path = "../common/seeds.rs"]
mod seeds;
mod steps;
mod threads;
mod truncations;

use crate::run::Run;

#[test]
fn runs_with_other_options_each_lose_nothing() {
    seeds::sweep("-p palisade --test mixed_runs", 100, |run: Run| drop(run));
}
