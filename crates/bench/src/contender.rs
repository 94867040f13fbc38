//! A contender: what it is called, what it lacks, and how its logs are opened.
//!
//! Each contender is measured by the best calls that it has. The head of its file says what these
//! calls promise. A floor promises nothing: it shows what the machine allows.

use anyhow::{Result, bail};

use crate::{Form, Log, Plan, Workload};

/// A log library, a log that an application writes itself, or a floor.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// The version of the library, if it is one.
    pub version: Option<&'static str>,
    /// Whether it only shows what the machine allows, and keeps no records.
    pub is_floor: bool,
    /// Why it cannot do a workload; `None` if it can.
    pub lacks: fn(Workload) -> Option<&'static str>,
    /// Why it cannot do a form of a workload that it does not lack; `None` if it can.
    pub lacks_form: fn(&Form) -> Option<&'static str>,
    /// Why its log cannot have so many streams; `None` if it can.
    pub lacks_streams: fn(usize) -> Option<&'static str>,
    /// Whether it has one thread in a workload that others do with several.
    pub has_one_thread: fn(Workload) -> bool,
    /// Whether an open log returns each record once: to read it again, the log is opened again.
    pub reads_once: bool,
    /// Opens the log in the plan's folder; makes one if there is none.
    pub(crate) open: fn(&Plan) -> Result<Box<dyn Log>>,
    /// Whether a file of that name has records, the last name the last ones; `None` if a log that
    /// is dropped leaves what a kill leaves.
    pub(crate) is_segment: Option<fn(&str) -> bool>,
}

impl Contender {
    /// A contender that has nothing but a name, to be filled in.
    pub(crate) const BASE: Contender = Contender {
        name: "",
        version: None,
        is_floor: false,
        lacks: |_| None,
        lacks_form: |_| None,
        lacks_streams: |_| None,
        has_one_thread: |_| false,
        reads_once: false,
        open: |plan| bail!("it has no log for {}", plan.workload.name()),
        is_segment: None,
    };

    /// Returns whether the contender has the workload.
    pub fn supports(&self, workload: Workload) -> bool {
        (self.lacks)(workload).is_none()
    }
}

/// Why a contender lacks `atomic`.
pub(crate) const NO_ATOMIC: &str = "it has no batch that is there whole or not at all";

/// Returns why a contender without a format that a reader could verify lacks `workload`; `None` if
/// it has it.
pub(crate) fn lacks_reading(workload: Workload) -> Option<&'static str> {
    if workload.reads() {
        return Some("it has no records that a reader could verify");
    }
    lacks_options(workload)
}

/// Returns why a contender without the features of Palisade alone lacks `workload`; `None` if it
/// has it.
pub(crate) fn lacks_options(workload: Workload) -> Option<&'static str> {
    match workload {
        Workload::Tasks => Some("it has no futures"),
        Workload::Policies => Some("it has no such policies"),
        Workload::Rotation => Some("it does not report which append comes first in a segment"),
        Workload::Codec => Some("it has no compression"),
        Workload::Release
        | Workload::Opens
        | Workload::Range
        | Workload::Suffix
        | Workload::Tail => Some("only Palisade's calls are measured"),
        other => lacks_streams_and_shards(other),
    }
}

/// Returns why a contender of single logs lacks `workload`; `None` if it has it.
pub(crate) fn lacks_streams_and_shards(workload: Workload) -> Option<&'static str> {
    let no_streams = workload.has_streams().then_some("it has no streams");
    no_streams.or(workload.has_shards().then_some("it has no set of shards"))
}
