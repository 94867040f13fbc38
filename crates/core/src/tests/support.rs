//! What the tests of a whole log share.

use std::time::Duration;

use crate::{Lsn, Options, Wal};

/// How long a condition that another thread brings about may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Returns all records of `wal`, each with its LSN.
pub(super) fn records(wal: &Wal) -> Vec<(Lsn, Vec<u8>)> {
    let mut records = wal.records().unwrap();
    let next = || records.next().unwrap().map(|record| (record.lsn(), record.data().to_vec()));
    std::iter::from_fn(next).collect()
}

pub(super) fn with_buffer(buffer_bytes: usize) -> Options {
    Options { buffer_bytes, ..Options::default() }
}
