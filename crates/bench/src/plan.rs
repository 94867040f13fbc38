//! What is measured in one round: a contender, a workload and its parameters.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::folder::killed;
use crate::workload::RELEASE_SEGMENT_BYTES;
use crate::{Contender, End, Form, Log, Opening, Payload, Workload};

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
    /// Who is measured.
    pub contender: Contender,
    /// What is measured.
    pub workload: Workload,
    /// An empty folder for the contender's files.
    pub dir: PathBuf,
    /// Threads that work at the same time.
    pub threads: usize,
    /// Bytes of each record.
    pub record_bytes: usize,
    /// Records between two syncs: 1 if the workload has no batches.
    pub batch: u32,
    /// Records in the log that is read or recovered: 0 if the time decides.
    pub records: u64,
    /// Streams of a log that has streams: one for each thread if the workload names no number.
    pub streams: usize,
    /// Shards of a set: 1 if the workload has none.
    pub shards: usize,
    /// The form of the workload.
    pub form: Form,
    /// How long the timed part lasts.
    pub time: Duration,
}

impl Plan {
    /// Makes a plan for one thread with one stream. Folder, records and time are empty.
    pub fn new(contender: Contender, workload: Workload) -> Plan {
        Plan {
            contender,
            workload,
            dir: PathBuf::new(),
            threads: 1,
            record_bytes: workload.default_record_bytes() as usize,
            batch: 1,
            records: 0,
            streams: 1,
            shards: 1,
            form: Form::PLAIN,
            time: Duration::ZERO,
        }
    }

    /// Returns what the contender lacks, and why; `None` if it can do all that the plan asks for.
    pub fn refusal(&self) -> Option<String> {
        let Contender { name, lacks, lacks_form, lacks_streams, .. } = self.contender;
        let workload = lacks(self.workload).map(|reason| (self.workload.full_name(), reason));
        let form = || lacks_form(&self.form).map(|reason| (self.form.name.into(), reason));
        let streams = || {
            let reason = lacks_streams(self.streams).filter(|_| self.workload.has_streams());
            reason.map(|reason| (format!("{} streams", self.streams), reason))
        };
        let (what, reason) = workload.or_else(form).or_else(streams)?;
        Some(format!("{name} has no {what}, {reason}"))
    }

    /// Makes an empty log.
    ///
    /// # Errors
    /// If its files cannot be made, or the contender lacks what the plan asks for.
    pub fn create(&self) -> Result<Box<dyn Log>> {
        match self.refusal() {
            Some(refusal) => bail!(refusal),
            None => (self.contender.open)(self),
        }
    }

    /// Makes a log of the plan's records, for a workload that reads or opens.
    ///
    /// # Errors
    /// If it cannot be written, or the contender lacks what the plan asks for.
    pub fn fill(&self) -> Result<Box<dyn Log>> {
        let log = self.create()?;
        let streams = if self.workload.has_streams() { self.streams } else { 1 };
        let unsynced = self.unsynced_records();
        log.fill(streams, &self.record(), self.records - unsynced, unsynced)?;
        Ok(log)
    }

    /// Ends a log of this plan, and returns the call that opens what is left of it. The time of an
    /// open is the time of that call.
    ///
    /// # Errors
    /// If it cannot be ended like this.
    pub fn end(&self, log: Box<dyn Log>, end: End) -> Result<Opening> {
        let folder = self.folder();
        let is_segment = self.contender.is_segment.filter(|_| end == End::Killed);
        let image = is_segment.map(|is_one| killed(&folder, is_one, self.form.torn_bytes));
        let image = image.transpose()?;
        let opening = log.end(self, end)?;
        if let Some(image) = image {
            fs::remove_dir_all(&folder)?;
            fs::rename(image, &folder)?;
        }
        let plan = self.clone();
        Ok(opening.unwrap_or_else(|| Box::new(move || (plan.contender.open)(&plan))))
    }

    /// Returns where contenders with a folder or file of their own put it.
    pub fn folder(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Returns how many records are appended after the last sync: 0 unless the form asks for some.
    pub fn unsynced_records(&self) -> u64 {
        (self.form.unsynced_bytes / self.record_bytes as u64).min(self.records)
    }

    /// Returns the bytes of a segment, if the workload or its form asks for some. A record takes
    /// `frame_bytes` in the log.
    pub fn segment_bytes(&self, frame_bytes: u64) -> Option<u64> {
        let bytes = self.records * frame_bytes;
        match (self.workload, &self.form) {
            (Workload::Reopen, _) => Some(REOPEN_SEGMENT_BYTES),
            (Workload::Release, _) => Some(RELEASE_SEGMENT_BYTES),
            // A short run has segments to release, too.
            (Workload::StreamsSlow, _) => {
                Some((bytes / SLOW_SEGMENTS).min(MOST_SLOW_SEGMENT_BYTES))
            }
            (_, Form { segment_bytes: bytes @ 1.., .. }) => Some(*bytes),
            // A segment may end before the frame that no longer fits.
            (_, Form { segments: count @ 1.., .. }) => Some(bytes.div_ceil(*count) + frame_bytes),
            _ => None,
        }
    }

    /// Returns a record to append. Its bytes are not all equal, and none is 0.
    pub fn record(&self) -> Vec<u8> {
        Payload::Plain.records(self.record_bytes).remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::PALISADE;

    #[test]
    fn a_log_fills_as_many_segments_as_its_form_says() {
        let plan = Plan { records: 1000, ..Plan::new(PALISADE, Workload::Recover) };
        assert_eq!(plan.segment_bytes(280), None);
        for segments in [2, 5, 10] {
            let plan = Plan { form: Form { segments, ..Form::PLAIN }, ..plan.clone() };
            let bytes = plan.segment_bytes(280).unwrap();
            assert_eq!(1000_u64.div_ceil(bytes / 280), segments);
        }
    }

    #[test]
    fn no_more_records_are_unsynced_than_there_are() {
        let plan = Plan { records: 10, ..Plan::new(PALISADE, Workload::Recover) };
        assert_eq!(plan.unsynced_records(), 0);
        let of = |unsynced_bytes| {
            let form = Form { unsynced_bytes, ..Form::PLAIN };
            Plan { form, ..plan.clone() }.unsynced_records()
        };
        assert_eq!((of(1024), of(1 << 20)), (4, 10));
    }
}
