//! What is done to the log: crashes, failing calls, a disk that runs full.

use palisade::sim::{CallKind, Fault};
use palisade::{ErrorKind, Result, Wal};

use crate::device::FAULTS;
use crate::model::Crash;
use crate::run::Run;

impl Run {
    pub(crate) fn crash(&mut self) -> Crash {
        self.disk.kill();
        self.tails.clear();
        self.tickets.clear();
        self.disk.heal();
        self.disk.set_capacity(None);
        self.device.after_death(&self.disk);
        let crash = self.end_of_a_run();
        // A failure that nobody has reported meets the next run.
        (self.faults, self.capped) = (self.disk.unreported_failures() > 0, false);
        self.forget_failed_pages();
        crash
    }

    fn end_of_a_run(&mut self) -> Crash {
        let how = if self.fixed.closes {
            self.dice.below(9).saturating_sub(4)
        } else {
            self.dice.below(5)
        };
        match how {
            0..=1 => self.after_a_kill(),
            2 => {
                self.disk.reboot();
                if self.has_failed() { self.lost_power() } else { self.rebooted() }
            }
            _ => {
                self.disk.lose_power();
                self.lost_power()
            }
        }
    }

    pub(crate) fn rebooted(&mut self) -> Crash {
        self.model.kill = self.model.os;
        Crash::Reboot
    }

    pub(crate) fn lost_power(&mut self) -> Crash {
        self.model.kill = self.model.durable;
        self.model.os = self.model.durable;
        Crash::Power
    }

    pub(crate) fn worse(a: Crash, b: Crash) -> Crash {
        if a == Crash::Power || b == Crash::Power {
            Crash::Power
        } else if a == Crash::Reboot || b == Crash::Reboot {
            Crash::Reboot
        } else {
            Crash::Kill
        }
    }

    pub(crate) fn arm_fault(&mut self, within: u64) {
        let calls = [
            CallKind::Write,
            CallKind::Sync,
            CallKind::Sync,
            CallKind::SyncFolder,
            CallKind::Rename,
            CallKind::Read,
            CallKind::Open,
            CallKind::Map,
            CallKind::Create,
            CallKind::Allocate,
            CallKind::Remove,
        ];
        let kind = self.dice.pick(&FAULTS[..5]);
        let fault = match self.dice.below(4) {
            0 => Fault::at(self.disk.calls() + self.dice.below(within), kind),
            1 => Fault::rate(3 + self.dice.below(60), kind),
            2 => Fault::nth(self.dice.pick(&calls), self.dice.below(within), kind),
            _ => Fault::all(self.dice.pick(&calls), kind).times(1 + self.dice.below(4)),
        };
        self.what += &format!(" fault {fault:?}");
        self.disk.fail(fault);
        self.faults = true;
    }

    pub(crate) fn full_disk(&mut self, wal: &Wal) -> bool {
        self.what += " full";
        let free = self.dice.below(6) * 4096;
        // Whatever is used now, and a little.
        let used: u64 = self.used();
        self.capped = true;
        self.disk.set_capacity(Some(used + free));
        let mut goes = true;
        for _ in 0..self.dice.below(14) {
            let r = match self.dice.below(8) {
                0 => self.truncate_before(wal),
                1 => self.truncate_after(wal),
                2 => {
                    self.what += " sync";
                    wal.sync()
                }
                _ => self.append_any(wal),
            };
            if !self.took(wal, r) {
                goes = false;
                break;
            }
        }
        self.disk.set_capacity(None);
        if !goes || self.disk.is_dead() {
            return false;
        }
        self.capped = false;
        self.what += " space";
        let r = self.sync_with_space(wal);
        self.took(wal, r)
    }

    /// Syncs when there is space again. Where the log has a flusher, a round that it began before
    /// may still answer one sync.
    pub(crate) fn sync_with_space(&self, wal: &Wal) -> Result<()> {
        match wal.sync() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.fixed.threads => wal.sync(),
            synced => synced,
        }
    }

    /// What the log takes of the disk.
    pub(crate) fn used(&self) -> u64 {
        let blocks = |n: usize| (n as u64).div_ceil(4096) * 4096;
        let files = self.disk.files();
        files.iter().map(|f| blocks(self.disk.file(f).map_or(0, |b| b.len()))).sum()
    }
}
