//! What can be measured, and with which parameters.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use palisade::framed_bytes;

use self::Workload::*;

/// Bytes of a segment in `release`.
pub(crate) const RELEASE_SEGMENT_BYTES: u64 = 1 << 20;

/// The most streams that are measured without `--streams`.
const MANY_STREAMS: usize = 1_000_000;

/// Something to measure. `list` prints these lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Append without a sync, in bursts of 256 MiB; 1 call in 64 timed.
    Append,
    /// Append, return when the record is durable.
    Commit,
    /// The same by --tasks futures, each awaits its own record.
    #[value(name = "commit --tasks")]
    Tasks,
    /// Append --batch records, sync once; latency of both together.
    Batch,
    /// Append --batch records as one batch, whole or not there at all; sync.
    Atomic,
    /// Read all records from the page cache, checksums verified.
    Scan,
    /// Read single records in random order from the page cache.
    Get,
    /// Open a log that was not closed, in several forms.
    Recover,
    /// Open a log of segments of 64 KiB that was closed.
    Reopen,
    /// Append under each sync policy of the log.
    Policies,
    /// Append across segments of several sizes, each call timed.
    Rotation,
    /// Append some bytes, then sync; latency of the sync alone.
    Sync,
    /// Commits due at a fixed rate; latency from when each was due.
    OpenLoop,
    /// Append records with and without compression, then scan them; bytes stored.
    Codec,
    /// Commit while segments of 1 MiB are freed; latency of these commits.
    Release,
    /// Make, close and open a small log; medians in syncs of the same disk.
    Opens,
    /// Read 10 records by one call, alone and beside a thread that appends.
    Range,
    /// Truncate or replace the last record; latency also in syncs of the same disk.
    Suffix,
    /// Commit with and without a tail; latency until the tail returns the record.
    Tail,
    /// Append without a sync, each record to a random one of --streams.
    StreamsAppend,
    /// Append without a sync, each thread to a stream of its own.
    StreamsOwn,
    /// Commit, each thread to a stream of its own.
    StreamsCommit,
    /// Append --batch records, sync once, each thread to its own stream.
    StreamsBatch,
    /// Read streams of a log, one after the other, from the page cache.
    StreamsScan,
    /// Open a log of many streams that was closed.
    StreamsOpen,
    /// Truncate each stream; commits alone and beside these truncations.
    StreamsTruncate,
    /// Append to streams and truncate them, beside one that keeps 10 records.
    StreamsSlow,
    /// Append without a sync, each record to a random one of --streams, in a set of --shards.
    ShardsAppend,
    /// Append --batch records to a random stream by one call, without a sync.
    ShardsBatch,
    /// Make or load a checkpoint over all shards; latency of it alone.
    ShardsCheckpoint,
}

impl Workload {
    /// Returns all, in the order in which `all` measures them.
    pub fn all() -> &'static [Workload] {
        Workload::value_variants()
    }

    /// Returns a parser of what the command line measures: `list`, `all` or the name of a workload.
    pub fn parser() -> PossibleValuesParser {
        let list = PossibleValue::new("list").help("Print all workloads with their parameters");
        let all = PossibleValue::new("all").help("Measure all of them, one after the other");
        // `--tasks` asks for the other workload of that name.
        let named = Workload::all().iter().filter(|workload| **workload != Tasks);
        PossibleValuesParser::new([list, all].into_iter().chain(named.map(|named| named.value())))
    }

    /// Returns the workloads of a parsed name. If `has_tasks`, `commit` means commits of futures.
    pub fn of_name(name: &str, has_tasks: bool) -> Vec<Workload> {
        match name {
            "list" | "all" => Workload::all().to_vec(),
            "commit" if has_tasks => vec![Tasks],
            name => Workload::all().iter().copied().filter(|w| w.full_name() == name).collect(),
        }
    }

    /// Returns the name on the command line and in results.
    pub fn name(self) -> String {
        self.full_name().trim_end_matches(" --tasks").into()
    }

    /// Returns the name with the option that sets the workload apart from another one of that name.
    pub fn full_name(self) -> String {
        self.value().get_name().into()
    }

    /// Returns a line that says what the workload does.
    pub fn about(self) -> String {
        self.value().get_help().map_or_else(String::new, ToString::to_string)
    }

    fn value(self) -> PossibleValue {
        self.to_possible_value().expect("no workload is hidden")
    }

    /// Returns whether it reads or opens a log that was filled before.
    pub fn reads(self) -> bool {
        matches!(self, Scan | Get | Recover | Reopen | Codec | Range | StreamsScan | StreamsOpen)
    }

    /// Returns whether it measures a log of streams.
    pub fn has_streams(self) -> bool {
        matches!(self, StreamsAppend | StreamsOwn | StreamsCommit | StreamsBatch)
            || matches!(self, StreamsScan | StreamsOpen | StreamsTruncate | StreamsSlow)
    }

    /// Returns whether it measures a set of shards.
    pub fn has_shards(self) -> bool {
        matches!(self, ShardsAppend | ShardsBatch | ShardsCheckpoint)
    }

    /// Returns whether it measures durability, which tmpfs does not have.
    pub fn needs_a_disk(self) -> bool {
        let only_appends = matches!(self, Append | Rotation | ShardsAppend | ShardsBatch)
            || matches!(self, StreamsAppend | StreamsOwn | StreamsSlow);
        !only_appends && !self.reads()
    }

    /// Returns whether several threads can do it at the same time.
    pub fn has_threads(self) -> bool {
        !matches!(self, Recover | Reopen | Rotation | Codec | Opens | Suffix | Tail)
            && !matches!(self, StreamsOpen | ShardsCheckpoint)
    }

    /// Returns whether its forms take turns with each other round by round, because they are
    /// compared.
    pub fn forms_take_turns(self) -> bool {
        matches!(self, Codec | Release | Opens | Range | Suffix | Tail | StreamsTruncate)
    }

    /// Returns the thread counts that are measured without `--threads`.
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
    pub fn default_record_bytes(self) -> u32 {
        match self {
            Scan | Policies | Codec | StreamsScan => 1024,
            Get | StreamsOwn => 128,
            _ => 256,
        }
    }

    /// Returns how many records a batch has without `--batch`; `None` if there are no batches.
    pub fn default_batch(self) -> Option<u32> {
        match self {
            Batch => Some(1000),
            Atomic | StreamsBatch | ShardsBatch => Some(100),
            _ => None,
        }
    }

    /// Returns how many records the log has without `--records`; `None` if the time decides.
    pub fn default_records(self, record_bytes: usize) -> Option<u64> {
        let records_of = |bytes: u64| Some(bytes.div_ceil(record_bytes as u64));
        match self {
            Scan => records_of(256 << 20),
            Codec => records_of(64 << 20),
            StreamsScan | StreamsOpen | StreamsSlow => records_of(1 << 30),
            Recover | Get | Range => Some(10_000),
            ShardsCheckpoint => Some(1000),
            // As many records of 256 bytes as a thousand of the smallest segments hold.
            Reopen => Some(240_000),
            // A thousand segments to free.
            Release => Some(1000 * (RELEASE_SEGMENT_BYTES / framed_bytes(record_bytes)).max(1)),
            _ => None,
        }
    }

    /// Returns the numbers of streams that are measured without `--streams`, each on its own. There
    /// is none if the log has no streams, or one for each thread.
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
    pub fn default_shards(self) -> &'static [usize] {
        if self.has_shards() { &[4, 16, 64] } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_a_name_of_its_own_on_the_command_line() {
        for &workload in Workload::all().iter().filter(|workload| **workload != Tasks) {
            assert_eq!(Workload::of_name(&workload.name(), false), [workload]);
            assert!(!workload.about().is_empty());
        }
        assert_eq!((Tasks.name(), OpenLoop.name()), ("commit".into(), "open-loop".into()));
        assert_eq!(Workload::of_name("all", false), Workload::all());
    }

    #[test]
    fn futures_commit_if_tasks_are_given() {
        assert_eq!(Workload::of_name("commit", false), [Commit]);
        assert_eq!(Workload::of_name("commit", true), [Tasks]);
    }
}
