//! A medium with a bad block.

use palisade::store::{ReadStore, Segment, State};
use palisade::{Error, Lsn, MemStore, Result};

/// A log one block of which the medium cannot read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) inner: MemStore,
    pub(crate) block: Lsn,
}

impl ReadStore for Unreadable {
    fn state(&self) -> Result<State> {
        self.inner.state()
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        self.inner.segments()
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let end = at.plus(into.len() as u64);
        if at < self.block.plus(4096) && end > self.block {
            return Err(Error::io("read", std::io::Error::from_raw_os_error(5)));
        }
        self.inner.read(at, into)
    }

    fn place(&self) -> String {
        "a bad disk".into()
    }
}
