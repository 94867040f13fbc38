//! Segments whose bytes read right and may not be on the medium: copied to other blocks.
//!
//! A copy goes into a spare, which is synced before it takes the segment's name: at each moment the
//! name stands for a file that has all of the bytes. So power loss in the middle takes nothing, where
//! writing the same bytes again in place could tear what is durable (M1).

use palisade_core::{Lsn, Result};

use super::Segments;
use crate::folder::{segment_name, spare_name};
use crate::fs::{Access, write_bytes};
use crate::segment_file::{LOG_AT, SegmentFile};

/// Bytes of a segment that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Segments {
    /// Copies the segments that have bytes in `[from, to)`, up to `to`, into spares that take
    /// their names. One spare at a time is enough: the copied file's blocks come back.
    pub(crate) fn move_to_fresh_blocks(&self, from: Lsn, to: Lsn) -> Result<()> {
        let mut maker = self.maker.lock();
        let (first, _) = self.split(from);
        let (last, _) = self.split(Lsn::new(to.as_u64() - 1));
        for number in first..=last {
            let Some(old) = self.file(number)? else {
                continue;
            };
            let len = to.bytes_since(self.start_of(number)).min(self.shape.segment_bytes);
            let spare = self.take_spare(&mut maker, true)?;
            let copied = self
                .copy_into_spare(&old, number, len, spare)
                .and_then(|()| self.folder.rename(&spare_name(spare), &segment_name(number)));
            if let Err(error) = copied {
                // Still a spare.
                maker.spares.insert(spare);
                return Err(error.at_segment(number));
            }
            self.files.write().remove(&number);
            self.last_read.lock().take();
            self.folder.sync()?;
        }
        Ok(())
    }

    fn copy_into_spare(&self, old: &SegmentFile, number: u64, len: u64, spare: u64) -> Result<()> {
        let name = spare_name(spare);
        let file = self.folder.open(&name, Access::WriteOrCreate)?;
        let unread = |error| self.named("read the segment", number, error);
        let unwritten = |error| self.folder.error("write the copy of a segment", &name, error);
        let header = old.read_header().map_err(unread)?;
        write_bytes(file.as_ref(), 0, &header).map_err(unwritten)?;
        let mut piece = vec![0; COPY_BYTES.min(len) as usize];
        let mut at = 0;
        while at < len {
            let wanted = (len - at).min(COPY_BYTES) as usize;
            let read = old.read(at, &mut piece[..wanted]).map_err(unread)?;
            if read == 0 {
                break;
            }
            write_bytes(file.as_ref(), LOG_AT + at, &piece[..read]).map_err(unwritten)?;
            at += read as u64;
        }
        file.sync_data().map_err(unwritten)
    }
}
