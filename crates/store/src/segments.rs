//! The segments of a log that this process writes: their files, their making and recycling.
//!
//! A file gets a segment's name only when it is complete: it is a spare first, gets the header,
//! is synced, renamed, and the folder is synced. What a spare holds is never read.
//!
//! Locks, taken in this order: `maker` (the making and freeing of segments; held over device
//! calls), `zeroing` (what the preparer is at work in; held over the calls that open, rename or
//! remove a file), `files` (the open files; never held over one), `last_read`. Under `dead` and
//! `found` none is taken.

mod fresh_blocks;
mod open_files;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use palisade_core::store::{Epoch, Predecessor, Segment, SegmentHeader};
use palisade_core::{Error, ErrorKind, Lsn, Result, Uuid};
use parking_lot::{Mutex, RwLock};

use crate::archive::Archive;
use crate::block::BLOCK_BYTES;
use crate::demand::Demand;
use crate::folder::{Folder, segment_name, spare_name};
use crate::fs::{Access, ZeroSteps, write_bytes, write_zeros};
use crate::header::{self, HeaderFault};
use crate::segment_file::{LOG_AT, SegmentFile};

/// What does not change while the store is open.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) uuid: Uuid,
    pub(crate) segment_bytes: u64,
    /// Whether a written block stays in its place; only then are files recycled.
    pub(crate) in_place: bool,
    /// Whether files are written with zeros ahead of the tail.
    pub(crate) zero_fill: bool,
    /// Released files that are kept at least.
    pub(crate) spare_segments: usize,
    /// How much is zeroed at a time.
    pub(crate) zero_steps: ZeroSteps,
}

impl Shape {
    /// Whether files are written with zeros before the log comes to them.
    pub(crate) fn does_zero(&self) -> bool {
        self.zero_fill && self.in_place
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
    archive: Option<Archive>,
    /// The segments that the open found, until this process makes or frees any: nobody else does.
    found: Mutex<Option<Vec<u64>>>,
    /// For the archive, the dead ranges that headers told of: one may rot before it is asked again.
    dead: Mutex<BTreeSet<(Lsn, Lsn)>>,
    files: RwLock<BTreeMap<u64, Arc<SegmentFile>>>,
    last_read: Mutex<Option<(u64, Arc<SegmentFile>)>>,
    maker: Mutex<Maker>,
    /// The segment that the preparer is zeroing.
    zeroing: Mutex<Option<u64>>,
    prepared: AtomicU64,
    /// What failed behind the leader's back, and poisons the log once the leader comes.
    failure: OnceLock<Error>,
}

#[derive(Debug, Default)]
struct Maker {
    epoch: Option<Epoch>,
    /// Complete up to their header, in the order in which they are taken.
    spares: BTreeSet<u64>,
    /// Left by an interrupted making; their numbers are taken first.
    half_made: Vec<u64>,
    next_spare: u64,
    demand: Demand,
    /// A segment that has its name, but the folder's sync failed for lack of space.
    half_named: Option<(u64, Arc<SegmentFile>)>,
}

impl Segments {
    pub(crate) fn open(folder: Folder, shape: Shape, archive: Option<Archive>) -> Result<Segments> {
        let mut maker = Maker::default();
        let [segments, spares] = folder.segments_and_spares(shape.segment_bytes)?;
        for number in spares {
            maker.next_spare = number.saturating_add(1);
            if spare_bytes(&folder, number)? >= LOG_AT + shape.first_step_bytes() {
                maker.spares.insert(number);
            } else {
                maker.half_made.push(number);
            }
        }
        Ok(Segments {
            folder,
            shape,
            archive,
            found: Mutex::new(Some(segments)),
            dead: Mutex::default(),
            files: RwLock::default(),
            last_read: Mutex::default(),
            maker: Mutex::new(maker),
            zeroing: Mutex::default(),
            prepared: AtomicU64::new(0),
            failure: OnceLock::new(),
        })
    }

    /// All segments in the folder with what their headers say.
    pub(crate) fn list(&self) -> Result<Vec<Segment>> {
        let looks = self.numbers()?.into_iter().map(|number| self.look(number));
        // One that was freed between the listing and the look is none.
        looks.filter_map(Result::transpose).collect()
    }

    /// The numbers of all segments in the folder, ascending.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>> {
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
    pub(crate) fn look(&self, number: u64) -> Result<Option<Segment>> {
        let Some(file) = self.file_to_read(number)? else { return Ok(None) };
        let block = file
            .read_header()
            .map_err(|error| self.named("read the segment's header", number, error))?;
        let segment = check_header(&self.folder, &block, &self.shape, number)?;
        if let (Some(_), Ok(header)) = (&self.archive, &segment.header)
            && let Some(old) = header.predecessor
        {
            self.dead.lock().insert((old.end, header.base));
        }
        Ok(Some(segment))
    }

    pub(crate) fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let (number, offset) = self.split(at);
        let Some(file) = self.file_to_read(number)? else {
            return Ok(0);
        };
        let read = file.read(offset, into);
        read.map_err(|error| self.named("read the segment", number, error).at_lsn(at))
    }

    /// Syncs every segment that has bytes in `[from, to)`, oldest first. All below `from` is durable.
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
            file.sync().map_err(|error| self.named("sync the segment", number, error))?;
            // Here, not at the end: there may be more segments than a process may open files.
            self.close(first..number);
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

    /// The failure that was kept.
    pub(crate) fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn prepared(&self) -> Lsn {
        // Acquire: whoever sees a segment's end finds its file, too; pairs with the Release in
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
            let (number, _) = self.split(self.prepared());
            self.make(&mut maker, &epoch, number)?;
            made = true;
        }
        Ok(made)
    }

    /// Begins `epoch`. Where the one before `is_running`, lack of space is told from an unknown
    /// outcome: a name that may have reached the disk is not `NoSpace`.
    pub(crate) fn begin(&self, epoch: &Epoch, is_running: bool) -> Result<()> {
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
        if !is_running && !self.numbers_to_change()?.is_empty() {
            // A dead life may have named segments and not come to the sync. Power loss must not
            // keep the new name, which says where they end, and lose theirs.
            self.folder.sync()?;
        }
        let spare = self.take_spare(&mut maker, !is_running)?;
        let file = self.name(&mut maker, epoch, number, Some(epoch.predecessor), spare)?;
        self.folder.sync().map_err(|error| match error.kind() {
            ErrorKind::NoSpace if is_running => error.with_kind(ErrorKind::Io).at_segment(number),
            _ => error.at_segment(number),
        })?;
        self.publish(number, file);
        maker.epoch = Some(*epoch);
        if self.archive.is_some() {
            self.dead.lock().insert((epoch.predecessor.end, epoch.base));
        }
        Ok(())
    }

    pub(crate) fn resume(&self, epoch: &Epoch, from: Lsn) -> Result<()> {
        let mut maker = self.maker.lock();
        let last = self.numbers_to_change()?.pop();
        let end = last.map_or(epoch.base, |last| self.start_of(last + 1));
        let end = end.max(self.start_of(self.split(from).0));
        // Release: see `prepared`.
        self.prepared.store(end.as_u64(), Ordering::Release);
        maker.epoch = Some(*epoch);
        Ok(())
    }

    /// Frees the segments that lie wholly in `[from, to)`, as far as they can be archived. What
    /// kept the archive from taking more is the inner result.
    pub(crate) fn release(&self, from: Lsn, to: Lsn) -> Result<Result<()>> {
        let mut numbers = self.numbers_to_change()?;
        numbers.retain(|&number| from <= self.start_of(number) && self.start_of(number + 1) <= to);
        // Before the lock: who needs a segment made does not wait for copies of old ones.
        let (kept, archived) = self.keep_in_archive(&numbers);
        numbers.truncate(kept);
        if numbers.is_empty() {
            return Ok(archived);
        }
        let mut maker = self.maker.lock();
        let keep = maker.demand.at_release(self.shape.spare_segments);
        for number in numbers {
            self.free(&mut maker, number, keep)?;
        }
        while maker.spares.len() > keep
            && let Some(spare) = maker.spares.pop_last()
        {
            self.folder.remove_if_there(&spare_name(spare))?;
        }
        self.folder.sync()?;
        Ok(archived)
    }

    pub(crate) fn archives(&self) -> bool {
        self.archive.is_some()
    }

    /// Makes the archive's folder, once it is decided that the log is opened.
    pub(crate) fn make_archive(&self) -> Result<()> {
        self.archive.as_ref().map_or(Ok(()), Archive::make)
    }

    /// Archives the segments `numbers`, ascending, as far as it gets; says how far.
    fn keep_in_archive(&self, numbers: &[u64]) -> (usize, Result<()>) {
        let Some(archive) = self.archive.as_ref().filter(|_| !numbers.is_empty()) else {
            return (numbers.len(), Ok(()));
        };
        let dead = match self.dead_ranges(self.start_of(numbers[0])) {
            Ok(dead) => dead,
            Err(error) => return (0, Err(error)),
        };
        for (done, &number) in numbers.iter().enumerate() {
            let (base, end) = (self.start_of(number), self.start_of(number + 1));
            // An epoch that ends in the segment leaves bytes behind its end that are no records.
            let ends = dead.iter().filter(|(from, to)| *from < end && base < *to);
            let log_end = ends.map(|(from, _)| *from).min().unwrap_or(end);
            let bytes = log_end.bytes_since(base);
            let kept = if bytes > 0 { archive.keep(&self.folder, number, bytes) } else { Ok(()) };
            if let Err(error) = kept {
                return (done, Err(error));
            }
        }
        (numbers.len(), Ok(()))
    }

    /// The ranges above `from` between one epoch's end and the next one's base, as the headers tell
    /// or told them.
    fn dead_ranges(&self, from: Lsn) -> Result<Vec<(Lsn, Lsn)>> {
        self.list()?;
        let mut known = self.dead.lock();
        known.retain(|(_, base)| *base > from);
        Ok(known.iter().copied().collect())
    }

    /// Removes the segments that lie wholly in `[from, to)`, which were cut off.
    ///
    /// They are not recycled: a cut is rare, and nobody waits for their files.
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

    /// Makes a spare if there is none; the half-made rests of earlier tries stay unused.
    pub(crate) fn keep_a_spare(&self) -> Result<()> {
        let number = {
            let mut maker = self.maker.lock();
            if !maker.spares.is_empty() {
                return Ok(());
            }
            take_number(&mut maker)
        };
        self.make_spare(number, true)?;
        self.maker.lock().spares.insert(number);
        Ok(())
    }

    pub(crate) fn split(&self, at: Lsn) -> (u64, u64) {
        let bytes = self.shape.segment_bytes;
        (at.as_u64() / bytes, at.as_u64() % bytes)
    }

    pub(crate) fn start_of(&self, number: u64) -> Lsn {
        Lsn::new(number.saturating_mul(self.shape.segment_bytes))
    }

    fn make(&self, maker: &mut Maker, epoch: &Epoch, number: u64) -> Result<()> {
        let file = match maker.half_named.take() {
            Some((named, file)) if named == number => file,
            _ => {
                let spare = self.take_spare(maker, false)?;
                self.name(maker, epoch, number, None, spare)?
            }
        };
        if let Err(error) = self.folder.sync() {
            // Any other failure is not tried again: nothing is known of the name then.
            let error = error.at_segment(number);
            match error.kind() {
                ErrorKind::NoSpace => maker.half_named = Some((number, file)),
                _ => self.fail(error.clone()),
            }
            return Err(error);
        }
        self.publish(number, file);
        Ok(())
    }

    /// Puts a header on a spare and gives it the segment's name.
    fn name(
        &self,
        maker: &mut Maker,
        epoch: &Epoch,
        number: u64,
        predecessor: Option<Predecessor>,
        spare: u64,
    ) -> Result<Arc<SegmentFile>> {
        let base = self.start_of(number);
        let header =
            SegmentHeader { number, base, epoch: epoch.number, salt: epoch.salt, predecessor };
        let named = self.write_header_and_name(spare, &header);
        match named {
            Ok(_) => maker.demand.take(),
            // Still a spare.
            Err(_) => drop(maker.spares.insert(spare)),
        }
        named.map_err(|error| error.at_segment(number))
    }

    fn write_header_and_name(
        &self,
        spare: u64,
        header: &SegmentHeader,
    ) -> Result<Arc<SegmentFile>> {
        let name = segment_name(header.number);
        if self.folder.open_if_there(&name, Access::Read)?.is_some() {
            let text = "a segment that is to be made is there already";
            return Err(self.located(Error::new(ErrorKind::Io, text), header.number));
        }
        let file = self.write_header(spare, header)?;
        self.folder.rename(&spare_name(spare), &name)?;
        Ok(file)
    }

    /// A file to become a segment. The last spare is for an open only, which has to come through on
    /// a full disk.
    fn take_spare(&self, maker: &mut Maker, is_open: bool) -> Result<u64> {
        if (is_open || maker.spares.len() > 1)
            && let Some(spare) = maker.spares.pop_first()
        {
            return Ok(spare);
        }
        let spare = take_number(maker);
        self.make_spare(spare, false)?;
        Ok(spare)
    }

    /// Removes a spare for the sake of a write that lacks space, because nobody else can free it;
    /// the last one is for the next open.
    fn give_up_a_spare(&self) -> bool {
        let mut maker = self.maker.lock();
        if maker.spares.len() < 2 {
            return false;
        }
        // One that cannot be removed is a spare no more; the next open finds it again.
        let spare = maker.spares.pop_last();
        spare.is_some_and(|spare| self.folder.remove(&spare_name(spare)).is_ok())
    }

    fn write_header(&self, spare: u64, header: &SegmentHeader) -> Result<Arc<SegmentFile>> {
        let name = spare_name(spare);
        // It may have been removed by hand: space is all that it stood for.
        let file = self.folder.open(&name, Access::WriteOrCreate)?;
        let block = header::encode(header, self.shape.uuid, self.shape.segment_bytes);
        write_bytes(file.as_ref(), 0, &block)
            .and_then(|()| file.sync_data())
            .map_err(|error| self.folder.error("write the segment's header", &name, error))?;
        self.wrap(file, header.number)
    }

    fn make_spare(&self, number: u64, durable: bool) -> Result<()> {
        let name = spare_name(number);
        let file = self.folder.open(&name, Access::Fresh)?;
        let filled = write_zeros(file.as_ref(), 0, LOG_AT + self.shape.first_step_bytes())
            .and_then(|()| if durable { file.sync_data() } else { Ok(()) });
        if let Err(error) = filled {
            drop(file);
            // What it took is wanted elsewhere; the error that matters is the first.
            let _ = self.folder.remove(&name);
            return Err(self.folder.error("make a spare segment", &name, error));
        }
        if durable { self.folder.sync() } else { Ok(()) }
    }

    fn publish(&self, number: u64, file: Arc<SegmentFile>) {
        self.files.write().insert(number, file);
        // Release: the file is in the map before its addresses count; pairs with `prepared`.
        self.prepared.store(self.start_of(number + 1).as_u64(), Ordering::Release);
    }

    fn free(&self, maker: &mut Maker, number: u64, keep: usize) -> Result<()> {
        let name = segment_name(number);
        // Held until the name is gone: nobody begins to zero what is about to be recycled.
        let zeroing = self.zeroing.lock();
        let may_recycle = self.shape.in_place && *zeroing != Some(number);
        if may_recycle && maker.spares.len() < keep {
            let spare = take_number(maker);
            self.folder.rename(&name, &spare_name(spare))?;
            maker.spares.insert(spare);
        } else {
            self.folder.remove(&name)?;
        }
        self.forget(number);
        Ok(())
    }

    fn wrap(&self, file: Box<dyn crate::fs::DiskFile>, number: u64) -> Result<Arc<SegmentFile>> {
        let file = SegmentFile::new(file, self.shape.segment_bytes);
        let file = file.map(|file| file.stepping(self.shape.zero_steps.step_bytes));
        file.map(Arc::new).map_err(|error| self.named("look at the segment", number, error))
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
    shape: &Shape,
    number: u64,
) -> Result<Segment> {
    debug_assert!(block.len() <= BLOCK_BYTES, "a header is one block");
    match header::decode(block, shape.uuid, shape.segment_bytes, number) {
        Err(HeaderFault::Block(fault)) if fault.is_unsupported() => {
            let text = format!("the segment's header {fault}");
            let path = folder.path().join(segment_name(number));
            Err(Error::new(ErrorKind::Unsupported, text).at_path(path).at_segment(number))
        }
        other => Ok(Segment { number, header: other.map_err(|fault| fault.to_string()) }),
    }
}

fn take_number(maker: &mut Maker) -> u64 {
    maker.half_made.pop().unwrap_or_else(|| {
        let number = maker.next_spare;
        maker.next_spare = number.wrapping_add(1);
        number
    })
}

fn spare_bytes(folder: &Folder, number: u64) -> Result<u64> {
    let name = spare_name(number);
    let Some(file) = folder.open_if_there(&name, Access::Read)? else {
        return Ok(0);
    };
    file.len().map_err(|error| folder.error("look at the spare segment", &name, error))
}
