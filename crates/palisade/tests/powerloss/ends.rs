//! A device that fails under a random history: what happens to it, drawn from dice of its own, and
//! what a failed write-back leaves of the promises (docs/durability.md, "Failed writes").

use palisade::{Error, ErrorKind, Wal};

use crate::device::{Device, is_report};
use crate::oracle::{Crash, assert_same, contents_until};
use crate::session::Session;

/// How a process run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Kill,
    Reboot,
    PowerLoss,
    /// The file system is unmounted in good order and mounted again in the same boot.
    Remount,
    /// The file system goes without a word and is mounted again in the same boot.
    FileSystemCrash,
}

impl Device {
    /// What becomes of the page cache of a process that has died as `end` says.
    pub(crate) fn end(&mut self, session: &mut Session, end: End) -> End {
        self.after_death(&session.disk);
        let mounts_again = self.dice.below(6);
        if end != End::Kill {
            return end;
        }
        if session.disk.is_shut_down() && self.dice.once_in(2) {
            session.assert_shut_down();
        }
        match mounts_again {
            0 => End::Remount,
            1 => End::FileSystemCrash,
            _ if session.disk.is_shut_down() => End::Remount,
            _ => End::Kill,
        }
    }
}

impl Session {
    /// The process ends, and then what `end` says. Says which promises hold.
    pub(crate) fn end_as(&mut self, end: End) -> Crash {
        match end {
            End::Kill => return self.crash(Crash::Kill),
            End::Reboot => return self.reboot(),
            End::PowerLoss => return self.crash(Crash::PowerLoss),
            End::FileSystemCrash => self.crash_file_system(),
            End::Remount if self.disk.is_shut_down() => {
                // An orderly unmount writes nothing to it any more.
                self.remount();
                self.oracle.forget_kill_promise();
            }
            End::Remount => {
                self.remount();
                return Crash::Kill;
            }
        }
        Crash::PowerLoss
    }

    /// Whether write-back has failed since before the last open that came through.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.has_failed(&self.disk)
    }

    /// Notes whether the ring has all that no sync has covered.
    pub(crate) fn note_ring(&mut self, wal: &Wal) {
        let unsynced = wal.reserved_lsn().bytes_since(wal.durable_lsn());
        let has_all = unsynced <= self.shape.buffer_bytes as u64;
        self.oracle.ring_has_all(wal.stats().appends_survive_kill && has_all);
    }

    /// The last handle is about to be dropped by a process that lives: of a log that is not
    /// poisoned this gives the ring's memory back.
    pub(crate) fn note_drop(&mut self, is_poisoned: bool) {
        if !self.disk.is_dead() && !is_poisoned {
            self.oracle.ring_has_all(false);
        }
    }

    /// The log that runs has what was appended. After a failed write-back it may read
    /// wrong from what is durable on (M3), and says so.
    pub(crate) fn check_running(&self, wal: &Wal) {
        if !self.has_failed() {
            return self.oracle.check_all(wal);
        }
        let (found, error) = contents_until(wal);
        assert_same(&found, self.oracle.entries());
        match error {
            Some(error) if self.disk.is_shut_down() => assert_eq!(error.kind(), ErrorKind::Io),
            Some(error) => assert!(self.is_unreadable(&error), "read: {error}"),
            None => assert_eq!(found.len(), self.oracle.entries().len(), "a record is missing"),
        }
    }

    /// Whether `error` says that a record cannot be read which a failed write-back may have taken.
    pub(crate) fn is_unreadable(&self, error: &Error) -> bool {
        let is_above = error.lsn().is_some_and(|lsn| lsn >= self.oracle.durable);
        let is_gone = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotARecord);
        is_gone && is_above && self.has_failed()
    }

    /// Opens the log. A failure of write-back that nobody has reported yet may be reported to the
    /// open, once.
    pub(crate) fn open_until_reported(&mut self) -> Wal {
        loop {
            let unreported = self.disk.unreported_failures();
            match self.open() {
                Ok(wal) => return wal,
                Err(error) => assert!(self.is_report(&error, unreported), "open: {error}"),
            }
        }
    }

    /// Whether `error` reports one of the `unreported` failures of write-back.
    pub(crate) fn is_report(&self, error: &Error, unreported: usize) -> bool {
        is_report(&self.disk, error, unreported)
    }

    /// A log on a file system that has shut down is not opened.
    fn assert_shut_down(&mut self) {
        self.disk.restart();
        let error = self.open().map(drop).expect_err("the file system has shut down");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        self.disk.kill();
    }
}
