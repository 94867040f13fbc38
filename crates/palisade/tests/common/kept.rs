//! A callback for released segments that keeps their bytes in memory: no crash takes them.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use palisade::{Error, OnRelease, ReleasedSegment, Result};

/// The files of released segments, by segment number. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<BTreeMap<u64, Vec<u8>>>>);

impl Kept {
    /// A copy, which goes its own way.
    pub(crate) fn fork(&self) -> Kept {
        Kept(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    /// Whether the file of segment `number` has `data` at `at`.
    pub(crate) fn has(&self, number: u64, at: usize, data: &[u8]) -> bool {
        let segments = self.0.lock().unwrap();
        segments.get(&number).and_then(|bytes| bytes.get(at..at + data.len())) == Some(data)
    }
}

impl OnRelease for Kept {
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        let read = segment.reader().read_to_end(&mut bytes);
        read.map_err(|error| Error::io("read the segment", error))?;
        assert_eq!(bytes.len() as u64, segment.file_bytes());
        self.0.lock().unwrap().insert(segment.header.number, bytes);
        Ok(())
    }
}
