//! Which files may be used again.
//!
//! After a failed write or sync of a file the operating system may show bytes that never reach the
//! medium, and may take and sync a rewrite of them without effect. So a file in which a write or
//! sync failed is never trusted again: its bytes that were durable before are read, nothing is
//! written to it any more, and it is removed instead of recycled. Whether one failed, only the
//! process knows that made the call, so trust needs an unbroken chain of clean ends:
//!
//! | file | trusted |
//! |---|---|
//! | a spare or segment that this process has made | until a write or sync of it fails |
//! | found after a clean end, a spare or a segment of the running epoch | likewise |
//! | found after any other end, or of an earlier epoch | never |
//!
//! Each earlier process of an epoch that goes on after clean ends has made, synced and closed its
//! files without a failure. Spares that are not trusted are removed at the open, segments when they
//! are released.
//!
//! A failed write or sync of a segment poisons the log, so its process makes no clean end. A spare
//! in which one failed is removed at once; where even that fails, no clean end is made before it
//! has gone.

use palisade_core::{Error, Result};

use super::{Maker, Segments};
use crate::disk::Access;
use crate::folder::{RESERVE, spare_name};
use crate::meta::META_BYTES;
use crate::segment::segment_file::LOG_AT;

/// What an open needs beside the copy of a segment: two headers, and the meta file.
const RESERVE_LEAST: u64 = 2 * LOG_AT + META_BYTES;

/// What is known of the files of a folder.
#[derive(Debug)]
pub(super) struct Trust {
    /// Spares that the open has found and not judged yet.
    found: Vec<u64>,
    /// Segments below are not recycled.
    from: u64,
    /// Spares in which a write or sync failed, and which could not be removed.
    failed: Vec<u64>,
    /// Bytes of the reserve, 0 without one.
    reserve_bytes: u64,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust { found: Vec::new(), from: u64::MAX, failed: Vec::new(), reserve_bytes: 0 }
    }
}

impl Trust {
    pub(super) fn found(&mut self, spares: Vec<u64>) {
        self.found = spares;
    }

    /// Whether the file of segment `number` may become a spare.
    pub(super) fn may_recycle(&self, number: u64) -> bool {
        number >= self.from
    }
}

impl Segments {
    /// The log was closed, and its epoch goes on, whose first segment is `first`.
    pub(super) fn trust_what_was_found(&self, maker: &mut Maker, first: u64) -> Result<()> {
        maker.trust.from = first;
        maker.trust.reserve_bytes = self.file_bytes(RESERVE)?;
        for number in std::mem::take(&mut maker.trust.found) {
            if self.file_bytes(&spare_name(number))? >= LOG_AT + self.shape.first_step_bytes() {
                maker.spares.insert(number);
            } else {
                self.folder.remove_if_there(&spare_name(number))?;
            }
        }
        Ok(())
    }

    /// The log was not closed. Removes the spares, and the reserve for the space that the open
    /// needs; the next epoch's first segment is `first`.
    pub(super) fn distrust_what_was_found(&self, maker: &mut Maker, first: u64) -> Result<()> {
        maker.trust.from = first;
        while let Some(number) = maker.trust.found.last().copied() {
            self.folder.remove_if_there(&spare_name(number))?;
            maker.trust.found.pop();
        }
        self.folder.remove_if_there(RESERVE)
    }

    /// Takes space for the next open, which has to come through on a full disk: it copies the log's
    /// last segment, of which `used` bytes are in use, begins another one and writes a meta file.
    pub(crate) fn keep_reserve(&self, used: u64) -> Result<()> {
        let mut maker = self.maker.lock();
        let copied = used.max(self.shape.first_step_bytes()).min(self.shape.segment_bytes);
        // An allocation beyond the limit to the length of files would end the process.
        let largest = self.folder.disk().largest_file();
        if maker.trust.reserve_bytes >= largest.min(RESERVE_LEAST + copied) {
            return Ok(());
        }
        self.check_in_place()?;
        // Twice what is in use, so that a growing segment asks for it a few times only.
        let copied = copied.max(2 * used).min(self.shape.segment_bytes);
        let bytes = largest.min(RESERVE_LEAST + copied);
        // A file that cannot be opened is left as it is: the lack may end.
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

    /// Gives the reserve's space back; says whether there was any.
    pub(crate) fn give_up_reserve(&self) -> bool {
        let mut maker = self.maker.lock();
        let had_reserve = std::mem::take(&mut maker.trust.reserve_bytes) > 0;
        had_reserve && self.folder.remove_if_there(RESERVE).is_ok()
    }

    /// Removes a spare in which `error` was met, and gives the error back.
    pub(super) fn discard_spare(&self, maker: &mut Maker, number: u64, error: Error) -> Error {
        self.remove_spare(maker, number);
        error
    }

    /// Removes a spare for good; says whether it has gone.
    pub(super) fn remove_spare(&self, maker: &mut Maker, number: u64) -> bool {
        let is_gone = self.folder.remove_if_there(&spare_name(number)).is_ok();
        if !is_gone {
            maker.trust.failed.push(number);
        }
        is_gone
    }

    /// Before a clean end: what the next process finds is to be trusted.
    ///
    /// # Errors
    /// What keeps a spare in which a write or sync failed from being removed.
    pub(crate) fn remove_what_failed(&self) -> Result<()> {
        let mut maker = self.maker.lock();
        while let Some(number) = maker.trust.failed.last().copied() {
            self.folder.remove_if_there(&spare_name(number))?;
            maker.trust.failed.pop();
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

    use palisade_core::{ErrorKind, Uuid};

    use super::*;
    use crate::disk::{Disk, ZeroSteps};
    use crate::folder::Folder;
    use crate::segment::Shape;
    use crate::tests::test_disk::TestDisk;

    /// A reserve that cannot be opened for lack of a descriptor is as good as before.
    #[test]
    fn a_lack_of_a_file_descriptor_leaves_the_reserve_as_it_is() {
        let shape = Shape {
            uuid: Uuid([1; 16]),
            segment_bytes: 1 << 20,
            in_place: true,
            zero_fill: false,
            spare_segments: 1,
            zero_steps: ZeroSteps::default(),
        };
        let test_disk = TestDisk::new();
        test_disk.make_folder("/log");
        let disk: Arc<dyn Disk> = Arc::new(test_disk.faults.clone());
        let folder = Folder::at(&disk, Path::new("/log"), 0o600).unwrap();
        let segments = Segments::open(folder, shape, None).unwrap();
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
