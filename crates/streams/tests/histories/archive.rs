//! An archive of released segments that is away for a while.

use std::sync::atomic::{AtomicBool, Ordering};

use palisade::{Error, ErrorKind, OnRelease, ReleasedSegment, Result};

#[derive(Debug, Default)]
pub(crate) struct Archive(AtomicBool);

impl Archive {
    pub(crate) const AWAY: &str = "the archive is away";

    pub(crate) fn set_away(&self, is_away: bool) {
        self.0.store(is_away, Ordering::Relaxed);
    }

    pub(crate) fn is_away(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl OnRelease for Archive {
    fn released(&self, _: &ReleasedSegment<'_>) -> Result<()> {
        match self.is_away() {
            true => Err(Error::new(ErrorKind::Io, Archive::AWAY)),
            false => Ok(()),
        }
    }
}
