//! Palisade's benchmark driver: contenders, workloads and reports.
//!
//! A [`workload`] measures one [`contender`] for one round; a [`session`] lets the contenders
//! take turns round by round and [`report`]s the medians. The criterion targets in the top-level
//! `benches/` are built from the same contenders.

pub mod cli;
pub mod contender;
pub mod environment;
pub mod folder;
pub mod latency;
pub mod plan;
pub mod plot;
pub mod report;
pub mod session;
pub mod team;
pub mod workload;
