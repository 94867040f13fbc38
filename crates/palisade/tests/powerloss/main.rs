//! Simulated losses of power and deaths of the process, thousands of them, against an oracle.
//!
//! `verification/powerloss.sh [SEEDS]` runs as many seeds as one likes; `cargo test` runs a few
//! hundred. A failing seed prints itself and the command that runs it again.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress and figures of long runs")]

#[path = "../common/codecs.rs"]
mod codecs;
#[path = "../common/device.rs"]
mod device;
#[path = "../common/dice.rs"]
mod dice;
#[path = "../common/kept.rs"]
mod kept;
#[path = "../common/masked.rs"]
mod masked;
#[path = "../common/numbered.rs"]
mod numbered;
#[path = "../common/repaired.rs"]
mod repaired;
#[path = "../common/seeds.rs"]
mod seeds;

mod archives;
mod cursors;
mod damage;
mod ends;
mod every_call;
mod failed_writes;
mod full_disk;
mod held;
mod history;
mod oracle;
mod reads;
mod session;
mod shape;
mod sweep;
mod truncations;
