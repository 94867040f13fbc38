//! Models of a segment's file.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::disk::DiskFile;
use crate::segment::segment_file::{LOG_AT, SegmentFile};
use crate::sync::{AtomicU32, Ordering, model_check};

const PAGE: u64 = 4096;
const PAGES: usize = 2;

/// A file with one cell for each page, so that two writes of a page at the same time are a data
/// race.
struct ModelFile {
    pages: [UnsafeCell<u8>; PAGES],
    // The system reports a failed write-back to one sync.
    failures: AtomicU32,
    takes_zeros: bool,
}

// SAFETY: the model checker watches each access to the cells.
#[expect(unsafe_code, reason = "cells that the model checker watches")]
unsafe impl Sync for ModelFile {}

impl ModelFile {
    fn new(failures: u32) -> ModelFile {
        let pages = std::array::from_fn(|_| UnsafeCell::new(0));
        ModelFile { pages, failures: AtomicU32::new(failures), takes_zeros: true }
    }
}

impl fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelFile")
    }
}

#[derive(Debug)]
struct Handle(Arc<ModelFile>);

impl DiskFile for Handle {
    fn read_at(&self, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    #[expect(unsafe_code, reason = "cells that the model checker watches")]
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        if bytes[0] == 0 && !self.0.takes_zeros {
            return Err(io::Error::from_raw_os_error(5));
        }
        for (index, page) in bytes.chunks(PAGE as usize).enumerate() {
            let at = ((offset - LOG_AT) / PAGE) as usize + index;
            self.0.pages[at].with_mut(|cell| {
                // SAFETY: the model checker has just shown that the access is exclusive.
                unsafe { *cell = page[0] };
            });
        }
        Ok(bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        // Relaxed: one of the threads gets it.
        match self.0.failures.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Err(io::Error::from_raw_os_error(5)),
            Err(_) => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_lock(&self, _shared: bool) -> io::Result<bool> {
        Ok(true)
    }
}

fn segment(file: &Arc<ModelFile>) -> Arc<SegmentFile> {
    let handle = Box::new(Handle(Arc::clone(file)));
    let segment = SegmentFile::new(handle, PAGES as u64 * PAGE).unwrap();
    Arc::new(segment.stepping(PAGE))
}

#[test]
fn zeros_never_cover_a_record() {
    model_check("zeros_never_cover_a_record", 3, || {
        let file = Arc::new(ModelFile::new(0));
        let segment = segment(&file);
        let preparer = {
            let segment = Arc::clone(&segment);
            thread::spawn(move || while segment.zero_step(0, PAGES as u64 * PAGE).unwrap() {})
        };
        for page in 0..PAGES as u64 {
            let record = [7; PAGE as usize];
            segment.write(page * PAGE, &[IoSlice::new(&record)], 0, PAGE as usize).unwrap();
        }
        preparer.join().unwrap();
        for page in &file.pages {
            // SAFETY: the only other thread has ended.
            #[expect(unsafe_code, reason = "cells that the model checker watches")]
            page.with(|cell| assert_eq!(unsafe { *cell }, 7, "the record is there"));
        }
    });
}

#[test]
fn an_unfinished_step_keeps_no_leader_waiting() {
    model_check("an_unfinished_step_keeps_no_leader_waiting", 3, || {
        let file = Arc::new(ModelFile { takes_zeros: false, ..ModelFile::new(0) });
        let segment = segment(&file);
        let preparer = {
            let segment = Arc::clone(&segment);
            // Nothing is left to zero if the leader has come first.
            thread::spawn(move || drop(segment.zero_step(0, PAGE)))
        };
        segment.write(0, &[IoSlice::new(&[7])], 0, 1).unwrap();
        preparer.join().unwrap();
    });
}

/// Checks a failed write-back, which the system reports to one of two syncs.
#[test]
fn a_failed_sync_fails_for_every_thread() {
    model_check("a_failed_sync_fails_for_every_thread", 100, || {
        let segment = segment(&Arc::new(ModelFile::new(1)));
        let other = {
            let segment = Arc::clone(&segment);
            thread::spawn(move || segment.sync().is_err())
        };
        assert!(segment.sync().is_err(), "whichever thread the system told");
        assert!(other.join().unwrap(), "whichever thread the system told");
    });
}
