//! The segments of a log that this process writes: their files, their making and recycling.
//!
//! A file gets a segment's name only when it is complete: it is a spare first, gets the header,
//! is synced, renamed, and the folder is synced. What a spare holds is never read.
//!
//! Locks, taken in this order: `maker` (the making of segments; held over device calls, except
//! while a release frees files: a commit that needs a segment does not wait for it), `zeroing`
//! (what the preparer is at work in; held over the calls that open, rename or remove a file),
//! `files` (the open files; never held over one), `last_read`. Under `dead` and `found` none is
//! taken. The callback for released segments runs under none of them.

pub(crate) mod handshake;
pub(crate) mod header;
mod move_tail;
mod open_files;
pub(crate) mod preparer;
mod released;
pub(crate) mod segment_file;
mod space;
mod spares;
mod spares_to_keep;
mod trust;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use palisade_core::store::{Epoch, Segment};
use palisade_core::sync::{
    AtomicU64, Condvar, Mutex, OnceLock, Ordering, ProcessMark, RwLock, StatCell,
};
use palisade_core::{CodecId, Error, ErrorKind, Lsn, Result, Uuid};

use self::header::{HeaderFault, LogOf};
use self::segment_file::{LOG_AT, SegmentFile};
use self::spares::MayExceed;
use self::spares_to_keep::Demand;
use self::trust::Trust;
use crate::block::BLOCK_BYTES;
use crate::disk::{Access, ZeroSteps};
use crate::folder::{
    Folder, META, META_TEMP, META_UNSYNCED, RESERVE, segment_name, segments_in, spare_name,
    spares_in,
};

pub use self::released::{OnRelease, ReleasedSegment};

/// What to do about a copy of a log in which a sync failed. The folder is a copy also for an open
/// that finds the log's own folder on a device with another number.
pub(crate) const COPY_AGAIN: &str = "remove the folder of the copy, then copy the log again; if it \
     was not copied, but its device has another number now: mount it again, then rename \
     `meta.unsynced` to `meta`";

/// What does not change while the store is open.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) uuid: Uuid,
    pub(crate) segment_bytes: u64,
    pub(crate) codec: Option<CodecId>,
    /// Whether a written block stays in its place; only then are files recycled.
    pub(crate) in_place: bool,
    /// Whether files are written with zeros ahead of the tail.
    pub(crate) zero_fill: bool,
    /// Released files that are kept at least.
    pub(crate) spare_segments: usize,
    /// How much is zeroed at a time.
    pub(crate) zero_steps: ZeroSteps,
    /// The bytes that the files of segments and spares may take.
    pub(crate) max_bytes: Option<u64>,
}

impl Shape {
    /// What the headers of segments say of the log.
    pub(crate) fn log(&self) -> LogOf {
        LogOf { uuid: self.uuid, segment_bytes: self.segment_bytes, codec: self.codec }
    }

    /// Whether files are written with zeros before the log comes to them.
    pub(crate) fn does_zero(&self) -> bool {
        self.zero_fill && self.in_place
    }

    /// The bytes of a segment's file.
    pub(crate) fn file_bytes(&self) -> u64 {
        LOG_AT + self.segment_bytes
    }

    fn first_step_bytes(&self) -> u64 {
        if self.does_zero() { self.zero_steps.first_bytes.min(self.segment_bytes) } else { 0 }
    }
}

/// The segments of an open log.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) folder: Folder,
    pub(crate) shape: Shape,
    process: ProcessMark,
    on_release: Option<Arc<dyn OnRelease>>,
    /// The segments that the open found, until this process makes or frees any: nobody else does.
    found: Mutex<Option<Vec<u64>>>,
    /// For `on_release`, the ranges between one epoch's end and the next one's base.
    dead: Mutex<BTreeSet<(Lsn, Lsn)>>,
    files: RwLock<BTreeMap<u64, Arc<SegmentFile>>>,
    last_read: Mutex<Option<(u64, Arc<SegmentFile>)>>,
    maker: Mutex<Maker>,
    /// Notified when `Maker::making` becomes `None`.
    made: Condvar,
    /// The segment that the preparer is zeroing.
    zeroing: Mutex<Option<u64>>,
    prepared: AtomicU64,
    /// Segments that begin below may pass `max_bytes`.
    unlimited_below: StatCell,
    /// What failed behind the leader's back, and poisons the log once the leader comes.
    failure: OnceLock<Error>,
}

#[derive(Debug, Default)]
struct Maker {
    epoch: Option<Epoch>,
    /// Complete up to their header, in the order in which they are taken; all of them trusted.
    spares: BTreeSet<u64>,
    /// The spare that the preparer is making without the lock. It may have no name yet.
    making: Option<u64>,
    /// The segment that a release gives the name of a spare without the lock, and the spare. One
    /// release runs at a time.
    recycling: Option<(u64, u64)>,
    next_spare: u64,
    trust: Trust,
    demand: Demand,
    /// A segment that has its name, but the folder's sync failed for lack of space.
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
            // It will be removed: what it is shows before anything is changed.
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
            dead: Mutex::default(),
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

    /// Whether this process opened the log; false in a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_own()
    }

    /// Refuses a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_own() { Ok(()) } else { Err(Error::bare(ErrorKind::Forked)) }
    }

    /// All segments in the folder with what their headers say.
    pub(crate) fn list(&self) -> Result<Vec<Segment>> {
        self.list_from(0).map(|(_, segments)| segments)
    }

    /// The numbers of all segments in the folder, ascending, and what the headers of those say that
    /// are numbered `from` or above.
    pub(crate) fn list_from(&self, from: u64) -> Result<(Vec<u64>, Vec<Segment>)> {
        let numbers = self.numbers()?;
        let looks = numbers.iter().filter(|number| **number >= from);
        // One that was freed between the listing and the look is none.
        let looks = looks.filter_map(|number| self.look(*number).transpose());
        let segments = looks.collect::<Result<_>>()?;
        Ok((numbers, segments))
    }

    /// The numbers of all segments in the folder, ascending.
    fn numbers(&self) -> Result<Vec<u64>> {
        if let Some(found) = self.found.lock().as_ref() {
            return Ok(found.clone());
        }
        self.folder.segment_numbers(self.shape.segment_bytes)
    }

    /// As `numbers`; from here on the folder has to be asked.
    fn numbers_to_change(&self) -> Result<Vec<u64>> {
        let numbers = self.numbers();
        *self.found.lock() = None;
        numbers
    }

    /// Segment `number` with what its header says.
    fn look(&self, number: u64) -> Result<Option<Segment>> {
        let Some(file) = self.file_to_read(number)? else { return Ok(None) };
        let block = file
            .read_header()
            .map_err(|error| self.named("read the segment's header", number, error))?;
        self.check_header(&block, number).map(Some)
    }

    fn check_header(&self, block: &[u8], number: u64) -> Result<Segment> {
        check_header(&self.folder, block, self.shape.uuid, self.shape.segment_bytes, number)
    }

    pub(crate) fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let (number, offset) = self.split(at);
        let Some(file) = self.file_to_read(number)? else {
            return Ok(0);
        };
        let read = file.read(offset, into);
        read.map_err(|error| self.named("read the segment", number, error).at_lsn(at))
    }

    /// Syncs every segment that has bytes in `[from, to)`, oldest first. All below `from` is
    /// durable.
    pub(crate) fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let (first, _) = self.split(from);
        let (last, _) = self.split(Lsn::new(to.as_u64() - 1));
        for number in first..=last {
            // Dead ranges have no segments, and one that was freed needs no sync.
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

    /// Keeps what a sync behind the leader's back said: the bytes that it could not write may be
    /// the leader's, and no later sync will say it again.
    ///
    /// G6 also for lack of space: bytes are lost, so freeing some does not help.
    pub(crate) fn fail(&self, error: Error) {
        let error = match error.kind() {
            ErrorKind::NoSpace => error.with_kind(ErrorKind::Io),
            _ => error,
        };
        // The first one counts.
        let _ = self.failure.set(error);
    }

    /// Refuses to go on in a folder that was moved, removed or replaced, for good: nothing more is
    /// acknowledged that the next open would not find.
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

    /// Refuses to make or to go on with segments that this process may not write to their ends.
    fn check_file_size(&self) -> Result<()> {
        self.folder.check_file_size(LOG_AT + self.shape.segment_bytes)
    }

    /// The failure that was kept.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn prepared(&self) -> Lsn {
        // Acquire: a thread that sees a segment's end finds its file; pairs with the Release in
        // `publish` and `resume`.
        Lsn::new(self.prepared.load(Ordering::Acquire))
    }

    /// Makes segments of the running epoch until `prepared() >= to`; says whether it made any.
    pub(crate) fn prepare(&self, to: Lsn) -> Result<bool> {
        self.check()?;
        let mut made = false;
        while self.prepared() < to {
            let mut maker = self.maker.lock();
            if self.prepared() >= to {
                break;
            }
            // Who held the lock before may have left a name of which nothing is known.
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

    /// Begins `epoch` with the log's bytes `first`. If the epoch before `is_running`, `NoSpace`
    /// means that nothing was changed: it is not the error of a name that may have reached the
    /// disk.
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
                // An earlier process run may have named segments and not come to the sync. Power
                // loss must not keep the new name, which says where they end, and lose theirs.
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
        self.note_dead(epoch.predecessor.end, epoch.base);
        Ok(())
    }

    /// Whether an epoch runs.
    pub(crate) fn has_epoch(&self) -> bool {
        self.maker.lock().epoch.is_some()
    }

    /// Makes every segment, and the names, survive power loss: the folder is a copy of another one,
    /// and nobody knows whether it was synced.
    pub(crate) fn sync_all(&self) -> Result<()> {
        // Who copied the spares may know that a write failed: this process does not.
        self.distrust_what_was_found(&mut self.maker.lock(), u64::MAX)?;
        for number in self.numbers()? {
            if let Some(file) = self.file_to_read(number)?
                && let Err(error) = file.sync()
            {
                // The system reports the error once, so a sync by the next open would succeed. That
                // open refuses the new name. Power loss may undo the rename, and takes the page
                // cache: what is read then is on the medium.
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
        // A file far above has a segment's name, and need not be one.
        let numbers = self.numbers_to_change()?.into_iter().skip_while(|number| *number < first);
        let run = (first..).zip(numbers).take_while(|(expected, number)| expected == number);
        let end = self.start_of(first + run.count() as u64);
        // Release: see `prepared`.
        self.prepared.store(end.as_u64(), Ordering::Release);
        maker.epoch = Some(*epoch);
        self.trust_what_was_found(&mut maker, self.split(epoch.base).0)
    }

    /// Frees the segments that lie wholly in `[from, to)`. The callback gets those that hold
    /// records first; if it fails, its segment and all above stay.
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
        let keep = self.maker.lock().demand.at_release(self.shape.spare_segments);
        for number in numbers {
            self.free(number, keep)?;
        }
        self.remove_surplus(keep)?;
        self.folder.sync()?;
        handed_out
    }

    /// Removes the segments that lie wholly in `[from, to)`, whose records were truncated.
    ///
    /// They are not recycled: such a truncation is rare, and nobody waits for their files.
    pub(crate) fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        let _maker = self.maker.lock();
        let mut numbers = self.numbers_to_change()?;
        numbers.retain(|&number| from <= self.start_of(number) && self.start_of(number + 1) <= to);
        if numbers.is_empty() {
            return Ok(());
        }
        // What is removed is not opened again meanwhile; zeros that still come find no reader.
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
        // Release: the file is in the map before its addresses count; pairs with `prepared`.
        self.prepared.store(self.start_of(number + 1).as_u64(), Ordering::Release);
    }

    fn wrap(&self, file: Box<dyn crate::disk::DiskFile>, number: u64) -> Result<Arc<SegmentFile>> {
        let file = SegmentFile::new(file, self.shape.segment_bytes);
        let file = file.map(|file| file.stepping(self.shape.zero_steps.step_bytes));
        file.map(Arc::new).map_err(|error| self.named("look at the segment", number, error))
    }

    /// The error of a failed sync. It poisons (G6), whatever the system calls it: a lack of space
    /// that shows this late has lost bytes of the page cache, and no later sync would fail.
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

/// What the header in `block` means for segment `number`: a format that is unknown is refused,
/// anything else is recovery's to judge.
pub(crate) fn check_header(
    folder: &Folder,
    block: &[u8],
    uuid: Uuid,
    segment_bytes: u64,
    number: u64,
) -> Result<Segment> {
    debug_assert!(block.len() <= BLOCK_BYTES, "a header is one block");
    match header::decode(block, uuid, segment_bytes, number) {
        Err(HeaderFault::Block(fault)) if fault.is_unsupported() => {
            let text = format!("the segment's header {fault}");
            let path = folder.path().join(segment_name(number));
            Err(Error::new(ErrorKind::Unsupported, text).at_path(path).at_segment(number))
        }
        other => Ok(Segment { number, header: other.map_err(|fault| fault.to_string()) }),
    }
}
