//! What is measured, and with which parameters.

mod burst;
mod choice;
mod get;
mod open_loop;
mod policies;
mod recover;
mod rotation;
mod scan;
mod sync;
mod tasks;
mod variant;

use anyhow::Result;

pub use self::choice::Choice;
pub use self::variant::Variant;

use self::burst::Step;
use crate::contender::Contender;
use crate::plan::Plan;

/// One call in so many is timed in `append`, where the clock costs as much as the call.
const APPENDS_A_STEP: u32 = 64;
const SCAN_BYTES: u64 = 256 << 20;
/// As many records of 256 bytes as a thousand of the smallest segments hold.
const REOPEN_RECORDS: u64 = 240_000;

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Threads append, nobody waits for the device.
    Append,
    /// Threads commit.
    Commit,
    /// Futures on few threads commit.
    Tasks,
    /// Threads append a batch of records, then sync once.
    Batch,
    /// Threads append a batch that a crash leaves whole or not at all.
    Atomic,
    /// A log is read from end to end.
    Scan,
    /// Single records are read in random order.
    Get,
    /// A log that was not closed is opened.
    Recover,
    /// A log that was closed is opened.
    Reopen,
    /// Threads append under each sync policy.
    Policies,
    /// A thread appends across segments.
    Rotation,
    /// Syncs after so many bytes.
    Sync,
    /// Threads commit at a fixed rate.
    OpenLoop,
}

impl Workload {
    /// All, in the order in which `all` measures them.
    pub const ALL: [Workload; 13] = [
        Workload::Append,
        Workload::Commit,
        Workload::Tasks,
        Workload::Batch,
        Workload::Atomic,
        Workload::Scan,
        Workload::Get,
        Workload::Recover,
        Workload::Reopen,
        Workload::Policies,
        Workload::Rotation,
        Workload::Sync,
        Workload::OpenLoop,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Append => "append",
            Workload::Commit | Workload::Tasks => "commit",
            Workload::Batch => "batch",
            Workload::Atomic => "atomic",
            Workload::Scan => "scan",
            Workload::Get => "get",
            Workload::Recover => "recover",
            Workload::Reopen => "reopen",
            Workload::Policies => "policies",
            Workload::Rotation => "rotation",
            Workload::Sync => "sync",
            Workload::OpenLoop => "open-loop",
        }
    }

    /// The name with the option that sets it apart from another one of that name.
    #[must_use]
    pub fn full_name(self) -> &'static str {
        if self == Workload::Tasks { "commit --tasks" } else { self.name() }
    }

    /// What it does, in a line.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Workload::Append => "append without a sync, in bursts of 256 MiB; 1 call in 64 timed",
            Workload::Commit => "append, return when the record is durable",
            Workload::Tasks => "the same by --tasks futures, each awaits its own record",
            Workload::Batch => "append --batch records, sync once; latency of both together",
            Workload::Atomic => {
                "append --batch records as one batch, whole or not there at all; sync"
            }
            Workload::Scan => "read all records from the page cache, checksums verified",
            Workload::Get => "read single records in random order from the page cache",
            Workload::Recover => "open a log that was not closed, in several forms",
            Workload::Reopen => "open a log of segments of 64 KiB that was closed",
            Workload::Policies => "append under each sync policy of the log",
            Workload::Rotation => "append across segments of several sizes, each call timed",
            Workload::Sync => "append some bytes, then sync; latency of the sync alone",
            Workload::OpenLoop => "commits due at a fixed rate; latency from when each was due",
        }
    }

    /// Whether its records go to a [`Log`](crate::contender::Log) that the contender creates.
    #[must_use]
    pub fn writes(self) -> bool {
        use Workload::{Append, Atomic, Batch, Commit, OpenLoop, Sync, Tasks};
        matches!(self, Append | Commit | Tasks | Batch | Atomic | Sync | OpenLoop)
    }

    /// Whether its records lie in a [`Filled`](crate::contender::filled::Filled) log before.
    #[must_use]
    pub fn reads(self) -> bool {
        use Workload::{Get, Recover, Reopen, Scan};
        matches!(self, Scan | Get | Recover | Reopen)
    }

    /// Whether its figures have latencies of calls.
    #[must_use]
    pub fn has_latency(self) -> bool {
        use Workload::{Get, Policies, Rotation};
        self.writes() || matches!(self, Get | Policies | Rotation)
    }

    /// Whether it is about durability, which tmpfs has not.
    #[must_use]
    pub fn needs_a_disk(self) -> bool {
        use Workload::{Atomic, Batch, Commit, OpenLoop, Policies, Sync, Tasks};
        matches!(self, Commit | Tasks | Batch | Atomic | Policies | Sync | OpenLoop)
    }

    /// Whether several threads can do it at the same time.
    #[must_use]
    pub fn has_threads(self) -> bool {
        !matches!(self, Workload::Recover | Workload::Reopen | Workload::Rotation)
    }

    /// Thread counts that are measured without `--threads`.
    #[must_use]
    pub fn default_threads(self) -> &'static [usize] {
        match self {
            Workload::Append | Workload::Commit | Workload::Batch => &[1, 2, 8],
            Workload::Atomic => &[1, 8],
            Workload::Tasks => &[2],
            Workload::OpenLoop => &[8],
            _ => &[1],
        }
    }

    /// Bytes of a record without `--record-bytes`.
    #[must_use]
    pub fn default_record_bytes(self) -> u32 {
        match self {
            Workload::Scan | Workload::Policies => 1024,
            Workload::Get => 128,
            _ => 256,
        }
    }

    /// Records in a batch without `--batch`; `None` where there are no batches.
    #[must_use]
    pub fn default_batch(self) -> Option<u32> {
        match self {
            Workload::Batch => Some(1000),
            Workload::Atomic => Some(100),
            _ => None,
        }
    }

    /// Records in the log without `--records`; `None` where the time decides.
    #[must_use]
    pub fn default_records(self, record_bytes: u32) -> Option<u64> {
        match self {
            Workload::Scan => Some(SCAN_BYTES.div_ceil(u64::from(record_bytes))),
            Workload::Recover | Workload::Get => Some(10_000),
            Workload::Reopen => Some(REOPEN_RECORDS),
            _ => None,
        }
    }

    /// The forms that are measured when the command line asks for none: all that it has.
    #[must_use]
    pub fn default_variants(self) -> &'static [Variant] {
        match self {
            Workload::Tasks => &[Variant::Tasks(1024)],
            Workload::OpenLoop => &Variant::SHARES,
            Workload::Recover => &Variant::LEFT,
            Workload::Policies => &Variant::POLICIES,
            Workload::Rotation => &Variant::SEGMENTS,
            Workload::Sync => &Variant::DIRTY,
            _ => &[Variant::Plain],
        }
    }

    /// Measures one contender for one round.
    ///
    /// # Errors
    /// If the contender fails or lacks the workload.
    pub fn measure(self, contender: Contender, plan: &Plan) -> Result<Outcome> {
        contender.must_have(self)?;
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
            Workload::Atomic => {
                self.write(contender, plan, plan.batch, &|log, thread, record, latencies| {
                    latencies.time(|| log.atomic(thread, record, plan.batch))
                })
            }
            Workload::Tasks => tasks::measure(contender.create(self, plan)?, plan),
            Workload::Scan => scan::measure(contender, plan),
            Workload::Get => get::measure(contender, plan),
            Workload::Recover => recover::measure_unclean(contender, plan),
            Workload::Reopen => recover::measure_clean(contender, plan),
            Workload::Policies => policies::measure(contender, plan),
            Workload::Rotation => rotation::measure(contender, plan),
            Workload::Sync => sync::measure(contender.create(self, plan)?, plan),
            Workload::OpenLoop => open_loop::measure(contender.create(self, plan)?, plan),
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
    /// Median, 99th, 99.9th and 99.99th percentile of the latency in microseconds.
    pub quantiles_us: Option<[f64; 4]>,
    /// Device syncs a second.
    pub syncs_per_s: Option<f64>,
    /// Records that one device sync covered on average.
    pub records_per_sync: Option<f64>,
    /// What `recover` and `reopen` alone measure.
    pub opened: Option<Opened>,
    /// Records that were due a second, in `open-loop`.
    pub offered_per_s: Option<f64>,
    /// Microseconds of an append that came first in its segment, in `rotation`.
    pub rotation_us: Option<f64>,
    /// What happened when, in `rotation`.
    pub timeline: Vec<Moment>,
    /// What was acknowledged and what could be read back, where the contender keeps records.
    pub kept: Option<Kept>,
}

/// An open of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Opened {
    /// How long it took, in milliseconds.
    pub open_ms: f64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Segments of the log.
    pub segments: u64,
}

/// A piece of a round's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// When it began, in milliseconds of timed work.
    pub at_ms: f64,
    /// The longest latency in it, in microseconds.
    pub worst_us: f64,
    /// Appends that came first in their segment.
    pub rotations: u32,
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
