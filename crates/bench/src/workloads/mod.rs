//! How each workload is measured.

mod burst;
mod codec;
mod get;
mod open_loop;
mod opens;
mod policies;
mod range;
mod raw_syncs;
mod recover;
mod release;
mod rotation;
mod scan;
mod suffix;
mod sync;
mod tail;
mod tasks;

use anyhow::Result;

use crate::contender::Contender;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::workload::Workload;

/// Measures one contender for one round.
///
/// # Errors
/// If the contender fails or lacks the workload.
pub fn measure(workload: Workload, contender: &Contender, plan: &Plan) -> Result<Outcome> {
    let create = || contender.create(workload, plan);
    let fill = || contender.fill(workload, plan);
    match workload {
        Workload::Append => burst::appends(create()?, plan, burst::APPENDS_A_STEP),
        Workload::Commit => burst::measure(create()?, plan, 1, |worker| {
            worker.time(|log, thread, record| log.commit(thread, record))
        }),
        Workload::Batch => burst::measure(create()?, plan, plan.batch, |worker| {
            worker.time(|log, thread, record| log.batch(thread, record, plan.batch))
        }),
        Workload::Atomic => burst::measure(create()?, plan, plan.batch, |worker| {
            worker.time(|log, thread, record| log.atomic(thread, record, plan.batch))
        }),
        Workload::Tasks => tasks::measure(create()?, plan),
        Workload::Scan => scan::measure(&*fill()?, plan),
        Workload::Get => get::measure(fill()?, plan),
        Workload::Recover => recover::measure_unclean(fill()?, plan),
        Workload::Reopen => recover::measure_clean(fill()?, plan),
        Workload::Policies => policies::measure(create()?, plan),
        Workload::Rotation => rotation::measure(create()?, plan),
        Workload::Sync => sync::measure(create()?, plan),
        Workload::OpenLoop => open_loop::measure(create()?, plan),
        Workload::Codec => codec::measure(&*create()?, plan),
        Workload::Release => release::measure(create()?, plan),
        Workload::Opens => opens::measure(contender, plan),
        Workload::Range => range::measure(&*fill()?, plan),
        Workload::Suffix => suffix::measure(create()?, plan),
        Workload::Tail => tail::measure(create()?, plan),
    }
}
