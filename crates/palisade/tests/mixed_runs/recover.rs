//! The way back from a crash: opens that fail, are refused or die, then one that has to succeed.

use palisade::{ErrorKind, Result, Wal};

use crate::checks::same_files;
use crate::device::{is_report, may_drop_pages, snapshot};
use crate::model::Crash;
use crate::run::Run;

impl Run {
    pub(crate) fn recover(&mut self, mut crash: Crash) -> Wal {
        self.look(self.model.os.min(self.model.promised(crash)));
        for _ in 0..self.dice.below(if self.fixed.closes { 2 } else { 4 }) {
            self.roll();
            let kind = self.dice.below(6);
            match kind {
                5 => {
                    let free = self.dice.below(4) * 4096;
                    self.disk.set_capacity(Some(self.used() + free));
                }
                0 => self.disk.crash_at(self.disk.calls() + self.dice.below(45)),
                1 | 2 => {
                    self.arm_fault(30);
                    self.arm_write_back(30);
                    self.device.plan_dropped_pages(&self.disk);
                    self.device.plan_bad_read(&self.disk);
                }
                _ => {
                    self.open_with_another_segment_size();
                    continue;
                }
            }
            self.open_disturbed(kind, crash);
            let next = self.crash();
            crash = Run::worse(crash, next);
            self.look(self.model.os.min(self.model.promised(crash)));
        }
        self.roll();
        let predicts = self.dice.once_in(3) && self.disk.file("meta").is_some();
        let wal = loop {
            self.failures.opens(&self.disk);
            let unreported = self.disk.unreported_failures();
            let opened = if predicts { self.open_as_predicted() } else { self.open() };
            match opened {
                Ok(wal) => break wal,
                Err(e) => assert!(is_report(&self.disk, &e, unreported), "open: {e}"),
            }
            self.clean = false;
        };
        self.check_open(&wal, crash);
        self.clean = false;
        wal
    }

    /// Refused, and nothing is changed.
    fn open_with_another_segment_size(&self) {
        let before = snapshot(&self.disk);
        if !before.contains_key("meta") {
            return;
        }
        let mut files = self.files();
        files.segment_bytes = Some(self.fixed.segment_bytes + 4096);
        let store = self.disk.open(&files);
        assert_eq!(store.err().map(|e| e.kind()), Some(ErrorKind::Mismatch));
        same_files(&before, &snapshot(&self.disk), "mismatch");
    }

    /// An open on a full disk (5), with a crash under way (0) or with faults: it succeeds and its
    /// log dies at once, or it fails for that reason.
    fn open_disturbed(&mut self, kind: u64, crash: Crash) {
        let unreported = self.disk.unreported_failures();
        match self.open() {
            Ok(wal) => {
                self.disk.heal();
                self.disk.set_capacity(None);
                if self.disk.is_dead() || self.disk.is_shut_down() {
                    let end = wal.recovery_report().end.as_u64();
                    let n = self.model.recs.iter().take_while(|r| r.end <= end).count();
                    self.forget_failed_pages();
                    self.model.found(n, crash);
                    self.has_opened();
                } else {
                    self.check_open(&wal, crash);
                }
                self.disk.kill();
                drop(wal);
            }
            Err(e) => {
                let fits = match kind {
                    5 => e.kind() == ErrorKind::NoSpace,
                    0 => false,
                    _ => {
                        matches!(e.kind(), ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Poisoned)
                    }
                };
                let fits = fits || is_report(&self.disk, &e, unreported);
                assert!(self.disk.is_dead() || fits, "open: {e} {e:?}");
            }
        }
        self.clean = false;
    }

    /// What the open would find is what it then finds, unless the system drops pages between the
    /// two whose write to the medium had failed.
    fn open_as_predicted(&self) -> Result<Wal> {
        let before = snapshot(&self.disk);
        let may_drop_pages = may_drop_pages(&self.disk);
        let store = self.disk.open(&self.files()).unwrap_or_else(|e| panic!("dry_run: {e}"));
        let seen = self.log().dry_run_in(store);
        let seen = seen.unwrap_or_else(|e| panic!("dry_run: {e}"));
        same_files(&before, &snapshot(&self.disk), "dry_run");
        let wal = self.open()?;
        if may_drop_pages {
            return Ok(wal);
        }
        let did = wal.recovery_report();
        let parts = |r: &palisade::RecoveryReport| {
            (r.clean, r.records, r.bytes, r.end, r.floor, r.torn_bytes, r.holes_padded)
        };
        assert_eq!(
            parts(&seen),
            parts(did),
            "dry_run says another thing than open\n{seen:?}\n{did:?}"
        );
        Ok(wal)
    }
}
