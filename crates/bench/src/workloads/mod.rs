//! How each workload is measured, and in which forms.

mod burst;
mod open_loop;
mod raw_syncs;
mod read;
mod release;
mod rotation;
pub(crate) mod streams;
mod tail;
mod tasks;

use std::time::Duration;

use anyhow::Result;
use palisade::SyncPolicy;

use crate::{End, Form, Measurement, Plan, Workload};

/// Policies that `policies` compares.
const POLICIES: [Form; 4] = [
    Form { policy: SyncPolicy::Always, ..Form::named("always") },
    Form { policy: SyncPolicy::Interval(Duration::from_millis(1)), ..Form::named("every 1ms") },
    Form { policy: SyncPolicy::Interval(Duration::from_millis(5)), ..Form::named("every 5ms") },
    Form { policy: SyncPolicy::Os, ..Form::named("os") },
];

/// Bytes that are written before the syncs of `sync`.
const DIRTY: [Form; 5] = [
    Form { number: 0.0, ..Form::named("0 KiB dirty") },
    Form { number: 4096.0, ..Form::named("4 KiB dirty") },
    Form { number: 65_536.0, ..Form::named("64 KiB dirty") },
    Form { number: 1_048_576.0, ..Form::named("1024 KiB dirty") },
    Form { number: 10_485_760.0, ..Form::named("10240 KiB dirty") },
];

impl Workload {
    /// Returns the forms that are measured without `--forms`: all of them.
    pub fn forms(self) -> &'static [Form] {
        match self {
            Workload::Tasks => &tasks::FORMS,
            Workload::OpenLoop => &open_loop::FORMS,
            Workload::Recover => &read::LEFT,
            Workload::Policies => &POLICIES,
            Workload::Rotation => &rotation::FORMS,
            Workload::Sync => &DIRTY,
            Workload::Codec => &read::CODED,
            Workload::Release => &release::FORMS,
            Workload::Opens => &raw_syncs::STEPS,
            Workload::Range => &read::RANGES,
            Workload::Suffix => &raw_syncs::SUFFIXES,
            Workload::Tail => &tail::FORMS,
            Workload::StreamsTruncate => &streams::TRUNCATIONS,
            Workload::ShardsAppend => &streams::ACCESSES,
            Workload::ShardsCheckpoint => &streams::CHECKPOINTS,
            _ => &[Form::PLAIN],
        }
    }
}

/// Measures one contender for one round.
///
/// # Errors
/// If the contender fails or lacks the workload.
pub fn measure(plan: &Plan) -> Result<Measurement> {
    match plan.workload {
        Workload::Append | Workload::StreamsOwn | Workload::Policies => burst::appends(plan),
        Workload::Commit | Workload::StreamsCommit => burst::measure(plan, 1, |worker| {
            worker.time(|log, thread, record| log.commit(thread, record))
        }),
        Workload::Batch | Workload::StreamsBatch => burst::measure(plan, plan.batch, |worker| {
            worker.time(|log, thread, record| log.batch(thread, record, plan.batch))
        }),
        Workload::Atomic => burst::measure(plan, plan.batch, |worker| {
            worker.time(|log, thread, record| log.atomic(thread, record, plan.batch))
        }),
        Workload::Sync => sync(plan),
        Workload::Tasks => tasks::measure(plan),
        Workload::Scan => read::scan(plan, plan.fill()?),
        Workload::Get => read::get(plan),
        Workload::Recover => read::open(plan, End::Killed),
        Workload::Reopen | Workload::StreamsOpen => read::open(plan, End::Closed),
        Workload::Rotation => rotation::measure(plan),
        Workload::OpenLoop => open_loop::measure(plan),
        Workload::Codec => read::codec(plan),
        Workload::Release => release::measure(plan),
        Workload::Opens => raw_syncs::opens(plan),
        Workload::Range => read::range(plan),
        Workload::Suffix => raw_syncs::suffix(plan),
        Workload::Tail => tail::measure(plan),
        // Only the contenders of shards know the form.
        Workload::StreamsAppend | Workload::ShardsAppend => streams::append(plan),
        Workload::StreamsScan => streams::scan(plan),
        Workload::StreamsTruncate => streams::truncate(plan),
        Workload::StreamsSlow => streams::slow(plan),
        Workload::ShardsBatch => streams::append_batch(plan),
        Workload::ShardsCheckpoint => streams::checkpoint(plan),
    }
}

/// Appends the form's bytes and syncs. Only the sync is in the latency.
fn sync(plan: &Plan) -> Result<Measurement> {
    let count = (plan.form.number as u64).div_ceil(plan.record_bytes as u64) as u32;
    burst::measure(plan, count, |worker| {
        worker.log.appends(worker.thread, worker.record, count)?;
        worker.time(|log, _, _| log.sync())
    })
}
