//! What a log and the engine's state may have after a crash.

use std::collections::VecDeque;
use std::io;

use palisade::disk::{Access, DiskFolder};
use wal_db::Lsn;

/// What the log may have after a crash: the first `durable` records at least.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) records: VecDeque<(Option<Lsn>, Vec<u8>)>,
    pub(crate) durable: usize,
    /// The engine's state has at least so many records.
    pub(crate) state: u64,
    /// Whether the log can be so only if its file is gone.
    pub(crate) needs_no_file: bool,
}

impl World {
    pub(crate) fn allows(&self, found: &[(Lsn, Vec<u8>)], state: u64) -> bool {
        state >= self.state
            && (self.durable..=self.records.len()).contains(&found.len())
            && found.iter().zip(&self.records).all(|((lsn, data), (expected, content))| {
                expected.is_none_or(|expected| expected == *lsn) && data == content
            })
    }
}

pub(crate) fn write_state(folder: &dyn DiskFolder, state: u64) -> io::Result<()> {
    let file = folder.open("state.new", Access::Fresh)?;
    assert_eq!(file.write_at(0, &[io::IoSlice::new(&state.to_le_bytes())])?, 8);
    file.sync_data()?;
    folder.rename("state.new", "state")
}

pub(crate) fn read_state(folder: &dyn DiskFolder) -> u64 {
    let Ok(file) = folder.open("state", Access::Read) else { return 0 };
    let mut bytes = [0; 8];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), 8);
    u64::from_le_bytes(bytes)
}

pub(crate) fn sizes(world: &World) -> (u64, usize, Vec<(Option<u64>, usize)>) {
    let shown = world.records.iter().map(|(lsn, data)| (lsn.map(Lsn::get), data.len()));
    (world.state, world.durable, shown.collect())
}
