//! A contender: what it is called, what it lacks, and how its logs are made.
//!
//! Each contender is measured by the best calls that it has. The head of its file says what these
//! calls promise. A floor promises nothing: it shows what the machine allows.

use anyhow::{Result, bail};

use crate::form::Form;
use crate::log::Log;
use crate::plan::Plan;
use crate::workload::Workload;

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
    pub lacks_form: fn(Form) -> Option<&'static str>,
    /// Why its log cannot have so many streams; `None` if it can.
    pub lacks_streams: fn(usize) -> Option<&'static str>,
    /// Whether it has one thread in a workload that others do with several.
    pub has_one_thread: fn(Workload) -> bool,
    /// Makes an empty log for a workload that it does not lack.
    pub(crate) create: fn(Workload, &Plan) -> Result<Box<dyn Log>>,
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
        create: |workload, _| bail!("it has no log for {}", workload.name()),
    };

    /// Returns whether the contender has the workload.
    #[must_use]
    pub fn supports(&self, workload: Workload) -> bool {
        (self.lacks)(workload).is_none()
    }

    /// Makes an empty log.
    ///
    /// # Errors
    /// If its files cannot be made, or the contender lacks the workload or the form.
    pub fn create(&self, workload: Workload, plan: &Plan) -> Result<Box<dyn Log>> {
        if let Some(reason) = (self.lacks)(workload) {
            bail!("{} has no {}: {reason}", self.name, workload.full_name());
        }
        if let Some(reason) = (self.lacks_form)(plan.form) {
            bail!("{} has no {} {}: {reason}", self.name, workload.name(), plan.form);
        }
        if workload.has_streams()
            && let Some(reason) = (self.lacks_streams)(plan.streams)
        {
            bail!("{} has no {} streams: {reason}", self.name, plan.streams);
        }
        (self.create)(workload, plan)
    }

    /// Makes a log of the plan's records, for a workload that reads or opens.
    ///
    /// # Errors
    /// If it cannot be written, or the contender lacks the workload or the form.
    pub fn fill(&self, workload: Workload, plan: &Plan) -> Result<Box<dyn Log>> {
        let log = self.create(workload, plan)?;
        let unsynced = plan.unsynced_records();
        log.fill(&plan.record(), plan.records - unsynced, unsynced)?;
        Ok(log)
    }
}

/// Why a contender lacks `atomic`.
pub(crate) const NO_ATOMIC: &str = "it has no batch that is there whole or not at all";

/// Why a contender lacks a workload of streams.
pub(crate) const NO_STREAMS: &str = "it has no streams";

/// Why a contender lacks a workload of shards.
pub(crate) const NO_SHARDS: &str = "it has no set of shards";

/// Returns why a contender without a format that a reader could verify lacks `workload`; `None` if
/// it has it.
pub(crate) fn lacks_reading(workload: Workload) -> Option<&'static str> {
    match workload {
        workload if workload.reads() => Some("it has no records that a reader could verify"),
        other => lacks_options(other),
    }
}

/// Returns why a contender without the features of Palisade alone lacks `workload`; `None` if it
/// has it.
pub(crate) fn lacks_options(workload: Workload) -> Option<&'static str> {
    match workload {
        workload if workload.has_streams() => Some(NO_STREAMS),
        workload if workload.has_shards() => Some(NO_SHARDS),
        Workload::Tasks => Some("it has no futures"),
        Workload::Policies => Some("it has no such policies"),
        Workload::Rotation => Some("it does not report which append comes first in a segment"),
        Workload::Codec => Some("it has no compression"),
        Workload::Release
        | Workload::Opens
        | Workload::Range
        | Workload::Suffix
        | Workload::Tail => Some("only Palisade's calls are measured"),
        _ => None,
    }
}

/// Why a crate lacks what needs a call that makes appended records durable.
#[cfg(feature = "peers")]
pub(crate) const NO_SYNC: &str = "it has no sync of its own";

/// Returns why a crate whose open always checks only a part of the records lacks `form`; `None` if
/// it has it.
#[cfg(feature = "peers")]
pub(crate) fn lacks_full_check(form: Form) -> Option<&'static str> {
    (form == Form::FullCheck).then_some("its open has no such check")
}
