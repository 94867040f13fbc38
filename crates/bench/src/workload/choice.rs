//! What the command line asks for.

use clap::ValueEnum;

use super::Workload;

/// A workload's name on the command line, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Threads append, nobody waits for the device
    Append,
    /// Threads commit: each call returns when its own record is durable; with --tasks, futures do
    Commit,
    /// Threads append --batch records, then sync once
    Batch,
    /// Read a log from end to end, checksums verified, in the page cache
    Scan,
    /// Read single records in random order, in the page cache
    Get,
    /// Open a log that was not closed
    Recover,
    /// Open a log of a thousand segments that was closed
    Reopen,
    /// Append under each sync policy of the log
    Policies,
    /// Append across the borders of segments
    Rotation,
    /// Sync after some bytes were appended
    Sync,
    /// Commit at a fixed rate, whether the log keeps up or not
    OpenLoop,
    /// Print all workloads with their parameters
    List,
    /// Measure all of them
    All,
}

impl Choice {
    /// The workloads to measure.
    #[must_use]
    pub fn workloads(self, has_tasks: bool) -> Vec<Workload> {
        match self {
            Choice::Append => vec![Workload::Append],
            Choice::Commit if has_tasks => vec![Workload::Tasks],
            Choice::Commit => vec![Workload::Commit],
            Choice::Batch => vec![Workload::Batch],
            Choice::Scan => vec![Workload::Scan],
            Choice::Get => vec![Workload::Get],
            Choice::Recover => vec![Workload::Recover],
            Choice::Reopen => vec![Workload::Reopen],
            Choice::Policies => vec![Workload::Policies],
            Choice::Rotation => vec![Workload::Rotation],
            Choice::Sync => vec![Workload::Sync],
            Choice::OpenLoop => vec![Workload::OpenLoop],
            Choice::List | Choice::All => Workload::ALL.to_vec(),
        }
    }
}
