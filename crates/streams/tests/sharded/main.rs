//! Sets of shards: their calls, opens and checkpoints, with deaths of the process and losses of
//! power at each call of the disks.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "progress and figures of long runs")]

#[path = "../../../palisade/tests/common/dice.rs"]
mod dice;
#[expect(dead_code, reason = "the histories of one log have consumers, too")]
#[path = "../histories/model.rs"]
mod model;
#[path = "../../../palisade/tests/common/seeds.rs"]
mod seeds;

mod calls;
mod checkpoints;
mod crashes;
mod disks;
mod opens;
mod random;
mod threads;
