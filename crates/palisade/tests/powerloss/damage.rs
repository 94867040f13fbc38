//! Rotten bits in what was durable: an open finds them and changes nothing, and what a repair gives
//! up never comes back.

use palisade::{CopyReport, ErrorKind, Lsn, Verify, Wal};

use crate::device::{FRAME_HEADER_BYTES, place_of, snapshot};
use crate::dice::Dice;
use crate::oracle::Crash;
use crate::repaired::repair_in_place;
use crate::session::Session;
use crate::shape::Opening;

impl Session {
    /// Flips a bit of an entry that was durable, `crash` being the last that happened, and opens
    /// the log. The first bad place; `Err` if it opened, because nothing shows that the record was
    /// durable, or because the buffer has it, too.
    ///
    /// `None` if no such entry lies in the segments.
    pub(crate) fn damage(&mut self, crash: Crash, dice: &mut Dice) -> Option<Result<Lsn, Wal>> {
        let count = self.oracle.entries().len() as u64;
        let index = dice.below(count.max(1)) as usize;
        if count == 0 || !self.oracle.is_durable(index) || !self.flip_a_bit(index, dice) {
            return None;
        }
        self.working_on = "open after damage";
        self.opening = Opening { verify: Verify::Full, verify_threads: 1, ..Opening::default() };
        let before = snapshot(&self.disk);
        let is_evident = self.oracle.is_evident(index);
        let error = match self.open() {
            Ok(wal) => {
                let entry = &self.oracle.entries()[index];
                assert!(!is_evident, "damage at {} was passed over", entry.lsn);
                self.oracle.damaged(index);
                self.check_recovered(&wal, crash);
                return Some(Err(wal));
            }
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(
            snapshot(&self.disk) == before,
            "G8: an open that was refused has changed something"
        );
        // A place above the first bad one is refused, and the error names that one.
        self.disk.restart();
        let far = Lsn::new(Lsn::LIMIT.as_u64() - 8);
        let error = repair_in_place(&self.disk, far).expect_err("nothing lies so far above");
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
        assert!(snapshot(&self.disk) == before, "a repair that was refused has changed something");
        let bad = error.lsn().expect("the place is named");
        let (from, to) = (self.oracle.end_before(index), self.oracle.entries()[index].lsn);
        assert!(from <= bad && bad <= to, "{bad}, damaged was {from} to {to}");
        Some(Ok(bad))
    }

    /// Repairs the log, which is given up from `named` on, and opens what is left. `None` if that
    /// dies on the way, and if no frame begins at `named`, a member's place: then nothing is
    /// changed.
    pub(crate) fn repair(&mut self, named: Lsn, bad: Lsn, crash: Crash) -> Option<Wal> {
        self.working_on = "repair";
        let before = snapshot(&self.disk);
        let unreported = self.disk.unreported_failures();
        let report = match repair_in_place(&self.disk, named) {
            Ok(report) => report,
            Err(error) => {
                let is_a_member = error.kind() == ErrorKind::NotARecord && named < bad;
                let is_report = self.is_report(&error, unreported);
                assert!(is_a_member || is_report || self.disk.is_dead(), "repair: {error}");
                assert!(snapshot(&self.disk) == before, "a repair has changed the damaged log");
                return None;
            }
        };
        self.check_report(&report, named);
        self.oracle.may_lose(named, self.shape.segment_bytes);
        // A crash that was planned for the repair is not to meet the open.
        self.disk.restart();
        let wal = self.open().unwrap_or_else(|error| panic!("open a repaired log: {error}"));
        assert!(wal.recovery_report().clean, "a repaired log was closed");
        self.cursors.repaired_from = wal.head_lsn();
        assert!(wal.reserved_lsn() >= self.oracle.evident, "G2: an LSN could be given out again");
        self.oracle.lost(named, &wal, self.shape.segment_bytes);
        self.check_recovered(&wal, crash);
        Some(wal)
    }

    /// What the report says of the records is what the oracle knows of them.
    fn check_report(&self, report: &CopyReport, named: Lsn) {
        let entries = self.oracle.entries();
        let kept = entries.iter().filter(|entry| entry.lsn < named).count() as u64;
        assert_eq!(report.records, kept, "{report:?}");
        let behind = entries.len() as u64 - kept;
        assert!(report.given_up_records < behind.max(1), "{report:?}, of {behind} records");
        assert!(report.given_up_to >= named && report.base >= report.given_up_to, "{report:?}");
    }

    /// Flips a bit in the frame of the entry at `index`; false if it does not lie in a segment.
    fn flip_a_bit(&mut self, index: usize, dice: &mut Dice) -> bool {
        let entry = &self.oracle.entries()[index];
        let (number, at) = place_of(entry.lsn.as_u64(), self.shape.segment_bytes);
        let name = format!("segment-{number:020}");
        let data = at + FRAME_HEADER_BYTES..at + FRAME_HEADER_BYTES + entry.stored.len();
        let Some(mut bytes) = self.disk.file(&name) else { return false };
        if entry.stored.is_empty() || bytes.get(data.clone()) != Some(&entry.stored[..]) {
            return false;
        }
        let bit = dice.below(8 * (data.end - at) as u64);
        bytes[at + (bit / 8) as usize] ^= 1 << (bit % 8);
        self.disk.set_file(&name, bytes);
        true
    }
}
