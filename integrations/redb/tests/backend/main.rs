//! Tests of the backend: as a storage of bytes, under redb, and through crashes and damage.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress of long runs")]

mod common;
mod damage;
mod database;
#[expect(dead_code, reason = "other harnesses with seeds use the rest")]
#[path = "../../../../crates/palisade/tests/common/dice.rs"]
mod dice;
mod full;
mod kills;
mod locks;
mod model;
mod power_loss;
#[path = "../../../../crates/palisade/tests/common/reached.rs"]
mod reached;
#[path = "../../../../crates/palisade/tests/common/seeds.rs"]
mod seeds;
mod storage;
