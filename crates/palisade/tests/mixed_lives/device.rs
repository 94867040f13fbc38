//! A device that fails in the background, and mounts in the same boot: drawn from dice of their
//! own, so that all other rolls of a seed stay the same. And what a failed write-back leaves of the
//! promises.

use palisade::sim::{CallKind, Fault, FaultKind, WriteBackFailure};
use palisade::{Error, ErrorKind, Wal};

use crate::dice::Dice;
use crate::life::Run;
use crate::model::Crash;

/// What happens to the device, and what is known of its failures.
#[derive(Debug)]
pub(crate) struct Device {
    dice: Dice,
    /// Nothing fails in the background.
    is_sound: bool,
    /// How often write-back had failed before the last open that came through, and before the last.
    failures: u64,
    failures_at_open: u64,
    /// Whether the log buffer has all that was appended and not synced.
    pub(crate) ring_has_all: bool,
}

impl Device {
    pub(crate) fn new(seed: u64) -> Device {
        let mut dice = Dice(seed ^ 0xd15c_fa11);
        let is_sound = dice.one_in(3);
        Device { dice, is_sound, failures: 0, failures_at_open: 0, ring_has_all: true }
    }

    pub(crate) fn failure(&mut self) -> WriteBackFailure {
        self.dice.pick(&[
            WriteBackFailure::KeepsPages,
            WriteBackFailure::ShutsDown,
            WriteBackFailure::DropsPages,
        ])
    }
}

impl Run {
    /// Write-back will fail in the background.
    pub(crate) fn arm_write_back(&mut self, within: u64) {
        let Device { dice, is_sound, .. } = &mut self.device;
        if *is_sound || !dice.one_in(3) {
            return;
        }
        let kind = FaultKind::WriteBack;
        let fault = match dice.below(3) {
            0 => Fault::at(self.disk.calls() + dice.below(within), kind),
            1 => Fault::rate(10 + dice.below(60), kind),
            _ => {
                let calls = [CallKind::Write, CallKind::Sync, CallKind::Create, CallKind::Rename];
                Fault::nth(dice.pick(&calls), dice.below(within / 4), kind)
            }
        };
        self.disk.fail(fault);
        self.faults = true;
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

    /// What the system does with the pages of a process that is gone.
    pub(crate) fn after_the_death(&mut self) {
        let Device { dice, is_sound, .. } = &mut self.device;
        if !*is_sound && dice.one_in(4) {
            self.disk.fail_write_back();
        }
        if dice.one_in(4) {
            self.disk.drop_pages();
        }
    }

    /// Whether write-back has failed since before the last open that came through.
    pub(crate) fn has_failed(&self) -> bool {
        self.disk.write_back_failures() > self.device.failures
    }

    /// Before each open.
    pub(crate) fn opens(&mut self) {
        self.device.failures_at_open = self.disk.write_back_failures();
    }

    /// An open came through: what it found is in files that it has made, or in a log that was
    /// closed.
    pub(crate) fn has_opened(&mut self) {
        self.device.failures = self.device.failures_at_open;
        self.device.ring_has_all = true;
    }

    pub(crate) fn note_ring(&mut self, wal: &Wal) {
        let unsynced = wal.reserved_lsn().as_u64() - wal.durable_lsn().as_u64();
        let fits = unsynced <= self.opening.buffer_bytes as u64;
        self.device.ring_has_all = fits && wal.stats().appends_survive_kill;
    }

    /// Pages that no sync had covered may be gone: only what the ring has is left of them.
    pub(crate) fn forget_failed_pages(&mut self) {
        if self.has_failed() {
            self.model.os = self.model.durable;
            if !self.device.ring_has_all {
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

    /// Whether `error` reports one of the `unreported` failures of write-back, which each are
    /// reported once.
    pub(crate) fn is_report(&self, error: &Error, unreported: usize) -> bool {
        error.kind() == ErrorKind::Io && self.disk.unreported_failures() < unreported
    }
}
