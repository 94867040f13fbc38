//! The forms of a workload: what sets its results apart beside threads and sizes.
//!
//! Each workload has a table of its forms beside the code that measures it.

use palisade::SyncPolicy;

use crate::Payload;

/// One of several forms of a workload: a name, and what differs from the workload's plain form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// The name in results; empty if the workload has one form.
    pub name: &'static str,
    /// What only the workload itself reads: a number of tasks or bytes, a percentage, a rate.
    pub number: f64,
    /// When Palisade's log syncs by itself.
    pub policy: SyncPolicy,
    /// Bytes of a segment; 0: as many as the contender has by itself.
    pub segment_bytes: u64,
    /// Whether Palisade fills segments with zeros ahead.
    pub zero_fill: bool,
    /// Segments that the log fills; 0: no matter how many.
    pub segments: u64,
    /// Bytes of garbage that a kill leaves behind the last record.
    pub torn_bytes: u64,
    /// Bytes of records that are appended after the last sync.
    pub unsynced_bytes: u64,
    /// Whether an open checks every record.
    pub full_check: bool,
    /// How the log stores records.
    pub compression: Compression,
    /// What records hold.
    pub payload: Payload,
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

impl Form {
    /// The only form of most workloads.
    pub const PLAIN: Form = Form {
        name: "",
        number: 0.0,
        policy: SyncPolicy::OnCommit,
        segment_bytes: 0,
        zero_fill: true,
        segments: 0,
        torn_bytes: 0,
        unsynced_bytes: 0,
        full_check: false,
        compression: Compression::None,
        payload: Payload::Plain,
    };

    /// Makes a form that only the workload itself knows.
    pub const fn named(name: &'static str) -> Form {
        Form { name, ..Form::PLAIN }
    }

    /// Returns the name by which `--forms` asks for the form.
    pub fn option(&self) -> String {
        match self.name {
            "" => "plain".into(),
            name => name.replace(", ", "-").replace(' ', "-").replace('%', "percent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::Workload;

    #[test]
    fn each_form_of_a_workload_has_a_name_of_its_own() {
        for workload in Workload::all() {
            let names: Vec<String> = workload.forms().iter().map(|form| form.option()).collect();
            for (place, name) in names.iter().enumerate() {
                assert!(!name.is_empty() && !names[..place].contains(name), "{name}");
            }
        }
        let names = |workload: Workload| -> Vec<String> {
            workload.forms().iter().map(|form| form.option()).collect()
        };
        assert_eq!(names(Workload::Append), ["plain"]);
        assert_eq!(names(Workload::Recover)[..2], ["plain", "64-KiB-torn"]);
        assert_eq!(names(Workload::OpenLoop)[0], "20-percent-load");
        assert_eq!(names(Workload::Rotation)[3], "4-MiB-no-zeros");
        assert_eq!(names(Workload::Codec)[1], "lz4-json");
        assert_eq!(names(Workload::Range)[3], "get_batch-busy");
    }
}
