//! How each workload is measured.

mod burst;
mod codec;
mod get;
mod open_loop;
mod opens;
mod range;
mod raw_syncs;
mod recover;
mod release;
mod rotation;
mod scan;
mod shards;
mod streams;
mod suffix;
mod tail;
mod tasks;

use anyhow::Result;
use palisade::SyncPolicy;

use crate::contender::Contender;
use crate::form::Form;
use crate::log::End;
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::workload::Workload;

/// Measures one contender for one round.
///
/// # Errors
/// If the contender fails or lacks the workload.
pub fn measure(workload: Workload, contender: &Contender, plan: &Plan) -> Result<Measurement> {
    let create = || contender.create(workload, plan);
    let fill = || contender.fill(workload, plan);
    let torn_bytes = if let Form::Torn(bytes) = plan.form { bytes } else { 0 };
    let dirty_bytes = if let Form::Dirty(bytes) = plan.form { bytes } else { 0 };
    let dirty = dirty_bytes.div_ceil(plan.record_bytes as u64) as u32;
    match workload {
        Workload::Append | Workload::Policies | Workload::StreamsOwn => {
            burst::appends(create()?, plan, appends_a_step(plan))
        }
        Workload::Commit | Workload::StreamsCommit => {
            burst::measure(create()?, plan, 1, |worker| {
                worker.time(|log, thread, record| log.commit(thread, record))
            })
        }
        Workload::Batch | Workload::StreamsBatch => {
            burst::measure(create()?, plan, plan.batch, |worker| {
                worker.time(|log, thread, record| log.batch(thread, record, plan.batch))
            })
        }
        Workload::Atomic => burst::measure(create()?, plan, plan.batch, |worker| {
            worker.time(|log, thread, record| log.atomic(thread, record, plan.batch))
        }),
        Workload::Tasks => tasks::measure(create()?, plan),
        Workload::Scan => scan::measure(&*fill()?, plan),
        Workload::Get => get::measure(fill()?, plan),
        Workload::Recover => recover::measure(fill()?, plan, End::Killed { torn_bytes }),
        Workload::Reopen => recover::measure(fill()?, plan, End::Closed),
        Workload::Rotation => rotation::measure(create()?, plan),
        // Only the sync is in the latency.
        Workload::Sync => burst::measure(create()?, plan, dirty, |worker| {
            worker.log.append(worker.thread, worker.record, dirty)?;
            worker.time(|log, _, _| log.sync())
        }),
        Workload::OpenLoop => open_loop::measure(create()?, plan),
        Workload::Codec => codec::measure(&*create()?, plan),
        Workload::Release => release::measure(create()?, plan),
        Workload::Opens => opens::measure(contender, plan),
        Workload::Range => range::measure(&*fill()?, plan),
        Workload::Suffix => suffix::measure(create()?, plan),
        Workload::Tail => tail::measure(create()?, plan),
        // Only the contenders of shards know the form.
        Workload::StreamsAppend | Workload::ShardsAppend => streams::append(create()?, plan),
        Workload::StreamsScan => streams::scan(&*create()?, plan),
        Workload::StreamsOpen => streams::open(create()?, plan),
        Workload::StreamsTruncate => streams::truncate::measure(contender, plan),
        Workload::StreamsSlow => streams::slow::measure(contender, plan),
        Workload::ShardsBatch => shards::batch(create()?, plan),
        Workload::ShardsCheckpoint => shards::checkpoint(create()?, plan),
    }
}

/// Returns how many appends there are for each one that is timed. If an append is a call of the
/// operating system, each one is timed, because it takes much longer than the clock.
fn appends_a_step(plan: &Plan) -> u32 {
    match plan.form {
        Form::Policy(SyncPolicy::Always | SyncPolicy::Os) => 1,
        _ => burst::APPENDS_A_STEP,
    }
}
