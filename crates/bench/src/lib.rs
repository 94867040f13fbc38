//! Palisade's benchmark driver: contenders, workloads and results.
//!
//! [`workloads`] measure one [`Contender`] for one round; a [`session`] lets the contenders take
//! turns round by round and reports the medians. The criterion targets in the top-level `benches/`
//! are built from the same contenders. `docs/architecture.md` shows what they measure.

pub mod cases;
pub mod cli;
mod contender;
pub mod contenders;
pub mod folder;
mod form;
mod latency;
mod log;
mod measurement;
mod payload;
mod plan;
pub mod plot;
mod random;
pub mod session;
pub mod table;
mod tally;
mod team;
mod workload;
pub mod workloads;

pub use crate::contender::Contender;
pub use crate::form::{Compression, Form};
pub use crate::latency::Latencies;
pub use crate::log::{End, Log, Opening};
pub use crate::measurement::{Kept, Measurement, Moment};
pub use crate::payload::Payload;
pub use crate::plan::{BURST_BYTES, Plan};
pub(crate) use crate::random::Random;
pub use crate::tally::Tally;
pub(crate) use crate::team::lock;
pub use crate::team::together;
pub use crate::workload::Workload;

/// The functions that copy records from other crates into a log, compiled, and in part run.
#[cfg(all(doctest, feature = "peers"))]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFrom;
