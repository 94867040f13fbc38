//! The segments of a log that this process writes: their files, their making and recycling.
//!
//! A file gets a segment's name only when it is complete: a spare gets the header, is synced and
//! renamed, and the folder is synced.
//!
//! Locks, taken in this order:
//! 1. `maker`: the making of segments. Held over device calls, except while a release frees files
//!    or the preparer makes a spare, so that a commit does not wait for them.
//! 2. `zeroing`: the segment that the preparer zeroes. Held over calls that open, rename or remove
//!    a segment's file.
//! 3. `files`: the open files. Never held over a call to the disk.
//! 4. `last_read`: the file that a read has opened last.
//!
//! A thread that holds `discarded` or `found` takes no other lock. The callback for released
//! segments runs under no lock.

mod files;
pub mod header;
mod move_tail;
pub(crate) mod preparer;
mod released;
pub mod segment_file;
mod spares;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use crate::Epoch;
use crate::sync::{AtomicU64, Condvar, Mutex, OnceLock, Ordering, ProcessMark, RwLock, StatCell};
use crate::{CodecId, Error, ErrorKind, Lsn, Result, Uuid};

use self::header::LogOf;
use self::segment_file::{LOG_AT, SegmentFile};
use self::spares::Demand;
use self::spares::MayExceed;
use self::trust::Trust;
use crate::disk::{Access, ZeroSteps};
use crate::folder::{
    Folder, META, META_TEMP, META_UNSYNCED, RESERVE, segment_name, segments_in, spare_name,
    spares_in,
};

pub use self::released::{OnRelease, ReleasedSegment};

/// The advice if a copy cannot be synced. A log whose device has another number counts as one.
pub(crate) const COPY_AGAIN: &str = "remove the folder of the copy, then copy the log again; if it \
     was not copied, but its device has another number now: mount it again, then rename \
     `meta.unsynced` to `meta`";

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) uuid: Uuid,
    pub(crate) segment_bytes: u64,
    pub(crate) codec: Option<CodecId>,
    /// Whether a written block stays in its place; otherwise no file is recycled.
    pub(crate) in_place: bool,
    pub(crate) zero_fill: bool,
    pub(crate) spare_segments: usize,
    pub(crate) zero_steps: ZeroSteps,
    pub(crate) max_bytes: Option<u64>,
}

impl Shape {
    pub(crate) fn log(&self) -> LogOf {
        LogOf { uuid: self.uuid, segment_bytes: self.segment_bytes, codec: self.codec }
    }

    pub(crate) fn does_zero(&self) -> bool {
        self.zero_fill && self.in_place
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        LOG_AT + self.segment_bytes
    }

    fn first_step_bytes(&self) -> u64 {
        if self.does_zero() { self.zero_steps.first_bytes.min(self.segment_bytes) } else { 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) folder: Folder,
    pub(crate) shape: Shape,
    process: ProcessMark,
    on_release: Option<Arc<dyn OnRelease>>,
    /// The segments that the open found; `None` as soon as this process may change any.
    found: Mutex<Option<Vec<u64>>>,
    /// For `on_release`: no record lies in these ranges.
    discarded: Mutex<BTreeSet<(Lsn, Lsn)>>,
    files: RwLock<BTreeMap<u64, Arc<SegmentFile>>>,
    last_read: Mutex<Option<(u64, Arc<SegmentFile>)>>,
    maker: Mutex<Maker>,
    /// Notified when `Maker::making` becomes `None`.
    made: Condvar,
    zeroing: Mutex<Option<u64>>,
    prepared: AtomicU64,
    /// Segments that begin below may pass `max_bytes`.
    unlimited_below: StatCell,
    /// The first failure, which poisons at the leader's next sync.
    failure: OnceLock<Error>,
}

#[derive(Debug, Default)]
struct Maker {
    epoch: Option<Epoch>,
    /// Trusted files that lack only the header.
    spares: BTreeSet<u64>,
    /// What the preparer is making without the lock, perhaps still without a name.
    making: Option<u64>,
    /// The segment that the one running release renames without the lock, and its spare's number.
    recycling: Option<(u64, u64)>,
    next_spare: u64,
    trust: Trust,
    demand: Demand,
    /// A segment with its name, after whose making the folder's sync lacked space.
    half_named: Option<(u64, Arc<SegmentFile>)>,
}

impl Segments {
    pub(crate) fn open(
        folder: Folder,
        shape: Shape,
        on_release: Option<Arc<dyn OnRelease>>,
    ) -> Result<Segments> {
        let mut maker = Maker::default();
        let names = folder.names()?;
        let spares = spares_in(&names);
        let spare_names = spares.iter().map(|number| spare_name(*number));
        for name in spare_names.chain([META_TEMP, RESERVE].map(str::to_owned)) {
            // The open may remove this file. If it is no regular file, refuse it before anything is
            // changed.
            folder.open_if_there(&name, Access::Read)?;
        }
        maker.next_spare = spares.last().map_or(0, |last| last.saturating_add(1));
        maker.trust.note_found_spares(spares);
        let numbers = segments_in(&names, shape.segment_bytes);
        let process = ProcessMark::new()
            .map_err(|error| Error::io("get memory for the log's process mark", error))?;
        let segments = Segments {
            process,
            folder,
            shape,
            on_release,
            found: Mutex::new(Some(numbers)),
            discarded: Mutex::default(),
            files: RwLock::default(),
            last_read: Mutex::default(),
            maker: Mutex::new(maker),
            made: Condvar::default(),
            zeroing: Mutex::default(),
            prepared: AtomicU64::new(0),
            unlimited_below: StatCell::new(0),
            failure: OnceLock::new(),
        };
        segments.note_all_dead()?;
        Ok(segments)
    }

    /// Returns false in a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_own()
    }

    /// Refuses a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_own() { Ok(()) } else { Err(Error::bare(ErrorKind::Forked)) }
    }

    pub(crate) fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let (number, offset) = self.split(at);
        let Some(file) = self.file_to_read(number)? else {
            return Ok(0);
        };
        let read = file.read(offset, into);
        read.map_err(|error| self.named("read the segment", number, error).at_lsn(at))
    }

    pub(crate) fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let (first, _) = self.split(from);
        let (last, _) = self.split(Lsn::new(to.as_u64() - 1));
        for number in first..=last {
            // Discarded ranges have no segments, and one that was freed needs no sync.
            let Some(file) = self.file(number)? else {
                continue;
            };
            file.sync().map_err(|error| self.sync_failed(number, error))?;
            // Here, not at the end: there may be more segments than a process may open files.
            self.forget_below(number);
        }
        // After the leader's own syncs: an error of write-back is reported to one sync only, and
        // that may have been the preparer's.
        self.check()
    }

    /// Keeps a failure, which `sync` and `prepare` return, so that it poisons the log: a failed
    /// sync of the preparer may concern the leader's bytes, and no later sync reports it. Turns
    /// `NoSpace` into `Io` (G6): freed space does not bring lost bytes back.
    pub(crate) fn fail(&self, error: Error) {
        let error = match error.kind() {
            ErrorKind::NoSpace => error.with_kind(ErrorKind::Io),
            _ => error,
        };
        // The first one counts.
        let _ = self.failure.set(error);
    }

    /// Refuses a folder that was moved, removed or replaced, and keeps the failure.
    pub(crate) fn check_in_place(&self) -> Result<()> {
        let advise = |error: Error| {
            error.with_advice(
                "drop all handles; if the folder was moved, open it where it is now; if it was \
                 removed, restore a backup; open with OpenMode::MustExist, because another open \
                 of this path makes an empty log, then compare uuid(), and call wait_durable with \
                 the last acknowledged LSN",
            )
        };
        self.folder.check_in_place().map_err(advise).inspect_err(|error| self.fail(error.clone()))
    }

    fn check_file_size(&self) -> Result<()> {
        self.folder.check_file_size(LOG_AT + self.shape.segment_bytes)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn prepared(&self) -> Lsn {
        // Acquire: a thread that sees a segment's end finds its file; pairs with the Release in
        // `publish` and `resume`.
        Lsn::new(self.prepared.load(Ordering::Acquire))
    }

    pub(crate) fn prepare(&self, to: Lsn) -> Result<bool> {
        self.check()?;
        let mut made = false;
        while self.prepared() < to {
            let mut maker = self.maker.lock();
            if self.prepared() >= to {
                break;
            }
            // The thread that held the lock before may have failed to sync a new name. Then it is
            // unknown whether the medium has the name.
            self.check()?;
            let Some(epoch) = maker.epoch else {
                return Err(Error::new(ErrorKind::Io, "no epoch has begun"));
            };
            self.check_in_place()?;
            let (number, _) = self.split(self.prepared());
            if self.must_wait_for_a_spare(&maker, number) {
                drop(self.made.wait(maker, None));
                continue;
            }
            self.make(&mut maker, &epoch, number)?;
            made = true;
        }
        Ok(made)
    }

    /// Begins `epoch`, whose log begins with `first`. If the epoch before `is_running`, `NoSpace`
    /// means that nothing was changed: once the name may be on the disk, a lack of space is `Io`.
    pub(crate) fn begin(&self, epoch: &Epoch, first: &[u8], is_running: bool) -> Result<()> {
        self.check_in_place()?;
        self.check_file_size()?;
        let mut maker = self.maker.lock();
        if let Some((number, file)) = maker.half_named.take() {
            // It has its name, and belongs to the epoch before.
            if let Err(error) = self.folder.sync() {
                maker.half_named = Some((number, file));
                return Err(error.at_segment(number));
            }
            self.publish(number, file);
        }
        let (number, _) = self.split(epoch.base);
        if epoch.base < self.prepared() {
            let text = format!("segments are prepared up to LSN {}", self.prepared());
            return Err(Error::new(ErrorKind::OutOfRange, text).at_lsn(epoch.base));
        }
        if !is_running {
            self.distrust_what_was_found(&mut maker, number)?;
            if !self.numbers_to_change()?.is_empty() {
                // An earlier process run may have ended before it synced the names of its segments.
                // Power loss must not take these names and keep that of the new segment, whose
                // header names the end of the epoch before.
                self.folder.sync()?;
            }
        }
        let spare = self.take_spare(&mut maker, MayExceed::Yes)?;
        let header = self.header(epoch, number, Some(epoch.predecessor));
        let file = self.name(&mut maker, &header, first, spare)?;
        self.folder.sync().map_err(|error| match error.kind() {
            ErrorKind::NoSpace if is_running => error.with_kind(ErrorKind::Io).at_segment(number),
            _ => error.at_segment(number),
        })?;
        self.publish(number, file);
        maker.epoch = Some(*epoch);
        self.note_discarded(epoch.predecessor.end, epoch.base);
        Ok(())
    }

    pub(crate) fn has_epoch(&self) -> bool {
        self.maker.lock().epoch.is_some()
    }

    pub(crate) fn sync_all(&self) -> Result<()> {
        // This process does not know whether a write of the copied spares failed.
        self.distrust_what_was_found(&mut self.maker.lock(), u64::MAX)?;
        for number in self.numbers()? {
            if let Some(file) = self.file_to_read(number)?
                && let Err(error) = file.sync()
            {
                // The system reports the error once, so a sync by the next open would succeed. But
                // that open refuses a folder with `META_UNSYNCED`. Power loss may undo the rename.
                // It also empties the page cache, so the next open reads what is on the medium.
                let _ = self.folder.rename(META, META_UNSYNCED);
                let error = self.named("sync the segment of a log that was copied", number, error);
                return Err(error.with_advice(COPY_AGAIN));
            }
        }
        self.folder.sync()
    }

    pub(crate) fn resume(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        self.check_file_size()?;
        let mut maker = self.maker.lock();
        let (first, _) = self.split(from.max(epoch.base));
        // Count only consecutive numbers: a file far above can have a segment's name by chance.
        let numbers = self.numbers_to_change()?.into_iter().skip_while(|number| *number < first);
        let run = (first..).zip(numbers).take_while(|(expected, number)| expected == number);
        let end = self.start_of(first + run.count() as u64);
        // Release: see `prepared`.
        self.prepared.store(end.as_u64(), Ordering::Release);
        maker.epoch = Some(*epoch);
        self.trust_what_was_found(&mut maker, self.split(epoch.base).0)
    }

    /// As `FileStore::release`, after the callback got the segments with records. A file without a
    /// valid header stays.
    pub(crate) fn release(&self, from: Lsn, to: Lsn) -> Result<()> {
        let mut numbers = self.numbers_to_change()?;
        let lowest = numbers.first().copied().unwrap_or_default();
        numbers.retain(|&number| from <= self.start_of(number) && self.start_of(number + 1) <= to);
        // Before the lock: a thread that needs a segment made does not wait for the callback.
        let handed_out = self.hand_out(&mut numbers, lowest);
        // The callback may have forked.
        self.check_process()?;
        if numbers.is_empty() {
            return handed_out;
        }
        self.check_in_place()?;
        let (keep, made) = {
            let mut maker = self.maker.lock();
            (maker.demand.at_release(self.shape.spare_segments), maker.trust.first_recyclable())
        };
        self.keep_own(made, &mut numbers)?;
        for number in numbers {
            self.free(number, keep)?;
        }
        self.remove_surplus(keep)?;
        self.folder.sync()?;
        handed_out
    }

    /// As `FileStore::discard`. A file without a valid header stays.
    pub(crate) fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        let maker = self.maker.lock();
        let mut numbers = self.numbers_to_change()?;
        numbers.retain(|&number| from <= self.start_of(number) && self.start_of(number + 1) <= to);
        self.keep_own(maker.trust.first_recyclable(), &mut numbers)?;
        if numbers.is_empty() {
            return Ok(());
        }
        // Under this lock the preparer opens no file that is removed here. It may still write zeros
        // to a removed file, which no thread reads.
        let _zeroing = self.zeroing.lock();
        for number in numbers {
            self.folder.remove(&segment_name(number))?;
            self.forget(number);
        }
        self.folder.sync()
    }

    pub(crate) fn split(&self, at: Lsn) -> (u64, u64) {
        let bytes = self.shape.segment_bytes;
        (at.as_u64() / bytes, at.as_u64() % bytes)
    }

    pub(crate) fn start_of(&self, number: u64) -> Lsn {
        Lsn::new(number.saturating_mul(self.shape.segment_bytes))
    }

    fn publish(&self, number: u64, file: Arc<SegmentFile>) {
        self.files.write().insert(number, file);
        // Release: a thread that sees the new end finds the file in the map; pairs with `prepared`.
        self.prepared.store(self.start_of(number + 1).as_u64(), Ordering::Release);
    }

    fn wrap(&self, file: Box<dyn crate::disk::DiskFile>, number: u64) -> Result<Arc<SegmentFile>> {
        let file = SegmentFile::new(file, self.shape.segment_bytes);
        let file = file.map(|file| file.stepping(self.shape.zero_steps.step_bytes));
        file.map(Arc::new).map_err(|error| self.named("look at the segment", number, error))
    }

    /// Returns the error of a failed sync: always `Io`, which poisons (G6). If space lacked, the
    /// page cache may have dropped the bytes, and the next sync would succeed without them.
    fn sync_failed(&self, number: u64, error: io::Error) -> Error {
        self.named("sync the segment", number, error).with_kind(ErrorKind::Io)
    }

    fn named(&self, what: &str, number: u64, error: io::Error) -> Error {
        self.located(Error::io(what, error), number)
    }

    fn located(&self, error: Error, number: u64) -> Error {
        error.at_path(self.folder.path().join(segment_name(number))).at_segment(number)
    }
}
