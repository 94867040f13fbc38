//! A store that records what was written, and what was there at each sync.
//!
//! The bytes lie under a lock that the checker does not see, because it must not lend the log an
//! order that the log itself does not make. Three ends in Relaxed atomics watch that order: a
//! thread that acts on a watermark must see the end that it stands for.

#![expect(clippy::disallowed_types, reason = "the bytes must lie outside of the model")]

use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard};

use palisade_store::sync::{AtomicU64, Ordering};
use palisade_store::{Epoch, FilesTaken, OldBuffer, ReadStore, Segment, State, TailSource};

use super::{LARGE_FRAME, LONG_SEGMENT, large, seed};
use crate::frame::BLOCK_BYTES;
use crate::frame::{EpochSeed, Header, Kind};
use crate::{Error, ErrorKind, Lsn, Memory, Result, Uuid};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    Write,
    Sync,
    /// The first `prepare` finds no space.
    Space,
    /// The first save fails.
    Save,
}

#[derive(Debug)]
pub(crate) struct ModelStore {
    base: Lsn,
    fault: Fault,
    pads: bool,
    media: Mutex<Media>,
    held_end: AtomicU64,
    synced_end: AtomicU64,
    marked_end: AtomicU64,
    released_to: AtomicU64,
    // The files of segments, where a model sets them, and how many there may be.
    files: AtomicU64,
    most_files: Option<u64>,
    // Where a model abandons its log: lets the checker try each change before and after `close`.
    close: Option<AtomicU64>,
}

#[derive(Debug, Default)]
struct Media {
    held: Vec<u8>,
    frames: Vec<WrittenFrame>,
    // Length of `held` when the last completed sync began.
    synced: usize,
    is_syncing: bool,
    refused: bool,
    is_clean: bool,
    is_closed: bool,
    // The epochs after the first.
    later: Vec<(Lsn, EpochSeed)>,
    // From the end of an epoch to the base of the next one.
    discarded: Vec<(Lsn, Lsn)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenFrame {
    pub(super) lsn: Lsn,
    pub(super) end: Lsn,
    pub(super) kind: Kind,
    pub(super) mark: u8,
}

impl ModelStore {
    pub(super) fn new(base: Lsn) -> ModelStore {
        ModelStore::with_fault(base, Fault::None)
    }

    pub(super) fn with_fault(base: Lsn, fault: Fault) -> ModelStore {
        ModelStore {
            base,
            fault,
            pads: false,
            media: Mutex::default(),
            held_end: AtomicU64::new(base.as_u64()),
            synced_end: AtomicU64::new(base.as_u64()),
            marked_end: AtomicU64::new(base.as_u64()),
            released_to: AtomicU64::new(0),
            files: AtomicU64::new(1),
            most_files: None,
            close: None,
        }
    }

    pub(super) fn padded(self) -> ModelStore {
        ModelStore { pads: true, ..self }
    }

    pub(super) fn abandoned(self) -> ModelStore {
        ModelStore { close: Some(AtomicU64::new(0)), ..self }
    }

    pub(super) fn above_its_limit(self) -> ModelStore {
        ModelStore { files: AtomicU64::new(2), most_files: Some(1), ..self }
    }

    pub(super) fn pads(&self) -> bool {
        self.pads
    }

    pub(super) fn set_files(&self, files: u64) {
        // Relaxed: the value alone counts.
        self.files.store(files, Ordering::Relaxed);
    }

    /// Checks that this large record was there when a completed sync began.
    pub(super) fn assert_synced(&self, lsn: Lsn, mark: u8) {
        let end = lsn.plus(LARGE_FRAME);
        self.assert_synced_to(end);
        let expected = WrittenFrame { lsn, end, kind: Kind::Data, mark };
        assert!(self.frames().contains(&expected), "{expected:?} is there");
    }

    pub(super) fn assert_synced_to(&self, end: Lsn) {
        // Relaxed: the watermark that the caller has read must have made the order.
        let synced_end = self.synced_end.load(Ordering::Relaxed);
        assert!(synced_end >= end.as_u64(), "the end of the sync happens before its publication");
        // Relaxed: likewise.
        let marked_end = self.marked_end.load(Ordering::Relaxed);
        assert!(marked_end >= end.as_u64(), "durable is noted before it is published");
        let bytes = end.bytes_since(self.base) as usize;
        assert!(self.media().synced >= bytes, "what is durable was held when its sync began");
    }

    pub(super) fn assert_held_to(&self, end: Lsn) {
        // Relaxed: as in `assert_synced_to`.
        let held_end = self.held_end.load(Ordering::Relaxed);
        assert!(held_end >= end.as_u64(), "a write happens before its publication");
    }

    pub(super) fn released_to(&self) -> Lsn {
        // Acquire: the file system orders a read that finds a file freed behind the call that freed
        // it.
        Lsn::new(self.released_to.load(Ordering::Acquire))
    }

    pub(super) fn frames(&self) -> Vec<WrittenFrame> {
        self.media().frames.clone()
    }

    pub(super) fn marks(&self) -> Vec<u8> {
        let is_data = |frame: &&WrittenFrame| frame.kind == Kind::Data;
        self.media().frames.iter().filter(is_data).map(|frame| frame.mark).collect()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.media().is_clean
    }

    fn media(&self) -> MutexGuard<'_, Media> {
        self.media.lock().expect("no model goes on after a panic")
    }

    /// Locks the media for a call that changes files: another open may have them after `close`.
    fn change(&self) -> MutexGuard<'_, Media> {
        // Relaxed: not used.
        self.close.as_ref().map(|close| close.load(Ordering::Relaxed));
        let media = self.media();
        assert!(!media.is_closed, "a closed store is not changed");
        media
    }
}

impl Media {
    fn decode(&mut self, base: Lsn, from: usize) {
        let mut at = from;
        while at < self.held.len() {
            let lsn = base.plus(at as u64);
            let bytes = &self.held[at..];
            let begun = self.later.iter().rev().find(|(base, _)| *base <= lsn);
            let seed = begun.map_or(seed(), |(_, seed)| *seed);
            let header =
                Header::decode(bytes, seed, lsn, u64::MAX).expect("a frame begins where one ended");
            let frame_bytes = header.frame_bytes as usize;
            assert!(frame_bytes <= bytes.len(), "a run ends at the end of a frame");
            let mut mark = 0;
            if header.kind == Kind::Data {
                let payload = &bytes[24..24 + header.payload_bytes as usize];
                assert!(header.matches(payload), "the payload is that of the header");
                mark = payload.first().copied().unwrap_or(0);
                assert!(payload.is_empty() || *payload == large(mark), "one thread wrote it");
            }
            let end = lsn.plus(header.frame_bytes);
            self.frames.push(WrittenFrame { lsn, end, kind: header.kind, mark });
            at += frame_bytes;
        }
    }
}

impl ModelStore {
    pub(crate) fn write(&self, at: Lsn, pieces: &[IoSlice<'_>]) -> Result<()> {
        if self.fault == Fault::Write {
            return Err(Error::new(ErrorKind::Io, "the model's write fails"));
        }
        let mut media = self.change();
        let from = media.held.len();
        assert_eq!(at, self.base.plus(from as u64), "writes follow each other without a gap");
        for piece in pieces {
            media.held.extend_from_slice(piece);
        }
        media.decode(self.base, from);
        let end = self.base.plus(media.held.len() as u64);
        drop(media);
        // Relaxed: the log's own order is what is checked.
        self.held_end.store(end.as_u64(), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn sync(&self, from: Lsn, to: Lsn) -> Result<()> {
        // Relaxed: as in `write`.
        let held_end = self.held_end.load(Ordering::Relaxed);
        assert!(held_end >= to.as_u64(), "what is to be synced was written before");
        assert!(!self.pads || to.is_multiple_of(BLOCK_BYTES), "a padded sync ends with a block");
        let held = {
            let mut media = self.change();
            assert!(!std::mem::replace(&mut media.is_syncing, true), "one leader at a time");
            let durable = self.base.plus(media.synced as u64);
            assert_eq!(from, durable, "a leader knows how far the one before it has come");
            assert!(media.held.len() as u64 >= to.bytes_since(self.base));
            to.bytes_since(self.base) as usize
        };
        // The device works: whatever other threads can do, they do here.
        // Relaxed: as in `write`.
        self.synced_end.load(Ordering::Relaxed);
        if self.fault == Fault::Sync {
            self.media().is_syncing = false;
            return Err(Error::new(ErrorKind::Io, "the model's sync fails"));
        }
        let mut media = self.change();
        media.is_syncing = false;
        media.synced = held;
        drop(media);
        // Relaxed: as in `write`.
        self.synced_end.store(to.as_u64(), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn mark_durable(&self, durable: Lsn) -> Result<()> {
        let bytes = durable.bytes_since(self.base) as usize;
        assert!(self.change().synced >= bytes, "the durable mark follows the sync");
        // Relaxed: as in `write`.
        self.marked_end.store(durable.as_u64(), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn prepared(&self) -> Lsn {
        let media = self.media();
        if self.fault == Fault::Space && !media.refused {
            return self.base;
        }
        media.later.last().map_or(self.base, |(base, _)| *base).plus(LONG_SEGMENT)
    }

    pub(crate) fn prepare(&self, _to: Lsn) -> Result<()> {
        self.change().refused = true;
        Err(Error::bare(ErrorKind::NoSpace))
    }

    pub(crate) fn prepare_ahead(&self, _tail: Lsn) {}

    pub(crate) fn save_state(&self, state: &State) -> Result<()> {
        let mut media = self.change();
        if self.fault == Fault::Save && !std::mem::replace(&mut media.refused, true) {
            return Err(Error::new(ErrorKind::Io, "the model's save fails"));
        }
        media.is_clean = state.clean;
        Ok(())
    }

    pub(crate) fn release(&self, _from: Lsn, to: Lsn) -> Result<()> {
        drop(self.change());
        // Release: pairs with the Acquire in `released_to`.
        self.released_to.fetch_max(to.as_u64(), Ordering::Release);
        Ok(())
    }

    pub(crate) fn exceed_limit_below(&self, _to: Lsn) {}

    pub(crate) fn discard(&self, from: Lsn, to: Lsn) -> Result<()> {
        self.release(from, to)
    }

    pub(crate) fn empty_buffer(&self) {}

    pub(crate) fn writes_behind(&self) -> bool {
        true
    }

    pub(crate) fn files_taken(&self) -> Result<FilesTaken> {
        // Relaxed: the value alone counts.
        let segments = self.files.load(Ordering::Relaxed);
        // Other threads may come before the caller looks at the list. Relaxed: not used.
        self.files.load(Ordering::Relaxed);
        let limit = self.most_files;
        Ok(FilesTaken { segments, file_bytes: 1, limit, ..FilesTaken::default() })
    }

    pub(crate) fn begin_epoch(&self, epoch: &Epoch, first: &[u8]) -> Result<()> {
        let mut media = self.change();
        assert_eq!(media.synced, media.held.len(), "all of the epoch before is durable");
        let end = self.base.plus(media.held.len() as u64);
        let before = epoch.predecessor.end;
        assert!(epoch.base >= end && before <= end);
        let revives = |&(from, to): &(Lsn, Lsn)| from < before && before <= to;
        assert!(!media.discarded.iter().any(revives), "no truncated record comes back");
        media.discarded.push((before, epoch.base));
        let bytes = epoch.base.bytes_since(self.base) as usize;
        media.held.resize(bytes, 0);
        media.held.extend_from_slice(first);
        media.synced = media.held.len();
        media.later.push((epoch.base, EpochSeed::new(Uuid::default(), epoch.number, epoch.salt)));
        drop(media);
        let end = epoch.base.plus(first.len() as u64);
        // Relaxed, both: as in `write`.
        self.held_end.store(end.as_u64(), Ordering::Relaxed);
        self.synced_end.store(end.as_u64(), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn resume_epoch(&self, _epoch: &Epoch, _end: Lsn) -> Result<()> {
        unreachable!("a model does not open its log")
    }

    pub(crate) fn old_buffer(&self) -> Result<OldBuffer> {
        unreachable!("a model does not open its log")
    }

    pub(crate) fn renew_buffer(&self, _epoch: u64, _bytes: usize, _durable: Lsn) -> Result<Memory> {
        unreachable!("a model does not open its log")
    }

    pub(crate) fn move_tail(
        &self,
        _epoch: &Epoch,
        _from: Lsn,
        _to: Lsn,
        _source: &mut TailSource<'_>,
    ) -> Result<()> {
        unreachable!("a model does not open its log")
    }

    pub(crate) fn pass_buffer_on(&self, _epoch: u64) -> Result<()> {
        drop(self.change());
        Ok(())
    }

    pub(crate) fn random(&self) -> Result<u64> {
        Ok(9)
    }

    pub(crate) fn close(&self) {
        self.media().is_closed = true;
        // Relaxed: not used.
        if let Some(close) = &self.close {
            close.store(1, Ordering::Relaxed);
        }
    }
}

impl ReadStore for ModelStore {
    fn state(&self) -> Result<State> {
        unreachable!("a model does not open its log")
    }

    /// Returns none: a backup does not need the headers.
    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(Vec::new())
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let media = self.media();
        let from = at.bytes_since(self.base) as usize;
        let bytes = media.held.get(from..).unwrap_or_default();
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn place(&self) -> String {
        "a model".to_owned()
    }
}
