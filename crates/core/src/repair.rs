//! Repairs a log by a [`copy`](crate::copy).

use std::path::Path;
use std::sync::Arc;

use palisade_store::disk::{Disk, DiskFile, OsDisk, guarded};
use palisade_store::{FileReader, ReadStore, State};

use crate::copy::progress::{CopyProgress, CopyStep, OnProgress, PROGRESS_BYTES};
use crate::copy::{self, CopyPlan, CopyReport, GivenOut, check_apart};
use crate::inspect::{SALVAGE_READ_BYTES, Salvage, Salvaged};
use crate::recovery::listing::highest_end;
use crate::{Error, ErrorKind, Lsn, Result};

/// Copies the records of a damaged log that are below some LSN into a new log, and never changes
/// the damaged one. Gives up what only the log buffer of a killed process has.
///
/// To use the copy, close all handles of the damaged log and move its folder away, but keep it for
/// `Inspector::salvage`. Rename the copy to that path, and open it with
/// [`OpenMode::MustExist`](crate::OpenMode::MustExist).
///
/// # A log without its file `meta`
/// An open and a repair refuse it, and also one whose two copies of the state in `meta` are
/// damaged. To get the records back:
/// - Put back a `meta` that was saved after the last truncation. After an older one the log shows
///   truncated records again, or is refused.
/// - Or [restore](crate::Restore) from the log's archive and the folder.
/// - Or append what `palisade dump` or `palisade salvage` prints to a new log.
///
/// ```
/// # let [log, into] = [(); 2].map(|()| tempfile::tempdir().unwrap());
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
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Debug)]
pub struct Repair {
    source: Arc<FileReader>,
    lock: Option<Box<dyn DiskFile>>,
    copy: CopyPlan,
}

impl Repair {
    /// Reads the log in the folder `log`, checks every frame below `from`, and counts what of the
    /// rest validates. `from` is the first place without a whole record, or the LSN of a record
    /// below it. Calls `on_progress` after each few MiB. While the plan exists, an open of the log
    /// returns `Locked`.
    ///
    /// # Errors
    /// `OutOfRange`: `from` is above the first place without a whole record, the error's
    /// [`lsn`](Error::lsn); or no LSN is left. `Corrupt`: the state is damaged, or headers
    /// contradict each other. `NotARecord`, `Truncated`, `Locked`, `InvalidArgument`, `NotFound`,
    /// `Foreign`, `Unsupported`, `PermissionDenied`, `NoFiles`, `Io`.
    pub fn plan(
        log: impl AsRef<Path>,
        from: Lsn,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Repair> {
        Repair::plan_on(Arc::new(OsDisk), log, from, on_progress)
    }

    /// Plans as [`plan`](Repair::plan) does, on another disk.
    ///
    /// # Errors
    /// As [`plan`](Repair::plan).
    pub fn plan_on(
        disk: Arc<dyn Disk>,
        log: impl AsRef<Path>,
        from: Lsn,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Repair> {
        let disk = guarded(disk);
        let random =
            disk.host().random().map_err(|error| Error::io("draw the epoch's salt", error));
        let source = Arc::new(FileReader::open_on(disk, log.as_ref())?);
        let lock = source.lock_out_writers()?;
        source.meta()?;
        let noted = source.noted_in_the_buffer()?;
        let store: Arc<dyn ReadStore> = Arc::clone(&source) as Arc<dyn ReadStore>;
        let given_out = GivenOut { lsn: noted, epoch: 0 };
        let mut copy = CopyPlan::new(Arc::clone(&store), from, given_out, random?, on_progress)?;
        let (records, end) = count_given_up(&store, from, on_progress)?;
        let State { checkpoint, clean_end, .. } = *copy.source();
        copy.report.given_up_records = records;
        copy.report.given_up_to = end.max(checkpoint).max(clean_end).max(noted);
        Ok(Repair { source, lock, copy })
    }

    /// Returns what is kept and what is given up.
    #[must_use]
    pub fn report(&self) -> &CopyReport {
        self.copy.report()
    }

    /// Copies what is kept into the folder `into`, which is missing or empty, with the damaged
    /// log's identity and LSNs. Files have the permissions of
    /// [`DEFAULT_FILE_MODE`](crate::DEFAULT_FILE_MODE).
    ///
    /// # Durability
    /// As [`Restore::write`](crate::Restore::write).
    ///
    /// # Errors
    /// As [`Restore::write`](crate::Restore::write); the source is the damaged log.
    pub fn write(
        self,
        into: impl AsRef<Path>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<CopyReport> {
        let into = into.as_ref();
        check_apart(self.source.folder().path(), into)?;
        copy::write_copy(&self.copy, into, &|| self.look_again(), on_progress)
    }

    /// Writes as [`write`](Repair::write) does, to another disk.
    ///
    /// # Errors
    /// As [`write`](Repair::write).
    pub fn write_on(
        self,
        disk: Arc<dyn Disk>,
        into: impl AsRef<Path>,
        on_progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<CopyReport> {
        copy::write_copy_on(disk, &self.copy, into.as_ref(), &|| self.look_again(), on_progress)
    }

    fn look_again(&self) -> Result<()> {
        self.source.check_unchanged(self.lock.is_some(), self.copy.source())
    }
}

fn count_given_up(
    store: &Arc<dyn ReadStore>,
    from: Lsn,
    on_progress: OnProgress<'_>,
) -> Result<(u64, Lsn)> {
    let highest_end = highest_end(&store.segments()?, store.state()?.segment_bytes);
    let total = highest_end.bytes_since(from.min(highest_end));
    let mut records = 0;
    let mut salvage = Salvage::new(store, Some(from), SALVAGE_READ_BYTES)?;
    let (mut end, mut reported_to) = (from, from);
    loop {
        match salvage.next() {
            Ok(Some(Salvaged::Record(record))) => {
                records += 1;
                end = end.max(record.next_lsn());
            }
            Ok(Some(Salvaged::Gap(gap))) => end = end.max(gap.to),
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error),
        }
        if end.bytes_since(reported_to) >= PROGRESS_BYTES {
            reported_to = end;
            let done = end.bytes_since(from).min(total);
            on_progress(CopyProgress { step: CopyStep::Count, done, total });
        }
    }
    Ok((records, end))
}
