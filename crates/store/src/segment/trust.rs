//! Which files the log may use again, and the file `reserve`.
//!
//! The log never trusts a file again in which a write or sync failed (`docs/durability.md`, "Failed
//! writes"): it reads the bytes that were durable before, and does not recycle the file. Only the
//! process that made a call knows whether it failed. So the log trusts a file only if each process
//! that used it came to a clean end:
//!
//! - A file that this process made: until a write or sync of it fails.
//! - A spare, or a segment of the epoch, that was found after a clean end, if the epoch continues:
//!   the same.
//! - Any other file that was found: never.
//! - In a copy of the log's folder, a spare: never. A segment: as in the original, because the
//!   first open has synced it.
//!
//! A process whose write or sync of a segment failed is poisoned, and makes no clean end. A lack of
//! space is no failure of a write: the log writes the same bytes again.
//!
//! A lack of space or of a file descriptor for a spare does not poison the log either. The log
//! removes a failed spare at once, or else before `close` makes a clean end.

use super::{Maker, Segments};
use crate::disk::Access;
use crate::folder::{RESERVE, spare_name};
use crate::meta::META_BYTES;
use crate::segment::segment_file::LOG_AT;
use crate::{Error, Result};

/// Two headers and the meta file, besides the copy of a segment.
const LEAST_RESERVE_BYTES: u64 = 2 * LOG_AT + META_BYTES;

#[derive(Debug)]
pub(super) struct Trust {
    /// Found by the open, and not judged yet.
    found_spares: Vec<u64>,
    /// The lowest segment that may be recycled.
    first_recyclable: u64,
    /// Spares whose removal failed.
    failed_spares: Vec<u64>,
    /// The length of `reserve`, or 0.
    reserve_bytes: u64,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust {
            found_spares: Vec::new(),
            first_recyclable: u64::MAX,
            failed_spares: Vec::new(),
            reserve_bytes: 0,
        }
    }
}

impl Trust {
    pub(super) fn note_found_spares(&mut self, spares: Vec<u64>) {
        self.found_spares = spares;
    }

    pub(super) fn first_recyclable(&self) -> u64 {
        self.first_recyclable
    }
}

impl Segments {
    /// Trusts the spares that the open found, and the segments of the epoch that continues, from
    /// `first` on. Removes spares that are too short.
    pub(super) fn trust_what_was_found(&self, maker: &mut Maker, first: u64) -> Result<()> {
        maker.trust.first_recyclable = first;
        maker.trust.reserve_bytes = self.file_bytes(RESERVE)?;
        for number in std::mem::take(&mut maker.trust.found_spares) {
            if self.file_bytes(&spare_name(number))? >= LOG_AT + self.shape.first_step_bytes() {
                maker.spares.insert(number);
            } else {
                self.folder.remove_if_there(&spare_name(number))?;
            }
        }
        Ok(())
    }

    /// Distrusts what the open found. Only segments from `first` on, which this process makes, may
    /// be recycled. Removes the spares and `reserve`, whose space the open needs.
    pub(super) fn distrust_what_was_found(&self, maker: &mut Maker, first: u64) -> Result<()> {
        maker.trust.first_recyclable = first;
        while let Some(number) = maker.trust.found_spares.last().copied() {
            self.folder.remove_if_there(&spare_name(number))?;
            maker.trust.found_spares.pop();
        }
        self.folder.remove_if_there(RESERVE)
    }

    /// Makes `reserve` long enough for an open on a full disk, which copies the last segment's
    /// `used` bytes, begins a segment and writes a meta file.
    pub(crate) fn keep_reserve(&self, used: u64) -> Result<()> {
        let mut maker = self.maker.lock();
        let copied = used.max(self.shape.first_step_bytes()).min(self.shape.segment_bytes);
        // An allocation above the limit to the length of files would end the process.
        let largest = self.folder.disk().largest_file();
        if maker.trust.reserve_bytes >= largest.min(LEAST_RESERVE_BYTES + copied) {
            return Ok(());
        }
        self.check_in_place()?;
        // Twice the bytes in use: so while the segment grows, the file grows a few times only.
        let copied = copied.max(2 * used).min(self.shape.segment_bytes);
        let bytes = largest.min(LEAST_RESERVE_BYTES + copied);
        // If the file cannot be opened, it stays as it is.
        let file = self.folder.open(RESERVE, Access::WriteOrCreate)?;
        let allocated = file.allocate(bytes).and_then(|()| file.sync_data());
        let made = allocated
            .map_err(|error| self.folder.error("reserve space", RESERVE, error))
            .and_then(|()| self.folder.sync());
        maker.trust.reserve_bytes = if made.is_ok() { bytes } else { 0 };
        if made.is_err() {
            self.folder.remove_if_there(RESERVE)?;
        }
        made
    }

    /// Removes `reserve`. Returns whether that freed space.
    pub(crate) fn give_up_reserve(&self) -> bool {
        let mut maker = self.maker.lock();
        let had_reserve = std::mem::take(&mut maker.trust.reserve_bytes) > 0;
        had_reserve && self.folder.remove_if_there(RESERVE).is_ok()
    }

    pub(super) fn discard_spare(&self, maker: &mut Maker, number: u64, error: Error) -> Error {
        self.remove_spare(maker, number);
        error
    }

    /// Removes a spare, or notes it for `remove_failed_spares`. Returns whether it is gone.
    pub(super) fn remove_spare(&self, maker: &mut Maker, number: u64) -> bool {
        let is_gone = self.folder.remove_if_there(&spare_name(number)).is_ok();
        if !is_gone {
            maker.trust.failed_spares.push(number);
        }
        is_gone
    }

    pub(crate) fn remove_failed_spares(&self) -> Result<()> {
        let mut maker = self.maker.lock();
        while let Some(number) = maker.trust.failed_spares.last().copied() {
            self.folder.remove_if_there(&spare_name(number))?;
            maker.trust.failed_spares.pop();
        }
        Ok(())
    }

    fn file_bytes(&self, name: &str) -> Result<u64> {
        let Some(file) = self.folder.open_if_there(name, Access::Read)? else { return Ok(0) };
        file.len().map_err(|error| self.folder.error("look at the file", name, error))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::ErrorKind;

    use super::*;
    use crate::testing::TestDisk;
    use crate::tests::support::segments;

    #[test]
    fn a_lack_of_a_file_descriptor_leaves_the_reserve_as_it_is() {
        let test_disk = TestDisk::new();
        test_disk.make_folder("/log");
        let segments = segments(Arc::new(test_disk.faults.clone()), Path::new("/log"));
        let reserved = || test_disk.len(RESERVE);
        segments.keep_reserve(4096).unwrap();
        let before = reserved();
        test_disk.lack_a_descriptor_after(0);
        let error = segments.keep_reserve(1 << 20).unwrap_err();
        assert_eq!((error.kind(), reserved()), (ErrorKind::NoFiles, before));
        segments.keep_reserve(1 << 20).unwrap();
        assert!(reserved() > before);
    }
}
