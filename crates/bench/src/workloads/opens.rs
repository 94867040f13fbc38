//! Making, closing and opening small logs: times in multiples of a sync of the same disk.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::raw_syncs::RawSyncs;
use crate::contender::Contender;
use crate::folder::{disk_bytes, settle};
use crate::form::Form;
use crate::image::copy_folder;
use crate::latency::Latencies;
use crate::log::{End, Log};
use crate::measurement::{Kept, Measurement};
use crate::plan::Plan;
use crate::tally::Tally;
use crate::workload::Workload;

/// Records of a log.
const COMMITS: u64 = 10;
/// What a new log prepares in the background is there after this time.
const PREPARED: Duration = Duration::from_millis(200);

/// Makes, closes and opens logs, over and over, and times the form's step.
pub(super) fn measure(contender: &Contender, plan: &Plan) -> Result<Measurement> {
    let mut raw = RawSyncs::create(plan)?;
    let mut steps = Latencies::default();
    let (mut of_new, mut kept) = (None, Kept { acknowledged: 0, read_back: 0 });
    let begin = Instant::now();
    while kept.acknowledged == 0 || begin.elapsed() < plan.time {
        let plan = Plan { dir: plan.dir.join("run"), ..plan.clone() };
        fs::create_dir(&plan.dir)?;
        settle(&plan.dir);
        raw.take_turn()?;
        let mut run = Run { contender, plan: &plan, steps: &mut steps, disk_bytes: &mut of_new };
        kept.read_back += run.make_and_open()?;
        kept.acknowledged += COMMITS;
        fs::remove_dir_all(&plan.dir)?;
    }
    Ok(Measurement { disk_bytes: of_new, kept: Some(kept), ..raw.outcome(&steps)? })
}

/// One log.
struct Run<'a> {
    contender: &'a Contender,
    plan: &'a Plan,
    steps: &'a mut Latencies,
    disk_bytes: &'a mut Option<u64>,
}

impl Run<'_> {
    /// Makes a log, commits, ends it, opens it, and returns the records that are there.
    fn make_and_open(&mut self) -> Result<u64> {
        let (contender, plan) = (self.contender, self.plan);
        let log = self.time(Form::NewLog, || contender.create(Workload::Opens, plan))?;
        if plan.form == Form::NewLog && self.disk_bytes.is_none() {
            thread::sleep(PREPARED);
            *self.disk_bytes = Some(disk_bytes(&plan.dir)?);
        }
        let record = plan.record();
        (0..COMMITS).try_for_each(|_| log.commit(0, &record))?;
        let opened = match plan.form {
            Form::UncleanReopen => self.open_copy(log)?,
            _ => self.close_and_open(log)?,
        };
        let mut tally = Tally::new();
        opened.scan(&mut tally)?;
        Ok(tally.records())
    }

    fn close_and_open(&mut self, log: Box<dyn Log>) -> Result<Box<dyn Log>> {
        let opening = self.time(Form::Close, || log.end(End::Closed))?;
        let opening = opening.context("it keeps nothing to open")?;
        settle(&self.plan.dir);
        self.time(Form::CleanReopen, opening)
    }

    /// Opens a copy of the log's folder that is taken while the log is open: power was lost.
    fn open_copy(&mut self, log: Box<dyn Log>) -> Result<Box<dyn Log>> {
        let copy = Plan { dir: self.plan.dir.join("copy"), ..self.plan.clone() };
        fs::create_dir(&copy.dir)?;
        copy_folder(&self.plan.dir.join("log"), &copy.dir.join("log"))?;
        log.end(End::Dropped)?;
        settle(&copy.dir);
        let contender = self.contender;
        self.time(Form::UncleanReopen, || contender.create(Workload::Opens, &copy))
    }

    /// Makes the call, and times it if it is the form's step.
    fn time<T>(&mut self, step: Form, call: impl FnOnce() -> T) -> T {
        if step == self.plan.form { self.steps.time(call) } else { call() }
    }
}
