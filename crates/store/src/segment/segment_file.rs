//! One segment's file: its header block, then the log's bytes, written ahead with zeros.
//!
//! The leader writes at the tail, and the preparer zeros ahead of it. They must never write the
//! same byte: zeros over a record would lose it.
//!
//! Words: *zeroed* is the end of the bytes that the preparer has written, or found in the file;
//! *written* is the end of what the leader has claimed. Positions count from the first log byte.
//!
//! Protocol: the leader raises `written` over its range under the mutex before it writes, and waits
//! while the range overlaps the step in progress. The preparer starts a step under the mutex at or
//! above `written`. So a step begins above every claim made before it, and a claim made after it
//! waits for it, one step long.

use std::io::{self, IoSlice};

use crate::block::BLOCK_BYTES;
use crate::disk::{DiskFile, ZeroSteps, read_full, write_pieces, write_zeros};
use crate::sync::{Condvar, Mutex, OnceLock, RwLock};

/// The segment's first log byte in its file.
pub const LOG_AT: u64 = BLOCK_BYTES as u64;
const PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: Box<dyn DiskFile>,
    segment_bytes: u64,
    step_bytes: u64,
    fill: Mutex<Fill>,
    stepped: Condvar,
    // Held, shared, by each sync in progress.
    syncing: RwLock<()>,
    failed_sync: OnceLock<FailedSync>,
}

/// The error of a failed sync, which the operating system reports once.
#[derive(Debug)]
struct FailedSync {
    code: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

impl FailedSync {
    fn of(error: &io::Error) -> FailedSync {
        FailedSync { code: error.raw_os_error(), kind: error.kind(), text: error.to_string() }
    }

    fn again(&self) -> io::Error {
        let same = || io::Error::new(self.kind, self.text.clone());
        self.code.map_or_else(same, io::Error::from_raw_os_error)
    }
}

#[derive(Debug)]
struct Fill {
    zeroed: u64,
    written: u64,
    step: Option<(u64, u64)>,
}

/// A step in progress. Its drop, also after a panic, ends it, because a leader may wait.
struct ZeroStep<'a> {
    file: &'a SegmentFile,
    start: u64,
    end: u64,
    is_done: bool,
}

impl Drop for ZeroStep<'_> {
    fn drop(&mut self) {
        let mut fill = self.file.fill.lock();
        fill.step = None;
        if self.is_done {
            fill.zeroed = fill.zeroed.max(self.end);
        }
        self.file.stepped.notify_all();
    }
}

impl SegmentFile {
    /// Takes `file`, all of whose bytes were written.
    pub(crate) fn new(file: Box<dyn DiskFile>, segment_bytes: u64) -> io::Result<SegmentFile> {
        let zeroed = file.len()?.saturating_sub(LOG_AT);
        let fill = Mutex::new(Fill { zeroed, written: 0, step: None });
        let step_bytes = ZeroSteps::default().step_bytes;
        Ok(SegmentFile {
            file,
            segment_bytes,
            step_bytes,
            fill,
            stepped: Condvar::default(),
            syncing: RwLock::new(()),
            failed_sync: OnceLock::new(),
        })
    }

    pub(crate) fn stepping(self, step_bytes: u64) -> SegmentFile {
        SegmentFile { step_bytes, ..self }
    }

    pub(crate) fn read_header(&self) -> io::Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_BYTES];
        let len = read_full(self.file.as_ref(), 0, &mut block)?;
        block.truncate(len);
        Ok(block)
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.segment_bytes.saturating_sub(offset);
        let len = usize::try_from(rest).map_or(into.len(), |rest| rest.min(into.len()));
        read_full(self.file.as_ref(), LOG_AT + offset, &mut into[..len])
    }

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

    /// Makes what was written durable. After a failure every later call fails, too, because the
    /// system reports the error to only one of the threads that sync.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let syncing = self.syncing.read();
        if let Err(error) = self.file.sync_data() {
            // The first one counts.
            let _ = self.failed_sync.set(FailedSync::of(&error));
        }
        drop(syncing);
        // Every sync that ran at the same time has ended, and has noted its error.
        drop(self.syncing.write());
        self.failed_sync.get().map_or(Ok(()), |failed| Err(failed.again()))
    }

    /// Returns up to where bytes can be overwritten in place.
    pub(crate) fn ready(&self) -> u64 {
        let fill = self.fill.lock();
        fill.zeroed.max(fill.written)
    }

    /// Zeroes one step at or above `from`, up to `goal`, unsynced. Returns whether there was one.
    pub(crate) fn zero_step(&self, from: u64, goal: u64) -> io::Result<bool> {
        let Some(mut step) = self.begin_step(from, goal) else {
            return Ok(false);
        };
        write_zeros(self.file.as_ref(), LOG_AT + step.start, LOG_AT + step.end)?;
        step.is_done = true;
        Ok(true)
    }

    fn begin_step(&self, from: u64, goal: u64) -> Option<ZeroStep<'_>> {
        let mut fill = self.fill.lock();
        // The leader finishes the page that it has begun: what lies in it would be zeroed in
        // vain.
        let start = fill.zeroed.max(fill.written).max(from).next_multiple_of(PAGE_BYTES);
        let end = goal.min(self.segment_bytes).min(start + self.step_bytes);
        if start >= end {
            return None;
        }
        fill.step = Some((start, end));
        Some(ZeroStep { file: self, start, end, is_done: false })
    }

    fn claim(&self, from: u64, to: u64) {
        let mut fill = self.fill.lock();
        fill.written = fill.written.max(to);
        while fill.step.is_some_and(|(start, end)| from < end && start < to) {
            fill = self.stepped.wait(fill, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::sync::survive;

    use super::*;
    use crate::disk::{Access, Disk, MemDisk};
    use crate::sim::{CallKind, Effect, Fault, FaultDisk, FaultKind, SimDisk, Target};

    fn segment(disk: &dyn Disk) -> SegmentFile {
        let path = std::path::Path::new("/log");
        disk.create_folder(path, 0o600).unwrap();
        let folder = disk.open_folder(path, 0o600).unwrap();
        let file = folder.open("segment", Access::Fresh).unwrap();
        SegmentFile::new(file, 1 << 20).unwrap()
    }

    #[test]
    fn a_sync_that_failed_fails_for_everybody_who_syncs_the_file() {
        // The system reports a failed write-back to one sync only.
        let disk = SimDisk::new(1);
        disk.fail(Fault::nth(CallKind::Sync, 0, FaultKind::Eio));
        let segment = segment(disk.as_disk().as_ref());
        // Leader, preparer and writer at the same time: chance decides which of them gets it.
        let failed: Vec<io::Error> = std::thread::scope(|scope| {
            let syncs: Vec<_> = (0..3).map(|_| scope.spawn(|| segment.sync())).collect();
            syncs.into_iter().filter_map(|sync| sync.join().unwrap().err()).collect()
        });
        let later = segment.sync().unwrap_err();
        assert_eq!(later.to_string(), failed[0].to_string(), "the error stays");
    }

    #[test]
    fn zeros_never_cover_what_the_leader_wrote() {
        let segment = segment(&MemDisk::new());
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
    fn a_step_that_panics_is_over() {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let segment = segment(&disk);
        disk.set((CallKind::Write, Target::Other), Effect::Panic);
        assert!(survive(|| segment.zero_step(0, 8192)).is_none());
        assert_eq!(segment.fill.lock().step, None, "a leader would wait for it");
        disk.set((CallKind::Write, Target::Other), Effect::Pass);
        segment.write(0, &[IoSlice::new(&[7])], 0, 1).unwrap();
        assert_eq!(segment.ready(), 1, "no byte of the step counts as zeroed");
    }

    #[test]
    fn a_leader_and_a_preparer_leave_every_record() {
        let segment = segment(&MemDisk::new());
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
