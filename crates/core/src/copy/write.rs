//! Writes a copy of a log into a folder of its own: for a repair, a restore and a backup.
//!
//! # Steps
//! 1. The folder, if it is missing; its name durable.
//! 2. Each segment: a new file with header and log bytes, synced. The first one claims the folder.
//! 3. The names of the segments, synced.
//! 4. A look at the source and at the folder's path: both are as they were.
//! 5. The state: written under a temporary name, synced, renamed, the folder synced.
//!
//! Between the first file of step 2 and step 5 an open refuses the folder (`Foreign`).
//!
//! # Two processes in one folder
//! An open that makes a log takes the folder's lock and looks for segments then. The copy makes a
//! segment and looks for other names then. So one of the two, or both, see the other and go back.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_store::disk::{
    Access, DEFAULT_FILE_MODE, Disk, DiskFile, OsDisk, guarded, write_bytes,
};
use palisade_store::folder::{Folder, META, META_TEMP, check_file_size, segment_name};
use palisade_store::meta::{MetaFile, Origin};
use palisade_store::open;
use palisade_store::segment::header::{self, LogOf};
use palisade_store::segment::segment_file::LOG_AT;
use palisade_store::{SegmentHeader, State};

use crate::copy::progress::OnProgress;
use crate::copy::{CopyPlan, CopyReport};
use crate::{Error, ErrorKind, Lsn, Result};

/// Writes the copy `plan` into the folder `into` of the operating system, which is missing or
/// empty. `check` looks at the source before the copy becomes a log.
///
/// # Errors
/// As [`write_copy_on`].
pub fn write_copy(
    plan: &CopyPlan,
    into: &Path,
    check: &dyn Fn() -> Result<()>,
    on_progress: OnProgress<'_>,
) -> Result<CopyReport> {
    let was_there = into.exists();
    let written = write_copy_on(Arc::new(OsDisk), plan, into, check, on_progress);
    if written.is_err() && !was_there {
        // Only where it is empty: the error that matters was before.
        let _ = fs::remove_dir(into);
    }
    written
}

/// Writes the copy `plan` into the folder `into` of a disk, as [`write_copy`] does. A folder that
/// it has made stays there after an error.
///
/// # Errors
/// As [`Restore::write`](crate::Restore::write), but it does not know the sources' folders. Those
/// of `check` and of [`CopyPlan::copy_segment`].
pub fn write_copy_on(
    disk: Arc<dyn Disk>,
    plan: &CopyPlan,
    into: &Path,
    check: &dyn Fn() -> Result<()>,
    on_progress: OnProgress<'_>,
) -> Result<CopyReport> {
    let disk = guarded(disk);
    check_file_size(disk.as_ref(), into, LOG_AT + plan.source().segment_bytes)?;
    let mut copy = NewCopy { folder: find_empty(&disk, into)?, made: Vec::new() };
    let written = copy.write(plan, check, on_progress);
    if written.is_err() {
        copy.remove();
    }
    let mut report = plan.report().clone();
    report.records = written?;
    Ok(report)
}

#[derive(Debug)]
struct NewCopy {
    folder: Folder,
    made: Vec<String>,
}

impl NewCopy {
    /// Takes steps 2 to 5. Returns the number of records.
    fn write(
        &mut self,
        plan: &CopyPlan,
        check: &dyn Fn() -> Result<()>,
        on_progress: OnProgress<'_>,
    ) -> Result<u64> {
        let mut records = 0;
        for segment in plan.segments() {
            records += self.write_segment(plan, &segment, on_progress)?;
        }
        self.folder.sync()?;
        check()?;
        self.folder.check_in_place()?;
        self.save(plan.state())?;
        Ok(records)
    }

    fn write_segment(
        &mut self,
        plan: &CopyPlan,
        segment: &SegmentHeader,
        on_progress: OnProgress<'_>,
    ) -> Result<u64> {
        let name = segment_name(segment.number);
        let file = self.make(&name)?;
        let failed = |error| self.folder.error("write the segment", &name, error);
        let State { uuid, segment_bytes, codec, .. } = *plan.source();
        let block = header::encode(segment, &LogOf { uuid, segment_bytes, codec });
        write_bytes(file.as_ref(), 0, &block).map_err(failed)?;
        let mut write = |at: Lsn, bytes: &[u8]| {
            let offset = LOG_AT + at.bytes_since(segment.base);
            write_bytes(file.as_ref(), offset, bytes).map_err(failed)
        };
        let records = plan.copy_segment(segment, &mut write, on_progress)?;
        file.sync_data().map_err(failed)?;
        Ok(records)
    }

    /// Makes a file. The first one claims the folder.
    fn make(&mut self, name: &str) -> Result<Box<dyn DiskFile>> {
        let file = self.folder.open(name, Access::New)?;
        self.made.push(name.into());
        if self.made.len() == 1 {
            check_holds_only(&self.folder, &self.made)?;
        }
        Ok(file)
    }

    /// Saves the state: the copy is a log then.
    fn save(&mut self, state: State) -> Result<()> {
        let origin = Origin { home: self.folder.handle().identity(), ..Origin::default() };
        self.made.extend([META_TEMP.into(), META.into()]);
        MetaFile::create(&self.folder, state, origin).map(drop)
    }

    /// Removes what was made, the state first. What cannot be removed stays: the failure that
    /// matters was before.
    fn remove(&self) {
        for name in self.made.iter().rev() {
            let _ = self.folder.remove_if_there(name);
        }
    }
}

/// Takes step 1: opens or makes the folder at `into`, and refuses one that is not empty.
fn find_empty(disk: &Arc<dyn Disk>, into: &Path) -> Result<Folder> {
    let folder = open::find_or_make(disk, into, DEFAULT_FILE_MODE)?;
    check_holds_only(&folder, &[])?;
    Ok(folder)
}

fn check_holds_only(folder: &Folder, made: &[String]) -> Result<()> {
    if folder.names()?.iter().all(|name| made.contains(name)) {
        return Ok(());
    }
    let text = "the folder for the copy is not empty";
    let error = Error::new(ErrorKind::InvalidArgument, text).at_path(folder.path());
    Err(error.with_advice("name one that is missing or empty"))
}

/// Refuses a copy that would lie in the folder `source` of a log or an archive, which is not to be
/// changed. A path that cannot be followed passes: the call that reads or makes it reports what is
/// wrong.
///
/// # Errors
/// `InvalidArgument`.
#[doc(hidden)]
pub fn check_apart(source: &Path, into: &Path) -> Result<()> {
    let place = std::path::absolute(into).map_err(|error| Error::io("find the folder", error))?;
    let there = place.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let real = |path: &Path| fs::canonicalize(path).ok();
    let is_in = |(place, source): (PathBuf, PathBuf)| place.starts_with(source);
    if there.and_then(real).zip(real(source)).is_some_and(is_in) {
        let text = "the folder for the copy lies in the folder that is copied";
        let error = Error::new(ErrorKind::InvalidArgument, text).at_path(into);
        return Err(error.with_advice("name one outside of it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
