//! The parameters of one measurement.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::form::Form;
use crate::workload::{RELEASE_SEGMENT_BYTES, Workload};

/// Record bytes that all threads together write at most between two trims of a log.
pub const BURST_BYTES: u64 = 256 << 20;

/// Bytes of a segment in `reopen`: the least that Palisade takes. More segments make an open look
/// at more.
const REOPEN_SEGMENT_BYTES: u64 = 64 << 10;

/// Segments that `streams-slow` fills at least, and the longest one.
const SLOW_SEGMENTS: u64 = 16;
const MOST_SLOW_SEGMENT_BYTES: u64 = 64 << 20;

/// What one contender is measured with in one round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// An empty folder for the contender's files.
    pub dir: PathBuf,
    /// Threads that work at the same time.
    pub threads: usize,
    /// Bytes of each record.
    pub record_bytes: usize,
    /// Records between two syncs.
    pub batch: u32,
    /// Records in the log that is read or recovered.
    pub records: u64,
    /// Streams of a log that has streams: one for each thread if the case has no number.
    pub streams: usize,
    /// Shards of a set: 1 if the workload has none.
    pub shards: usize,
    /// The form of the workload.
    pub form: Form,
    /// How long the timed part lasts.
    pub time: Duration,
}

impl Plan {
    /// Makes a plan for callers with a loop of their own: only folder, threads and record size are
    /// set, and each thread has a stream.
    #[must_use]
    pub fn at(dir: &Path, threads: usize, record_bytes: usize) -> Plan {
        Plan {
            dir: dir.into(),
            threads,
            record_bytes,
            batch: 1,
            records: 0,
            streams: threads,
            shards: 1,
            form: Form::Plain,
            time: Duration::ZERO,
        }
    }

    /// Returns how many records are appended after the last sync: 0 unless the form asks for some.
    #[must_use]
    pub fn unsynced_records(&self) -> u64 {
        match self.form {
            Form::Unsynced(bytes) => (bytes / self.record_bytes as u64).min(self.records),
            _ => 0,
        }
    }

    /// Returns the bytes of a segment, if the workload or its form asks for many segments. A record
    /// takes `frame_bytes` in the log.
    #[must_use]
    pub fn segment_bytes(&self, workload: Workload, frame_bytes: u64) -> Option<u64> {
        match (workload, self.form) {
            (Workload::Reopen, _) => Some(REOPEN_SEGMENT_BYTES),
            (Workload::Release, _) => Some(RELEASE_SEGMENT_BYTES),
            // A short run has segments to release, too.
            (Workload::StreamsSlow, _) => {
                Some((self.records * frame_bytes / SLOW_SEGMENTS).min(MOST_SLOW_SEGMENT_BYTES))
            }
            // A segment may end before the frame that no longer fits.
            (_, Form::Segments(count)) => {
                Some((self.records * frame_bytes).div_ceil(u64::from(count)) + frame_bytes)
            }
            _ => None,
        }
    }

    /// Returns a record to append. Its bytes are not all equal, and none is 0.
    #[must_use]
    pub fn record(&self) -> Vec<u8> {
        (0..self.record_bytes).map(|i| (i * 7) as u8 | 1).collect()
    }

    /// Returns the records with which a log is filled, in turn. If the form names no payload, each
    /// is [`record`](Plan::record).
    #[must_use]
    pub fn records(&self) -> Vec<Vec<u8>> {
        match self.form {
            Form::Coded(_, payload) => payload.records(self.record_bytes),
            _ => vec![self.record()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_fills_as_many_segments_as_its_form_says() {
        let plan = Plan { records: 1000, ..Plan::at("unused".as_ref(), 1, 256) };
        assert_eq!(plan.segment_bytes(Workload::Recover, 280), None);
        for segments in [2, 5, 10] {
            let plan = Plan { form: Form::Segments(segments), ..plan.clone() };
            let bytes = plan.segment_bytes(Workload::Recover, 280).unwrap();
            assert_eq!(1000_u64.div_ceil(bytes / 280), u64::from(segments));
        }
    }

    #[test]
    fn no_more_records_are_unsynced_than_there_are() {
        let plan = Plan { records: 10, ..Plan::at("unused".as_ref(), 1, 256) };
        assert_eq!(plan.unsynced_records(), 0);
        let of = |bytes| Plan { form: Form::Unsynced(bytes), ..plan.clone() };
        assert_eq!(of(1024).unsynced_records(), 4);
        assert_eq!(of(1 << 20).unsynced_records(), 10);
    }
}
