//! Reading a few records by one call, alone and beside a thread that appends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use palisade::{Lsn, Wal};

use super::get::reads;
use super::scan::check;
use crate::contenders::lsns;
use crate::form::Form;
use crate::log::Log;
use crate::measurement::Measurement;
use crate::plan::{BURST_BYTES, Plan};
use crate::random::Random;
use crate::tally::Tally;

/// Records of a call.
const RECORDS: usize = 10;

/// Reads records over and over until the time is over, or the other thread has appended
/// [`BURST_BYTES`]: the reads are to be beside it.
pub(super) fn measure(log: &dyn Log, plan: &Plan) -> Result<Measurement> {
    let kept = check(log, plan)?;
    let wal = log.wal().context("the contender has no such call")?;
    let lsns = lsns(wal)?;
    ensure!(lsns.len() > RECORDS, "a call reads {RECORDS} records: give more --records");
    let call = |random: &mut Random, tally: &mut Tally<'_>| match plan.form {
        Form::GetBatch(_) => get_batch(wal, &lsns, random, tally),
        _ => range(wal, &lsns, random, tally),
    };
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        let is_busy = matches!(plan.form, Form::Range(true) | Form::GetBatch(true));
        let append = || append_until(wal, plan, &is_over);
        let appender = is_busy.then(|| scope.spawn(append));
        let goes_on = || !is_over.load(Ordering::Relaxed);
        let outcome = reads(plan, RECORDS as u64, goes_on, call);
        is_over.store(true, Ordering::Relaxed);
        appender.map_or(Ok(()), |appender| appender.join().expect("the appender panicked"))?;
        outcome
    })?;
    Ok(Measurement { kept: Some(kept), ..outcome })
}

fn range(wal: &Wal, lsns: &[Lsn], random: &mut Random, tally: &mut Tally<'_>) -> Result<()> {
    let first = place(random, lsns.len() - RECORDS);
    let mut records = wal.range(lsns[first]..lsns[first + RECORDS])?;
    while let Some(record) = records.next()? {
        tally.take(record.data());
    }
    Ok(())
}

fn get_batch(wal: &Wal, lsns: &[Lsn], random: &mut Random, tally: &mut Tally<'_>) -> Result<()> {
    let asked = [(); RECORDS].map(|()| lsns[place(random, lsns.len())]);
    wal.get_batch(&asked)?.iter().for_each(|record| tally.take(record.data()));
    Ok(())
}

fn place(random: &mut Random, places: usize) -> usize {
    random.next_u64() as usize % places
}

fn append_until(wal: &Wal, plan: &Plan, is_over: &AtomicBool) -> Result<()> {
    let record = plan.record();
    let mut left = BURST_BYTES / record.len().max(1) as u64;
    // Relaxed: the flag orders nothing.
    while left > 0 && !is_over.load(Ordering::Relaxed) {
        wal.append(&record)?;
        left -= 1;
    }
    is_over.store(true, Ordering::Relaxed);
    Ok(())
}
