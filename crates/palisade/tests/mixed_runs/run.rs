//! The runs of one log: each is opened, worked with and ended, and the next one recovers it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use palisade::sim::{Fault, FaultKind, SimDisk};
use palisade::{ErrorKind, Lsn, Ticket, Wal, framed_bytes};

use crate::device::{Device, Failures};
use crate::dice::Dice;
use crate::kept::Kept;
use crate::model::{Crash, Model};
use crate::options::{Fixed, Opening};
use crate::reads::Follower;
use crate::seeds::Seeded;

const RUNS: u64 = 6;
/// Of a log that is closed more often than not: what was written first is many opens old.
const CLOSING_RUNS: u64 = 20;

/// One log, what is known of it, and what happens to it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) dice: Dice,
    pub(crate) fixed: Fixed,
    pub(crate) disk: SimDisk,
    /// The released segments, if the log keeps them.
    pub(crate) kept: Kept,
    pub(crate) model: Model,
    pub(crate) opening: Opening,
    pub(crate) device: Device,
    pub(crate) failures: Failures,
    /// Whether the log buffer has all that was appended and not synced.
    pub(crate) ring_has_all: bool,
    /// Faults were armed in this run, or a failure before it is not reported yet: calls may fail.
    pub(crate) faults: bool,
    /// The disk is or was full: calls may fail for that.
    pub(crate) capped: bool,
    /// The last run ended with a close that succeeded.
    pub(crate) clean: bool,
    /// What the step does, for the report.
    pub(crate) what: String,
    pub(crate) tails: Vec<Follower>,
    pub(crate) tickets: Vec<Ticket<'static>>,
    /// One more than the greatest LSN of which a callback said that it is durable.
    pub(crate) acked: Arc<AtomicU64>,
    /// A truncation of the suffix met a full disk that copies on write: it may poison.
    pub(crate) truncates_on_full: bool,
}

impl Seeded for Run {
    fn new(seed: u64) -> Run {
        let mut dice = Dice::new(seed ^ 0xe1e5_33aa);
        let (device, failure) = Device::new(seed);
        let fixed = Fixed::rolled(&mut dice, seed, failure);
        Run {
            dice,
            disk: fixed.disk(seed),
            model: Model { codec: fixed.codec, ..Model::default() },
            fixed,
            kept: Kept::default(),
            // The first open may keep this buffer.
            opening: Opening { buffer_bytes: 4096, ..Opening::default() },
            device,
            failures: Failures::default(),
            ring_has_all: true,
            faults: false,
            capped: false,
            clean: false,
            what: String::new(),
            tails: Vec::new(),
            tickets: Vec::new(),
            acked: Arc::default(),
            truncates_on_full: false,
        }
    }

    fn run(&mut self) {
        let mut crash = Crash::Kill;
        for _ in 0..if self.fixed.closes { CLOSING_RUNS } else { RUNS } {
            let wal = self.recover(crash);
            self.truncates_on_full = false;
            if !self.fixed.closes || self.dice.once_in(3) {
                self.trouble();
            }
            for _ in 0..self.dice.below(50) {
                if self.disk.is_dead() || !self.step(&wal) {
                    break;
                }
            }
            self.note(&wal);
            self.note_ring(&wal, 0);
            self.tails.clear();
            self.tickets.clear();
            match self.dice.below(4) {
                _ if self.fixed.closes && !self.dice.once_in(4) => self.end_by_close(wal),
                0 => self.end_by_close(wal),
                1 => self.end_by_drop(wal),
                _ => {
                    self.disk.kill();
                    drop(wal);
                }
            }
            crash = self.crash();
            let is_reported = self.disk.unreported_failures() == 0;
            if self.clean && is_reported && self.fixed.closes && self.dice.once_in(2) {
                self.damage_a_header();
            }
            if self.clean && is_reported {
                self.open_without_the_list();
            }
        }
        drop(self.recover(crash));
    }

    fn describe(&self) -> String {
        let Run { what, fixed, opening, disk, .. } = self;
        let (trace, files) = (disk.trace().join("\n"), disk.files());
        // A thread of the log that goes on would change what comes after it.
        disk.kill();
        format!("{trace}\n{files:?}\nin {what} | {fixed:?} | {opening:?}")
    }
}

impl Run {
    /// A crash that will come, faults, slow syncs.
    fn trouble(&mut self) {
        if self.dice.once_in(2) {
            self.disk.crash_at(self.disk.calls() + self.dice.below(150));
        }
        if self.dice.once_in(4) {
            self.arm_fault(40);
        }
        self.arm_write_back(100);
        if self.fixed.threads && self.dice.once_in(2) {
            self.disk.fail(Fault::rate(2, FaultKind::SlowSync));
        }
    }

    fn end_by_close(&mut self, wal: Wal) {
        self.what = "close".into();
        // A close appends a mark. If the sync fails then, the ring lacks what the mark took.
        let has_all = self.ring_has_all;
        self.note_ring(&wal, framed_bytes(0));
        self.ring_has_all &= has_all;
        match wal.close() {
            Ok(()) => {
                if self.model.new_end_may_be.is_none() {
                    self.model.is_durable(self.model.top);
                }
                self.clean = !self.disk.is_dead() && !self.fixed.threads;
            }
            Err(e) => {
                let fits = self.faults || self.disk.is_dead() || self.truncates_on_full;
                assert!(fits, "close: {e}");
                if e.kind() != ErrorKind::Poisoned && !self.disk.is_dead() {
                    self.ring_has_all = false;
                }
            }
        }
    }

    /// The last handle hands all that was appended to the operating system.
    fn end_by_drop(&mut self, wal: Wal) {
        let asked = wal.flush_to_os(Lsn::new(0));
        let is_poisoned = asked.is_err_and(|e| e.kind() == ErrorKind::Poisoned);
        if !is_poisoned && !self.disk.is_dead() {
            // The drop gives the ring's memory back.
            self.ring_has_all = false;
        }
        drop(wal);
        let is_in_doubt = self.model.new_end_may_be.is_some() || self.truncates_on_full;
        let may_fail = is_poisoned || is_in_doubt || self.faults || self.disk.is_dead();
        if !may_fail && !self.fixed.threads {
            self.model.is_os(self.model.top);
        }
    }
}
