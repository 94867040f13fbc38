//! The simulated disk of a harness with seeds, and how it fails in the background. Its dice are its
//! own, so that all other rolls of a seed are those of a sound device.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade::sim::{CallKind, Fault, FaultKind, Loss, SimDisk, WriteBackFailure};
use palisade::{Error, ErrorKind, SyncPolicy};

use crate::dice::Dice;
use crate::kept::Kept;

pub(crate) const FAILURES: [WriteBackFailure; 3] =
    [WriteBackFailure::KeepsPages, WriteBackFailure::ShutsDown, WriteBackFailure::DropsPages];

/// The faults of calls. Those of a device that is only slow come last.
pub(crate) const FAULTS: [FaultKind; 6] = [
    FaultKind::Eio,
    FaultKind::Eio,
    FaultKind::NoSpace,
    FaultKind::ShortWrite,
    FaultKind::Interrupted,
    FaultKind::SlowSync,
];

/// No such interval passes in a run.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) const POLICIES: [SyncPolicy; 5] = [
    SyncPolicy::OnCommit,
    SyncPolicy::OnCommit,
    SyncPolicy::Always,
    SyncPolicy::Os,
    SyncPolicy::Interval(A_DAY),
];

const SEGMENT_HEADER_BYTES: u64 = 4096;
pub(crate) const FRAME_HEADER_BYTES: usize = 24;

/// A new disk of the given kind.
pub(crate) fn new_disk(
    seed: u64,
    failure: WriteBackFailure,
    in_place: bool,
    powersafe: bool,
) -> SimDisk {
    let mut disk = SimDisk::new(seed).failing_as(failure);
    if !in_place {
        disk = disk.copy_on_write();
    }
    if !powersafe {
        disk = disk.without_powersafe_overwrite();
    }
    disk
}

/// Draws what happens to the device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) dice: Dice,
    /// Nothing fails in the background: one device in three.
    pub(crate) is_sound: bool,
    /// A failed write-back leaves pages that the system can drop later.
    keeps_pages: bool,
}

impl Device {
    pub(crate) fn new(seed: u64) -> (Device, WriteBackFailure) {
        let mut dice = Dice::new(seed ^ 0xde71_ce00);
        let failure = dice.pick(&FAILURES);
        let is_sound = dice.once_in(3);
        let keeps_pages = failure == WriteBackFailure::KeepsPages;
        (Device { dice, is_sound, keeps_pages }, failure)
    }

    /// Makes write-back fail in the background, before some of the next `within` calls; says
    /// whether.
    pub(crate) fn plan_trouble(&mut self, disk: &SimDisk, within: u64) -> bool {
        if self.is_sound || !self.dice.once_in(3) {
            return false;
        }
        let at = self.dice.below(within);
        let kind = FaultKind::WriteBack;
        disk.fail(match self.dice.below(3) {
            0 => Fault::at(disk.calls() + at, kind),
            1 => Fault::rate(10 + self.dice.below(60), kind),
            _ => {
                let calls = [CallKind::Write, CallKind::Sync, CallKind::Rename, CallKind::Create];
                Fault::nth(self.dice.pick(&calls), at / 4, kind)
            }
        });
        true
    }

    /// Makes the system drop clean pages before one of the next reads: between two reads of one
    /// open, most of the time. There are such pages if a write-back has failed before.
    pub(crate) fn plan_dropped_pages(&mut self, disk: &SimDisk) {
        if self.keeps_pages && !self.is_sound && self.dice.once_in(2) {
            if self.dice.once_in(2) {
                disk.fail_write_back();
            }
            disk.fail(Fault::nth(CallKind::Read, self.dice.below(40), FaultKind::DropPages));
        }
    }

    /// Makes one of the next reads fail, one time in three.
    pub(crate) fn plan_bad_read(&mut self, disk: &SimDisk) {
        if self.dice.once_in(3) {
            let kinds = [FaultKind::Eio, FaultKind::Eio, FaultKind::ShortWrite];
            let kind = self.dice.pick(&kinds);
            disk.fail(Fault::nth(CallKind::Read, self.dice.below(40), kind));
        }
    }

    /// What the system does with the pages of a process that is gone.
    pub(crate) fn after_death(&mut self, disk: &SimDisk) {
        if !self.is_sound && self.dice.once_in(4) {
            disk.fail_write_back();
        }
        if self.dice.once_in(4) {
            disk.drop_pages();
        }
    }
}

/// How often write-back had failed before the last open that came through, and before the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    opened: u64,
    opening: u64,
}

impl Failures {
    /// Before each open.
    pub(crate) fn opens(&mut self, disk: &SimDisk) {
        self.opening = disk.write_back_failures();
    }

    /// An open came through: what it found is in files that it has made, or in a log that was
    /// closed.
    pub(crate) fn has_opened(&mut self) {
        self.opened = self.opening;
    }

    /// Whether write-back has failed since before the last open that came through.
    pub(crate) fn has_failed(&self, disk: &SimDisk) -> bool {
        disk.write_back_failures() > self.opened
    }
}

/// Whether `error` reports one of the `unreported` failures of write-back, which each are reported
/// once.
pub(crate) fn is_report(disk: &SimDisk, error: &Error, unreported: usize) -> bool {
    error.kind() == ErrorKind::Io && disk.unreported_failures() < unreported
}

/// Whether the system may still drop pages whose write to the medium had failed.
pub(crate) fn may_drop_pages(disk: &SimDisk) -> bool {
    disk.losses().iter().any(|loss| matches!(loss, Loss::Sector { has_failed: true, .. }))
}

/// The files of a disk by name.
pub(crate) type Snapshot = BTreeMap<String, Option<Vec<u8>>>;

pub(crate) fn snapshot(disk: &SimDisk) -> Snapshot {
    disk.files().into_iter().map(|name| (name.clone(), disk.file(&name))).collect()
}

/// The file of the segment that holds `lsn`, and the place of its frame there.
pub(crate) fn place_of(lsn: u64, segment_bytes: u64) -> (u64, usize) {
    (lsn / segment_bytes, (SEGMENT_HEADER_BYTES + lsn % segment_bytes) as usize)
}

/// Whether the payload of the record at `lsn` is in the log's files, or in a released segment that
/// was kept.
pub(crate) fn has_bytes(
    disk: &SimDisk,
    kept: &Kept,
    segment_bytes: u64,
    lsn: u64,
    data: &[u8],
) -> bool {
    let (number, frame) = place_of(lsn, segment_bytes);
    let at = frame + FRAME_HEADER_BYTES;
    let file = disk.file(&format!("segment-{number:020}")).unwrap_or_default();
    file.get(at..at + data.len()) == Some(data) || kept.has(number, at, data)
}
