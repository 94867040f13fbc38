//! Restores a log: [`Sources`] joins its sources, and [`copy`](crate::copy) plans and writes the
//! copy.

mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_store::ReadStore;
use palisade_store::disk::{Disk, OsDisk, guarded};

use self::sources::Sources;
use crate::copy::progress::CopyProgress;
use crate::copy::{self, check_apart};
use crate::copy::{CopyPlan, CopyReport};
use crate::recovery::epoch_chain::EpochChain;
use crate::recovery::listing::Listing;
use crate::{Error, ErrorKind, Lsn, Result};

/// What a log is restored from: an [`Archive`](crate::Archive), a log's folder, a backup, or an
/// archive and one of these.
///
/// ```
/// use palisade::RestoreFrom;
///
/// let only_released = RestoreFrom::archive("/backup/archive");
/// let all = RestoreFrom::archive("/backup/archive").with_log("/var/lib/engine/wal");
/// let copy_of_a_closed_log = RestoreFrom::log("/var/lib/engine/wal");
/// # let page_lsn = palisade::Lsn::new(7);
/// let for_an_engine_with_page_lsns = only_released.above(page_lsn);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreFrom {
    archive: Option<PathBuf>,
    log: Option<PathBuf>,
    above: Lsn,
}

impl RestoreFrom {
    /// Restores from the archive in the folder `path`.
    #[must_use]
    pub fn archive(path: impl AsRef<Path>) -> RestoreFrom {
        let archive = Some(path.as_ref().to_path_buf());
        RestoreFrom { archive, log: None, above: Lsn::ZERO }
    }

    /// Restores from the log in the folder `path`.
    #[must_use]
    pub fn log(path: impl AsRef<Path>) -> RestoreFrom {
        let log = Some(path.as_ref().to_path_buf());
        RestoreFrom { archive: None, log, above: Lsn::ZERO }
    }

    /// Restores what the archive lacks from the log in the folder `path`, also without its `meta`.
    #[must_use]
    pub fn with_log(self, path: impl AsRef<Path>) -> RestoreFrom {
        RestoreFrom { log: Some(path.as_ref().to_path_buf()), ..self }
    }

    /// Lets appends begin above `lsn`: the greatest one that the engine's pages have, because no
    /// source names the LSNs of the lost part.
    #[must_use]
    pub fn above(self, lsn: Lsn) -> RestoreFrom {
        RestoreFrom { above: lsn, ..self }
    }
}

/// Copies the records of an archive, of what is left of a log, or of both, into a new log with the
/// records' LSNs and the original's identity. The sources are never changed.
///
/// ```
/// # let [log, archive, into] = [(); 3].map(|()| tempfile::tempdir().unwrap());
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
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Debug)]
pub struct Restore {
    sources: Arc<Sources>,
    plan: CopyPlan,
}

impl Restore {
    /// Reads the sources and checks every frame below `to`, the first LSN that is not restored:
    /// that of a record, or the end of one. Without `to`, restores all. Calls `on_progress` after
    /// each few MiB. While the plan exists, an open of the log returns `Locked`.
    ///
    /// To keep what only the log buffer of a killed process has, open and close the log first.
    ///
    /// # Errors
    /// `Mismatch`: the sources are of two logs, or of two sequences of records. `Corrupt`: a
    /// restore up to the error's [`lsn`](Error::lsn) is possible, unless its advice says that
    /// nothing tells where records ended. `OutOfRange`: `to` is above the end, which is the error's
    /// `lsn`. `NotARecord`: also within a batch. `Truncated`. `Locked`: call `Wal::backup_to` in
    /// the process that has the log open. `InvalidArgument`: the archive's folder is a log's.
    /// `NotFound`, `Foreign`, `Unsupported`, `NoFiles`, `PermissionDenied`, `Io`.
    pub fn plan(
        from: RestoreFrom,
        to: Option<Lsn>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Restore> {
        Restore::plan_on(Arc::new(OsDisk), from, to, on_progress)
    }

    /// Plans as [`plan`](Restore::plan) does, on another disk.
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
            let chain = EpochChain::of(&Listing::read(sources.as_ref())?);
            chain
                .check(&sources.place())
                .map_err(|error| sources.name_break(error).with_advice(EPOCH_UNKNOWN))?;
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

    /// Returns the files with a segment's name that the restore does not read.
    #[must_use]
    pub fn strays(&self) -> &[PathBuf] {
        self.sources.strays()
    }

    /// Writes the restored log into the folder `into`, which is missing or empty. Files have the
    /// permissions 0600.
    ///
    /// # Durability
    /// The copy survives power loss when this returns. A call that ends before leaves a folder that
    /// is empty, or that an open refuses with `Foreign`.
    ///
    /// # Errors
    /// What was written is removed. `InvalidArgument`: `into` is not empty, or in the folder of a
    /// source. `Foreign`: it is no folder. `NotFound`: its parent is missing, or its path led
    /// elsewhere before the end. `Locked`: a source without a lock file was written to meanwhile.
    /// `NoSpace`, `NoFiles`, `PermissionDenied`, `Io`.
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

    /// Writes as [`write`](Restore::write) does, to another disk.
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

/// Where `plan` finds no whole frame, reads the segment from the other source as long as that leads
/// further: an archived file may be a copy of a segment in use.
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

fn broken(text: String, at: Lsn, segment: u64) -> Error {
    Error::new(ErrorKind::Corrupt, text).at_segment(segment).at_lsn(at)
}
