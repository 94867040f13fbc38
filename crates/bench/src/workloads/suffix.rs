//! Truncating the last record of a log, or replacing it, as a Raft follower does.

use std::time::Instant;

use anyhow::{Context, Result};

use super::burst::read_back;
use super::raw_syncs::RawSyncs;
use crate::form::Form;
use crate::latency::Latencies;
use crate::log::Log;
use crate::measurement::{Kept, Measurement};
use crate::plan::Plan;

/// Each call may take a segment, so the log is emptied after so many.
const CALLS_A_TRIM: u32 = 16;

/// Commits two records and makes the form's call, over and over; only the call is timed.
pub(super) fn measure(log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    let wal = log.wal().context("the contender cannot truncate its end")?;
    let record = plan.record();
    let mut latencies = Latencies::default();
    let mut raw = RawSyncs::create(plan)?;
    let (mut calls, mut acknowledged) = (0, 0);
    let begin = Instant::now();
    while calls == 0 || begin.elapsed() < plan.time {
        if calls % CALLS_A_TRIM == 0 {
            log.trim()?;
            acknowledged = 0;
        }
        let kept = wal.append(&record)?.lsn();
        let last = wal.commit(&record)?;
        raw.take_turn()?;
        latencies.time(|| match plan.form {
            Form::ReplaceFrom => wal.replace_from(last, [&record]).map(drop),
            _ => wal.truncate_after(kept),
        })?;
        acknowledged += if plan.form == Form::ReplaceFrom { 2 } else { 1 };
        calls += 1;
    }
    let read_back = read_back(log)?;
    let kept = read_back.map(|read_back| Kept { acknowledged, read_back });
    Ok(Measurement { kept, ..raw.outcome(&latencies)? })
}
