//! The handle of an open log.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use palisade::Verify;

use crate::log::{Failed, Left, Log};
use crate::{
    FileStore, Lsn, OpenPolicy, Result, SegmentedStore, WalConfig, WalError, WalIter, WalStore,
};

const APPENDING: &str = "appending a record";
const SYNCING: &str = "syncing the log";
const TRUNCATING: &str = "truncating the log";

/// A write-ahead log.
///
/// Many threads append to it without a lock, and concurrent calls of
/// [`append_and_sync`](Wal::append_and_sync) and [`sync`](Wal::sync) share one sync of the device.
/// Share a log behind an [`Arc`], or open its path again: all handles of one path that a process
/// has open are the same log. On a disk of your own, see
/// [`FileStore::open_on`](crate::FileStore::open_on).
///
/// Dropping the last handle syncs the log and makes a clean end, so that the next open reads no
/// records. A process that ends without the drop loses nothing that its calls have promised.
///
/// ```
/// # fn main() -> wal_db::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// use wal_db::Wal;
///
/// let wal = Wal::open(folder.path().join("wal.log"))?;
/// let first = wal.append(b"survives the death of the process")?;
/// let second = wal.append_and_sync(b"survives power loss, and so does the first")?;
/// assert!(first < second);
/// for record in wal.iter()? {
///     println!("{:?}", record?.data());
/// }
/// # Ok(()) }
/// ```
pub struct Wal<S = FileStore> {
    log: Arc<Log>,
    config: WalConfig,
    store: PhantomData<fn() -> S>,
}

impl Wal<FileStore> {
    /// Opens the log at `path`, or makes it. The folder that holds the path must exist.
    ///
    /// An open removes a torn tail: what a crash left of records that were never acknowledged.
    /// [`truncated_on_open`](Wal::truncated_on_open) returns its size. If the file at `path` was
    /// removed or emptied since the last open, the log is empty, and its LSNs begin at 0. If
    /// another handle of the log still exists, it sees the empty log, and LSNs go on. A log's
    /// folder that never had a file, such as a backup, keeps its records and gets one.
    ///
    /// # Durability
    /// The recovered records survive power loss when this returns.
    ///
    /// # Errors
    /// - [`Corruption`](WalError::Corruption): acknowledged records are damaged or missing. Nothing
    ///   was changed: restore a backup, or repair the log.
    /// - [`Io`](WalError::Io), of the kind `InvalidData`: the file is not one of this crate, for
    ///   example a log of the published crate. `NotFound`: there is no folder to make the log in,
    ///   the file is there and its records are not, the file is missing and it cannot be known
    ///   whether it was removed, or the log is open and its folder was moved. `AlreadyExists`: the
    ///   file was renamed or has another hard link, or the file or the folder was replaced while
    ///   the log was open. `ResourceBusy`: another process has the log open, or a handle in this
    ///   one whose log has failed. Another kind: a call to the operating system failed. The text
    ///   says what to do.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, WalConfig::new())
    }

    /// Opens the log at `path` as [`open`](Wal::open) does, with other settings.
    ///
    /// # Errors
    /// As [`open`](Wal::open).
    pub fn open_with(path: impl AsRef<Path>, config: WalConfig) -> Result<Self> {
        Self::with_store_and_config(FileStore::open(path)?, config)
    }
}

impl Wal<SegmentedStore> {
    /// Opens the log in the folder `dir`, or makes both. See [`SegmentedStore::open`].
    ///
    /// # Errors
    /// As [`SegmentedStore::open`] and [`Wal::open`]. [`Io`](WalError::Io): also if the log has
    /// segments of another size.
    pub fn open_segmented(dir: impl AsRef<Path>, segment_size: u64) -> Result<Self> {
        Self::open_segmented_with(dir, segment_size, WalConfig::new())
    }

    /// Opens the log in the folder `dir` with other settings.
    ///
    /// # Errors
    /// As [`open_segmented`](Wal::open_segmented).
    pub fn open_segmented_with(
        dir: impl AsRef<Path>,
        segment_size: u64,
        config: WalConfig,
    ) -> Result<Self> {
        Self::with_store_and_config(SegmentedStore::open(dir, segment_size)?, config)
    }
}

impl<S: WalStore> Wal<S> {
    /// Opens the log in `store` with the default settings.
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn with_store(store: S) -> Result<Self> {
        Self::with_store_and_config(store, WalConfig::new())
    }

    /// Opens the log in `store`.
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn with_store_and_config(store: S, config: WalConfig) -> Result<Self> {
        let verify = match config.open_policy() {
            OpenPolicy::TruncateTail => Verify::Tail,
            OpenPolicy::Strict => Verify::Full,
        };
        Ok(Wal { log: store.open_log(verify)?, config, store: PhantomData })
    }

    /// Returns the bytes of the torn tail that the open has removed. None of its records was ever
    /// acknowledged.
    #[must_use]
    pub fn truncated_on_open(&self) -> u64 {
        self.log.wal.recovery_report().torn_bytes
    }

    /// Appends a record.
    ///
    /// Takes no lock that another append waits for, unless the record is longer than 7/16 of the
    /// log buffer: such a record is stored in parts, and appends wait until the last one is in the
    /// log. If a part does not fit, the others are truncated, which takes some syncs of the device.
    ///
    /// # Durability
    /// The record survives the death of the process. It survives power loss after a
    /// [`sync`](Wal::sync).
    ///
    /// # Errors
    /// [`RecordTooLarge`](WalError::RecordTooLarge): nothing was changed. [`Io`](WalError::Io) of
    /// the kind `StorageFull`: nothing was appended; free space and call again. Another kind: drop
    /// the log and open it again; the record may be in it.
    ///
    /// If the disk is full and the record is in the log, the kind is `Other`, and the text says so:
    /// instead of the drop, the caller may free space and call [`sync`](Wal::sync). The kind is
    /// also `Other` if the disk is full and parts of the record could not be truncated.
    pub fn append(&self, record: &[u8]) -> Result<Lsn> {
        self.check_len(record)?;
        let appended = self.log.append(record).map_err(not_appended);
        appended.map(|(_, at)| self.log.lsn(at))
    }

    /// Makes all records durable that were appended before the call. Concurrent calls share one
    /// sync.
    ///
    /// # Durability
    /// The records survive power loss when this returns.
    ///
    /// # Errors
    /// [`Io`](WalError::Io) of the kind `StorageFull`: nothing is lost; free space and call again.
    /// Another kind: later calls can fail, too. Drop the log and open it again: the open recovers
    /// all that was acknowledged.
    pub fn sync(&self) -> Result<()> {
        self.log.wal.sync().map_err(|error| WalError::of_call(SYNCING, error))
    }

    /// Appends a record, and waits until it is durable. Concurrent calls share one sync.
    ///
    /// # Durability
    /// The record and all earlier ones survive power loss when this returns.
    ///
    /// # Errors
    /// As [`append`](Wal::append). After a failed sync the record may be in the log.
    pub fn append_and_sync(&self, record: &[u8]) -> Result<Lsn> {
        self.check_len(record)?;
        let (ticket, at) = self.log.append(record).map_err(not_appended)?;
        let in_log = Left::Record(ticket.lsn());
        ticket.wait().map_err(|error| WalError::of_append(SYNCING, in_log, error))?;
        Ok(self.log.lsn(at))
    }

    /// Writes `value` with `pack-io`, and appends the bytes.
    ///
    /// # Durability
    /// As [`append`](Wal::append).
    ///
    /// # Errors
    /// [`Encoding`](WalError::Encoding): the value cannot be written. Else as
    /// [`append`](Wal::append).
    #[cfg(feature = "pack-io")]
    pub fn append_typed<T: pack_io::Serialize + ?Sized>(&self, value: &T) -> Result<Lsn> {
        let bytes = pack_io::encode(value);
        self.append(&bytes.map_err(|error| WalError::Encoding { detail: error.to_string() })?)
    }

    /// Returns an iterator over the records from the head to the end at the time of the call. The
    /// call waits while a record is appended in parts, and while a truncation runs.
    ///
    /// # Errors
    /// [`Io`](WalError::Io): the process was forked from the one that opened the log.
    pub fn iter(&self) -> Result<WalIter<'_, S>> {
        WalIter::new(&self.log, self.config.recovery_policy(), None)
    }

    /// Returns an iterator from the record at `from` on; from the head on if `from` is below. An
    /// LSN at or above the end returns no record.
    ///
    /// If no record begins at `from`, the first item is
    /// [`Corruption`](WalError::Corruption), and there is no other. Only the end of the log
    /// ([`len`](Wal::len)) at an earlier time is accepted, too. It is also the LSN of the first
    /// record that a truncation or a crash removed there, and of a long record whose append a crash
    /// ended there.
    ///
    /// # Errors
    /// [`Io`](WalError::Io): the record could not be read.
    pub fn iter_from(&self, from: Lsn) -> Result<WalIter<'_, S>> {
        WalIter::new(&self.log, self.config.recovery_policy(), Some(from))
    }

    /// Truncates all records above the one at `lsn`. The next record gets a higher LSN than all
    /// truncated ones had. Waits for running appends.
    ///
    /// # Durability
    /// The records above are gone for good when this returns, and the others survive power loss.
    ///
    /// # Errors
    /// [`Corruption`](WalError::Corruption): no record begins at `lsn`, or it is damaged; nothing
    /// was changed. [`Io`](WalError::Io) of the kind `StorageFull`: nothing was changed; free space
    /// and call again. Another kind: drop the log and open it again.
    pub fn truncate_after(&self, lsn: Lsn) -> Result<()> {
        let at = self.log.position(lsn)?;
        let failed = |error| WalError::of_log(TRUNCATING, self.log.origin, error);
        self.log.alone(|| match self.log.last_part(at).map_err(failed)? {
            Some(last) => self.log.wal.truncate_after(last).map_err(failed),
            None => Err(WalError::no_record(lsn.get())),
        })
    }

    /// Truncates all records below the one at `lsn`, if the store can free them, and returns the
    /// head: the LSN where the log begins.
    ///
    /// On a [`SegmentedStore`] the new head is `lsn`, or the old head or the end of the log if
    /// `lsn` is beyond them, and whole segments below are freed. First syncs the log, so that the
    /// records which replace the truncated ones, for example a snapshot, are durable before. Waits
    /// for running appends. On the other stores it changes nothing, as in the published crate:
    /// engines on a single file depend on records that they have passed to this call.
    ///
    /// # Durability
    /// The records below the head are gone for good when this returns.
    ///
    /// # Errors
    /// [`Corruption`](WalError::Corruption): no record begins at `lsn`; nothing was changed.
    /// [`Io`](WalError::Io): the head may have moved, and no record from `lsn` on is lost.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<Lsn> {
        if self.log.keeps_prefix {
            return Ok(self.log.lsn(self.log.wal.head_lsn()));
        }
        let failed = |error| WalError::of_log(TRUNCATING, self.log.origin, error);
        let wal = &self.log.wal;
        self.log.alone(|| {
            wal.sync().map_err(failed)?;
            let end = wal.reserved_lsn();
            let to = self.log.position(lsn).map_or(end, |to| to.min(end));
            let is_inside = to > wal.head_lsn() && to < end;
            if is_inside && self.log.last_part(to).map_err(failed)?.is_none() {
                return Err(WalError::no_record(lsn.get()));
            }
            wal.truncate_before(to).map_err(failed)?;
            Ok(self.log.lsn(wal.head_lsn()))
        })
    }

    /// Returns the end of the log: the LSN that the next record gets, or one below it. Counts
    /// records that other threads are appending.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.log.lsn(self.log.wal.reserved_lsn()).get()
    }

    /// Returns whether the log has no record. Reads the first one; if that fails, returns false.
    /// Waits as [`iter`](Wal::iter) does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.log.is_empty().unwrap_or(false)
    }

    /// Returns the log below, for its statistics and limits, or to let a test crash
    /// ([`abandon`](palisade::Wal::abandon)). The published crate has no such call.
    ///
    /// Append and truncate with this handle only: the log below knows no long records, and its LSNs
    /// begin elsewhere.
    #[must_use]
    pub fn log(&self) -> &palisade::Wal {
        &self.log.wal
    }

    fn check_len(&self, record: &[u8]) -> Result<()> {
        let max = self.config.max_record_size();
        if record.len() > max as usize {
            return Err(WalError::RecordTooLarge { len: record.len(), max });
        }
        Ok(())
    }
}

fn not_appended(failed: Failed) -> WalError {
    WalError::of_append(APPENDING, failed.left, failed.error)
}

impl<S: WalStore> fmt::Debug for Wal<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal").field("len", &self.len()).finish_non_exhaustive()
    }
}
