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

mod any_calls;
mod archive;
mod consumers;
mod every_call;
mod followers;
mod history;
mod model;
mod session;
mod sweep;
mod tails;
