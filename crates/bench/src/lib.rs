//! Palisade's benchmark driver: contenders, workloads and results.
//!
//! [`workloads`] measure one [`contender`] for one round; a [`session`] lets the contenders take
//! turns round by round and reports the medians. The criterion targets in the top-level `benches/`
//! are built from the same contenders. `docs/architecture.md` shows what they measure.

pub mod cases;
pub mod cli;
pub mod contender;
pub mod contenders;
pub mod environment;
pub mod folder;
pub mod form;
pub mod image;
pub mod latency;
pub mod log;
pub mod measurement;
pub mod payload;
pub mod plan;
pub mod plot;
mod random;
pub mod session;
pub mod table;
pub mod tally;
pub mod team;
pub mod workload;
pub mod workloads;

/// The functions that copy records from other crates into a log, compiled, and in part run.
#[cfg(all(doctest, feature = "peers"))]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFrom;
