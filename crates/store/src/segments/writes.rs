//! The log's bytes on their way into the segments' files.
//!
//! Durable writes run several at a time, in any order. Who wrote a whole segment with one of them
//! closes its file; the others are closed when the durable end has passed them. None is closed
//! because there are many: a lower one may still be written to, and would get another object,
//! which knows nothing of a step of the preparer that is in progress.

use std::io::{self, IoSlice};
use std::sync::Arc;

use palisade_core::{Error, ErrorKind, Lsn, Result};

use super::Segments;
use crate::folder::segment_name;
use crate::fs::{Access, lacks_space};
use crate::segment_file::SegmentFile;

/// What of a write lies in one segment.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: Lsn,
    number: u64,
    offset: u64,
    /// Bytes of the write that lie in earlier segments.
    skip: usize,
    len: usize,
}

impl Segments {
    /// Writes `pieces` at `at`, for the operating system to keep.
    pub(crate) fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        for part in self.parts(at, pieces) {
            let file = self.file_of(part)?;
            self.write_part(part, || file.write(part.offset, pieces, part.skip, part.len))?;
            self.close_surplus_below(part.number)?;
        }
        Ok(())
    }

    /// Writes `pieces` at `at`; they survive power loss when this returns. Lies at or above the
    /// durable end, so no segment in it is renamed or freed meanwhile, and a segment's name leads
    /// to the file that its object has open.
    pub(crate) fn write_durable(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        for part in self.parts(at, pieces) {
            let file = self.file_of(part)?;
            let open = || {
                let path = self.folder.path().join(segment_name(part.number));
                self.folder.disk().open(&path, Access::Direct)
            };
            self.write_part(part, || {
                file.write_durable(&open, part.offset, pieces, part.skip, part.len)
            })?;
            if part.len as u64 == self.shape.segment_bytes {
                self.files.write().remove(&part.number);
            }
        }
        // What the preparer was told of a failed write-back is told to nobody else.
        self.check()
    }

    /// Closes the files of segments that lie below the durable end.
    pub(crate) fn close_below(&self, durable: Lsn) {
        self.close(0..self.split(durable).0);
    }

    fn parts(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> impl Iterator<Item = Part> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut skip = 0;
        std::iter::from_fn(move || {
            let here = at.plus(skip as u64);
            let (number, offset) = self.split(here);
            let rest = self.shape.segment_bytes - offset;
            let rest = usize::try_from(rest).map_or(len - skip, |rest| rest.min(len - skip));
            let part = Part { at: here, number, offset, skip, len: rest };
            skip += rest;
            (rest > 0).then_some(part)
        })
    }

    fn file_of(&self, part: Part) -> Result<Arc<SegmentFile>> {
        self.file(part.number)?.ok_or_else(|| {
            let text = "the segment to be written is missing";
            self.located(Error::new(ErrorKind::Io, text), part.number).at_lsn(part.at)
        })
    }

    /// Writes with `write`, again and again as long as space is lacking and a spare can be given up.
    fn write_part(&self, part: Part, write: impl Fn() -> io::Result<()>) -> Result<()> {
        let mut written = write();
        while written.as_ref().is_err_and(lacks_space) && self.give_up_a_spare() {
            written = write();
        }
        written.map_err(|error| self.named("write the segment", part.number, error).at_lsn(part.at))
    }
}
