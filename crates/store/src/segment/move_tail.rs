//! The move of the log's end into new files.
//!
//! A copy is synced before it takes the segment's name, so the name always stands for a whole file.
//! An overwrite in place could tear bytes that are durable already, which M1 does not protect, or
//! never reach the medium.

use super::spares::take_number;
use super::{Maker, Segments};
use crate::disk::{Access, DiskFile, write_bytes};
use crate::folder::{segment_name, spare_name};
use crate::segment::header;
use crate::segment::segment_file::LOG_AT;
use crate::{Epoch, TailSource};
use crate::{Error, ErrorKind, Lsn, Result};

const COPY_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Part {
    number: u64,
    /// The old file has the bytes below.
    from: Lsn,
    to: Lsn,
}

impl Segments {
    /// As `FileStore::move_tail`. Needs space for one more file only.
    pub(crate) fn move_tail(
        &self,
        epoch: &Epoch,
        from: Lsn,
        to: Lsn,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        self.check_file_size()?;
        let mut maker = self.maker.lock();
        let (first, _) = self.split(from);
        let (last, _) = self.split(Lsn::new(to.as_u64() - 1));
        self.distrust_what_was_found(&mut maker, last + 1)?;
        *self.found.lock() = None;
        for number in first..=last {
            let (base, end) = (self.start_of(number), self.start_of(number + 1));
            let part = Part { number, from: from.max(base), to: to.min(end) };
            self.move_segment(&mut maker, epoch, part, source)
                .map_err(|error| error.at_segment(number))?;
        }
        Ok(())
    }

    fn move_segment(
        &self,
        maker: &mut Maker,
        epoch: &Epoch,
        part: Part,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        let spare = take_number(maker);
        let copied = self
            .copy_into(spare, epoch, part, source)
            .and_then(|()| self.folder.rename(&spare_name(spare), &segment_name(part.number)));
        copied.map_err(|error| self.discard_spare(maker, spare, error))?;
        self.forget(part.number);
        self.folder.sync()
    }

    fn copy_into(
        &self,
        spare: u64,
        epoch: &Epoch,
        part: Part,
        source: &mut TailSource<'_>,
    ) -> Result<()> {
        let name = spare_name(spare);
        let file = self.folder.open(&name, Access::Fresh)?;
        let unwritten = |error| self.folder.error("write the copy of a segment", &name, error);
        self.copy_old(file.as_ref(), &name, epoch, part)?;
        let base = self.start_of(part.number);
        let (mut at, mut piece) = (part.from, Vec::new());
        while at < part.to {
            piece.clear();
            let end = source(at, part.to, &mut piece)?;
            write_bytes(file.as_ref(), LOG_AT + at.bytes_since(base), &piece).map_err(unwritten)?;
            at = end;
        }
        file.sync_data().map_err(unwritten)
    }

    /// Copies the header and the durable bytes below the part. Writes a new header if there is no
    /// file, because only the log buffer has the segment.
    fn copy_old(&self, file: &dyn DiskFile, name: &str, epoch: &Epoch, part: Part) -> Result<()> {
        let unwritten = |error| self.folder.error("write the copy of a segment", name, error);
        let base = self.start_of(part.number);
        let Some(old) = self.file_to_read(part.number)? else {
            let header = self.header(epoch, part.number, None);
            let block = header::encode(&header, &self.shape.log());
            return write_bytes(file, 0, &block).map_err(unwritten);
        };
        let unread = |error| self.named("read the segment", part.number, error);
        let block = old.read_header().map_err(unread)?;
        let header = self.check_header(&block, part.number)?.header;
        if !header.is_ok_and(|header| header.epoch == epoch.number) {
            let text = "the header of a segment that was read a moment ago does not validate";
            return Err(self.located(Error::new(ErrorKind::Io, text), part.number));
        }
        write_bytes(file, 0, &block).map_err(unwritten)?;
        let len = part.from.bytes_since(base);
        let mut piece = vec![0; COPY_BYTES.min(len) as usize];
        let mut at = 0;
        while at < len {
            let wanted = (len - at).min(COPY_BYTES) as usize;
            let read = old.read(at, &mut piece[..wanted]).map_err(unread)?;
            if read == 0 {
                break;
            }
            write_bytes(file, LOG_AT + at, &piece[..read]).map_err(unwritten)?;
            at += read as u64;
        }
        Ok(())
    }
}
