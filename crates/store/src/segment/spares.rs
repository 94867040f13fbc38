//! Spares: files that are ready to become segments. One gets its header and a segment's name when
//! it is taken. A released segment can become a spare again.
//!
//! The log keeps as many as it takes between two releases, or took lately, because an engine
//! releases segments in bursts and then takes as many again. Kept files cost no space that the log
//! did not take before. The number has a cap, so that a log that was large once gives its space
//! back. The estimate follows a larger demand at once and a smaller one slowly, as PostgreSQL's
//! `CheckPointDistanceEstimate` does.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Maker, Segments};
use crate::disk::{Access, DiskFile, write_bytes, write_zeros};
use crate::folder::{segment_name, segments_in, spare_name, spares_in};
use crate::segment::header;
use crate::segment::segment_file::{LOG_AT, SegmentFile};
use crate::sync::Ordering;
use crate::{Epoch, Error, ErrorKind, FilesTaken, Lsn, Predecessor, Result, SegmentHeader};

/// Whether a file may exceed `max_bytes`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MayExceed {
    /// For an open or a truncation of the suffix, also of a log at its limit, and for the appends
    /// that such a truncation waits for.
    Yes,
    No,
}

/// Exists while the preparer makes a spare without the lock. Its drop clears `Maker::making`.
struct Making<'a>(&'a Segments);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.maker.lock().making = None;
        self.0.made.notify_all();
    }
}

impl Segments {
    pub(crate) fn keep_a_spare(&self) -> Result<()> {
        let number = {
            let mut maker = self.maker.lock();
            if !maker.spares.is_empty() {
                return Ok(());
            }
            match self.check_limit(&maker) {
                Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
                checked => checked?,
            }
            let number = take_number(&mut maker);
            maker.making = Some(number);
            number
        };
        let _making = Making(self);
        let made = self.make_spare(number, true);
        let mut maker = self.maker.lock();
        match made {
            Ok(_) => drop(maker.spares.insert(number)),
            Err(error) => return Err(self.discard_spare(&mut maker, number, error)),
        }
        Ok(())
    }

    /// Returns whether segment `number` has to wait for the preparer's spare, because `max_bytes`
    /// allows no other file.
    pub(super) fn must_wait_for_a_spare(&self, maker: &Maker, number: u64) -> bool {
        let may_make =
            || self.may_exceed(number) == MayExceed::Yes || self.check_limit(maker).is_ok();
        maker.making.is_some() && maker.spares.is_empty() && !may_make()
    }

    pub(super) fn make(&self, maker: &mut Maker, epoch: &Epoch, number: u64) -> Result<()> {
        let file = match maker.half_named.take() {
            Some((named, file)) if named == number => file,
            _ => {
                let spare = self.take_spare(maker, self.may_exceed(number))?;
                self.name(maker, &self.header(epoch, number, None), &[], spare)?
            }
        };
        if let Err(error) = self.folder.sync() {
            // After `NoSpace` the next call syncs the folder again. After any other failure the
            // name may be on the medium or not, so the log is poisoned.
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

    /// Returns a segment's header. Only an epoch's first segment has a `predecessor`.
    pub(super) fn header(
        &self,
        epoch: &Epoch,
        number: u64,
        predecessor: Option<Predecessor>,
    ) -> SegmentHeader {
        let Epoch { number: epoch, salt, .. } = *epoch;
        SegmentHeader { number, base: self.start_of(number), epoch, salt, predecessor }
    }

    /// Writes a header and the first bytes of log to a spare, and gives it the segment's name.
    /// Removes the spare after a failure, unless it is in `Maker::spares` and lacked a descriptor.
    pub(super) fn name(
        &self,
        maker: &mut Maker,
        header: &SegmentHeader,
        first: &[u8],
        spare: u64,
    ) -> Result<Arc<SegmentFile>> {
        let number = header.number;
        let opened = match self.open_spare(spare, number) {
            // The log wrote nothing to the spare, so it stays one. A spare that `take_spare` has
            // just made is not in `maker.spares`, because no sync has covered it.
            Err(error) if error.kind() == ErrorKind::NoFiles && maker.spares.contains(&spare) => {
                return Err(error.at_segment(number));
            }
            opened => opened,
        };
        maker.spares.remove(&spare);
        match opened.and_then(|file| self.write_start_and_name(file, spare, header, first)) {
            Ok(file) => {
                maker.demand.take();
                Ok(file)
            }
            Err(error) => Err(self.discard_spare(maker, spare, error.at_segment(number))),
        }
    }

    /// Opens a spare if segment `number` does not exist.
    fn open_spare(&self, spare: u64, number: u64) -> Result<Box<dyn DiskFile>> {
        if self.folder.open_if_there(&segment_name(number), Access::Read)?.is_some() {
            let text = "a file has the name of the segment that is to be made, and the log did not \
                        make it: move it away, then open the log again";
            return Err(self.located(Error::new(ErrorKind::Io, text), number));
        }
        // A person may have removed the spare. It held no data, so a new file does as well.
        self.folder.open(&spare_name(spare), Access::WriteOrCreate)
    }

    fn write_start_and_name(
        &self,
        file: Box<dyn DiskFile>,
        spare: u64,
        header: &SegmentHeader,
        first: &[u8],
    ) -> Result<Arc<SegmentFile>> {
        let name = spare_name(spare);
        let file = self.alone(file, spare)?;
        let block = header::encode(header, &self.shape.log());
        write_bytes(file.as_ref(), 0, &block)
            .and_then(|()| write_bytes(file.as_ref(), LOG_AT, first))
            .and_then(|()| file.sync_data())
            .map_err(|error| self.folder.error("write the segment's header", &name, error))?;
        let file = self.wrap(file, header.number)?;
        self.folder.rename(&name, &segment_name(header.number))?;
        Ok(file)
    }

    /// Returns the spare's file, or a new one if it has other names: a backup by hard links still
    /// has the segment.
    fn alone(&self, file: Box<dyn DiskFile>, spare: u64) -> Result<Box<dyn DiskFile>> {
        let name = spare_name(spare);
        let is_linked = file.has_other_names();
        if !is_linked.map_err(|error| self.folder.error("look at the file", &name, error))? {
            return Ok(file);
        }
        self.folder.remove(&name)?;
        self.make_spare(spare, false)
    }

    /// Returns a spare, or makes one. `name` removes it from the spares.
    pub(super) fn take_spare(&self, maker: &mut Maker, may_exceed: MayExceed) -> Result<u64> {
        self.check_file_size()?;
        if let Some(spare) = maker.spares.first() {
            return Ok(*spare);
        }
        if may_exceed == MayExceed::No {
            self.check_limit(maker)?;
        }
        let spare = take_number(maker);
        match self.make_spare(spare, false) {
            Ok(_) => Ok(spare),
            Err(error) => Err(self.discard_spare(maker, spare, error)),
        }
    }

    /// Removes a spare to make space for a write. Returns whether it did.
    pub(super) fn give_up_a_spare(&self) -> bool {
        let mut maker = self.maker.lock();
        let spare = maker.spares.pop_last();
        spare.is_some_and(|spare| self.remove_spare(&mut maker, spare))
    }

    pub(super) fn make_spare(&self, number: u64, durable: bool) -> Result<Box<dyn DiskFile>> {
        self.check_in_place()?;
        self.check_file_size()?;
        let name = spare_name(number);
        let file = self.folder.open(&name, Access::Fresh)?;
        write_zeros(file.as_ref(), 0, LOG_AT + self.shape.first_step_bytes())
            .and_then(|()| if durable { file.sync_data() } else { Ok(()) })
            .map_err(|error| self.folder.error("make a spare segment", &name, error))?;
        if durable {
            self.folder.sync()?;
        }
        Ok(file)
    }

    /// Makes a spare of segment `number` if its file can be reused and there are fewer than `keep`
    /// spares. Otherwise removes the segment.
    pub(super) fn free(&self, number: u64, keep: usize) -> Result<()> {
        let spare = {
            let mut maker = self.maker.lock();
            let is_wanted = maker.spares.len() < keep && number >= maker.trust.first_recyclable();
            let spare = (is_wanted && self.shape.in_place).then(|| take_number(&mut maker));
            maker.recycling = spare.map(|spare| (number, spare));
            spare
        };
        let recycled = self.recycle_or_remove(number, spare);
        let mut maker = self.maker.lock();
        maker.recycling = None;
        maker.spares.extend(recycled?);
        Ok(())
    }

    /// Renames segment `number` to `spare`, or removes it. Returns the new spare.
    fn recycle_or_remove(&self, number: u64, spare: Option<u64>) -> Result<Option<u64>> {
        let name = segment_name(number);
        // Held until the name is gone, so that the preparer does not begin to zero this segment.
        let zeroing = self.zeroing.lock();
        let spare = spare.filter(|_| *zeroing != Some(number));
        match spare {
            Some(spare) => self.folder.rename(&name, &spare_name(spare))?,
            None => self.folder.remove(&name)?,
        }
        self.forget(number);
        Ok(spare)
    }

    pub(super) fn remove_surplus(&self, keep: usize) -> Result<()> {
        loop {
            let mut maker = self.maker.lock();
            let surplus = if maker.spares.len() > keep { maker.spares.pop_last() } else { None };
            drop(maker);
            let Some(spare) = surplus else { return Ok(()) };
            let removed = self.folder.remove_if_there(&spare_name(spare));
            if removed.is_err() {
                // For a later release.
                self.maker.lock().spares.insert(spare);
            }
            removed?;
        }
    }
}

pub(super) fn take_number(maker: &mut Maker) -> u64 {
    let number = maker.next_spare;
    maker.next_spare = number.wrapping_add(1);
    number
}

/// Each release lowers the estimate by `1 / DECAY` of what exceeds the last demand.
const DECAY: u64 = 10;

/// At most `MOST_TIMES` the asked number are kept.
const MOST_TIMES: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Demand {
    taken: u64,
    // In tenths of a segment: a small estimate decays by less than one segment in each release.
    estimate: u64,
}

impl Demand {
    pub(crate) fn take(&mut self) {
        self.taken += 1;
    }

    /// Returns how many spares to keep, at least `asked`. Rounds up: a log that takes four segments
    /// and a half takes five every other time.
    pub(crate) fn at_release(&mut self, asked: usize) -> usize {
        let taken = std::mem::take(&mut self.taken) * DECAY;
        // Rounded up, or an estimate a little above the demand would stay there for ever.
        let slow = self.estimate - self.estimate.div_ceil(DECAY) + taken / DECAY;
        self.estimate = taken.max(slow);
        let wanted = self.estimate.div_ceil(DECAY) as usize;
        wanted.clamp(asked, asked.saturating_mul(MOST_TIMES))
    }
}

impl Segments {
    /// Counts the files. Takes no lock, because the preparer may hold `maker` over a sync.
    pub(crate) fn files_taken(&self) -> Result<FilesTaken> {
        let names = self.folder.names()?;
        let segments = segments_in(&names, self.shape.segment_bytes).len() as u64;
        let spares = spares_in(&names).len() as u64;
        let file_bytes = self.shape.file_bytes();
        Ok(FilesTaken { segments, spares, file_bytes, limit: self.shape.max_bytes })
    }

    pub(crate) fn exceed_limit_below(&self, to: Lsn) {
        // Relaxed: the value alone counts. The truncating thread itself makes what it waits for.
        self.unlimited_below.fetch_max(to.as_u64(), Ordering::Relaxed);
    }

    pub(super) fn may_exceed(&self, number: u64) -> MayExceed {
        // Relaxed: as above.
        let below = Lsn::new(self.unlimited_below.load(Ordering::Relaxed));
        if self.start_of(number) < below { MayExceed::Yes } else { MayExceed::No }
    }

    pub(super) fn check_limit(&self, maker: &Maker) -> Result<()> {
        let limit = self.shape.max_bytes;
        if limit.is_none() {
            return Ok(());
        }
        let (segments, spares) = count(&self.folder.names()?, maker, self.shape.segment_bytes);
        let file_bytes = self.shape.file_bytes();
        let taken = FilesTaken { segments, spares, file_bytes, limit };
        taken.check_limit(1).map_err(|error| error.at_path(self.folder.path()))
    }
}

/// Counts segments and spares. A spare that is being removed may be in `names`, and a file that is
/// renamed may be there with neither name or both.
fn count(names: &[String], maker: &Maker, segment_bytes: u64) -> (u64, u64) {
    let mut segments = segments_in(names, segment_bytes);
    let mut spares: BTreeSet<u64> = spares_in(names).into_iter().collect();
    spares.extend(maker.spares.iter().chain(&maker.making));
    if let Some((segment, spare)) = maker.recycling {
        segments.retain(|number| *number != segment);
        spares.insert(spare);
    }
    (segments.len() as u64, spares.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::{segment_name, spare_name};

    fn release_after(demand: &mut Demand, taken: u64) -> usize {
        (0..taken).for_each(|_| demand.take());
        demand.at_release(8)
    }

    #[test]
    fn a_larger_demand_counts_at_once_a_smaller_one_slowly() {
        let mut demand = Demand::default();
        assert_eq!(release_after(&mut demand, 3), 8);
        assert_eq!(release_after(&mut demand, 20), 20);
        let next = release_after(&mut demand, 0);
        assert!((15..20).contains(&next), "{next}");
        assert_eq!((0..100).map(|_| release_after(&mut demand, 2)).last(), Some(8));
    }

    #[test]
    fn a_log_that_takes_half_a_segment_more_keeps_a_whole_one() {
        let mut demand = Demand::default();
        assert_eq!(release_after(&mut demand, 10), 10);
        assert_eq!(release_after(&mut demand, 9), 10, "the next burst may take ten again");
        assert_eq!(release_after(&mut demand, 10), 10);
        assert_eq!((0..20).map(|_| release_after(&mut demand, 9)).last(), Some(9), "and no more");
    }

    #[test]
    fn a_burst_does_not_stay_for_ever() {
        let mut demand = Demand::default();
        assert_eq!(demand.at_release(0), 0);
        assert_eq!(release_after(&mut demand, 10_000), 8 * MOST_TIMES);
        assert_eq!(demand.at_release(0), 0, "none was asked for, whatever the log takes");
        assert_eq!(demand.at_release(usize::MAX), usize::MAX);
    }

    #[test]
    fn a_file_renamed_while_the_folder_is_listed_counts_once() {
        let mut maker = Maker { recycling: Some((3, 8)), ..Maker::default() };
        maker.spares.insert(7);
        for listed in [vec![], vec![segment_name(3)], vec![spare_name(8)]] {
            let names = [vec![segment_name(4), spare_name(7)], listed].concat();
            assert_eq!(count(&names, &maker, 4096), (1, 2), "{names:?}");
        }
        let both = [segment_name(3), segment_name(4), spare_name(7), spare_name(8)];
        assert_eq!(count(&both, &maker, 4096), (1, 2));
    }
}
