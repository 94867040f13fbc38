//! Spares: files that are complete up to their header and become segments, and segments that become
//! spares again.

use std::sync::Arc;

use palisade_core::store::{Epoch, Predecessor, SegmentHeader};
use palisade_core::{Error, ErrorKind, Result};

use super::{Maker, Segments};
use crate::disk::{Access, DiskFile, write_bytes, write_zeros};
use crate::folder::{segment_name, spare_name};
use crate::segment::header;
use crate::segment::segment_file::{LOG_AT, SegmentFile};

/// Whether a file may be made beyond `max_bytes`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MayExceed {
    /// For an open or a truncation of the suffix, which would leave the log unusable otherwise,
    /// and for the appends that such a truncation waits for.
    Yes,
    No,
}

/// The preparer's making of a spare without the lock. Its drop ends it, also after a panic.
struct Making<'a>(&'a Segments);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.maker.lock().making = None;
        self.0.made.notify_all();
    }
}

impl Segments {
    /// Makes a spare if there is none.
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

    /// Returns whether `max_bytes` allows segment `number` no other file than the spare that the
    /// preparer is making.
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

    /// The header of segment `number` of `epoch`; its first segment names the epoch before.
    pub(super) fn header(
        &self,
        epoch: &Epoch,
        number: u64,
        predecessor: Option<Predecessor>,
    ) -> SegmentHeader {
        let Epoch { number: epoch, salt, .. } = *epoch;
        SegmentHeader { number, base: self.start_of(number), epoch, salt, predecessor }
    }

    /// Writes a header and the first bytes of log to a spare, and gives it the segment's name. If
    /// the spare cannot be opened for lack of a descriptor, it stays a spare.
    pub(super) fn name(
        &self,
        maker: &mut Maker,
        header: &SegmentHeader,
        first: &[u8],
        spare: u64,
    ) -> Result<Arc<SegmentFile>> {
        let number = header.number;
        let opened = match self.open_spare(spare, number) {
            // Nothing was written to it. One that was made just now is not among the spares: no
            // sync has covered it.
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
        // It may have been removed by hand: space is all that it stood for.
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

    /// The spare's file, or a new one in its place if it has other names: a backup of hard links
    /// has the segment that it was.
    fn alone(&self, file: Box<dyn DiskFile>, spare: u64) -> Result<Box<dyn DiskFile>> {
        let name = spare_name(spare);
        let is_linked = file.has_other_names();
        if !is_linked.map_err(|error| self.folder.error("look at the file", &name, error))? {
            return Ok(file);
        }
        self.folder.remove(&name)?;
        self.make_spare(spare, false)
    }

    /// A file to become a segment, which `name` takes from the spares.
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

    /// Removes a spare for the sake of a write that lacks space, because nobody else can free it.
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
            let is_wanted = maker.spares.len() < keep && maker.trust.may_recycle(number);
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
        // Held until the name is gone: nobody begins to zero what is about to be recycled.
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
