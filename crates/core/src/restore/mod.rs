//! The restore of a log from an archive, from what is left of the log's folder, or from both: their
//! records, copied into a new log.
//!
//! 1. [`Sources`] joins archive and folder: each segment is that of the archive, or else that of
//!    the folder. Both are of one log, and of one sequence of records. If the archived segment is
//!    not whole and that of the folder goes further, the restore reads the latter.
//! 2. The core plans the copy of the joined log, as for a repair, and checks every frame.
//! 3. [`copy`](crate::copy) writes it.

mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_store::ReadStore;
use palisade_store::disk::{Disk, OsDisk, guarded};

use self::sources::Sources;
use crate::copy::progress::CopyProgress;
use crate::copy::{self, check_apart};
use crate::copy::{CopyPlan, CopyReport, check_epochs};
use crate::{Error, ErrorKind, Lsn, Result};

/// What a log is restored from: the folder of an [`Archive`](crate::Archive), the folder of the
/// log, or both. The log's folder can be a backup, or what a crash has left of the log.
///
/// ```
/// use palisade::{Lsn, RestoreFrom};
///
/// let only_released = RestoreFrom::archive("/backup/archive");
/// let all = RestoreFrom::archive("/backup/archive").with_log("/var/lib/engine/wal");
/// let copy_of_a_closed_log = RestoreFrom::log("/var/lib/engine/wal");
/// # let page_lsn = Lsn::new(7);
/// let for_an_engine_with_page_lsns = only_released.above(page_lsn);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreFrom {
    archive: Option<PathBuf>,
    log: Option<PathBuf>,
    above: Lsn,
}

impl RestoreFrom {
    /// Restores from the archive in the folder `path`, from its first segment on.
    #[must_use]
    pub fn archive(path: impl AsRef<Path>) -> RestoreFrom {
        let archive = Some(path.as_ref().to_path_buf());
        RestoreFrom { archive, log: None, above: Lsn::ZERO }
    }

    /// Restores from the log in the folder `path`, from its head on.
    #[must_use]
    pub fn log(path: impl AsRef<Path>) -> RestoreFrom {
        let log = Some(path.as_ref().to_path_buf());
        RestoreFrom { archive: None, log, above: Lsn::ZERO }
    }

    /// Restores what the archive lacks from the log in the folder `path`, which may have lost its
    /// meta file.
    #[must_use]
    pub fn with_log(self, path: impl AsRef<Path>) -> RestoreFrom {
        RestoreFrom { log: Some(path.as_ref().to_path_buf()), ..self }
    }

    /// Lets appends to the restored log begin above `lsn`. An engine whose pages have LSNs names
    /// the greatest of them: the lost part of the log may have returned LSNs that no source names.
    #[must_use]
    pub fn above(self, lsn: Lsn) -> RestoreFrom {
        RestoreFrom { above: lsn, ..self }
    }
}

/// The restore of a log: reads an archive, what is left of the log, or both, and copies the records
/// into a new log. The sources are never changed.
///
/// The restored log has the records with their LSNs, so an engine whose pages have LSNs replays it
/// as it would replay the original. It has the original's identity, too, because the checksum of
/// each frame begins with it.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let temp = tempfile::tempdir().unwrap();
/// # let path = |name: &str| temp.path().join(name);
/// # let (log, archive, into) = (path("log"), path("archive"), path("restored"));
/// use palisade::{Archive, Options, Restore, RestoreFrom, Wal};
///
/// let options = Options::new().segment_bytes(64 << 10).on_release(Archive::open(&archive)?);
/// let wal = options.open(&log)?;
/// let first = wal.append(&[1; 30_000])?.lsn();
/// wal.append(&[2; 30_000])?;
/// let third = wal.append(&[3; 30_000])?.lsn(); // in the second segment
/// wal.truncate_before(third)?; // archives the first segment
/// wal.close()?;
///
/// let from = RestoreFrom::archive(&archive).with_log(&log);
/// let restore = Restore::plan(from, None, &mut |_| {})?; // nothing is copied yet
/// assert_eq!(restore.report().records, 3);
/// restore.write(&into, &mut |_| {})?;
/// let wal = Wal::open(&into)?;
/// assert_eq!(wal.get(first)?.data(), [1; 30_000]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Restore {
    sources: Arc<Sources>,
    plan: CopyPlan,
}

impl Restore {
    /// Reads the sources and checks every frame below `to`, the first LSN that is not restored: the
    /// LSN of a record, or the end of one. Without `to`, restores all records. `on_progress` is
    /// called after each few MiB.
    ///
    /// Changes nothing. While the plan exists, an open of the log returns `Locked`. Reads no log
    /// buffer: to keep the records that only the buffer of a killed process holds, open and close
    /// the log first.
    ///
    /// # Errors
    /// - `Mismatch`: archive and log are of two logs; or one went on without the other, so their
    ///   records are two sequences.
    /// - `Corrupt`: a frame, or a header that is needed, is damaged; or a segment is missing, in
    ///   the archive or between it and the log. The error names the LSN and the segment. A restore
    ///   up to that LSN is possible, unless the error says that an epoch's end is not known.
    /// - `OutOfRange`: `to` is above the end; the error's [`lsn`](Error::lsn) is the end.
    ///   `NotARecord`: no record begins at `to`, or it is in a batch. `Truncated`: `to` is below
    ///   the first record.
    /// - `Locked`: a process has the log open for writing: call `Wal::backup_to` there.
    /// - `InvalidArgument`: the archive's folder is a log's.
    /// - `NotFound`, `Foreign`, `Unsupported`, `PermissionDenied`, `Io`: there is no archive or log
    ///   that can be read.
    pub fn plan(
        from: RestoreFrom,
        to: Option<Lsn>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Restore> {
        Restore::plan_on(Arc::new(OsDisk), from, to, on_progress)
    }

    /// Plans a restore from folders of a disk, as [`plan`](Restore::plan) does.
    ///
    /// # Errors
    /// As [`plan`](Restore::plan).
    pub fn plan_on(
        disk: Arc<dyn Disk>,
        from: RestoreFrom,
        to: Option<Lsn>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Restore> {
        let disk = guarded(disk);
        let salt =
            disk.host().random().map_err(|error| Error::io("draw the epoch's salt", error))?;
        let mut sources = Arc::new(Sources::open(&disk, &from)?);
        let to = to.map_or_else(|| sources.end(), Ok)?;
        if from.archive.is_some() {
            let checked = check_epochs(sources.as_ref());
            checked.map_err(|error| sources.name_break(error).with_advice(EPOCH_UNKNOWN))?;
        }
        let plan = plan_copy(&mut sources, |sources| {
            let store = Arc::clone(sources) as Arc<dyn ReadStore>;
            CopyPlan::new(store, to, sources.given_out(from.above), salt, on_progress)
        })?;
        Ok(Restore { sources, plan })
    }

    /// Returns what the restored log has.
    #[must_use]
    pub fn report(&self) -> &CopyReport {
        self.plan.report()
    }

    /// Returns the files that have a segment's name, and that the restore does not read: they are
    /// of another log or another segment, out of reach of the log, or not whole where the log's
    /// folder has the segment.
    #[must_use]
    pub fn strays(&self) -> &[PathBuf] {
        self.sources.strays()
    }

    /// Writes the restored log into the folder `into`, which is missing or empty. Files have the
    /// permissions 0600.
    ///
    /// # Durability
    /// The restored log survives power loss when this returns. A restore that ends before leaves a
    /// folder that no open takes for a log: it is empty, or an open returns `Foreign`.
    ///
    /// # Errors
    /// `InvalidArgument`: `into` is not empty, or is in the folder of a source. `Foreign`: it is no
    /// folder. `NotFound`: there is no folder to make it in, or its path led to another folder
    /// before the copy was complete. `Locked`: the log, which has no lock file, was written to
    /// meanwhile. `NoSpace`, `PermissionDenied`, `Io`. After an error what was written is removed.
    pub fn write(
        self,
        into: impl AsRef<Path>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<CopyReport> {
        let into = into.as_ref();
        for folder in self.sources.folders() {
            check_apart(folder, into)?;
        }
        copy::write_copy(&self.plan, into, &|| self.sources.look_again(), on_progress)
    }

    /// Writes the restored log as [`write`](Restore::write) does, into a folder of another disk.
    ///
    /// # Errors
    /// As [`write`](Restore::write).
    pub fn write_on(
        self,
        disk: Arc<dyn Disk>,
        into: impl AsRef<Path>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<CopyReport> {
        let look_again = || self.sources.look_again();
        copy::write_copy_on(disk, &self.plan, into.as_ref(), &look_again, on_progress)
    }
}

/// Calls `plan` with the sources. Where it finds no whole frame, reads the segment from the other
/// source as long as that leads further: the archived file may be a copy of a segment in use.
fn plan_copy(
    sources: &mut Arc<Sources>,
    mut plan: impl FnMut(&Arc<Sources>) -> Result<CopyPlan>,
) -> Result<CopyPlan> {
    let exchange = |sources: &mut Arc<Sources>, error: &Error| {
        let at = error.lsn().filter(|_| error.kind() == ErrorKind::OutOfRange);
        // The plan that failed holds the sources no more.
        at.is_some_and(|at| Arc::get_mut(sources).is_some_and(|sources| sources.exchange(at)))
    };
    let mut before: Option<Error> = None;
    loop {
        let error = match plan(sources) {
            Err(error) => error,
            plan => return plan,
        };
        if let Some(before) =
            before.filter(|before| error.kind() == before.kind() && error.lsn() <= before.lsn())
        {
            exchange(sources, &before);
            return Err(sources.explain(before));
        }
        if !exchange(sources, &error) {
            return Err(sources.explain(error));
        }
        before = Some(error);
    }
}

const EPOCH_UNKNOWN: &str = "nothing tells where the records before that LSN ended: put the \
     missing segments back, or move the segments on one side of the break away from a copy of the \
     archive, and restore the rest";

/// Returns the error of a source that is not whole.
fn broken(text: String, at: Lsn, segment: u64) -> Error {
    Error::new(ErrorKind::Corrupt, text).at_segment(segment).at_lsn(at)
}
