//! The codec that a seed gives its log, and what the log stores with it.

use std::sync::Arc;

use palisade::{Codec, CodecId, Lz4, Options, Zstd, framed_bytes};
use palisade_store::FileOptions;

use crate::masked::{Masked, OVERHEAD_BYTES};

/// Most records of a history are short.
const THRESHOLD: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Chosen {
    #[default]
    None,
    Lz4,
    Zstd,
    Masked,
}

impl Chosen {
    /// One seed in three has a codec. The dice of the history are not asked: a log without a codec
    /// has the history that it had.
    pub(crate) fn of_seed(seed: u64) -> Chosen {
        match seed % 9 {
            2 => Chosen::Lz4,
            5 => Chosen::Zstd,
            8 => Chosen::Masked,
            _ => Chosen::None,
        }
    }

    pub(crate) fn codec(self) -> Option<Arc<dyn Codec>> {
        match self {
            Chosen::None => None,
            Chosen::Lz4 => Some(Arc::new(Lz4::new().threshold(THRESHOLD))),
            Chosen::Zstd => Some(Arc::new(Zstd::new().threshold(THRESHOLD))),
            Chosen::Masked => Some(Arc::new(Masked(0x5a))),
        }
    }

    pub(crate) fn set_in_files(self, files: &mut FileOptions) {
        files.codec = self.codec().map(|codec| CodecId::of(&codec).unwrap());
    }

    pub(crate) fn set_in(self, options: Options) -> Options {
        match self.codec() {
            Some(codec) => options.codec(codec),
            None => options,
        }
    }

    /// Whether each record is encoded, so that none can be written in place.
    pub(crate) fn encodes_all(self) -> bool {
        self == Chosen::Masked
    }

    /// The most bytes by which a payload is longer than its record.
    pub(crate) fn overhead_bytes(self) -> usize {
        if self.encodes_all() { OVERHEAD_BYTES } else { 0 }
    }

    /// The payload of the record `data` with tag `tag`.
    pub(crate) fn stored(self, tag: u16, data: &[u8]) -> Vec<u8> {
        let Some(codec) = self.codec() else { return data.to_vec() };
        let threshold = codec.threshold();
        let mut stored = Vec::new();
        if threshold.is_none_or(|least| data.len() >= least) {
            codec.encode(tag, data, &mut stored).unwrap();
            stored.extend((data.len() as u32).to_le_bytes());
        }
        let is_raw =
            threshold.is_some_and(|least| data.len() < least || stored.len() >= data.len());
        if is_raw { data.to_vec() } else { stored }
    }

    /// The bytes of the frame of the record `data` with tag `tag`.
    pub(crate) fn framed(self, tag: u16, data: &[u8]) -> u64 {
        framed_bytes(self.stored(tag, data).len())
    }
}
