//! Who is measured: Palisade, what an application would write itself, and floors.
//!
//! Every contender gets the best that its own calls offer; what it promises stands in its
//! module. Floors promise nothing: they show what the machine leaves to be gained.

mod naive;
pub mod palisade;
mod positioned;
pub mod raw;
mod wake;

use anyhow::{Result, bail};
use clap::ValueEnum;

use self::naive::Naive;
use self::palisade::PalisadeLog;
use self::raw::{FileFloor, MemoryFloor};
use self::wake::WakeFloor;
use crate::plan::Plan;
use crate::workload::Workload;

/// Everybody that can take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Contender {
    /// Palisade on files, with its defaults
    Palisade,
    /// Palisade in memory: the algorithms without a file system
    PalisadeMem,
    /// Palisade on files, with its buffer on the heap: appends do not survive a kill
    PalisadeHeap,
    /// A mutex and a growing file, one sync per commit
    Naive,
    /// The floor: the least that any contender has to do, on one thread
    Raw,
    /// The floor of waking: n parked threads woken by one, no disk
    Wake,
}

impl Contender {
    /// The name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Contender::Palisade => "palisade",
            Contender::PalisadeMem => "palisade-mem",
            Contender::PalisadeHeap => "palisade-heap",
            Contender::Naive => "naive",
            Contender::Raw => "raw",
            Contender::Wake => "wake",
        }
    }

    /// The version of the library that is measured, if it is one.
    #[must_use]
    pub fn version(self) -> Option<&'static str> {
        self.is_palisade().then_some(env!("CARGO_PKG_VERSION"))
    }

    /// Whether it is Palisade in one of its forms.
    #[must_use]
    pub fn is_palisade(self) -> bool {
        use Contender::{Palisade, PalisadeHeap, PalisadeMem};
        matches!(self, Palisade | PalisadeMem | PalisadeHeap)
    }

    /// Whether it has what the workload asks for.
    #[must_use]
    pub fn supports(self, workload: Workload) -> bool {
        match self {
            Contender::Palisade | Contender::PalisadeMem | Contender::PalisadeHeap => true,
            Contender::Naive => workload.writes(),
            Contender::Raw => workload != Workload::Recover,
            Contender::Wake => workload == Workload::Commit,
        }
    }

    /// The only thread count that it can be measured with, if there is but one.
    #[must_use]
    pub fn only_threads(self, workload: Workload) -> Option<usize> {
        let has_one_file_position = matches!(workload, Workload::Commit | Workload::Batch);
        (self == Contender::Raw && has_one_file_position).then_some(1)
    }

    /// An empty log for a workload that writes.
    ///
    /// # Errors
    /// If its files cannot be made, or the contender lacks the workload.
    pub fn create(self, workload: Workload, plan: &Plan) -> Result<Box<dyn Log>> {
        if !self.supports(workload) || !workload.writes() {
            bail!("{} does not do {}", self.name(), workload.name());
        }
        Ok(match self {
            Contender::Palisade | Contender::PalisadeMem | Contender::PalisadeHeap => {
                Box::new(PalisadeLog::create(self, &plan.dir)?)
            }
            Contender::Naive => Box::new(Naive::create(plan)?),
            Contender::Raw if workload == Workload::Append => Box::new(MemoryFloor::new(plan)),
            Contender::Raw => Box::new(FileFloor::create(plan)?),
            Contender::Wake => Box::new(WakeFloor::start(plan)),
        })
    }
}

/// A log, as the workloads that write see it. All calls come from several threads at a time;
/// `thread` is the caller's number.
pub trait Log: Send + Sync {
    /// Appends `record` so many times, each by a call of its own, without a sync.
    ///
    /// # Errors
    /// If the contender refuses a record.
    fn append(&self, thread: usize, record: &[u8], count: u32) -> Result<()>;

    /// Appends `record` and returns when it is durable.
    ///
    /// # Errors
    /// If it may not be durable.
    fn commit(&self, thread: usize, record: &[u8]) -> Result<()>;

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// If it may not be durable.
    fn sync(&self) -> Result<()>;

    /// Gives up all records, so that the disk does not fill up. Nobody else calls meanwhile.
    ///
    /// # Errors
    /// If they cannot be given up.
    fn trim(&self) -> Result<()>;

    /// Device syncs so far; `None` for what has none.
    fn syncs(&self) -> Option<u64>;

    /// Ends without a clean close, opens what is left, and counts the records since the last
    /// [`trim`](Log::trim); `None` for a floor, which keeps none.
    ///
    /// # Errors
    /// If it cannot be opened or read.
    fn read_back(self: Box<Self>) -> Result<Option<u64>>;
}
