//! Who is measured: Palisade, what an application would write itself, and floors.
//!
//! Every contender gets the best that its own calls offer; what it promises stands in its
//! module. Floors promise nothing: they show what the machine leaves to be gained.

pub mod filled;
#[cfg(feature = "peers")]
mod ironwal;
mod naive;
#[cfg(feature = "peers")]
mod okaywal;
pub mod palisade;
mod positioned;
#[cfg(feature = "peers")]
mod raft_engine;
pub mod raw;
mod wake;
#[cfg(feature = "peers")]
mod wal_db;
#[cfg(feature = "peers")]
pub mod walrus;

use anyhow::{Result, bail};
use clap::ValueEnum;

use self::filled::Filled;
use crate::plan::Plan;
use crate::workload::{Variant, Workload};

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
    /// Crate wal-db on a file
    #[cfg(feature = "peers")]
    WalDb,
    /// Crate wal-db in memory
    #[cfg(feature = "peers")]
    WalDbMem,
    /// Crate okaywal
    #[cfg(feature = "peers")]
    Okaywal,
    /// Crate raft-engine
    #[cfg(feature = "peers")]
    RaftEngine,
    /// Crate ironwal
    #[cfg(feature = "peers")]
    Ironwal,
    /// Crate walrus-rust
    #[cfg(feature = "peers")]
    Walrus,
}

/// What a contender's module says about it.
#[derive(Debug)]
struct Profile {
    /// The name on the command line and in reports.
    name: &'static str,
    /// The version of the library, if it is one.
    version: Option<&'static str>,
    /// Why it cannot do a workload; `None` if it can.
    lacks: fn(Workload) -> Option<&'static str>,
    /// Why it cannot do a form of a workload that it does not lack; `None` if it can.
    lacks_form: fn(Variant) -> Option<&'static str>,
    /// An empty log for a workload that writes and that it does not lack.
    create: fn(Workload, &Plan) -> Result<Box<dyn Log>>,
    /// A log of the plan's records for a workload that reads or opens and that it does not lack.
    fill: fn(Workload, &Plan) -> Result<Box<dyn Filled>>,
}

impl Contender {
    fn profile(self) -> &'static Profile {
        match self {
            Contender::Palisade => &palisade::FILES,
            Contender::PalisadeMem => &palisade::MEMORY,
            Contender::PalisadeHeap => &palisade::HEAP,
            Contender::Naive => &naive::PROFILE,
            Contender::Raw => &raw::PROFILE,
            Contender::Wake => &wake::PROFILE,
            #[cfg(feature = "peers")]
            Contender::WalDb => &wal_db::FILE,
            #[cfg(feature = "peers")]
            Contender::WalDbMem => &wal_db::MEMORY,
            #[cfg(feature = "peers")]
            Contender::Okaywal => &okaywal::PROFILE,
            #[cfg(feature = "peers")]
            Contender::RaftEngine => &raft_engine::PROFILE,
            #[cfg(feature = "peers")]
            Contender::Ironwal => &ironwal::PROFILE,
            #[cfg(feature = "peers")]
            Contender::Walrus => &walrus::PROFILE,
        }
    }

    /// The name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.profile().name
    }

    /// The version of the library that is measured, if it is one.
    #[must_use]
    pub fn version(self) -> Option<&'static str> {
        self.profile().version
    }

    /// Whether it is Palisade in one of its forms.
    #[must_use]
    pub fn is_palisade(self) -> bool {
        use Contender::{Palisade, PalisadeHeap, PalisadeMem};
        matches!(self, Palisade | PalisadeMem | PalisadeHeap)
    }

    /// Whether it only shows what the machine leaves to be gained, and keeps no records.
    #[must_use]
    pub fn is_floor(self) -> bool {
        matches!(self, Contender::Raw | Contender::Wake)
    }

    /// Why it cannot do the workload; `None` if it can.
    #[must_use]
    pub fn lacks(self, workload: Workload) -> Option<&'static str> {
        (self.profile().lacks)(workload)
    }

    /// Why it cannot do this form of a workload that it does not lack; `None` if it can.
    #[must_use]
    pub fn lacks_form(self, variant: Variant) -> Option<&'static str> {
        (self.profile().lacks_form)(variant)
    }

    /// Whether it has what the workload asks for.
    #[must_use]
    pub fn supports(self, workload: Workload) -> bool {
        self.lacks(workload).is_none()
    }

    /// The only thread count that it can be measured with, if there is but one.
    #[must_use]
    pub fn only_threads(self, workload: Workload) -> Option<usize> {
        use Workload::{Atomic, Batch, Commit, Sync};
        let has_one = match self {
            // It has one file position.
            Contender::Raw => matches!(workload, Commit | Batch | Atomic | Sync),
            // Its readers share one position.
            #[cfg(feature = "peers")]
            Contender::Walrus => workload == Workload::Scan,
            _ => false,
        };
        has_one.then_some(1)
    }

    /// An empty log for a workload that writes.
    ///
    /// # Errors
    /// If its files cannot be made, or the contender lacks the workload.
    pub fn create(self, workload: Workload, plan: &Plan) -> Result<Box<dyn Log>> {
        self.must_have(workload)?;
        if !workload.writes() {
            bail!("{} asks for no log to write to", workload.name());
        }
        (self.profile().create)(workload, plan)
    }

    /// A log of the plan's records, for a workload that reads or opens.
    ///
    /// # Errors
    /// If it cannot be written, or the contender lacks the workload or the form.
    pub fn fill(self, workload: Workload, plan: &Plan) -> Result<Box<dyn Filled>> {
        self.must_have(workload)?;
        if !workload.reads() {
            bail!("{} asks for no log to read", workload.name());
        }
        if let Some(reason) = self.lacks_form(plan.variant) {
            bail!("{} has no {} {}: {reason}", self.name(), workload.name(), plan.variant);
        }
        (self.profile().fill)(workload, plan)
    }

    /// Nothing, if it can do the workload.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn must_have(self, workload: Workload) -> Result<()> {
        match self.lacks(workload) {
            Some(reason) => bail!("{} has no {}: {reason}", self.name(), workload.full_name()),
            None => Ok(()),
        }
    }
}

/// Why a contender lacks `atomic`.
const NO_ATOMIC: &str = "it has no batch that is there whole or not at all";

/// For contenders without a format that a reader could verify.
fn lacks_reading(workload: Workload) -> Option<&'static str> {
    match workload {
        workload if workload.reads() => Some("it has no records that a reader could verify"),
        other => lacks_options(other),
    }
}

/// For contenders that have not what only Palisade has.
fn lacks_options(workload: Workload) -> Option<&'static str> {
    match workload {
        Workload::Tasks => Some("it has no futures"),
        Workload::Policies => Some("it has no such policies"),
        Workload::Rotation => Some("it does not say which append comes first in a segment"),
        _ => None,
    }
}

/// For crates without a call that makes what was appended durable.
#[cfg(feature = "peers")]
const NO_SYNC: &str = "it has no sync of its own";

/// For crates whose open does not look at all records, or looks at all of them whatever is asked.
#[cfg(feature = "peers")]
fn lacks_full_check(variant: Variant) -> Option<&'static str> {
    (variant == Variant::FullCheck).then_some("its open has no such check")
}

/// For contenders that lack reading.
fn no_fill(workload: Workload, _plan: &Plan) -> Result<Box<dyn Filled>> {
    bail!("it has no log for {}", workload.name())
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

    /// Appends `record` so many times and makes all of them durable, by one call where the
    /// contender has one.
    ///
    /// # Errors
    /// If a record may not be durable.
    fn batch(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.append(thread, record, count)?;
        self.sync()
    }

    /// Appends `record` so many times as one batch, which a crash leaves whole or not at all, and
    /// returns when it is durable.
    ///
    /// # Errors
    /// If it may not be durable, or the contender has no such batch.
    fn atomic(&self, _thread: usize, _record: &[u8], _count: u32) -> Result<()> {
        bail!(NO_ATOMIC)
    }

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

    /// The log itself, for what only Palisade has: futures, LSNs.
    fn wal(&self) -> Option<&::palisade::Wal> {
        None
    }

    /// Device syncs so far; `None` for what has none.
    fn syncs(&self) -> Option<u64>;

    /// Ends without a clean close, opens what is left, and counts the records since the last
    /// [`trim`](Log::trim); `None` for a floor, which keeps none.
    ///
    /// # Errors
    /// If it cannot be opened or read.
    fn read_back(self: Box<Self>) -> Result<Option<u64>>;
}
