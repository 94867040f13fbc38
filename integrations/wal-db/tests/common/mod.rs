//! A folder for a log, and what a test looks at.

use std::io::ErrorKind;
use std::path::PathBuf;

use wal_db::{Result, Wal, WalError, WalStore};

pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path("wal.log")
    }
}

pub(crate) fn contents<S: WalStore>(wal: &Wal<S>) -> Vec<Vec<u8>> {
    wal.iter().unwrap().map(|record| record.unwrap().into_data()).collect()
}

pub(crate) fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    match result.unwrap_err() {
        WalError::Io { source, .. } => source.kind(),
        other => panic!("{other}"),
    }
}

pub(crate) fn corrupt_at<T: std::fmt::Debug>(result: Result<T>) -> u64 {
    match result.unwrap_err() {
        WalError::Corruption { offset, .. } => offset,
        other => panic!("{other}"),
    }
}
