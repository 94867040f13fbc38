//! Steps of small logs, in multiples of an overwrite and a sync of the same disk, with which they
//! take turns.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::burst::read_back;
use crate::contenders::RAW;
use crate::folder::{copy_folder, disk_bytes, settle};
use crate::{End, Form, Kept, Latencies, Log, Measurement, Plan, Tally, Workload};

const NEW_LOG: Form = Form::named("new");
const CLOSE: Form = Form::named("close");
const CLEAN_REOPEN: Form = Form::named("clean reopen");
/// The open of a copy that was taken while the log was open.
const UNCLEAN_REOPEN: Form = Form::named("unclean reopen");
/// Steps that `opens` times.
pub(super) const STEPS: [Form; 4] = [NEW_LOG, CLOSE, CLEAN_REOPEN, UNCLEAN_REOPEN];

const REPLACE_FROM: Form = Form::named("replace_from");
/// Calls that `suffix` times.
pub(super) const SUFFIXES: [Form; 2] = [Form::named("truncate_after"), REPLACE_FROM];

/// Raw syncs between two calls.
const AT_A_TIME: u32 = 8;
/// Records of a log in `opens`.
const COMMITS: u64 = 10;
/// What a new log prepares in the background is there after this time.
const PREPARED: Duration = Duration::from_millis(200);
/// In `suffix` each call may take a segment, so the log is emptied after so many.
const CALLS_A_TRIM: u64 = 16;

/// A file that was written before, and how long it took to overwrite and sync some of it.
struct RawSyncs {
    file: Box<dyn Log>,
    record: Vec<u8>,
    latencies: Latencies,
}

impl RawSyncs {
    fn create(plan: &Plan) -> Result<RawSyncs> {
        let raw = Plan { contender: RAW, workload: Workload::Commit, ..plan.clone() };
        let (file, record) = (raw.create()?, plan.record());
        Ok(RawSyncs { file, record, latencies: Latencies::default() })
    }

    /// Overwrites and syncs a few times.
    fn take_turn(&mut self) -> Result<()> {
        let RawSyncs { file, record, latencies } = self;
        (0..AT_A_TIME).try_for_each(|_| latencies.time(|| file.commit(0, record)))
    }

    /// Returns the rate and the latencies of `calls`, and their median in multiples of the median
    /// raw sync.
    fn outcome(&self, calls: &Latencies) -> Result<Measurement> {
        let [median_us, ..] = calls.quantiles_us().context("no call was timed")?;
        let [raw_us, ..] = self.latencies.quantiles_us().context("no sync was timed")?;
        let in_raw_syncs = Some(median_us / raw_us);
        Ok(Measurement { in_raw_syncs, ..Measurement::of_round(1e6 / median_us, calls) })
    }
}

/// Truncates or replaces the last record of a log, as a Raft follower does: commits two records and
/// makes the form's call, over and over; only the call is timed.
pub(super) fn suffix(plan: &Plan) -> Result<Measurement> {
    let mut log = plan.create()?;
    let record = plan.record();
    let mut latencies = Latencies::default();
    let mut raw = RawSyncs::create(plan)?;
    let mut acknowledged = 0;
    let begin = Instant::now();
    while latencies.calls() == 0 || begin.elapsed() < plan.time {
        if latencies.calls().is_multiple_of(CALLS_A_TRIM) {
            log.trim()?;
            acknowledged = 0;
        }
        let wal = log.wal()?;
        let kept = wal.append(&record)?.lsn();
        let last = wal.commit(&record)?;
        raw.take_turn()?;
        if plan.form == REPLACE_FROM {
            latencies.time(|| wal.replace_from(last, [&record]))?;
            acknowledged += 2;
        } else {
            latencies.time(|| wal.truncate_after(kept))?;
            acknowledged += 1;
        }
    }
    let kept = read_back(plan, log, acknowledged)?;
    Ok(Measurement { kept, ..raw.outcome(&latencies)? })
}

/// Makes, closes and opens logs, over and over, and times the form's step.
pub(super) fn opens(plan: &Plan) -> Result<Measurement> {
    let mut raw = RawSyncs::create(plan)?;
    let run = Plan { dir: plan.dir.join("run"), ..plan.clone() };
    let (mut steps, mut of_new) = (Latencies::default(), None);
    let mut kept = Kept { acknowledged: 0, read_back: 0 };
    let begin = Instant::now();
    while kept.acknowledged == 0 || begin.elapsed() < plan.time {
        fs::create_dir(&run.dir)?;
        settle(&run.dir);
        raw.take_turn()?;
        let log = time_if(plan.form == NEW_LOG, &mut steps, || run.create())?;
        if plan.form == NEW_LOG && of_new.is_none() {
            thread::sleep(PREPARED);
            of_new = Some(disk_bytes(&run.dir)?);
        }
        let record = plan.record();
        (0..COMMITS).try_for_each(|_| log.commit(0, &record))?;
        let mut tally = Tally::default();
        end_and_open(&run, log, &mut steps)?.scan(&mut tally)?;
        kept.read_back += tally.records;
        kept.acknowledged += COMMITS;
        fs::remove_dir_all(&run.dir)?;
    }
    Ok(Measurement { disk_bytes: of_new, kept: Some(kept), ..raw.outcome(&steps)? })
}

/// Closes a log and opens it; for an unclean open, opens a copy of its folder that is taken while
/// the log is open, as if power was lost.
fn end_and_open(plan: &Plan, log: Box<dyn Log>, steps: &mut Latencies) -> Result<Box<dyn Log>> {
    if plan.form == UNCLEAN_REOPEN {
        let copy = Plan { dir: plan.dir.join("copy"), ..plan.clone() };
        fs::create_dir(&copy.dir)?;
        copy_folder(&plan.folder(), &copy.folder())?;
        drop(log);
        settle(&copy.dir);
        return steps.time(|| copy.create());
    }
    let opening = time_if(plan.form == CLOSE, steps, || plan.end(log, End::Closed))?;
    settle(&plan.dir);
    time_if(plan.form == CLEAN_REOPEN, steps, opening)
}

/// Makes the call, and times it if it is the form's step.
fn time_if<T>(is_step: bool, steps: &mut Latencies, call: impl FnOnce() -> T) -> T {
    if is_step { steps.time(call) } else { call() }
}
