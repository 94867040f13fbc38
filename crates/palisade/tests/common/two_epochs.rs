//! A log of two epochs on files, what is done to it, and what is left of it.

use std::path::{Path, PathBuf};

use palisade::inspect::{Gap, Inspector, Salvaged};
use palisade::{BufferKind, Error, ErrorKind, Lsn, Options, Verify};
use tempfile::TempDir;

use crate::folder::{self, Entries, SEGMENT_BYTES, flip, folder, place_of, small, snapshot};

fn data(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(60)
}

pub(crate) fn full() -> Options {
    small().verify(Verify::Full)
}

/// A log of two epochs, the second beginning at record 700, closed cleanly or killed after all
/// was synced; and its records.
pub(crate) fn log(closed: bool) -> (TempDir, PathBuf, Entries) {
    let (dir, path) = folder();
    let options = small().buffer(BufferKind::Heap);
    let mut records = Vec::new();
    for run in 0..2 {
        let wal = options.open(&path).unwrap();
        for n in 700 * run..700 * (run + 1) {
            records.push((wal.append(&data(n)).unwrap().lsn(), data(n)));
        }
        wal.checkpoint(records[records.len() - 1].0).unwrap();
        if closed && run == 1 {
            wal.close().unwrap();
        }
    }
    (dir, path, records)
}

/// Damages the payload of the record at `lsn`.
pub(crate) fn damage(path: &Path, lsn: Lsn) {
    let (file, at) = place_of(path, lsn, SEGMENT_BYTES);
    flip(&file, at + 40);
}

pub(crate) fn damage_header(path: &Path, lsn: Lsn) {
    let (file, _) = place_of(path, lsn, SEGMENT_BYTES);
    flip(&file, 50);
}

/// Opens a log that has to be refused and left as it is.
pub(crate) fn refused(options: &Options, path: &Path, kind: ErrorKind) -> Error {
    let error = folder::refused(options, path);
    assert_eq!(error.kind(), kind, "{error}");
    error
}

pub(crate) fn salvage(path: &Path, from: Option<Lsn>) -> (Entries, Vec<Gap>) {
    let before = snapshot(path);
    let mut salvage = Inspector::open(path).unwrap().salvage(from).unwrap();
    let (mut records, mut gaps) = (Vec::new(), Vec::new());
    while let Some(next) = salvage.next().unwrap() {
        match next {
            Salvaged::Record(record) => records.push((record.lsn(), record.data().to_vec())),
            Salvaged::Gap(gap) => gaps.push(gap),
            other => panic!("{other:?}"),
        }
    }
    assert!(snapshot(path) == before, "salvage changes nothing");
    (records, gaps)
}
