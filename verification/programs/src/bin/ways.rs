//! One commit, one `get` and one open of a log that was not closed, for `verification/counts.sh`,
//! which counts the files and functions that each of them runs, under valgrind.

use std::hint::black_box;
use std::path::Path;

use palisade::{Lsn, Options, Wal};

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("wal");
    let wal = Options::new().open(&path).expect("a new log");
    for _ in 0..100 {
        wal.commit(&[0x5a; 256]).expect("a commit");
    }
    let lsn = one_commit(&wal);
    one_get(&wal, lsn);
    wal.append(b"not synced").expect("an append");
    wal.abandon();
    one_open(&path).close().expect("a close");
}

/// A commit of one thread, after others.
#[inline(never)]
fn one_commit(wal: &Wal) -> Lsn {
    wal.commit(black_box(&[0x5a; 256])).expect("a commit")
}

#[inline(never)]
fn one_get(wal: &Wal, lsn: Lsn) {
    black_box(wal.get(lsn).expect("a record"));
}

/// An open of a log that was not closed, in the same boot.
#[inline(never)]
fn one_open(path: &Path) -> Wal {
    Options::new().open(path).expect("an open")
}
