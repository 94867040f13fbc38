//! The forms of a workload: what sets its results apart beside threads and sizes.

use std::fmt;
use std::time::Duration;

use palisade::SyncPolicy;

use crate::payload::Payload;

/// One of several forms of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Form {
    /// The workload has one form.
    #[default]
    Plain,
    /// `commit`: this many futures, each of which waits for its own record.
    Tasks(usize),
    /// `open-loop`: this many commits are due each second.
    Rate(f64),
    /// `open-loop`: this percentage of what the contender reached just before, in a closed loop.
    Share(u32),
    /// `policies`: when the log syncs by itself.
    Policy(SyncPolicy),
    /// `rotation`: bytes of a segment.
    Segment(u64),
    /// `rotation`: bytes of a segment that is not filled with zeros ahead.
    RawSegment(u64),
    /// `sync`: bytes that are appended before the sync.
    Dirty(u64),
    /// `recover`: bytes of garbage behind the last record.
    Torn(u64),
    /// `recover`: segments that the log fills.
    Segments(u32),
    /// `recover`: bytes of records that were appended after the last sync.
    Unsynced(u64),
    /// `recover`: the open checks every record.
    FullCheck,
    /// `codec`: how records are stored, and what they hold.
    Coded(Compression, Payload),
    /// `release`, `tail` and `streams-truncate`: commits with nothing beside them.
    Alone,
    /// `release`: a thread waits in `truncate_before`.
    Release,
    /// `release`: `truncate_before_in_background`.
    Background,
    /// `opens`: the open that makes a log.
    NewLog,
    /// `opens`: the close.
    Close,
    /// `opens`: the open after the close.
    CleanReopen,
    /// `opens`: the open of a copy that was taken while the log was open.
    UncleanReopen,
    /// `range`: a range of records; true: beside a thread that appends.
    Range(bool),
    /// `range`: `get_batch`; true: beside a thread that appends.
    GetBatch(bool),
    /// `suffix`: `truncate_after`.
    TruncateAfter,
    /// `suffix`: `replace_from`.
    ReplaceFrom,
    /// `streams-truncate`: truncations, with nothing beside them.
    Truncate,
    /// `streams-truncate`: commits beside a thread that truncates.
    Beside,
    /// `tail`: commits that a tail follows.
    Followed,
    /// `tail`: from the end of a commit to the return of the tail.
    Delivery,
    /// `shards-append`: by handles, if the contender has them.
    ByHandle,
    /// `shards-append`: each call takes the key.
    ByKey,
    /// `shards-checkpoint`: a checkpoint of records that are not durable yet.
    Create,
    /// `shards-checkpoint`: a checkpoint after which nothing was appended since the last one.
    Unchanged,
    /// `shards-checkpoint`: a load of a checkpoint.
    Load,
}

/// How a log stores records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// Compressed with LZ4.
    Lz4,
    /// Compressed with Zstandard.
    Zstd,
}

/// A segment that a burst does not fill: no rotation.
const ENDLESS_SEGMENT_BYTES: u64 = 1 << 30;

impl Form {
    /// Shares of the maximum that `open-loop` offers without `--rate`.
    pub(crate) const SHARES: [Form; 3] = [Form::Share(20), Form::Share(50), Form::Share(80)];

    /// Policies that `policies` compares.
    pub(crate) const POLICIES: [Form; 4] = [
        Form::Policy(SyncPolicy::Always),
        Form::Policy(SyncPolicy::Interval(Duration::from_millis(1))),
        Form::Policy(SyncPolicy::Interval(Duration::from_millis(5))),
        Form::Policy(SyncPolicy::Os),
    ];

    /// Segments that `rotation` compares.
    pub(crate) const SEGMENTS: [Form; 4] = [
        Form::Segment(ENDLESS_SEGMENT_BYTES),
        Form::Segment(64 << 20),
        Form::Segment(4 << 20),
        Form::RawSegment(4 << 20),
    ];

    /// Logs that `recover` opens.
    pub(crate) const LEFT: [Form; 10] = [
        Form::Plain,
        Form::Torn(64 << 10),
        Form::Torn(1 << 20),
        Form::Torn(16 << 20),
        Form::Segments(2),
        Form::Segments(5),
        Form::Segments(10),
        Form::Unsynced(1 << 20),
        Form::Unsynced(56 << 20),
        Form::FullCheck,
    ];

    /// Bytes that are written before the syncs of `sync`.
    pub(crate) const DIRTY: [Form; 5] = [
        Form::Dirty(0),
        Form::Dirty(4 << 10),
        Form::Dirty(64 << 10),
        Form::Dirty(1 << 20),
        Form::Dirty(10 << 20),
    ];

    /// Codecs and records that `codec` compares.
    pub(crate) const CODED: [Form; 6] = [
        Form::Coded(Compression::None, Payload::Json),
        Form::Coded(Compression::Lz4, Payload::Json),
        Form::Coded(Compression::Zstd, Payload::Json),
        Form::Coded(Compression::None, Payload::Random),
        Form::Coded(Compression::Lz4, Payload::Random),
        Form::Coded(Compression::Zstd, Payload::Random),
    ];

    /// Steps that `opens` times.
    pub(crate) const STEPS: [Form; 4] =
        [Form::NewLog, Form::Close, Form::CleanReopen, Form::UncleanReopen];

    /// Calls that `range` compares.
    pub(crate) const READS: [Form; 4] =
        [Form::Range(false), Form::Range(true), Form::GetBatch(false), Form::GetBatch(true)];

    /// Returns the name by which `--forms` asks for the form.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Form::Plain => "plain".into(),
            other => other.to_string().replace(", ", "-").replace(' ', "-").replace('%', "percent"),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Plain => Ok(()),
            Form::Tasks(tasks) => write!(f, "{tasks} tasks"),
            Form::Rate(rate) => write!(f, "{rate}/s"),
            Form::Share(percent) => write!(f, "{percent} % load"),
            Form::Policy(SyncPolicy::Always) => write!(f, "always"),
            Form::Policy(SyncPolicy::Interval(time)) => write!(f, "every {time:?}"),
            Form::Policy(SyncPolicy::Os) => write!(f, "os"),
            Form::Policy(_) => write!(f, "on commit"),
            Form::Segment(ENDLESS_SEGMENT_BYTES) => write!(f, "no rotation"),
            Form::Segment(bytes) => write!(f, "{} MiB segments", bytes >> 20),
            Form::RawSegment(bytes) => write!(f, "{} MiB, no zeros", bytes >> 20),
            Form::Dirty(bytes) => write!(f, "{} KiB dirty", bytes >> 10),
            Form::Torn(bytes) => write!(f, "{} KiB torn", bytes >> 10),
            Form::Segments(count) => write!(f, "{count} segments"),
            Form::Unsynced(bytes) => write!(f, "{} MiB unsynced", bytes >> 20),
            Form::FullCheck => write!(f, "full check"),
            Form::Coded(compression, payload) => {
                write!(f, "{}, {}", lower_case(compression), lower_case(payload))
            }
            Form::Alone => write!(f, "alone"),
            Form::Release => write!(f, "release"),
            Form::Background => write!(f, "background"),
            Form::NewLog => write!(f, "new"),
            Form::Close => write!(f, "close"),
            Form::CleanReopen => write!(f, "clean reopen"),
            Form::UncleanReopen => write!(f, "unclean reopen"),
            Form::Range(is_busy) => write!(f, "range, {}", company(*is_busy)),
            Form::GetBatch(is_busy) => write!(f, "get_batch, {}", company(*is_busy)),
            Form::TruncateAfter => write!(f, "truncate_after"),
            Form::ReplaceFrom => write!(f, "replace_from"),
            Form::Truncate => write!(f, "truncate"),
            Form::Beside => write!(f, "beside"),
            Form::Followed => write!(f, "followed"),
            Form::Delivery => write!(f, "delivery"),
            Form::ByHandle => write!(f, "by handle"),
            Form::ByKey => write!(f, "by key"),
            Form::Create => write!(f, "create"),
            Form::Unchanged => write!(f, "create unchanged"),
            Form::Load => write!(f, "load"),
        }
    }
}

fn lower_case(name: &impl fmt::Debug) -> String {
    format!("{name:?}").to_lowercase()
}

fn company(is_busy: bool) -> &'static str {
    if is_busy { "busy" } else { "idle" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn each_form_of_a_workload_has_a_name_of_its_own() {
        for workload in Workload::ALL {
            let names: Vec<String> = workload.forms().iter().map(|form| form.name()).collect();
            for (place, name) in names.iter().enumerate() {
                assert!(!name.is_empty() && !names[..place].contains(name), "{name}");
            }
        }
        assert_eq!(Form::Plain.to_string(), "");
        assert_eq!(Form::Torn(64 << 10).name(), "64-KiB-torn");
        assert_eq!(Form::Share(20).name(), "20-percent-load");
        assert_eq!(Form::RawSegment(4 << 20).name(), "4-MiB-no-zeros");
        assert_eq!(Form::Coded(Compression::Lz4, Payload::Json).name(), "lz4-json");
        assert_eq!(Form::GetBatch(true).name(), "get_batch-busy");
    }
}
