//! The records that a new epoch begins with, which `replace_from` writes before the segment has a
//! name.

use crate::Codec;
use crate::codec;
use crate::frame::{self, EpochSeed, HEADER_BYTES, Header, Kind, framed_bytes};
use crate::{Error, ErrorKind, Lsn, Result, crc32c_append};

/// Frames of an epoch whose base and seed are not known yet.
#[derive(Debug, Default)]
pub(super) struct FirstRecords {
    // The frames without their headers.
    bytes: Vec<u8>,
    // Where each frame begins, from the epoch's base on, and its header.
    frames: Vec<(u64, Header)>,
}

impl FirstRecords {
    pub(super) fn copy<I, R>(
        records: I,
        codec: Option<&dyn Codec>,
        most: usize,
    ) -> Result<FirstRecords>
    where
        I: IntoIterator<Item = (u16, R)>,
        R: AsRef<[u8]>,
    {
        let mut first = FirstRecords::default();
        let mut encoded = Vec::new();
        for (tag, record) in records {
            let record = record.as_ref();
            frame::check_record_len(record.len(), most - HEADER_BYTES)?;
            let is_encoded =
                codec.map_or(Ok(false), |codec| codec::encode(codec, tag, record, &mut encoded))?;
            let payload = if is_encoded { &encoded } else { record };
            let at = first.bytes.len();
            let room = most - at;
            if framed_bytes(payload.len()) > room as u64 {
                let text = format!("the records of one call take at most {most} bytes");
                return Err(Error::new(ErrorKind::TooLarge, text));
            }
            let checksum = crc32c_append(0, payload);
            let header = Header::new(Kind::Data, tag, payload.len() as u32, checksum);
            let header = header.encoded_if(is_encoded);
            first.bytes.resize(at + HEADER_BYTES, 0);
            first.bytes.extend_from_slice(payload);
            first.bytes.resize(at + header.frame_bytes as usize, 0);
            first.frames.push((at as u64, header));
        }
        Ok(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the frames, and padding up to a multiple of `block_bytes`. The frames claim that
    /// everything below `base` was durable, which is true as soon as a reader can find them.
    pub(super) fn encode(&mut self, seed: EpochSeed, base: Lsn, block_bytes: u64) -> &[u8] {
        for (offset, header) in &self.frames {
            let header = Header { durable_lag: *offset, ..*header };
            let at = *offset as usize;
            self.bytes[at..at + HEADER_BYTES]
                .copy_from_slice(&header.encode(seed, base.plus(*offset)));
        }
        let end = self.frames.last().map_or(0, |(offset, header)| offset + header.frame_bytes);
        self.bytes.truncate(end as usize);
        let rest = end.next_multiple_of(block_bytes) - end;
        if rest > 0 {
            let (head, used) = frame::padding(seed, base.plus(end), rest, end);
            self.bytes.extend_from_slice(&head[..used]);
            self.bytes.resize((end + rest) as usize, 0);
        }
        &self.bytes
    }

    pub(super) fn end(&self, base: Lsn) -> Lsn {
        base.plus(self.bytes.len() as u64)
    }

    pub(super) fn lsns(&self, base: Lsn) -> Vec<Lsn> {
        self.frames.iter().map(|(offset, _)| base.plus(*offset)).collect()
    }
}
