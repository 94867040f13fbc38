//! A device that fails in the background, and mounts in the same boot; and what a failed write-back
//! leaves of the promises.

use palisade::{Error, ErrorKind, Wal};

use crate::model::Crash;
use crate::run::Run;

impl Run {
    /// Write-back will fail in the background.
    pub(crate) fn arm_write_back(&mut self, within: u64) {
        self.faults |= self.device.plan_trouble(&self.disk, within);
    }

    /// The process has died by a kill: the system writes back, drops pages, mounts the file system
    /// again, in good order or not.
    pub(crate) fn after_a_kill(&mut self) -> Crash {
        let is_shut_down = self.disk.is_shut_down();
        match self.device.dice.below(6) {
            1 => {
                self.disk.crash_file_system();
                self.lost_power()
            }
            0 | 2 if is_shut_down => {
                self.disk.remount();
                self.lost_power()
            }
            _ if is_shut_down => {
                self.disk.restart();
                let error = self.open().map(drop).expect_err("the file system has shut down");
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                self.disk.remount();
                self.lost_power()
            }
            0 => {
                self.disk.remount();
                Crash::Kill
            }
            _ => {
                self.disk.restart();
                Crash::Kill
            }
        }
    }

    /// Whether write-back has failed since before the last open that came through.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.has_failed(&self.disk)
    }

    /// An open came through: what it found is in files that it has made, or in a log that was
    /// closed.
    pub(crate) fn has_opened(&mut self) {
        self.failures.has_opened();
        self.ring_has_all = true;
    }

    /// Notes what the ring has, with `more` bytes to come.
    pub(crate) fn note_ring(&mut self, wal: &Wal, more: u64) {
        let unsynced = wal.reserved_lsn().as_u64() - wal.durable_lsn().as_u64();
        let fits = unsynced + more <= self.opening.buffer_bytes as u64;
        self.ring_has_all = fits && wal.stats().appends_survive_kill;
    }

    /// Pages that no sync had covered may be gone: only what the ring has is left of them.
    pub(crate) fn forget_failed_pages(&mut self) {
        if self.has_failed() {
            self.model.os = self.model.durable;
            if !self.ring_has_all {
                self.model.kill = self.model.durable;
            }
        }
    }

    /// Whether `error` says that a record cannot be read which a failed write-back may have taken.
    pub(crate) fn is_unreadable(&self, error: &Error) -> bool {
        let is_gone = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotARecord);
        let is_above = error.lsn().is_some_and(|lsn| lsn.as_u64() >= self.model.durable);
        is_gone && is_above && self.has_failed()
    }
}
