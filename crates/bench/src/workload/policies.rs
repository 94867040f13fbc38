//! Appends under each of the log's own sync policies.

use anyhow::Result;
use palisade::{Options, SyncPolicy};

use super::burst::measure as measure_steps;
use super::variant::Variant;
use super::{APPENDS_A_STEP, Outcome};
use crate::contender::Contender;
use crate::contender::palisade::PalisadeLog;
use crate::plan::Plan;

/// Appends for one round to a log with the variant's policy.
pub(super) fn measure(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let policy = match plan.variant {
        Variant::Policy(policy) => policy,
        _ => SyncPolicy::OnCommit,
    };
    let options = Options::new().sync_policy(policy);
    let log = Box::new(PalisadeLog::with(contender, &plan.dir, options)?);
    // Where an append is a call of the operating system, timing each one costs next to nothing.
    let appends = match policy {
        SyncPolicy::Always | SyncPolicy::Os => 1,
        _ => APPENDS_A_STEP,
    };
    measure_steps(log, plan, appends, &|log, thread, record, latencies| {
        log.append(thread, record, appends - 1)?;
        latencies.time(|| log.append(thread, record, 1))
    })
}
