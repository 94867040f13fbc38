//! Rotten bits in what was durable: an open finds them, gives nothing up that was not named, and
//! what was named never comes back.

use palisade::{ErrorKind, LostRange, Lsn, RecoveryPolicy, Verify, Wal};

use crate::dice::Dice;
use crate::oracle::Crash;
use crate::session::{FRAME_HEADER_BYTES, Opening, Session};

const SEGMENT_HEADER_BYTES: u64 = 4096;

/// The log's files, byte for byte.
type Snapshot = Vec<(String, Option<Vec<u8>>)>;

fn snapshot(session: &Session) -> Snapshot {
    let names = session.disk.files().into_iter();
    names.map(|name| (name.clone(), session.disk.file(&name))).collect()
}

fn opening(lose_from: Option<Lsn>) -> Opening {
    let recovery = RecoveryPolicy::PointInTime { lose_from };
    Opening { recovery, verify: Verify::Full, verify_threads: 1, ..Opening::default() }
}

impl Session {
    /// Flips a bit of an entry that was durable, `crash` being the last that happened, and opens
    /// the log. The range that the open would give up; `Err` if it opened, because nothing shows
    /// that the record was durable, or because the buffer has it, too.
    ///
    /// `None` if no such entry lies in the segments.
    pub(crate) fn damage(
        &mut self,
        crash: Crash,
        dice: &mut Dice,
    ) -> Option<Result<LostRange, Wal>> {
        let count = self.oracle.entries().len() as u64;
        let index = dice.below(count.max(1)) as usize;
        if count == 0 || !self.oracle.is_durable(index) || !self.flip_a_bit(index, dice) {
            return None;
        }
        self.working_on = "open after damage";
        self.opening = opening(None);
        let before = snapshot(self);
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
        assert_eq!(error.kind(), ErrorKind::WouldLose, "{error}");
        assert!(snapshot(self) == before, "G8: an open that was refused has changed something");
        let lost = error.lost_range().expect("the range is named");
        let (from, to) = (self.oracle.end_before(index), self.oracle.entries()[index].lsn);
        assert!(from <= lost.from && lost.from <= to, "{lost}, damaged was {from} to {to}");
        assert!(lost.to >= self.oracle.evident(), "{lost} leaves out what was evident");
        let behind = self.oracle.entries().iter().filter(|entry| entry.lsn >= lost.from).count();
        assert!(lost.readable_records < behind as u64, "{lost}, of {behind} records");
        Some(Ok(lost))
    }

    /// Opens with a name for the loss that is too high, which is refused, and leaves all as it is.
    pub(crate) fn name_too_much(&mut self, lost: LostRange) {
        self.opening = opening(Some(lost.from.plus(8)));
        let before = snapshot(self);
        let error = self.open().expect_err("more would be lost than was named");
        assert_eq!((error.kind(), error.lost_range()), (ErrorKind::WouldLose, Some(lost)));
        assert!(snapshot(self) == before, "G8: an open that was refused has changed something");
    }

    /// Opens with the loss from `named` on. `None` if that dies on the way, and if no frame begins
    /// at `named`, a member's place: then nothing is changed.
    pub(crate) fn lose(
        &mut self,
        named: Lsn,
        lost: LostRange,
        crash: Crash,
        is_first: bool,
    ) -> Option<Wal> {
        self.working_on = "open with a loss";
        self.oracle.may_lose(named, self.shape.segment_bytes);
        self.opening = opening(Some(named));
        let before = snapshot(self);
        let wal = match self.open() {
            Ok(wal) => wal,
            Err(error) if error.kind() == ErrorKind::NotARecord => {
                assert!(named < lost.from, "open with a loss: {error}");
                assert!(
                    snapshot(self) == before,
                    "G8: an open that was refused has changed something"
                );
                return None;
            }
            Err(error) => {
                assert!(self.disk.is_dead(), "open with a loss: {error}");
                return None;
            }
        };
        // An attempt that died may have ended the log: then there is nothing left to give up. And
        // what the buffer held above may be gone since.
        let report = wal.recovery_report();
        let is_it = |given: LostRange| given.from == named && (!is_first || given.to >= lost.to);
        assert!(!is_first || report.lost.is_some(), "{lost} was given up without a word");
        assert!(report.lost.is_none_or(is_it), "named was {named}, of {lost}: {report:?}");
        assert!(wal.reserved_lsn() >= lost.to, "G2: an LSN of {lost} could be given out again");
        if report.lost.is_none() && report.end > named {
            // In another boot nothing shows that it was durable, and the buffer has it, too.
            self.oracle.doubted(named);
        } else {
            self.oracle.lost(named, &wal, self.shape.segment_bytes);
        }
        self.check_found(&wal, crash);
        Some(wal)
    }

    /// Flips a bit in the frame of the entry at `index`; false if it does not lie in a segment.
    fn flip_a_bit(&mut self, index: usize, dice: &mut Dice) -> bool {
        let entry = &self.oracle.entries()[index];
        let segment_bytes = self.shape.segment_bytes;
        let name = format!("segment-{:020}", entry.lsn.segment(segment_bytes));
        let at = (SEGMENT_HEADER_BYTES + entry.lsn.as_u64() % segment_bytes) as usize;
        let data = at + FRAME_HEADER_BYTES..at + FRAME_HEADER_BYTES + entry.data.len();
        let Some(mut bytes) = self.disk.file(&name) else { return false };
        if entry.data.is_empty() || bytes.get(data.clone()) != Some(&entry.data[..]) {
            return false;
        }
        let bit = dice.below(8 * (data.end - at) as u64);
        bytes[at + (bit / 8) as usize] ^= 1 << (bit % 8);
        self.disk.set_file(&name, bytes);
        true
    }
}
