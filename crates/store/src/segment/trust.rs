//! Which files the log may use again, and the file `reserve`.
//!
//! After a failed write or sync of a file the operating system may show bytes that never reach the
//! medium. It may also accept and sync a rewrite of these bytes without effect. So the log never
//! trusts a file again in which a write or sync failed. It reads the bytes that were durable
//! before, writes nothing more to the file, and removes the file instead of recycling it.
//!
//! Only the process that made a call knows whether the call failed. So the log trusts a file only
//! if each process that used the file came to a clean end:
//!
//! | file | trusted |
//! |---|---|
//! | made by this process | until a write or sync of it fails |
//! | found after a clean end, if the epoch continues: a spare, or a segment of it | the same |
//! | found after a clean end: any other file | never |
//! | found after any other end | never |
//! | a spare found in a copy of the log's folder | never |
//! | a segment found in a copy | as in the original: the first open has synced it |
//!
//! An open continues the epoch only after a clean end. So if the epoch continues, each earlier
//! process of the epoch made, synced and closed its files without a failure. The open removes the
//! spares that it does not trust. A truncation removes the segments that the log does not trust
//! instead of recycling them.
//!
//! A failed sync of a segment poisons the log, and so does a failed write. So the process makes no
//! clean end. A write that only lacks space is not a failure here: the log writes the same bytes
//! again later.
//!
//! If the log cannot make a spare for lack of space or of a file descriptor, it is not poisoned.
//! Any other failure to make a spare poisons it. The log removes a failed spare at once. If that
//! fails, `close` tries again, and makes no clean end before the spare is gone.
//!
//! The file `reserve` holds the space that the next open needs on a full disk.

use super::{Maker, Segments};
use crate::disk::Access;
use crate::folder::{RESERVE, spare_name};
use crate::meta::META_BYTES;
use crate::segment::segment_file::LOG_AT;
use crate::{Error, Result};

/// The bytes that an open needs besides the copy of a segment: two headers and the meta file.
const LEAST_RESERVE_BYTES: u64 = 2 * LOG_AT + META_BYTES;

/// Which files of the folder the log trusts, and the length of the file `reserve`.
#[derive(Debug)]
pub(super) struct Trust {
    /// The spares in the folder before the open has decided whether it trusts them.
    found_spares: Vec<u64>,
    /// The lowest segment that may be recycled.
    first_recyclable: u64,
    /// Spares whose removal failed. In most of them a write or sync failed before.
    failed_spares: Vec<u64>,
    /// The length of the file `reserve`; 0 if there is none.
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
    /// Notes the spares in the folder. The open decides later whether it trusts them.
    pub(super) fn note_found_spares(&mut self, spares: Vec<u64>) {
        self.found_spares = spares;
    }

    /// Returns the lowest segment whose file may become a spare.
    pub(super) fn first_recyclable(&self) -> u64 {
        self.first_recyclable
    }
}

impl Segments {
    /// Trusts the files that the open found after a clean end: the spares, and the segments from
    /// `first` on, the first segment of the epoch that continues. Removes spares that are too
    /// short.
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

    /// Distrusts the files that the open found, because the open begins an epoch or the log is a
    /// copy. Only segments from `first` on, which this process makes, may be recycled. Removes the
    /// spares, and the file `reserve`, because the open needs its space.
    pub(super) fn distrust_what_was_found(&self, maker: &mut Maker, first: u64) -> Result<()> {
        maker.trust.first_recyclable = first;
        while let Some(number) = maker.trust.found_spares.last().copied() {
            self.folder.remove_if_there(&spare_name(number))?;
            maker.trust.found_spares.pop();
        }
        self.folder.remove_if_there(RESERVE)
    }

    /// Makes the file `reserve` long enough for the next open, which must succeed on a full disk.
    /// That open copies the last segment, of which `used` bytes are in use, begins another segment
    /// and writes a meta file.
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

    /// Removes the file `reserve`, which frees its space. Returns whether that freed any.
    pub(crate) fn give_up_reserve(&self) -> bool {
        let mut maker = self.maker.lock();
        let had_reserve = std::mem::take(&mut maker.trust.reserve_bytes) > 0;
        had_reserve && self.folder.remove_if_there(RESERVE).is_ok()
    }

    /// Removes a spare after a call on its file failed with `error`. Returns the error.
    pub(super) fn discard_spare(&self, maker: &mut Maker, number: u64, error: Error) -> Error {
        self.remove_spare(maker, number);
        error
    }

    /// Removes a spare. If that fails, notes the spare for `remove_failed_spares`. Returns whether
    /// the spare is gone.
    pub(super) fn remove_spare(&self, maker: &mut Maker, number: u64) -> bool {
        let is_gone = self.folder.remove_if_there(&spare_name(number)).is_ok();
        if !is_gone {
            maker.trust.failed_spares.push(number);
        }
        is_gone
    }

    /// Removes the spares whose removal failed before. `save_state` calls this before it saves a
    /// clean end, so that the next process can trust the spares that it finds.
    ///
    /// # Errors
    /// The error of a removal that fails again.
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

    /// Checks that the log keeps a reserve that it could not open: no call has changed the file.
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
