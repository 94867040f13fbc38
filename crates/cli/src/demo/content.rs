//! What the demo's records hold: bytes that say where they come from and can be checked alone.
//!
//! ```text
//! offset  bytes  field
//!      0      4  magic
//!      4      4  thread
//!      8      8  sequence number of the record within its thread, from 0
//!     16      8  seed of the round
//!     24      n  a stream of random numbers that begins from the three fields above
//! ```

/// Smallest record: the header and one number of the stream.
pub(crate) const MIN_RECORD_BYTES: usize = 32;
/// Largest record: fits the default buffer and segment of the log.
pub(crate) const MAX_RECORD_BYTES: usize = 4 << 20;

const HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x4c41_5044;

/// Who appended a record, and as which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The round's seed.
    pub(crate) seed: u64,
    /// The thread within the round.
    pub(crate) thread: u32,
    /// The record's number within the thread, from 0.
    pub(crate) seq: u64,
}

impl Origin {
    /// Fills `record` with the content that belongs to this origin.
    pub(crate) fn fill(self, record: &mut [u8]) {
        record[..4].copy_from_slice(&MAGIC.to_le_bytes());
        record[4..8].copy_from_slice(&self.thread.to_le_bytes());
        record[8..16].copy_from_slice(&self.seq.to_le_bytes());
        record[16..24].copy_from_slice(&self.seed.to_le_bytes());
        let place = mix(mix(u64::from(self.thread)) ^ self.seq);
        // SplitMix64 (Steele, Lea, Flood 2014).
        let mut state = mix(self.seed ^ place);
        for piece in record[HEADER_BYTES..].chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            piece.copy_from_slice(&mix(state).to_le_bytes()[..piece.len()]);
        }
    }

    /// Returns the origin that `record` names, if each byte of the record is what that origin would
    /// have written.
    pub(crate) fn of(record: &[u8]) -> Option<Origin> {
        let header = record.first_chunk::<HEADER_BYTES>()?;
        let origin = Origin {
            seed: number(&header[16..24]),
            thread: number(&header[4..8]) as u32,
            seq: number(&header[8..16]),
        };
        let mut expected = vec![0; record.len()];
        origin.fill(&mut expected);
        (record == expected).then_some(origin)
    }
}

/// Decodes a little-endian number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Mixes bits with the finaliser of SplitMix64: every bit of the input changes about half of the
/// output.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin = Origin { seed: 7, thread: 3, seq: 1 << 40 };

    #[test]
    fn a_record_names_its_origin_at_every_length() {
        for record_bytes in MIN_RECORD_BYTES..MIN_RECORD_BYTES + 20 {
            let mut record = vec![0; record_bytes];
            ORIGIN.fill(&mut record);
            assert_eq!(Origin::of(&record), Some(ORIGIN));
        }
    }

    #[test]
    fn every_changed_byte_is_found() {
        let mut record = vec![0; 61];
        ORIGIN.fill(&mut record);
        for index in 0..record.len() {
            record[index] ^= 0x40;
            assert_eq!(Origin::of(&record), None, "byte {index}");
            record[index] ^= 0x40;
        }
    }

    #[test]
    fn short_records_are_foreign() {
        assert_eq!(Origin::of(&[0; 10]), None);
    }
}
