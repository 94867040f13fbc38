//! Random histories of all calls on the simulated disk, with deaths of the process, losses of power
//! and opens, against a model of maps.
//!
//! `PALISADE_FIRST_SEED` and `PALISADE_SEEDS` say which seeds are run; `cargo test` runs some
//! hundred. A failing seed prints itself and the command that runs it again.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress and figures of long runs")]

#[path = "../../../palisade/tests/common/dice.rs"]
mod dice;
#[path = "../../../palisade/tests/common/seeds.rs"]
mod seeds;

mod every_call;
mod model;
mod session;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::seeds::sweep;
use crate::session::{Figures, History};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 300;

#[test]
fn histories_with_crashes_are_what_the_model_says() {
    let sums: [AtomicU64; 5] = Default::default();
    sweep("palisade-streams --test histories histories_with", SEEDS, |history: History| {
        let Figures { opens, footers, released, moved, scans } = history.session.figures;
        for (sum, figure) in sums.iter().zip([opens, footers, released, moved, scans]) {
            // Relaxed: a sum that is read after all threads have ended.
            sum.fetch_add(figure, Ordering::Relaxed);
        }
    });
    let [opens, footers, released, moved, scans] = sums.map(AtomicU64::into_inner);
    println!(
        "{opens} opens, {scans} of them of all records, {footers} footers read, {released} bytes \
         released, {moved} moved"
    );
    assert!(footers > 0 && released > 0 && moved > 0, "the histories leave out what they check");
}
