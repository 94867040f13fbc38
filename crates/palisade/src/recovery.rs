//! An open in two steps: the engine reads what was recovered, then the log accepts appends.

use crate::{Lsn, Records, RecoveryReport, Result, Wal};

/// A recovered log that accepts no appends yet: [`Options::recover`](crate::Options::recover)
/// returns it, and [`start`](Recovery::start) turns it into a [`Wal`].
///
/// Recovery is complete: every record that [`records`](Recovery::records) returns is durable, and
/// no later open loses it. An engine that replays the log stays free to stop: dropping the
/// `Recovery` loses nothing, and the next open recovers the same records.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("palisade-recovery-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&folder);
/// use palisade::{Options, ReplayFrom, Wal};
///
/// Wal::open(&folder)?.commit(b"balance 7")?;
///
/// let recovery = Options::new().recover(&folder)?;
/// println!("{} torn bytes removed", recovery.report().torn_bytes);
/// let mut balances = Vec::new();
/// let mut records = recovery.records(ReplayFrom::Checkpoint)?;
/// let from = records.position();
/// let all = recovery.end().bytes_since(from);
/// while let Some(record) = records.next()? {
///     balances.push(record.data().to_vec());
///     println!("{} of {all} bytes", record.next_lsn().bytes_since(from));
/// }
/// let wal = recovery.start();
/// assert_eq!(balances, [b"balance 7"]);
/// # wal.close()?;
/// # drop(records);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the log accepts appends only after `start`"]
pub struct Recovery(Wal);

/// Where a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayFrom {
    /// At the head: all records of the log.
    Head,
    /// At the last [`checkpoint`](Wal::checkpoint), or at the head if that is higher: the records
    /// that the engine may not have applied.
    Checkpoint,
    /// At the record with this LSN, for example the one after the last that the engine has applied.
    Lsn(Lsn),
}

impl From<Lsn> for ReplayFrom {
    fn from(lsn: Lsn) -> ReplayFrom {
        ReplayFrom::Lsn(lsn)
    }
}

impl Recovery {
    pub(crate) fn new(wal: Wal) -> Recovery {
        Recovery(wal)
    }

    /// Returns what recovery found and did.
    #[must_use]
    pub fn report(&self) -> &RecoveryReport {
        self.0.recovery_report()
    }

    /// Returns the head, where the log begins.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.0.head_lsn()
    }

    /// Returns the last checkpoint: see [`Wal::checkpoint_lsn`].
    #[must_use]
    pub fn checkpoint(&self) -> Lsn {
        self.0.checkpoint_lsn()
    }

    /// Returns the end of the recovered records. Appends continue at
    /// [`RecoveryReport::base`], which is higher after a crash.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.report().end
    }

    /// Returns the recovered records from `from` on, in LSN order. May be called more than once.
    ///
    /// # Errors
    /// As [`Wal::records_from`].
    pub fn records(&self, from: impl Into<ReplayFrom>) -> Result<Records> {
        match from.into() {
            ReplayFrom::Head => self.0.records(),
            ReplayFrom::Checkpoint if self.checkpoint() <= self.head() => self.0.records(),
            ReplayFrom::Checkpoint => self.0.records_from(self.checkpoint()),
            ReplayFrom::Lsn(lsn) => self.0.records_from(lsn),
        }
    }

    /// Lets the log accept appends.
    pub fn start(self) -> Wal {
        self.0
    }
}
