//! One segment's file: its header block, then the log's bytes, written ahead with zeros.
//!
//! Two threads write to it: the leader, at the tail, and the preparer, zeros ahead of the tail.
//! They must never write the same byte: zeros over a record would lose it.
//!
//! Words: *zeroed* is the end of the bytes that the preparer has written, or found in the file;
//! *written* the end of what the leader has claimed. All positions count from the segment's
//! first log byte.
//!
//! Protocol: the leader raises `written` over its range under the mutex before it writes, and
//! waits while the range overlaps the step in progress. The preparer starts a step under the
//! mutex at or above `written`. So a step begins above every claim made before it, and a claim
//! made after it waits for it, one step long.

use std::io::{self, IoSlice};

use parking_lot::{Condvar, Mutex};

use crate::block::BLOCK_BYTES;
use crate::fs::{DiskFile, ZeroSteps, read_full, write_pieces, write_zeros};

/// The segment's first log byte in its file.
pub(crate) const LOG_AT: u64 = BLOCK_BYTES as u64;
const PAGE_BYTES: u64 = 4096;

/// An open segment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: Box<dyn DiskFile>,
    segment_bytes: u64,
    step_bytes: u64,
    fill: Mutex<Fill>,
    stepped: Condvar,
}

#[derive(Debug)]
struct Fill {
    zeroed: u64,
    written: u64,
    step: Option<(u64, u64)>,
}

impl SegmentFile {
    /// Takes `file`, all of whose bytes have been written.
    pub(crate) fn new(file: Box<dyn DiskFile>, segment_bytes: u64) -> io::Result<SegmentFile> {
        let zeroed = file.len()?.saturating_sub(LOG_AT);
        let fill = Mutex::new(Fill { zeroed, written: 0, step: None });
        let step_bytes = ZeroSteps::default().step_bytes;
        Ok(SegmentFile { file, segment_bytes, step_bytes, fill, stepped: Condvar::new() })
    }

    /// The same segment, zeroed `step_bytes` at a time.
    pub(crate) fn stepping(self, step_bytes: u64) -> SegmentFile {
        SegmentFile { step_bytes, ..self }
    }

    /// Reads the header's block, as far as the file has it.
    pub(crate) fn read_header(&self) -> io::Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_BYTES];
        let len = read_full(self.file.as_ref(), 0, &mut block)?;
        block.truncate(len);
        Ok(block)
    }

    /// Reads at `offset` up to the end of `into`, of the file or of the segment.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.segment_bytes.saturating_sub(offset);
        let len = usize::try_from(rest).map_or(into.len(), |rest| rest.min(into.len()));
        read_full(self.file.as_ref(), LOG_AT + offset, &mut into[..len])
    }

    /// Writes `len` bytes of `pieces`, less the first `skip`, at `offset`.
    pub(crate) fn write(
        &self,
        offset: u64,
        pieces: &[IoSlice<'_>],
        skip: usize,
        len: usize,
    ) -> io::Result<()> {
        self.claim(offset, offset + len as u64);
        write_pieces(self.file.as_ref(), LOG_AT + offset, pieces, skip, len)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The end of the bytes that can be overwritten in place.
    pub(crate) fn ready(&self) -> u64 {
        let fill = self.fill.lock();
        fill.zeroed.max(fill.written)
    }

    /// Zeroes one step at or above `from`, up to `goal`; says whether there was anything to do.
    /// The caller syncs.
    pub(crate) fn zero_step(&self, from: u64, goal: u64) -> io::Result<bool> {
        let Some((start, end)) = self.begin_step(from, goal) else {
            return Ok(false);
        };
        let result = write_zeros(self.file.as_ref(), LOG_AT + start, LOG_AT + end);
        let mut fill = self.fill.lock();
        fill.step = None;
        if result.is_ok() {
            fill.zeroed = fill.zeroed.max(end);
        }
        self.stepped.notify_all();
        result.map(|()| true)
    }

    fn begin_step(&self, from: u64, goal: u64) -> Option<(u64, u64)> {
        let mut fill = self.fill.lock();
        // The leader finishes the page that it has begun: what lies in it would be zeroed in
        // vain.
        let start = fill.zeroed.max(fill.written).max(from).next_multiple_of(PAGE_BYTES);
        let end = goal.min(self.segment_bytes).min(start + self.step_bytes);
        if start >= end {
            return None;
        }
        fill.step = Some((start, end));
        Some((start, end))
    }

    fn claim(&self, from: u64, to: u64) {
        let mut fill = self.fill.lock();
        fill.written = fill.written.max(to);
        while fill.step.is_some_and(|(start, end)| from < end && start < to) {
            self.stepped.wait(&mut fill);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Access, Disk};
    use crate::fs_os::OsDisk;

    fn segment(path: &std::path::Path) -> SegmentFile {
        let file = OsDisk.open(&path.join("segment"), Access::Fresh).unwrap();
        SegmentFile::new(file, 1 << 20).unwrap()
    }

    #[test]
    fn zeros_never_cover_what_the_leader_wrote() {
        let temp = tempfile::tempdir().unwrap();
        let segment = segment(temp.path());
        assert!(segment.zero_step(0, 8192).unwrap());
        segment.write(0, &[IoSlice::new(&[7; 10_000])], 0, 10_000).unwrap();
        while segment.zero_step(0, 1 << 20).unwrap() {}
        assert_eq!(segment.ready(), 1 << 20);
        let mut bytes = vec![1; 1 << 20];
        assert_eq!(segment.read(0, &mut bytes).unwrap(), 1 << 20);
        assert!(bytes[..10_000].iter().all(|&byte| byte == 7));
        assert!(bytes[10_000..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_leader_and_a_preparer_leave_every_record() {
        let temp = tempfile::tempdir().unwrap();
        let segment = segment(temp.path());
        std::thread::scope(|scope| {
            scope.spawn(|| while segment.zero_step(0, 1 << 20).unwrap() {});
            for index in 0..1024_u64 {
                let record = [index as u8 | 1; 1024];
                segment.write(index * 1024, &[IoSlice::new(&record)], 0, 1024).unwrap();
            }
        });
        let mut record = [0; 1024];
        for index in 0..1024_u64 {
            assert_eq!(segment.read(index * 1024, &mut record).unwrap(), 1024);
            assert_eq!(record, [index as u8 | 1; 1024], "record {index}");
        }
    }
}
