//! How much space the files of segments take, and its limit.

use palisade_core::store::FilesTaken;
use palisade_core::sync::Ordering;
use palisade_core::{Lsn, Result};

use super::spares::MayExceed;
use super::{Maker, Segments};
use crate::folder::{segments_in, spares_in};

impl Segments {
    /// The files of segments and spares, and their bytes. Takes no lock: the thread that writes
    /// asks, while the preparer may hold `maker` over a sync.
    pub(crate) fn files_taken(&self) -> Result<FilesTaken> {
        let names = self.folder.names()?;
        let segments = segments_in(&names, self.shape.segment_bytes).len() as u64;
        let spares = spares_in(&names).len() as u64;
        let file_bytes = self.shape.file_bytes();
        Ok(FilesTaken { segments, spares, file_bytes, limit: self.shape.max_bytes })
    }

    /// Lets segments that begin below `to` pass the limit, from now on.
    pub(crate) fn exceed_limit_below(&self, to: Lsn) {
        // Relaxed: the value alone counts. The truncating thread itself makes what it waits for.
        self.unlimited_below.fetch_max(to.as_u64(), Ordering::Relaxed);
    }

    /// Whether segment `number` of the running epoch may pass the limit.
    pub(super) fn may_exceed(&self, number: u64) -> MayExceed {
        // Relaxed: as above.
        let below = Lsn::new(self.unlimited_below.load(Ordering::Relaxed));
        if self.start_of(number) < below { MayExceed::Yes } else { MayExceed::No }
    }

    /// Refuses one more file if it would pass the limit.
    pub(super) fn check_limit(&self, maker: &Maker) -> Result<()> {
        let limit = self.shape.max_bytes;
        if limit.is_none() {
            return Ok(());
        }
        let segments = self.numbers()?.len() as u64;
        // Also the one that the preparer is making: it may have no name yet.
        let spares = (maker.spares.len() + usize::from(maker.is_making_a_spare)) as u64;
        let file_bytes = self.shape.file_bytes();
        let taken = FilesTaken { segments, spares, file_bytes, limit };
        taken.check_limit(1).map_err(|error| error.at_path(self.folder.path()))
    }
}
