//! The span of an epoch.

use palisade_store::EpochExtent;

use crate::frame::EpochSeed;
use crate::{Lsn, Uuid};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochSpan {
    pub(crate) epoch: u64,
    pub(crate) salt: u64,
    pub(crate) seed: EpochSeed,
    pub(crate) base: Lsn,
    pub(crate) end: Lsn,
}

impl EpochSpan {
    pub(crate) fn open_ended(uuid: Uuid, epoch: u64, salt: u64, base: Lsn) -> EpochSpan {
        EpochSpan { epoch, salt, seed: EpochSeed::new(uuid, epoch, salt), base, end: Lsn::LIMIT }
    }

    pub(crate) fn extent(&self) -> EpochExtent {
        EpochExtent { number: self.epoch, salt: self.salt, base: self.base, end: self.end }
    }

    /// Returns the text for a place in the span where a record must begin and none validates.
    pub(crate) fn without_record(&self, next: Option<&EpochSpan>) -> String {
        let mut text = format!("no valid record of epoch {} where one must begin", self.epoch);
        if let Some(next) = next {
            text += &format!("; epoch {} begins at LSN {}", next.epoch, next.base);
        }
        text
    }

    pub(crate) fn up_to(self, end: Lsn) -> EpochSpan {
        EpochSpan { end: self.end.min(end), ..self }
    }
}
