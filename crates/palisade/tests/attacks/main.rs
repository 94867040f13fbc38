//! The attacks that verification/faults.md lists: each test is named there with the defence that it
//! attacks and with the patch of verification/defences that removes the defence and makes the
//! test fail.
//!
//! Attacks that need the simulated disk are in `power`, `leftovers` and `no_space`; those that existed
//! first are in `tests/promises`. What both work with lies in `tests/common`.

#[expect(dead_code, reason = "the tests of the promises use the rest")]
#[path = "../common/executor.rs"]
mod executor;
#[expect(dead_code, reason = "the tests of the promises use the rest")]
#[path = "../common/faulty.rs"]
mod faulty;
#[path = "../common/folder.rs"]
mod folder;
#[path = "../common/watchdog.rs"]
mod watchdog;

mod clean_kills;
mod content;
#[cfg(unix)]
mod folders;
mod forgeries;
#[cfg(target_os = "linux")]
mod forks;
mod leftovers;
#[cfg(unix)]
mod limits;
mod lookers;
mod lost_meta;
mod no_space;
mod old_bytes;
mod page_cache;
mod panics;
mod power;
mod processes;
mod refusals;
mod shapes;
mod strays;
mod torn;
mod waiting;
mod writers;
