//! The handle of an open log: its end, and its state.

mod backup;
mod cursor;
mod read;
mod truncate;
mod write;

use std::fmt;

use crate::trace::span;
use crate::{Lsn, RecoveryReport, Result, Space, Stats, Uuid};

/// A write-ahead log.
///
/// Many threads append to it without a lock. Many commits share one device sync. A handle is cheap
/// to clone, and every clone is the same log. Dropping the last handle does what
/// [`flush_to_os`](Wal::flush_to_os) does, and saves how far the log is durable (two syncs of
/// `meta`). Only [`close`](Wal::close) makes a clean end, after which the next open needs no scan.
///
/// The drop waits for the log's threads, which may be in a sync or a callback, and cannot report an
/// error. If it cannot write the records, for example on a full disk, a shared log buffer keeps
/// them for the next open, and a log buffer on the heap loses them.
///
/// A handle works in the process that opened the log. In a forked child every fallible call returns
/// [`Forked`](crate::ErrorKind::Forked). The other calls return what held at the fork. The first
/// such call, or the drop of the last handle, closes the descriptors that would keep the log
/// `Locked` after the death of the parent. The child opens the log again after the parent has
/// closed it.
///
/// # What survives
/// | call returned `Ok` | process kill | OS crash or power loss |
/// |---|---|---|
/// | `append`, shared log buffer (a file in `/dev/shm`) | yes | no |
/// | `append`, log buffer on the heap | no | no |
/// | `append` under [`SyncPolicy::Os`](crate::SyncPolicy::Os), `flush_to_os` | yes | no |
/// | `append` under [`SyncPolicy::Always`](crate::SyncPolicy::Always) | yes | yes |
/// | `commit`, `sync`, `wait_durable`, `Ticket::wait`, `.await` | yes | yes |
///
/// [`Stats::appends_survive_kill`] shows which buffer the log has.
///
/// # Errors of all calls
/// The lists of errors name these kinds only if there is more to say:
/// - `Closed` after [`close`](Wal::close). Reads still work, and waits for records return `Ok`.
/// - `Poisoned` after the log failed to make, write or sync a segment. Reads of written records
///   still work, and a wait for a record that is already durable returns `Ok`. Drop all handles and
///   open the log again with [`MustExist`](crate::OpenMode::MustExist). Then compare
///   [`uuid`](Wal::uuid), and call [`wait_durable`](Wal::wait_durable) with the last acknowledged
///   LSN. If the error's [`io_kind`](crate::Error::io_kind) is `NotFound`, the folder was moved,
///   removed or replaced while the log was open. Another open of its path would make an empty log.
/// - `Forked` in a forked child.
/// - `NoFiles`, if the call opens a file. Nothing is lost: close files or raise the limit, then
///   call again.
#[derive(Clone)]
pub struct Wal(pub(crate) palisade_core::Wal);

impl Wal {
    /// Syncs everything and makes a clean end: the next open needs no scan.
    ///
    /// Later calls that change the log return `Closed` on all handles, and so does
    /// [`on_durable`](Wal::on_durable). Records that were appended before are in the log. Blocks
    /// for a few device syncs. The log can be opened again at once, even if handles of this one
    /// exist.
    ///
    /// # Durability
    /// All appended records survive power loss when this returns.
    ///
    /// # Errors
    /// `NoSpace`: nothing is lost, and no handle can append any more; free space and call again.
    /// With `pad_to_block`, if the full buffer has no room for the padding, handles can append
    /// until that call. `NoFiles`: as `NoSpace`. `Io`, `PermissionDenied`, `NotFound` (the folder
    /// was moved): everything is durable, but the log has no clean end. `OutOfRange`: no LSN is
    /// left for a clean end; nothing was changed. `Closed`: the log has a clean end already.
    pub fn close(&self) -> Result<()> {
        span!("close", log = %self.uuid());
        self.0.close()
    }

    /// Ends the log on all handles as the death of the process would, so that a test of recovery
    /// can open it again in the same process.
    ///
    /// Flushes nothing. The next open finds what a kill would leave: with a log buffer that
    /// survives the process all appended records, else those that were handed to the operating
    /// system. Later calls return `Poisoned`. Waits for a write, sync or callback for released
    /// segments that is running; do not call it in such a callback. It does not wait for appends
    /// that run on other threads: the next open finds their records or not, also if they then
    /// return `Ok`. In a forked child it does nothing.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("log");
    /// use palisade::Wal;
    ///
    /// let wal = Wal::open(&path)?;
    /// let lsn = wal.commit(b"put 7")?;
    /// wal.abandon(); // clones of it may still exist
    ///
    /// let wal = Wal::open(&path)?;
    /// assert!(!wal.recovery_report().clean);
    /// assert_eq!(wal.get(lsn)?.data(), b"put 7");
    /// # Ok(()) }
    /// ```
    pub fn abandon(self) {
        span!("abandon", log = %self.uuid());
        self.0.abandon();
    }

    /// Returns the end of the last reservation. An append below it may not have returned yet.
    #[must_use]
    pub fn reserved_lsn(&self) -> Lsn {
        self.0.reserved_lsn()
    }

    /// Returns the end of the prefix that was handed to the operating system.
    #[must_use]
    pub fn written_lsn(&self) -> Lsn {
        self.0.written_lsn()
    }

    /// Returns the end of the prefix that survives power loss. No record and no batch crosses it:
    /// [`truncate_before`](Wal::truncate_before) and [`checkpoint`](Wal::checkpoint) accept it,
    /// unless another thread has truncated what it ends.
    ///
    /// A reader that saved it begins there in later runs, too. After an open that found no clean
    /// end it may be the place of no record; such a place is forgotten after 14 more such opens in
    /// a row without an append, and then gives `Truncated` ([`resume_lsn`](Wal::resume_lsn) says
    /// where to go on).
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.0.durable_lsn()
    }

    /// Returns the head, where the log begins. Everything below was truncated.
    #[must_use]
    pub fn head_lsn(&self) -> Lsn {
        self.0.head_lsn()
    }

    /// Returns the greatest LSN that was given to [`checkpoint`](Wal::checkpoint). If that LSN was
    /// in a truncated range, or if an open found no record above it, returns the end of the records
    /// below it.
    #[must_use]
    pub fn checkpoint_lsn(&self) -> Lsn {
        self.0.checkpoint_lsn()
    }

    /// Returns the bytes of the log from the head to the end of the last reservation, with the
    /// headers of records and without truncated ones. The files take more: whole segments, and
    /// spares.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.0.live_bytes()
    }

    /// Returns what the log takes on disk, and what keeps it from shrinking: the head, which the
    /// engine moves with [`truncate_before`](Wal::truncate_before), and each reader, tail and hold
    /// with its lag. Lists the log's folder; waits for no device.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let options = palisade::Options::new().buffer_bytes(1 << 16);
    /// # let wal = palisade::Wal::with_store(store, options)?;
    /// let lsn = wal.commit(b"x")?;
    /// let hold = wal.hold(lsn)?;
    /// let space = wal.space()?;
    /// assert_eq!(space.pins[0].lsn, lsn);
    /// assert_eq!(space.pins[0].kind, palisade::PinKind::Hold);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NoFiles`, `Io`: the folder cannot be listed. `Forked`.
    pub fn space(&self) -> Result<Space> {
        self.0.space()
    }

    /// Returns the identity of the log, drawn at random when it was created.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.0.uuid()
    }

    /// Returns the bytes of log in a segment. Segment `n` has the LSNs from `n` times this number
    /// on.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.0.segment_bytes()
    }

    /// Returns the size of the largest record: half the log buffer or half a segment, whichever is
    /// less, minus the header. If the log's codec makes a record longer, its encoded form must fit.
    #[must_use]
    pub fn max_record_bytes(&self) -> usize {
        self.0.max_record_bytes()
    }

    /// Returns what the log has done since it was opened, and its watermarks: one consistent
    /// snapshot. Stops no thread. Takes some microseconds.
    ///
    /// ```
    /// # fn main() -> palisade::Result<()> {
    /// # let store = palisade::MemStore::new(1 << 20);
    /// # let wal = palisade::Wal::with_store(store, Default::default())?;
    /// wal.commit(b"record")?;
    /// let stats = wal.stats();
    /// assert_eq!((stats.syncs, stats.durable), (1, stats.written));
    /// let p99: u64 = stats.sync_duration_ns.quantile(0.99);
    /// println!("99 of 100 syncs took at most {p99} ns");
    /// for (bytes, writes) in stats.write_size_bytes.buckets() {
    ///     println!("{writes} writes of {bytes:?} bytes");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Returns what the open of this log found and did.
    #[must_use]
    pub fn recovery_report(&self) -> &RecoveryReport {
        self.0.recovery_report()
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
