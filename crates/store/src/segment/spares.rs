//! Spares: files that become segments and lack only the header, and segments that become spares
//! again.

use std::sync::Arc;

use super::{Maker, Segments};
use crate::disk::{Access, DiskFile, write_bytes, write_zeros};
use crate::folder::{segment_name, spare_name};
use crate::segment::header;
use crate::segment::segment_file::{LOG_AT, SegmentFile};
use crate::{Epoch, Predecessor, SegmentHeader};
use crate::{Error, ErrorKind, Result};

/// Whether a file may be made beyond `max_bytes`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MayExceed {
    /// For an open or a truncation of the suffix, because a log at its limit could not be opened
    /// or truncated otherwise. Also for the appends that such a truncation waits for.
    Yes,
    No,
}

/// Exists while the preparer makes a spare without the lock. Its drop clears `Maker::making`, also
/// after a panic.
struct Making<'a>(&'a Segments);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.maker.lock().making = None;
        self.0.made.notify_all();
    }
}

impl Segments {
    /// Makes a spare if there is none and `max_bytes` allows one.
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

    /// Returns whether segment `number` has to wait for the spare that the preparer is making,
    /// because `max_bytes` allows no further file.
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

    /// Returns the header of segment `number` of `epoch`. Only the header of an epoch's first
    /// segment names a `predecessor`, the epoch before.
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
    /// After a failure removes the spare, unless it is in `Maker::spares` and could not be opened
    /// for lack of a descriptor.
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

    /// Opens a spare that is to become segment `number`, if that name is free.
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

    /// Returns the spare's file. If the file has other names, puts a new file in its place: the
    /// spare was a segment, and a backup by hard links still has that segment.
    fn alone(&self, file: Box<dyn DiskFile>, spare: u64) -> Result<Box<dyn DiskFile>> {
        let name = spare_name(spare);
        let is_linked = file.has_other_names();
        if !is_linked.map_err(|error| self.folder.error("look at the file", &name, error))? {
            return Ok(file);
        }
        self.folder.remove(&name)?;
        self.make_spare(spare, false)
    }

    /// Returns the number of a spare that can become a segment, and makes one if there is none.
    /// Does not remove it from the spares; `name` does.
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

    /// Removes a spare to make space for a write. Only the log can free this space. Returns whether
    /// it has removed one.
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

    /// Makes a spare of segment `number`, or removes it. At most `keep` spares are kept.
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

    /// Gives segment `number` the name of `spare`, or removes it. Returns the spare that it became.
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

    /// Removes all spares but `keep`.
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
