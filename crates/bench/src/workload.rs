//! What can be measured, and with which parameters.

use std::str::FromStr;

use palisade::framed_bytes;

use self::Workload::{
    Append, Atomic, Batch, Codec, Commit, Get, OpenLoop, Opens, Policies, Range, Recover, Release,
    Reopen, Rotation, Scan, ShardsAppend, ShardsBatch, ShardsCheckpoint, StreamsAppend,
    StreamsBatch, StreamsCommit, StreamsOpen, StreamsOwn, StreamsScan, StreamsSlow,
    StreamsTruncate, Suffix, Sync, Tail, Tasks,
};
use crate::form::Form;

/// Bytes of a segment in `release`.
pub(crate) const RELEASE_SEGMENT_BYTES: u64 = 1 << 20;

const SCAN_BYTES: u64 = 256 << 20;
/// As many records of 256 bytes as a thousand of the smallest segments hold.
const REOPEN_RECORDS: u64 = 240_000;
const CODEC_BYTES: u64 = 64 << 20;
/// Bytes of records that a log of streams holds, or that go through it.
const STREAMS_BYTES: u64 = 1 << 30;
/// The most streams that are measured without `--streams`.
const MANY_STREAMS: usize = 1_000_000;
/// Segments that `release` frees.
const RELEASE_SEGMENTS: u64 = 1000;

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Threads append and do not wait for the device.
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
    /// Syncs after a number of bytes.
    Sync,
    /// Threads commit at a fixed rate.
    OpenLoop,
    /// Records are stored with and without compression, and read.
    Codec,
    /// Threads commit while segments are freed.
    Release,
    /// Small logs are made, closed and opened.
    Opens,
    /// A few records are read together.
    Range,
    /// The last record is truncated.
    Suffix,
    /// A tail follows commits.
    Tail,
    /// Threads append to streams that they choose at random.
    StreamsAppend,
    /// Threads append, each to a stream of its own.
    StreamsOwn,
    /// Threads commit, each to a stream of its own.
    StreamsCommit,
    /// Threads append a batch of records, then sync, each to a stream of its own.
    StreamsBatch,
    /// Streams of a log are read from end to end, one after the other.
    StreamsScan,
    /// A log of many streams is opened after it was closed.
    StreamsOpen,
    /// Many streams are truncated.
    StreamsTruncate,
    /// Streams are appended to and truncated, all but one.
    StreamsSlow,
    /// Threads append to streams of a set of shards that they choose at random.
    ShardsAppend,
    /// The same with a batch of records in one call.
    ShardsBatch,
    /// Checkpoints over all shards of a set are made or loaded.
    ShardsCheckpoint,
}

impl Workload {
    /// All, in the order in which `all` measures them.
    pub const ALL: [Workload; 30] = [
        Append,
        Commit,
        Tasks,
        Batch,
        Atomic,
        Scan,
        Get,
        Recover,
        Reopen,
        Policies,
        Rotation,
        Sync,
        OpenLoop,
        Codec,
        Release,
        Opens,
        Range,
        Suffix,
        Tail,
        StreamsAppend,
        StreamsOwn,
        StreamsCommit,
        StreamsBatch,
        StreamsScan,
        StreamsOpen,
        StreamsTruncate,
        StreamsSlow,
        ShardsAppend,
        ShardsBatch,
        ShardsCheckpoint,
    ];

    /// Returns the name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Append => "append",
            Commit | Tasks => "commit",
            Batch => "batch",
            Atomic => "atomic",
            Scan => "scan",
            Get => "get",
            Recover => "recover",
            Reopen => "reopen",
            Policies => "policies",
            Rotation => "rotation",
            Sync => "sync",
            OpenLoop => "open-loop",
            Codec => "codec",
            Release => "release",
            Opens => "opens",
            Range => "range",
            Suffix => "suffix",
            Tail => "tail",
            StreamsAppend => "streams-append",
            StreamsOwn => "streams-own",
            StreamsCommit => "streams-commit",
            StreamsBatch => "streams-batch",
            StreamsScan => "streams-scan",
            StreamsOpen => "streams-open",
            StreamsTruncate => "streams-truncate",
            StreamsSlow => "streams-slow",
            ShardsAppend => "shards-append",
            ShardsBatch => "shards-batch",
            ShardsCheckpoint => "shards-checkpoint",
        }
    }

    /// Returns the name with the option that sets the workload apart from another one of that name.
    #[must_use]
    pub fn full_name(self) -> &'static str {
        if self == Tasks { "commit --tasks" } else { self.name() }
    }

    /// Returns a line that says what the workload does.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Append => "append without a sync, in bursts of 256 MiB; 1 call in 64 timed",
            Commit => "append, return when the record is durable",
            Tasks => "the same by --tasks futures, each awaits its own record",
            Batch => "append --batch records, sync once; latency of both together",
            Atomic => "append --batch records as one batch, whole or not there at all; sync",
            Scan => "read all records from the page cache, checksums verified",
            Get => "read single records in random order from the page cache",
            Recover => "open a log that was not closed, in several forms",
            Reopen => "open a log of segments of 64 KiB that was closed",
            Policies => "append under each sync policy of the log",
            Rotation => "append across segments of several sizes, each call timed",
            Sync => "append some bytes, then sync; latency of the sync alone",
            OpenLoop => "commits due at a fixed rate; latency from when each was due",
            Codec => "append records with and without compression, then scan them; bytes stored",
            Release => "commit while segments of 1 MiB are freed; latency of these commits",
            Opens => "make, close and open a small log; medians in syncs of the same disk",
            Range => "read 10 records by one call, alone and beside a thread that appends",
            Suffix => "truncate or replace the last record; latency also in syncs of the same disk",
            Tail => "commit with and without a tail; latency until the tail returns the record",
            StreamsAppend => "append without a sync, each record to a random one of --streams",
            StreamsOwn => "append without a sync, each thread to a stream of its own",
            StreamsCommit => "commit, each thread to a stream of its own",
            StreamsBatch => "append --batch records, sync once, each thread to its own stream",
            StreamsScan => "read streams of a log, one after the other, from the page cache",
            StreamsOpen => "open a log of many streams that was closed",
            StreamsTruncate => "truncate each stream; commits alone and beside these truncations",
            StreamsSlow => "append to streams and truncate them, beside one that keeps 10 records",
            ShardsAppend => "append without a sync, each record to a random one of --streams",
            ShardsBatch => "append --batch records to a random stream by one call, without a sync",
            ShardsCheckpoint => "make or load a checkpoint over all shards; latency of it alone",
        }
    }

    /// Returns whether it reads or opens a log that was filled before.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Scan | Get | Recover | Reopen | Codec | Range | StreamsScan | StreamsOpen)
    }

    /// Returns whether it measures a log of streams.
    #[must_use]
    pub fn has_streams(self) -> bool {
        matches!(self, StreamsAppend | StreamsOwn | StreamsCommit | StreamsBatch)
            || matches!(self, StreamsScan | StreamsOpen | StreamsTruncate | StreamsSlow)
    }

    /// Returns whether it measures a set of shards.
    #[must_use]
    pub fn has_shards(self) -> bool {
        matches!(self, ShardsAppend | ShardsBatch | ShardsCheckpoint)
    }

    /// Returns whether it measures durability, which tmpfs does not have.
    #[must_use]
    pub fn needs_a_disk(self) -> bool {
        let reads_or_appends =
            self.reads() || matches!(self, Append | Rotation | ShardsAppend | ShardsBatch);
        !reads_or_appends && !matches!(self, StreamsAppend | StreamsOwn | StreamsSlow)
    }

    /// Returns whether several threads can do it at the same time.
    #[must_use]
    pub fn has_threads(self) -> bool {
        !matches!(self, Recover | Reopen | Rotation | Codec | Opens | Suffix | Tail)
            && !matches!(self, StreamsOpen | ShardsCheckpoint)
    }

    /// Returns whether its forms take turns with each other round by round, because they are
    /// compared.
    #[must_use]
    pub fn forms_take_turns(self) -> bool {
        matches!(self, Codec | Release | Opens | Range | Suffix | Tail | StreamsTruncate)
    }

    /// Returns the thread counts that are measured without `--threads`.
    #[must_use]
    pub fn default_threads(self) -> &'static [usize] {
        match self {
            Append | Commit | Batch => &[1, 2, 8],
            Atomic | ShardsAppend | ShardsBatch => &[1, 8],
            Tasks => &[2],
            OpenLoop | Release | StreamsAppend | StreamsTruncate | StreamsSlow => &[8],
            StreamsOwn | StreamsBatch => &[4, 16],
            StreamsCommit => &[64],
            _ => &[1],
        }
    }

    /// Returns the bytes of a record without `--record-bytes`.
    #[must_use]
    pub fn default_record_bytes(self) -> u32 {
        match self {
            Scan | Policies | Codec | StreamsScan => 1024,
            Get | StreamsOwn => 128,
            _ => 256,
        }
    }

    /// Returns how many records a batch has without `--batch`; `None` if there are no batches.
    #[must_use]
    pub fn default_batch(self) -> Option<u32> {
        match self {
            Batch => Some(1000),
            Atomic | StreamsBatch | ShardsBatch => Some(100),
            _ => None,
        }
    }

    /// Returns how many records the log has without `--records`; `None` if the time decides.
    #[must_use]
    pub fn default_records(self, record_bytes: u32) -> Option<u64> {
        match self {
            Scan => Some(SCAN_BYTES.div_ceil(u64::from(record_bytes))),
            Recover | Get | Range => Some(10_000),
            ShardsCheckpoint => Some(1000),
            Reopen => Some(REOPEN_RECORDS),
            Codec => Some(CODEC_BYTES.div_ceil(u64::from(record_bytes))),
            StreamsScan | StreamsOpen | StreamsSlow => {
                Some(STREAMS_BYTES.div_ceil(u64::from(record_bytes)))
            }
            Release => {
                let frames = RELEASE_SEGMENT_BYTES / framed_bytes(record_bytes as usize);
                Some(RELEASE_SEGMENTS * frames.max(1))
            }
            _ => None,
        }
    }

    /// Returns the numbers of streams that are measured without `--streams`, each on its own. There
    /// is none if the log has no streams, or one for each thread.
    #[must_use]
    pub fn default_streams(self) -> &'static [usize] {
        match self {
            StreamsAppend => &[1, 1000, MANY_STREAMS],
            StreamsScan | ShardsAppend | ShardsBatch | ShardsCheckpoint => &[1000],
            StreamsOpen | StreamsTruncate => &[MANY_STREAMS],
            _ => &[],
        }
    }

    /// Returns the numbers of shards that are measured without `--shards`, each on its own. There
    /// is none if the workload has no set.
    #[must_use]
    pub fn default_shards(self) -> &'static [usize] {
        if self.has_shards() { &[4, 16, 64] } else { &[] }
    }

    /// Returns the forms that are measured without `--forms`: all of them.
    #[must_use]
    pub fn forms(self) -> &'static [Form] {
        match self {
            Tasks => &[Form::Tasks(1024)],
            OpenLoop => &Form::SHARES,
            Recover => &Form::LEFT,
            Policies => &Form::POLICIES,
            Rotation => &Form::SEGMENTS,
            Sync => &Form::DIRTY,
            Codec => &Form::CODED,
            Release => &[Form::Alone, Form::Release, Form::Background],
            Opens => &Form::STEPS,
            Range => &Form::READS,
            Suffix => &[Form::TruncateAfter, Form::ReplaceFrom],
            Tail => &[Form::Alone, Form::Followed, Form::Delivery],
            StreamsTruncate => &[Form::Truncate, Form::Alone, Form::Beside],
            ShardsAppend => &[Form::ByHandle, Form::ByKey],
            ShardsCheckpoint => &[Form::Create, Form::Unchanged, Form::Load],
            _ => &[Form::Plain],
        }
    }
}

/// A workload's name on the command line, or one of `list` and `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    One(Workload),
    /// Print all workloads with their parameters.
    List,
    /// Measure all of them.
    All,
}

impl Choice {
    /// Returns the workloads that were chosen. If `has_tasks`, `commit` means commits of futures.
    #[must_use]
    pub fn workloads(self, has_tasks: bool) -> Vec<Workload> {
        match self {
            Choice::One(Commit) if has_tasks => vec![Tasks],
            Choice::One(workload) => vec![workload],
            Choice::List | Choice::All => Workload::ALL.to_vec(),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match text {
            "list" => return Ok(Choice::List),
            "all" => return Ok(Choice::All),
            _ => {}
        }
        // `commit` comes before `commit --tasks`, which an option asks for.
        let named = Workload::ALL.into_iter().find(|workload| workload.name() == text);
        named.map(Choice::One).ok_or_else(|| {
            let mut names = Workload::ALL.map(Workload::name).to_vec();
            names.dedup();
            format!("expected list, all, or one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_a_name_of_its_own_on_the_command_line() {
        for workload in Workload::ALL.into_iter().filter(|workload| *workload != Tasks) {
            assert_eq!(workload.name().parse(), Ok(Choice::One(workload)));
        }
        assert_eq!("list".parse(), Ok(Choice::List));
        assert_eq!("all".parse(), Ok(Choice::All));
        let refusal = "sort".parse::<Choice>().unwrap_err();
        assert!(refusal.contains("append, commit, batch"), "{refusal}");
    }

    #[test]
    fn futures_commit_if_tasks_are_given() {
        let commit = Choice::One(Commit);
        assert_eq!(commit.workloads(false), [Commit]);
        assert_eq!(commit.workloads(true), [Tasks]);
    }
}
