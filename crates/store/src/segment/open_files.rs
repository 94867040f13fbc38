//! The open files of segments, and the preparer's writes of zeros to them.
//!
//! A file stays open from the first write until its bytes are durable: the operating system reports
//! a failed write-back only through a file that was open at that time. A read opens an older file.
//! Only the last file that a read has opened stays open, so a log can have more segments than a
//! process can have open files. If more than `MOST_OPEN` are open, the thread that writes syncs and
//! closes the oldest.
//!
//! # Recycling a file that the preparer zeroes
//! Claims on one [`SegmentFile`] keep the thread that writes and the preparer apart. A recycled
//! file gets a new `SegmentFile`, which does not have the claim of a step that is still in
//! progress. The zeros of that step would overwrite records of the new segment. If the tail reaches
//! the end of a segment, the thread that writes has waited for each step in it. A truncation of the
//! suffix moves the tail out of a segment without this wait.
//!
//! So the preparer marks the segment that it zeroes:
//! 1. Under the lock `zeroing` the preparer opens the file by its name and sets the mark. The mark
//!    stays until the last write of the preparer has returned.
//! 2. A thread that frees a segment takes the same lock, and keeps it until the name is gone and
//!    the file is closed. If the mark is set, the thread removes the file and does not recycle it.
//!    `discard` always removes.
//! 3. A preparer that takes the lock after that thread finds no such segment, then or later: no
//!    number is used twice.
//!
//! The thread that writes needs no mark: it writes and syncs only at or above the durable end. A
//! freed segment is below the head or in a discarded range, and the durable end is above both.

use std::sync::Arc;

use super::Segments;
use crate::Result;
use crate::disk::Access;
use crate::folder::segment_name;
use crate::segment::segment_file::SegmentFile;

/// If more files of segments are open, the thread that writes closes the oldest below its segment.
const MOST_OPEN: usize = 64;

/// The preparer's work in one segment. Until its drop, no thread recycles the segment's file.
#[derive(Debug)]
pub(crate) struct Zeroing<'a> {
    segments: &'a Segments,
    pub(crate) number: u64,
    pub(crate) file: Arc<SegmentFile>,
}

impl Zeroing<'_> {
    /// Zeroes one step. Returns false if there was nothing to zero, or an error. Keeps a failure,
    /// which later poisons the log. A lack of space or file descriptors is no failure. Then part of
    /// the step may be written, so this syncs the file.
    pub(crate) fn step(&self, from: u64, goal: u64) -> bool {
        let stepped = self.file.zero_step(from, goal);
        stepped.unwrap_or_else(|error| {
            let error = self.segments.named("zero the segment", self.number, error);
            match error.is_shortage() {
                true => drop(self.sync()),
                false => self.segments.fail(error),
            }
            false
        })
    }

    /// Syncs the file, and keeps a failure for the leader.
    pub(crate) fn sync(&self) -> bool {
        let synced = self.file.sync();
        let failed = |error| self.segments.fail(self.segments.sync_failed(self.number, error));
        synced.map_err(failed).is_ok()
    }
}

impl Drop for Zeroing<'_> {
    fn drop(&mut self) {
        *self.segments.zeroing.lock() = None;
    }
}

impl Segments {
    /// Returns the file of segment `number`, and keeps it open. Returns `None` if there is no such
    /// segment.
    pub(super) fn file(&self, number: u64) -> Result<Option<Arc<SegmentFile>>> {
        if let Some(file) = self.files.read().get(&number) {
            return Ok(Some(Arc::clone(file)));
        }
        let opened = self.folder.open_if_there(&segment_name(number), Access::Write)?;
        let Some(file) = opened else { return Ok(None) };
        let file = self.wrap(file, number)?;
        // Another thread may have added the file first and made claims on its object. All threads
        // must use that object.
        Ok(Some(Arc::clone(self.files.write().entry(number).or_insert(file))))
    }

    /// Lets the preparer zero segment `number`; `None` if there is no such segment.
    pub(crate) fn begin_zeroing(&self, number: u64) -> Option<Zeroing<'_>> {
        let mut zeroing = self.zeroing.lock();
        // What cannot be opened is not zeroed.
        let file = self.file(number).ok().flatten()?;
        *zeroing = Some(number);
        Some(Zeroing { segments: self, number, file })
    }

    /// Returns how far the log's bytes of segment `number` can be overwritten in place, or `None`
    /// if there is no such segment or its file cannot be opened.
    pub(crate) fn ready(&self, number: u64) -> Option<u64> {
        // A look at a segment that is being freed must not put its file back among the open ones.
        let _zeroing = self.zeroing.lock();
        self.file(number).ok().flatten().map(|file| file.ready())
    }

    pub(super) fn file_to_read(&self, number: u64) -> Result<Option<Arc<SegmentFile>>> {
        if let Some(file) = self.files.read().get(&number) {
            return Ok(Some(Arc::clone(file)));
        }
        if let Some((_, file)) = self.last_read.lock().as_ref().filter(|(of, _)| *of == number) {
            return Ok(Some(Arc::clone(file)));
        }
        let opened = self.folder.open_if_there(&segment_name(number), Access::Read)?;
        let Some(file) = opened else { return Ok(None) };
        let file = self.wrap(file, number)?;
        *self.last_read.lock() = Some((number, Arc::clone(&file)));
        Ok(Some(file))
    }

    /// Syncs and closes the oldest file below segment `number`, in which the caller writes, until
    /// at most `MOST_OPEN` files are open. Without the sync, no call would return an error of
    /// write-back.
    pub(super) fn close_surplus_below(&self, number: u64) -> Result<()> {
        loop {
            let oldest = {
                let files = self.files.read();
                let oldest = files.first_key_value().filter(|_| files.len() > MOST_OPEN);
                oldest.map(|(oldest, file)| (*oldest, Arc::clone(file)))
            };
            let Some((oldest, file)) = oldest.filter(|(oldest, _)| *oldest < number) else {
                return Ok(());
            };
            file.sync().map_err(|error| {
                let error = self.sync_failed(oldest, error);
                self.fail(error.clone());
                error
            })?;
            self.files.write().remove(&oldest);
        }
    }

    /// Closes the files of segments below `number`, all of which is durable.
    pub(super) fn forget_below(&self, number: u64) {
        let has_older =
            self.files.read().first_key_value().is_some_and(|(oldest, _)| *oldest < number);
        if has_older {
            let mut files = self.files.write();
            let newer = files.split_off(&number);
            let older = std::mem::replace(&mut *files, newer);
            drop(files);
            drop(older);
        }
    }

    /// Closes the file of segment `number`. While a removed file is open, its space is not freed.
    pub(super) fn forget(&self, number: u64) {
        self.files.write().remove(&number);
        self.last_read.lock().take_if(|(of, _)| *of == number);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use crate::{Error, ErrorKind, Lsn};

    use crate::disk::MemDisk;
    use crate::tests::support::segments;

    #[test]
    fn a_lack_of_space_in_a_preparer_sync_is_kept_as_an_io_error() {
        let segments = segments(Arc::new(MemDisk::new()), Path::new("/"));
        segments.fail(Error::io("sync the segment", io::ErrorKind::StorageFull.into()));
        let error = segments.prepare(Lsn::new(1 << 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "freed space does not bring the bytes back");
    }
}
