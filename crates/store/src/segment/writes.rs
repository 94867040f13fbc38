//! The log's bytes on their way into the segments' files.

use std::io::IoSlice;

use super::Segments;
use crate::disk::lacks_space;
use crate::{Error, ErrorKind, Lsn, Result};

impl Segments {
    /// Writes `pieces` at `at`, for the operating system to keep.
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
