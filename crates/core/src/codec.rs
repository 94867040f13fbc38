//! Only [`encode`] encodes records, and only [`Decoder`] decodes them.
//!
//! The payload of an encoded record is what the codec made, then the record's length (4 bytes,
//! little-endian). Checksums cover the payload, so only appends and readers of an open log need the
//! codec.

use std::cell::Cell;
use std::sync::Arc;

use palisade_store::{State, check_codec};

use crate::frame::{HEADER_BYTES, MAX_FRAME_BYTES, check_record_len, framed_bytes};
use crate::{Codec, CodecId, Error, ErrorKind, Lsn, Record, RecordBuf, Result};

const LENGTH_BYTES: usize = 4;
/// A thread keeps buffers up to this length.
const MOST_KEPT_BYTES: usize = 1 << 20;

const READ_STORED_BYTES: &str = "the checksum holds, so these bytes were stored: check the version \
     of the codec; inspect::Inspector returns the stored bytes of this record, and a reader can \
     begin at the record after it";

/// Encodes `data` into `into`. Returns false if the record is stored as it is.
#[inline]
pub(crate) fn encode(codec: &dyn Codec, tag: u16, data: &[u8], into: &mut Vec<u8>) -> Result<bool> {
    into.clear();
    let threshold = codec.threshold();
    if threshold.is_some_and(|least| data.len() < least) {
        return Ok(false);
    }
    codec.encode(tag, data, into)?;
    // No record is longer than a frame, whose length has 4 bytes.
    into.extend_from_slice(&(data.len() as u32).to_le_bytes());
    Ok(threshold.is_none() || into.len() < data.len())
}

pub(crate) fn may_store_raw(codec: Option<&dyn Codec>) -> bool {
    codec.is_none_or(|codec| codec.threshold().is_some())
}

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) encoded: Vec<u8>,
    pub(crate) joined: Vec<u8>,
    // Of each payload in `joined`: tag, whether it is encoded, and where it ends.
    payloads: Vec<(u16, bool, usize)>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Scratch {
    /// Runs `f` with the buffers of this thread. A call within `f` gets other ones.
    pub(crate) fn with<T>(f: impl FnOnce(&mut Scratch) -> T) -> T {
        let taken = SCRATCH.try_with(Cell::take);
        let mut scratch = taken.unwrap_or_default().unwrap_or_default();
        let result = f(&mut scratch);
        let payloads = scratch.payloads.capacity() * size_of::<(u16, bool, usize)>();
        if scratch.encoded.capacity().max(scratch.joined.capacity()).max(payloads)
            <= MOST_KEPT_BYTES
        {
            // A thread that is ending has no place for them.
            let _ = SCRATCH.try_with(|kept| kept.set(Some(scratch)));
        }
        result
    }

    /// Encodes `records` until their frames take more than `most` bytes: an iterator may have no
    /// end.
    pub(crate) fn join<R: AsRef<[u8]>>(
        &mut self,
        codec: &dyn Codec,
        records: impl Iterator<Item = (u16, R)>,
        most: usize,
    ) -> Result<()> {
        self.joined.clear();
        self.payloads.clear();
        let mut bytes = 0;
        for (tag, record) in records {
            let record = record.as_ref();
            check_record_len(record.len(), most - HEADER_BYTES)?;
            let is_encoded = encode(codec, tag, record, &mut self.encoded)?;
            let payload = if is_encoded { &self.encoded } else { record };
            self.joined.extend_from_slice(payload);
            self.payloads.push((tag, is_encoded, self.joined.len()));
            bytes += framed_bytes(payload.len());
            if bytes > most as u64 {
                break;
            }
        }
        Ok(())
    }

    /// Returns the joined records: tag, whether it is encoded, and payload.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = (u16, bool, &[u8])> + Clone {
        let mut from = 0;
        self.payloads.iter().map(move |&(tag, is_encoded, to)| {
            let payload = &self.joined[from..to];
            from = to;
            (tag, is_encoded, payload)
        })
    }
}

#[derive(Debug)]
pub(crate) struct Decoder {
    codec: Option<Arc<dyn Codec>>,
    // No log with these segments can have taken a longer record.
    max_record_bytes: usize,
    buffer: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new(codec: Option<Arc<dyn Codec>>, segment_bytes: u64) -> Decoder {
        let longest = MAX_FRAME_BYTES.min(segment_bytes / 2) as usize;
        Decoder { codec, max_record_bytes: longest - HEADER_BYTES, buffer: Vec::new() }
    }

    pub(crate) fn takes_plain(&self) -> bool {
        may_store_raw(self.codec.as_deref())
    }

    pub(crate) fn decode<'a>(&'a mut self, record: Record<'a>) -> Result<Record<'a>> {
        if record.is_encoded() {
            return decode(self.codec.as_deref(), self.max_record_bytes, &mut self.buffer, record);
        }
        if self.takes_plain() {
            return Ok(record);
        }
        Err(undecodable(record.lsn(), "the record is not encoded, and each must be"))
    }

    pub(crate) fn decode_buf(&mut self, record: RecordBuf) -> Result<RecordBuf> {
        if !record.is_encoded() && self.takes_plain() {
            return Ok(record);
        }
        self.decode(record.as_record()).map(RecordBuf::from)
    }
}

fn decode<'a>(
    codec: Option<&dyn Codec>,
    most: usize,
    buffer: &'a mut Vec<u8>,
    record: Record<'a>,
) -> Result<Record<'a>> {
    let Some(codec) = codec else {
        return Err(undecodable(record.lsn(), "the record is encoded, and the log has no codec"));
    };
    let Some((stored, len)) = record.data().split_last_chunk::<LENGTH_BYTES>() else {
        return Err(undecodable(record.lsn(), "the encoded record has no length"));
    };
    let len = u32::from_le_bytes(*len) as usize;
    // Before memory is taken: the length is not trusted.
    if len > most {
        let text = format!("the encoded record claims {len} bytes; at most {most} are possible");
        return Err(undecodable(record.lsn(), &text));
    }
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    let name = codec.name();
    match codec.decode(record.tag(), stored, &mut buffer[..len]) {
        Ok(found) if found == len => Ok(record.decoded(&buffer[..len])),
        Ok(found) => {
            let text = format!("the codec `{name}` decoded {found} bytes; {len} were appended");
            Err(undecodable(record.lsn(), &text))
        }
        Err(error) => {
            let text = format!("the codec `{name}` cannot decode the record: {}", error.finding());
            Err(undecodable(record.lsn(), &text))
        }
    }
}

#[cold]
fn undecodable(lsn: Lsn, text: &str) -> Error {
    Error::new(ErrorKind::Corrupt, text).at_lsn(lsn).with_advice(READ_STORED_BYTES)
}

/// Refuses a log whose `state` names another codec, before anything else is read.
pub(crate) fn check_state(state: &State, codec: Option<&dyn Codec>) -> Result<()> {
    let given = codec.map(CodecId::of).transpose()?;
    check_codec(state.codec.as_ref(), given.as_ref())
}
