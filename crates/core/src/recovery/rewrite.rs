//! Writing again what nobody knows to be on the medium: a part of step 2 of an open.
//!
//! One thread verifies frames, copies them into a piece and writes it. Where there is much to be
//! written a second one syncs behind it, so that the device is at work from the first pieces on, and
//! not only behind the last one. What the second thread has synced when the process or the power goes is
//! as good as what the system has written back by itself: the sync line still says where the next
//! recovery is to begin. The caller syncs all of the range in the end.

use std::io::IoSlice;
use std::sync::Arc;

use super::scan::{Scan, Scanner};
use crate::buffer::BLOCK_BYTES;
use crate::store::Store;
use crate::sync::{Backoff, Mutex, has_two_cores, in_parallel};
use crate::{Lsn, Result};

/// Bytes that are handed to the store at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that the second thread syncs at a time, at least: a sync costs a device's answer.
const SYNC_BYTES: u64 = 8 << 20;

/// How far the writing has come.
#[derive(Clone, Copy, Debug)]
struct Progress {
    written: Lsn,
    is_over: bool,
}

/// Writes `[from, scan.end)` into the segments, as the scan found it.
pub(super) fn rewrite(
    store: &Arc<dyn Store>,
    scanner: &mut Scanner,
    scan: &Scan,
    from: Lsn,
) -> Result<()> {
    let is_much = scan.end.bytes_since(from) >= 2 * SYNC_BYTES;
    // A store whose runs are to be repeated wants no second thread.
    if !is_much || !store.writes_behind() || !has_two_cores() {
        return write_all(store, scanner, scan, from, |_| {});
    }
    let progress = Mutex::new(Progress { written: from, is_over: false });
    let scanner = Mutex::new(scanner);
    let done = in_parallel(2, |worker| {
        if worker > 0 {
            return sync_behind(store, from, &progress);
        }
        let _end = End(&progress);
        let note = |to| progress.lock().written = to;
        write_all(store, &mut scanner.lock(), scan, from, note)
    });
    done.into_iter().collect()
}

/// Writes all, and says after each piece how far it has come. A piece ends with a block, so that no
/// block is written again that a sync behind the writes has covered.
fn write_all(
    store: &Arc<dyn Store>,
    scanner: &mut Scanner,
    scan: &Scan,
    from: Lsn,
    note: impl Fn(Lsn),
) -> Result<()> {
    let mut piece = Vec::new();
    let (mut written, mut copied) = (from, from);
    while copied < scan.end {
        copied = scanner.copy(scan, copied, PIECE_BYTES, &mut piece)?;
        let within_block = if copied < scan.end { copied.as_u64() % BLOCK_BYTES } else { 0 };
        let len = piece.len() - within_block as usize;
        store.write(written, &[IoSlice::new(&piece[..len])])?;
        piece.drain(..len);
        written = written.plus(len as u64);
        note(written);
    }
    scanner.reader.forget();
    Ok(())
}

/// Syncs what was written, until the writing is over: the rest is the caller's.
fn sync_behind(store: &Arc<dyn Store>, from: Lsn, progress: &Mutex<Progress>) -> Result<()> {
    let mut synced = from;
    let mut backoff = Backoff::default();
    loop {
        let Progress { written, is_over } = *progress.lock();
        if is_over {
            return Ok(());
        }
        if written.bytes_since(synced) < SYNC_BYTES {
            backoff.wait();
            continue;
        }
        store.sync(synced, written)?;
        synced = written;
        backoff = Backoff::default();
    }
}

/// Ends the second thread when the writing ends, however it ends.
struct End<'a>(&'a Mutex<Progress>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
    }
}
