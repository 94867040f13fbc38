//! Reading single records in random order, from the page cache.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::scan::check;
use crate::latency::Latencies;
use crate::log::Log;
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::random::Random;
use crate::tally::Tally;
use crate::team::together;

/// Reads records over and over until the time is over.
pub(super) fn measure(mut log: Box<dyn Log>, plan: &Plan) -> Result<Measurement> {
    log.index()?;
    let kept = check(&*log, plan)?;
    let get = |random: &mut Random, tally: &mut Tally<'_>| {
        log.get(random.next_u64() % plan.records, tally)
    };
    Ok(Measurement { kept: Some(kept), ..reads(plan, 1, || true, get)? })
}

/// Makes calls that read `records_a_call` records, over and over while `goes_on` and until the time
/// is over.
pub(super) fn reads(
    plan: &Plan,
    records_a_call: u64,
    goes_on: impl Fn() -> bool + Sync,
    call: impl Fn(&mut Random, &mut Tally<'_>) -> Result<()> + Sync,
) -> Result<Measurement> {
    let (elapsed, reads) = together(plan.threads, |thread| {
        let begin = Instant::now();
        let mut latencies = Latencies::default();
        let mut random = Random::new(thread as u64 + 1);
        let mut tally = Tally::new();
        let mut calls = 0;
        while calls == 0 || begin.elapsed() < plan.time && goes_on() {
            latencies.time(|| call(&mut random, &mut tally))?;
            calls += 1;
        }
        let (found, due) = (tally.records(), calls * records_a_call);
        ensure!(found == due, "{calls} calls found {found} records, not {due}");
        tally.must_have_bytes_of(plan.record_bytes)?;
        Ok((found, latencies))
    });
    let mut latencies = Latencies::default();
    let mut records = 0;
    for of_thread in reads {
        let (count, of_thread) = of_thread?;
        records += count;
        latencies.merge(&of_thread);
    }
    Ok(Measurement::of_round(records as f64 / elapsed.as_secs_f64(), &latencies))
}
