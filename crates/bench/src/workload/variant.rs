//! What sets figures of one workload apart beside threads and sizes.

use std::fmt;
use std::time::Duration;

use palisade::SyncPolicy;

/// One of several forms of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Variant {
    /// The workload has one form.
    #[default]
    Plain,
    /// `commit`: so many futures, each of which waits for its own record.
    Tasks(usize),
    /// `open-loop`: so many commits are due each second.
    Rate(f64),
    /// `open-loop`: so many percent of what the contender reached just before, in a closed loop.
    Share(u32),
    /// `policies`: when the log syncs by itself.
    Policy(SyncPolicy),
    /// `rotation`: bytes of a segment.
    Segment(u64),
    /// `rotation`: bytes of a segment that is not filled with zeros ahead.
    RawSegment(u64),
    /// `sync`: bytes that were appended before.
    Dirty(u64),
    /// `recover`: so many bytes of garbage lie behind the last record.
    Torn(u64),
    /// `recover`: the log fills so many segments.
    Segments(u32),
    /// `recover`: so many bytes of records were appended after the last sync.
    Unsynced(u64),
    /// `recover`: the open checks every record, whatever it has to look at otherwise.
    FullCheck,
}

/// A segment that a burst does not fill: no rotation.
pub(super) const ENDLESS_SEGMENT_BYTES: u64 = 1 << 30;

impl Variant {
    /// Shares of the maximum that `open-loop` offers without `--rate`.
    pub(super) const SHARES: [Variant; 3] =
        [Variant::Share(20), Variant::Share(50), Variant::Share(80)];

    /// Policies that `policies` compares.
    pub(super) const POLICIES: [Variant; 4] = [
        Variant::Policy(SyncPolicy::Always),
        Variant::Policy(SyncPolicy::Interval(Duration::from_millis(1))),
        Variant::Policy(SyncPolicy::Interval(Duration::from_millis(5))),
        Variant::Policy(SyncPolicy::Os),
    ];

    /// Segments that `rotation` compares.
    pub(super) const SEGMENTS: [Variant; 4] = [
        Variant::Segment(ENDLESS_SEGMENT_BYTES),
        Variant::Segment(64 << 20),
        Variant::Segment(4 << 20),
        Variant::RawSegment(4 << 20),
    ];

    /// What `recover` finds.
    pub(super) const LEFT: [Variant; 10] = [
        Variant::Plain,
        Variant::Torn(64 << 10),
        Variant::Torn(1 << 20),
        Variant::Torn(16 << 20),
        Variant::Segments(2),
        Variant::Segments(5),
        Variant::Segments(10),
        Variant::Unsynced(1 << 20),
        Variant::Unsynced(56 << 20),
        Variant::FullCheck,
    ];

    /// What was written before the syncs of `sync`.
    pub(super) const DIRTY: [Variant; 5] = [
        Variant::Dirty(0),
        Variant::Dirty(4 << 10),
        Variant::Dirty(64 << 10),
        Variant::Dirty(1 << 20),
        Variant::Dirty(10 << 20),
    ];
}

impl Variant {
    /// The name by which `--forms` asks for it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Variant::Plain => "plain".into(),
            other => other.to_string().replace(", ", "-").replace(' ', "-").replace('%', "percent"),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Plain => Ok(()),
            Variant::Tasks(tasks) => write!(f, "{tasks} tasks"),
            Variant::Rate(rate) => write!(f, "{rate}/s"),
            Variant::Share(percent) => write!(f, "{percent} % load"),
            Variant::Policy(SyncPolicy::Always) => write!(f, "always"),
            Variant::Policy(SyncPolicy::Interval(time)) => write!(f, "every {time:?}"),
            Variant::Policy(SyncPolicy::Os) => write!(f, "os"),
            Variant::Policy(_) => write!(f, "on commit"),
            Variant::Segment(ENDLESS_SEGMENT_BYTES) => write!(f, "no rotation"),
            Variant::Segment(bytes) => write!(f, "{} MiB segments", bytes >> 20),
            Variant::RawSegment(bytes) => write!(f, "{} MiB, no zeros", bytes >> 20),
            Variant::Dirty(bytes) => write!(f, "{} KiB dirty", bytes >> 10),
            Variant::Torn(bytes) => write!(f, "{} KiB torn", bytes >> 10),
            Variant::Segments(count) => write!(f, "{count} segments"),
            Variant::Unsynced(bytes) => write!(f, "{} MiB unsynced", bytes >> 20),
            Variant::FullCheck => write!(f, "full check"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_workload_has_a_name_of_its_own() {
        let all = [
            Variant::SHARES.as_slice(),
            &Variant::POLICIES,
            &Variant::SEGMENTS,
            &Variant::DIRTY,
            &Variant::LEFT,
        ];
        let names: Vec<String> = all.concat().into_iter().map(Variant::name).collect();
        for (place, name) in names.iter().enumerate() {
            assert!(!name.is_empty() && !names[..place].contains(name), "{name}");
        }
        assert_eq!(Variant::Plain.to_string(), "");
        assert_eq!(Variant::Torn(64 << 10).name(), "64-KiB-torn");
        assert_eq!(Variant::Share(20).name(), "20-percent-load");
        assert_eq!(Variant::RawSegment(4 << 20).name(), "4-MiB-no-zeros");
    }
}
