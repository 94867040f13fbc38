//! The open files of segments, and who writes to them behind the leader's back.
//!
//! Files stay open from the first write until what they hold is durable: a failure to write the
//! page cache back is reported to those that had the file open. Older ones are opened to be
//! read, the last of them being kept, so that a log may have more segments than a process files.
//! If more than `MOST_OPEN` are open, the thread that writes syncs and closes the oldest.
//!
//! # A file's next life
//! The leader and the preparer keep apart by claims on one [`SegmentFile`]. A file that is recycled
//! gets another object, which knows nothing of a step that is still in progress: its zeros would
//! cover the records of the next life. A tail that comes to a segment's end has waited for each
//! step in it; a truncation of the suffix leaves a segment without doing so.
//!
//! So the preparer names the segment that it zeroes: under the lock `zeroing` it finds the file by
//! its name and sets the mark, which stays until its last write has returned. Who frees a segment
//! looks at the mark under the same lock, and holds it until the name is gone and the file is
//! forgotten. Whichever comes first: the mark is seen, and the file is removed instead of recycled;
//! or the preparer finds no such segment. A number is not used twice, so it finds none later.
//!
//! The leader needs no mark: it writes and syncs at or above the durable end only, and what is
//! freed lies below the head, or in a dead range, that the durable end has passed.

use std::sync::Arc;

use palisade_core::Result;

use super::Segments;
use crate::disk::Access;
use crate::folder::segment_name;
use crate::segment::segment_file::SegmentFile;

/// Files that are open at most for segments that the leader's writes have passed.
const MOST_OPEN: usize = 64;

/// The preparer at work in a segment, whose file gets no other life meanwhile.
#[derive(Debug)]
pub(crate) struct Zeroing<'a> {
    segments: &'a Segments,
    pub(crate) number: u64,
    pub(crate) file: Arc<SegmentFile>,
}

impl Zeroing<'_> {
    /// Zeroes one step. Returns whether there was anything to do. Keeps a failure for the leader. A
    /// lack of space is none, but a part of the step may be written, so it is synced.
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
    /// The file of segment `number`, kept open; `None` if there is no such segment.
    pub(super) fn file(&self, number: u64) -> Result<Option<Arc<SegmentFile>>> {
        if let Some(file) = self.files.read().get(&number) {
            return Ok(Some(Arc::clone(file)));
        }
        let opened = self.folder.open_if_there(&segment_name(number), Access::Write)?;
        let Some(file) = opened else { return Ok(None) };
        let file = self.wrap(file, number)?;
        // Whoever came first has made claims on its object: all must use that one.
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

    /// How far the log's bytes of segment `number` can be overwritten in place; `None` if there is
    /// no such segment.
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

    /// Closes the oldest files below segment `number`, in which the leader writes, while too many
    /// are open. They are synced first: an error of write-back would have nobody to go to.
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

    /// Closes the file of segment `number`: an open one would keep the space of a removed one.
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

    use palisade_core::{Error, ErrorKind, Lsn};

    use crate::disk::MemDisk;
    use crate::tests::support::segments;

    #[test]
    fn a_sync_behind_the_leaders_back_that_lacks_space_is_no_lack_that_ends() {
        let segments = segments(Arc::new(MemDisk::new()), Path::new("/"));
        segments.fail(Error::io("sync the segment", io::ErrorKind::StorageFull.into()));
        let error = segments.prepare(Lsn::new(1 << 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "whoever waits would free space for ever");
    }
}
