//! The open files of segments.

use std::io::IoSlice;
use std::sync::Arc;

use super::Segments;
use crate::disk::{Access, lacks_space};
use crate::folder::segment_name;
use crate::segment::segment_file::SegmentFile;
use crate::{Error, ErrorKind, Lsn, Result};

const MOST_OPEN: usize = 64;

/// The preparer's work in a segment, whose file no thread recycles meanwhile.
#[derive(Debug)]
pub(crate) struct Zeroing<'a> {
    segments: &'a Segments,
    pub(crate) number: u64,
    pub(crate) file: Arc<SegmentFile>,
}

impl Zeroing<'_> {
    /// Zeroes one step. Returns false after an error, or without one to do. Keeps a failure, which
    /// poisons the log later. After a shortage, syncs what it may have written.
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

    pub(crate) fn begin_zeroing(&self, number: u64) -> Option<Zeroing<'_>> {
        let mut zeroing = self.zeroing.lock();
        // What cannot be opened is not zeroed.
        let file = self.file(number).ok().flatten()?;
        *zeroing = Some(number);
        Some(Zeroing { segments: self, number, file })
    }

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

    /// Syncs and closes the oldest files below segment `number`, the writing thread's, down to
    /// `MOST_OPEN`. Without the sync write-back errors would get lost.
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

    /// A removed file takes space while it is open.
    pub(super) fn forget(&self, number: u64) {
        self.files.write().remove(&number);
        self.last_read.lock().take_if(|(of, _)| *of == number);
    }
}

impl Segments {
    pub(crate) fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        while done < len {
            let here = at.plus(done as u64);
            let (number, offset) = self.split(here);
            let rest = self.shape.segment_bytes - offset;
            let part = usize::try_from(rest).map_or(len - done, |rest| rest.min(len - done));
            let Some(file) = self.file(number)? else {
                let text = "the segment to be written is missing";
                return Err(self.located(Error::new(ErrorKind::Io, text), number).at_lsn(here));
            };
            let mut written = file.write(offset, pieces, done, part);
            while written.as_ref().is_err_and(lacks_space) && self.give_up_a_spare() {
                written = file.write(offset, pieces, done, part);
            }
            written.map_err(|error| self.named("write the segment", number, error).at_lsn(here))?;
            done += part;
            self.close_surplus_below(number)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::MemDisk;
    use crate::tests::support::segments;
    use crate::{Error, ErrorKind, Lsn};
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn a_lack_of_space_in_a_preparer_sync_is_kept_as_an_io_error() {
        let segments = segments(Arc::new(MemDisk::new()), Path::new("/"));
        segments.fail(Error::io("sync the segment", io::ErrorKind::StorageFull.into()));
        let error = segments.prepare(Lsn::new(1 << 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "freed space does not bring the bytes back");
    }
}
