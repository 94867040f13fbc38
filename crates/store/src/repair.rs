//! The repair of a log in a folder: what lies below the damage, copied into a folder of its own.
//!
//! The damaged log's lock is held, shared with other readers, from the plan on. Nothing is written
//! to its folder, nor to its log buffer, of which only the marks are read.
//!
//! [`copy`](crate::copy) writes the copy.

use std::path::Path;
use std::sync::Arc;

use palisade_core::copy::progress::CopyProgress;
use palisade_core::repair::{RepairPlan, RepairReport};
use palisade_core::store::ReadStore;
use palisade_core::{Error, Lsn, Result};

use crate::buffer_file;
use crate::copy::{self, check_apart};
use crate::disk::{Disk, DiskFile, OsDisk, guarded};
use crate::folder::Folder;
use crate::reader::FileReader;

/// The repair of a damaged log: reads it, and copies the records below some LSN into a new log. The
/// damaged log is never changed.
///
/// The records that only the log buffer of a killed process holds are given up: they lie above the
/// damage.
///
/// # To use the copy
/// 1. Close all handles of the damaged log.
/// 2. Move the damaged folder away, and keep it for `Inspector::salvage`.
/// 3. Rename the copy to the path that the engine opens.
/// 4. Open the path with [`OpenMode::MustExist`](crate::OpenMode::MustExist).
///
/// # A log without its file `meta`
/// If `meta` is missing, or both copies of the state in it are damaged, an open and a repair refuse
/// the log, and change nothing. There are three ways to get the records back:
/// - Put back a `meta` of this log that was saved after the last truncation. The open recovers the
///   records that follow its clean end. After an older one the log shows truncated records again,
///   or is refused.
/// - [Restore](crate::Restore) from the log's archive and the folder. The records keep their LSNs.
/// - Read the records with `palisade dump` or `palisade salvage`, and append them to a new log,
///   where they get other LSNs.
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
/// let repair = Repair::plan(&log, given_up, &mut |_| {})?; // nothing is copied yet
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
    /// The damaged log's lock. A folder without a lock file has none.
    lock: Option<Box<dyn DiskFile>>,
    plan: RepairPlan,
}

impl Repair {
    /// Reads the log in the folder `log`, checks every frame below `from`, and counts what of the
    /// rest validates. `from` is the first LSN that is given up: the first place without a whole
    /// record, or the LSN of a record below it. `on_progress` is called after each few MiB.
    ///
    /// Changes nothing. While the plan exists, an open of the log gives `Locked`.
    ///
    /// # Errors
    /// - `OutOfRange`: `from` lies above the first place without a whole record; the error's
    ///   [`lsn`](Error::lsn) is that place, as is the `end` of a verification of the damaged log.
    ///   Or no LSN is left for the copy.
    /// - `NotARecord`: no record begins at `from`. `Truncated`: it lies below the head.
    /// - `Locked`: a process has the log open for writing.
    /// - `Corrupt`: the state is damaged, or headers contradict each other: nothing tells what the
    ///   log was.
    /// - `InvalidArgument`, `NotFound`, `Foreign`, `Unsupported`, `PermissionDenied`, `NoFiles`,
    ///   `Io`: there is no log that can be read.
    pub fn plan(
        log: impl AsRef<Path>,
        from: Lsn,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Repair> {
        Repair::plan_on(Arc::new(OsDisk), log.as_ref(), from, on_progress)
    }

    pub(crate) fn plan_on(
        disk: Arc<dyn Disk>,
        log: &Path,
        from: Lsn,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Repair> {
        let disk = guarded(disk);
        let random =
            disk.host().random().map_err(|error| Error::io("draw the epoch's salt", error));
        let source = Arc::new(FileReader::open_on(disk, log)?);
        let lock = source.lock_out_writers()?;
        source.meta()?;
        let noted = noted_in_the_buffer(&source)?;
        let as_store: Arc<dyn ReadStore> = Arc::clone(&source) as Arc<dyn ReadStore>;
        let plan = RepairPlan::new(as_store, from, noted, random?, on_progress)?;
        Ok(Repair { source, lock, plan })
    }

    /// Returns what is kept and what is given up.
    #[must_use]
    pub fn report(&self) -> &RepairReport {
        self.plan.report()
    }

    /// Copies what is kept into the folder `into`, which is missing or empty. The copy has the
    /// damaged log's identity, and its records with their LSNs. Appends go on above every LSN that
    /// the damaged log can have given out. Files are made for this user only
    /// ([`DEFAULT_FILE_MODE`](crate::DEFAULT_FILE_MODE)), whatever permissions the damaged log has.
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
    /// - `NoSpace`, `NoFiles`, `PermissionDenied`, `Io`: the copy cannot be written.
    ///
    /// After an error what was copied is removed again.
    pub fn write(
        self,
        into: impl AsRef<Path>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<RepairReport> {
        let into = into.as_ref();
        check_apart(self.source.folder().path(), into)?;
        copy::write_copy(self.plan.copy(), into, &|| self.look_again(), on_progress)?;
        Ok(self.plan.report().clone())
    }

    #[cfg(any(feature = "fuzzing", feature = "sim"))]
    pub(crate) fn write_on(
        self,
        disk: Arc<dyn Disk>,
        into: &Path,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<RepairReport> {
        copy::write_copy_on(disk, self.plan.copy(), into, &|| self.look_again(), on_progress)?;
        Ok(self.plan.report().clone())
    }

    fn look_again(&self) -> Result<()> {
        self.source.check_unchanged(self.lock.is_some(), self.plan.copy().source())
    }
}

/// Returns the greatest LSN that the marks of the log's buffer note; 0 without a buffer or a
/// meta file that names one.
pub(crate) fn noted_in_the_buffer(source: &FileReader) -> Result<Lsn> {
    if source.has_rebuilt_state() {
        return Ok(Lsn::ZERO);
    }
    let meta = source.meta()?;
    match (meta.origin.buffer, Folder::memory(source.folder().shared_disk())?) {
        (Some(buffer), Some(memory)) => buffer_file::noted(&memory, meta.state.uuid, buffer.name),
        _ => Ok(Lsn::ZERO),
    }
}
