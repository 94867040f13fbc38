//! The repair of a log in a folder: what lies below the damage, copied into a folder of its own.
//!
//! The damaged log's lock is held, shared with other readers, from the plan on. Nothing is written
//! to its folder, nor to its log buffer, of which only the marks are read.
//!
//! # Steps of the copy
//! 1. The folder, if it is missing; its name durable.
//! 2. Each segment: a new file with header and log bytes, synced. The first one claims the folder.
//! 3. The names of the segments, synced.
//! 4. A look at the damaged log and at the folder's path: both are as they were.
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

use palisade_core::repair::{RepairPlan, RepairProgress, RepairReport};
use palisade_core::store::{ReadStore, SegmentHeader, State};
use palisade_core::{Error, ErrorKind, Lsn, Result};

use crate::buffer_file;
use crate::disk::DEFAULT_FILE_MODE;
use crate::disk::OsDisk;
use crate::disk::{Access, Disk, DiskFile, write_bytes};
use crate::folder::{Folder, LOCK, META, META_TEMP, check_file_size, segment_name};
use crate::meta::{MetaFile, Origin};
use crate::open::{self, Place};
use crate::options::OpenMode;
use crate::reader::FileReader;
use crate::segment::header;
use crate::segment::segment_file::LOG_AT;

/// The repair of a damaged log: reads it, and copies the records below some LSN into a new log. The
/// damaged log is never changed.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let temp = tempfile::tempdir().unwrap();
/// # let (log, into) = (temp.path().join("log"), temp.path().join("repaired"));
/// use palisade::{Repair, Wal};
///
/// let wal = Wal::open(&log)?;
/// let kept = wal.commit(b"kept")?;
/// let given_up = wal.commit(b"given up")?;
/// wal.close()?;
///
/// let repair = Repair::plan(&log, given_up, &mut |_| {})?; // a dry run ends here
/// assert_eq!((repair.report().records, repair.report().given_up_records), (1, 1));
/// repair.write(&into, &mut |_| {})?;
/// let wal = Wal::open(&into)?;
/// assert_eq!(wal.get(kept)?.data(), b"kept");
/// assert!(wal.commit(b"later")? > given_up);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Repair {
    source: Arc<FileReader>,
    state: State,
    /// The damaged log's lock. A folder without a lock file has none.
    lock: Option<Box<dyn DiskFile>>,
    plan: RepairPlan,
}

impl Repair {
    /// Reads the log in the folder `log`, checks every frame below `from`, and counts what of the
    /// rest validates. `from` is the first LSN that is given up: the first bad place, or the LSN of
    /// a record below it. `on_progress` is called after each few MiB.
    ///
    /// Changes nothing. While the plan exists, an open of the log gives `Locked`.
    ///
    /// # Errors
    /// - `OutOfRange`: `from` lies above the first bad place, or above the end; the error's
    ///   [`lsn`](Error::lsn) is that place.
    /// - `NotARecord`: no record begins at `from`. `Truncated`: it lies below the head.
    /// - `Locked`: a process has the log open for writing.
    /// - `Corrupt`: the state is damaged, or headers contradict each other: nothing tells what the
    ///   log was.
    /// - `NotFound`, `Foreign`, `Unsupported`, `PermissionDenied`, `Io`: there is no log that can
    ///   be read.
    pub fn plan(
        log: impl AsRef<Path>,
        from: Lsn,
        on_progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<Repair> {
        Repair::plan_on(Arc::new(OsDisk), log.as_ref(), from, on_progress)
    }

    pub(crate) fn plan_on(
        disk: Arc<dyn Disk>,
        log: &Path,
        from: Lsn,
        on_progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<Repair> {
        let random = disk.random().map_err(|error| Error::io("draw the epoch's salt", error));
        let source = Arc::new(FileReader::open_on(disk, log)?);
        let lock = lock_out_writers(&source)?;
        let meta = source.meta()?;
        let memory = Folder::memory(source.folder().shared_disk())?;
        let noted = match (meta.origin.buffer, memory) {
            (Some(buffer), Some(memory)) => {
                buffer_file::noted(&memory, meta.state.uuid, buffer.name)?
            }
            _ => Lsn::ZERO,
        };
        let as_store: Arc<dyn ReadStore> = Arc::clone(&source) as Arc<dyn ReadStore>;
        let plan = RepairPlan::new(as_store, from, noted, random?, on_progress)?;
        Ok(Repair { source, state: meta.state, lock, plan })
    }

    /// What is kept and given up.
    #[must_use]
    pub fn report(&self) -> &RepairReport {
        self.plan.report()
    }

    /// Copies what is kept into the folder `into`, which is missing or empty. The copy has the
    /// damaged log's identity, and its records with their LSNs. Appends go on above every LSN that
    /// the damaged log can have given out. Files are made for this user only
    /// ([`DEFAULT_FILE_MODE`]), whatever permissions the damaged log has.
    ///
    /// # Durability
    /// The copy survives power loss when this returns. Whatever ends it before leaves a folder that
    /// no open takes for the log: it is empty, or an open gives `Foreign`.
    ///
    /// # Errors
    /// - `InvalidArgument`: `into` is not empty, or lies in the damaged log's folder.
    /// - `Foreign`: `into` is no folder. `NotFound`: there is no folder to make it in, or its path
    ///   led to another folder before the copy was complete.
    /// - `Locked`: the damaged log, which has no lock file, was written to meanwhile.
    /// - `NoSpace`, `PermissionDenied`, `Io`: the copy cannot be written.
    ///
    /// After an error what was copied is removed again.
    pub fn write(
        self,
        into: impl AsRef<Path>,
        on_progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<RepairReport> {
        let into = into.as_ref();
        check_apart(self.source.folder().path(), into)?;
        let was_there = into.exists();
        let written = self.write_on(Arc::new(OsDisk), into, on_progress);
        if written.is_err() && !was_there {
            // Only where it is empty: the error that matters was before.
            let _ = fs::remove_dir(into);
        }
        written
    }

    pub(crate) fn write_on(
        self,
        disk: Arc<dyn Disk>,
        into: &Path,
        on_progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<RepairReport> {
        check_file_size(disk.as_ref(), into, LOG_AT + self.state.segment_bytes)?;
        let mut copy = Copy { folder: find_empty(&disk, into)?, made: Vec::new() };
        match self.copy(&mut copy, on_progress) {
            Ok(()) => Ok(self.plan.report().clone()),
            Err(error) => {
                copy.remove();
                Err(error)
            }
        }
    }

    /// Steps 2 to 5.
    fn copy(&self, copy: &mut Copy, on_progress: &mut dyn FnMut(RepairProgress)) -> Result<()> {
        for segment in self.plan.segments() {
            self.copy_segment(copy, &segment, on_progress)?;
        }
        copy.folder.sync()?;
        if self.lock.is_none() {
            lock_out_writers(&self.source)?;
        }
        if self.source.state()? != self.state {
            return Err(written_meanwhile(&self.source));
        }
        copy.folder.check_in_place()?;
        copy.save(self.plan.state())
    }

    fn copy_segment(
        &self,
        copy: &mut Copy,
        segment: &SegmentHeader,
        on_progress: &mut dyn FnMut(RepairProgress),
    ) -> Result<()> {
        let name = segment_name(segment.number);
        let file = copy.make(&name)?;
        let failed = |error| copy.folder.error("write the segment", &name, error);
        let State { uuid, segment_bytes, .. } = self.state;
        let block = header::encode(segment, uuid, segment_bytes);
        write_bytes(file.as_ref(), 0, &block).map_err(failed)?;
        let mut write = |at: Lsn, bytes: &[u8]| {
            let offset = LOG_AT + at.bytes_since(segment.base);
            write_bytes(file.as_ref(), offset, bytes).map_err(failed)
        };
        self.plan.copy(segment, &mut write, on_progress)?;
        file.sync_data().map_err(failed)
    }
}

/// A copy that is being made.
#[derive(Debug)]
struct Copy {
    folder: Folder,
    /// The names of the files that this process has made.
    made: Vec<String>,
}

impl Copy {
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

/// Step 1: the folder at `into`, which is missing or empty.
fn find_empty(disk: &Arc<dyn Disk>, into: &Path) -> Result<Folder> {
    let Place { path, is_there } = open::find(disk.as_ref(), into, OpenMode::CreateNew)?;
    if !is_there {
        return open::make_folder(disk, &path, DEFAULT_FILE_MODE);
    }
    let folder = Folder::at(disk, &path, DEFAULT_FILE_MODE)?;
    check_holds_only(&folder, &[])?;
    open::sync_parent(disk, &path)?;
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

/// Takes the damaged log's lock, shared. `None` where it has no lock file, which an open would
/// make.
fn lock_out_writers(source: &FileReader) -> Result<Option<Box<dyn DiskFile>>> {
    let folder = source.folder();
    let Some(lock) = folder.open_if_there(LOCK, Access::Read)? else { return Ok(None) };
    let taken = lock.try_lock(true);
    match taken.map_err(|error| folder.error("lock the damaged log", LOCK, error))? {
        true => Ok(Some(lock)),
        false => Err(written_meanwhile(source)),
    }
}

fn written_meanwhile(source: &FileReader) -> Error {
    let text = "the log is open for writing elsewhere, or was since the repair began";
    Error::new(ErrorKind::Locked, text).at_path(source.folder().path())
}

/// Refuses a copy that would lie in the folder of the log, which is not to be changed.
fn check_apart(log: &Path, into: &Path) -> Result<()> {
    let real = |path: &Path| {
        let found = fs::canonicalize(path);
        found.map_err(|error| Error::io("find the folder", error).at_path(path))
    };
    let is_there = fs::symlink_metadata(into).is_ok();
    let place = std::path::absolute(into).map_err(|error| Error::io("find the folder", error))?;
    let place: PathBuf = match place.parent() {
        _ if is_there => real(into)?,
        // Whether there is a folder to make it in is looked at next.
        Some(parent) if parent.exists() => real(parent)?,
        _ => return Ok(()),
    };
    if place.starts_with(real(log)?) {
        let text = "the folder for the copy lies in the log's folder; name another one";
        return Err(Error::new(ErrorKind::InvalidArgument, text).at_path(into));
    }
    Ok(())
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
