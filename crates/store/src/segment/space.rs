//! How much space the files of segments take, and its limit.

use std::collections::BTreeSet;

use super::spares::MayExceed;
use super::{Maker, Segments};
use crate::FilesTaken;
use crate::folder::{segments_in, spares_in};
use crate::sync::Ordering;
use crate::{Lsn, Result};

impl Segments {
    /// Counts the files of segments and spares, and their bytes. Takes no lock, because the thread
    /// that writes calls it while the preparer may hold `maker` over a sync.
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

    /// Returns whether segment `number` of the running epoch may pass the limit.
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
        let (segments, spares) = count(&self.folder.names()?, maker, self.shape.segment_bytes);
        let file_bytes = self.shape.file_bytes();
        let taken = FilesTaken { segments, spares, file_bytes, limit };
        taken.check_limit(1).map_err(|error| error.at_path(self.folder.path()))
    }
}

/// Counts the segments and the spares. `names` has a spare that is being removed until it is gone.
/// It may have neither name of a file that gets another one while the folder is listed, or both.
fn count(names: &[String], maker: &Maker, segment_bytes: u64) -> (u64, u64) {
    let mut segments = segments_in(names, segment_bytes);
    let mut spares: BTreeSet<u64> = spares_in(names).into_iter().collect();
    spares.extend(maker.spares.iter().chain(&maker.making));
    if let Some((segment, spare)) = maker.recycling {
        segments.retain(|number| *number != segment);
        spares.insert(spare);
    }
    (segments.len() as u64, spares.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::{segment_name, spare_name};

    #[test]
    fn a_file_renamed_while_the_folder_is_listed_counts_once() {
        let mut maker = Maker { recycling: Some((3, 8)), ..Maker::default() };
        maker.spares.insert(7);
        for listed in [vec![], vec![segment_name(3)], vec![spare_name(8)]] {
            let names = [vec![segment_name(4), spare_name(7)], listed].concat();
            assert_eq!(count(&names, &maker, 4096), (1, 2), "{names:?}");
        }
        let both = [segment_name(3), segment_name(4), spare_name(7), spare_name(8)];
        assert_eq!(count(&both, &maker, 4096), (1, 2));
    }
}
