//! What the child tells the parent over its standard output: frames of 24 bytes.
//!
//! Frames are written in groups that a pipe takes whole or not at all, so that frames of different
//! threads never mix. A kill can cut only what was never reported.

use palisade::Lsn;

/// Bytes of a frame.
pub(crate) const FRAME_BYTES: usize = 24;
/// Most frames in one write, so that it stays within `PIPE_BUF`: 4096 bytes on Linux, 512 where
/// POSIX promises no more.
pub(crate) const FRAMES_PER_WRITE: usize = if cfg!(target_os = "linux") { 170 } else { 21 };

const READY: u32 = 1;
const ACK: u32 = 2;
const LATENCY: u32 = 3;
const SYNCS: u32 = 4;

/// One thing that the child reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The log is open and the threads begin.
    Ready,
    /// The record number `seq` of `thread` was acknowledged at `lsn`.
    Ack { thread: u32, seq: u64, lsn: Lsn },
    /// The latency of acknowledged calls so far.
    Latency { p50_ns: u64, p99_ns: u64 },
    /// How many records how many syncs have made durable so far.
    Syncs { records: u64, syncs: u64 },
}

impl Frame {
    /// The bytes of this frame.
    pub(crate) fn encode(self) -> [u8; FRAME_BYTES] {
        let (kind, small, first, second) = match self {
            Frame::Ready => (READY, 0, 0, 0),
            Frame::Ack { thread, seq, lsn } => (ACK, thread, seq, lsn.as_u64()),
            Frame::Latency { p50_ns, p99_ns } => (LATENCY, 0, p50_ns, p99_ns),
            Frame::Syncs { records, syncs } => (SYNCS, 0, records, syncs),
        };
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&small.to_le_bytes());
        bytes[8..16].copy_from_slice(&first.to_le_bytes());
        bytes[16..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// The frame that `bytes` encode; `None` if its kind is unknown.
    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Frame> {
        let [kind, small, first_low, first_high, second_low, second_high] = words(bytes);
        let first = u64::from(first_high) << 32 | u64::from(first_low);
        let second = u64::from(second_high) << 32 | u64::from(second_low);
        match kind {
            READY => Some(Frame::Ready),
            ACK => Some(Frame::Ack { thread: small, seq: first, lsn: Lsn::new(second) }),
            LATENCY => Some(Frame::Latency { p50_ns: first, p99_ns: second }),
            SYNCS => Some(Frame::Syncs { records: first, syncs: second }),
            _ => None,
        }
    }
}

fn words(bytes: &[u8; FRAME_BYTES]) -> [u32; FRAME_BYTES / 4] {
    std::array::from_fn(|word| {
        let at = word * 4;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let frames = [
            Frame::Ready,
            Frame::Ack { thread: 9, seq: u64::MAX - 1, lsn: Lsn::new(1 << 59) },
            Frame::Latency { p50_ns: 5_000_000_000, p99_ns: 6_000_000_000 },
            Frame::Syncs { records: 1 << 40, syncs: 3 },
        ];
        for frame in frames {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
        assert_eq!(Frame::decode(&[0; FRAME_BYTES]), None);
    }
}
