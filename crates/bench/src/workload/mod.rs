//! What is measured, and with which parameters.

mod burst;
mod recover;
mod scan;

use anyhow::Result;
use clap::ValueEnum;

use self::burst::Step;
use crate::contender::Contender;
use crate::plan::Plan;

/// One call in so many is timed in `append`, where the clock costs as much as the call.
const APPENDS_A_STEP: u32 = 64;
const SCAN_BYTES: u64 = 256 << 20;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Threads append, nobody waits for the device
    Append,
    /// Threads commit: each call returns when its own record is durable
    Commit,
    /// Threads append --batch records, then sync once
    Batch,
    /// Read a log from end to end, checksums verified, in the page cache
    Scan,
    /// Open a log that was not closed
    Recover,
    /// Print all workloads with their parameters
    List,
    /// Measure all of them
    All,
}

impl Choice {
    /// The workloads to measure.
    #[must_use]
    pub fn workloads(self) -> Vec<Workload> {
        match self {
            Choice::Append => vec![Workload::Append],
            Choice::Commit => vec![Workload::Commit],
            Choice::Batch => vec![Workload::Batch],
            Choice::Scan => vec![Workload::Scan],
            Choice::Recover => vec![Workload::Recover],
            Choice::List | Choice::All => Workload::ALL.to_vec(),
        }
    }
}

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Threads append, nobody waits for the device.
    Append,
    /// Threads commit.
    Commit,
    /// Threads append a batch of records, then sync once.
    Batch,
    /// A log is read from end to end.
    Scan,
    /// A log that was not closed is opened.
    Recover,
}

impl Workload {
    /// All, in the order in which `all` measures them.
    pub const ALL: [Workload; 5] =
        [Workload::Append, Workload::Commit, Workload::Batch, Workload::Scan, Workload::Recover];

    /// The name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Append => "append",
            Workload::Commit => "commit",
            Workload::Batch => "batch",
            Workload::Scan => "scan",
            Workload::Recover => "recover",
        }
    }

    /// What it does, in a line.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Workload::Append => "append without a sync, in bursts of 256 MiB; 1 call in 64 timed",
            Workload::Commit => "append, return when the record is durable",
            Workload::Batch => "append --batch records, sync once; latency of both together",
            Workload::Scan => "read all records from the page cache, checksums verified",
            Workload::Recover => "open a log that was not closed; all of its records are durable",
        }
    }

    /// Whether it appends while the clock runs.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Workload::Append | Workload::Commit | Workload::Batch)
    }

    /// Whether it is about durability, which tmpfs has not.
    #[must_use]
    pub fn needs_a_disk(self) -> bool {
        matches!(self, Workload::Commit | Workload::Batch)
    }

    /// Whether several threads can do it at the same time.
    #[must_use]
    pub fn has_threads(self) -> bool {
        self != Workload::Recover
    }

    /// Thread counts that are measured without `--threads`.
    #[must_use]
    pub fn default_threads(self) -> &'static [usize] {
        if self.writes() { &[1, 2, 8] } else { &[1] }
    }

    /// Bytes of a record without `--record-bytes`.
    #[must_use]
    pub fn default_record_bytes(self) -> u32 {
        if self == Workload::Scan { 1024 } else { 256 }
    }

    /// Records in the log without `--records`; `None` where the time decides.
    #[must_use]
    pub fn default_records(self, record_bytes: u32) -> Option<u64> {
        match self {
            Workload::Scan => Some(SCAN_BYTES.div_ceil(u64::from(record_bytes))),
            Workload::Recover => Some(10_000),
            _ => None,
        }
    }

    /// Measures one contender for one round.
    ///
    /// # Errors
    /// If the contender fails or lacks the workload.
    pub fn measure(self, contender: Contender, plan: &Plan) -> Result<Outcome> {
        match self {
            Workload::Append => {
                self.write(contender, plan, APPENDS_A_STEP, &|log, thread, record, latencies| {
                    log.append(thread, record, APPENDS_A_STEP - 1)?;
                    latencies.time(|| log.append(thread, record, 1))
                })
            }
            Workload::Commit => {
                self.write(contender, plan, 1, &|log, thread, record, latencies| {
                    latencies.time(|| log.commit(thread, record))
                })
            }
            Workload::Batch => {
                self.write(contender, plan, plan.batch, &|log, thread, record, latencies| {
                    latencies.time(|| log.batch(thread, record, plan.batch))
                })
            }
            Workload::Scan => scan::measure(contender, plan),
            Workload::Recover => recover::measure(contender, plan),
        }
    }

    fn write(
        self,
        contender: Contender,
        plan: &Plan,
        records: u32,
        step: Step<'_>,
    ) -> Result<Outcome> {
        burst::measure(contender.create(self, plan)?, plan, records, step)
    }
}

/// What one round of one contender gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Records a second, of all threads.
    pub records_per_s: f64,
    /// Median, 99th and 99.9th percentile of the latency in microseconds.
    pub quantiles_us: Option<[f64; 3]>,
    /// Device syncs a second.
    pub syncs_per_s: Option<f64>,
    /// Records that one device sync covered on average.
    pub records_per_sync: Option<f64>,
    /// What `recover` alone measures.
    pub opened: Option<Opened>,
    /// What was acknowledged and what could be read back, where the contender keeps records.
    pub kept: Option<Kept>,
}

/// An open of a log that was not closed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Opened {
    /// How long it took, in milliseconds.
    pub open_ms: f64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Segments of the log.
    pub segments: u64,
}

/// The check of each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Records whose call returned success.
    pub acknowledged: u64,
    /// Records that were there after the log was opened again.
    pub read_back: u64,
}

impl Kept {
    /// Whether records are missing that were acknowledged.
    #[must_use]
    pub fn is_short(self) -> bool {
        self.read_back < self.acknowledged
    }
}
