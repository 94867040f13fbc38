//! A log without an open: the models leave recovery out.

use std::sync::Arc;

use palisade_store::State;

use super::Wal;
use super::first_records::FirstRecords;
use super::pins::{Lease, Pin, PinKind};
use super::truncate_after::NewEnd;
use crate::commit::Commit;
use crate::frame::EpochSeed;
use crate::reader::EpochSpan;
use crate::recovery::Recovered;
use crate::{Lsn, Memory, Options, RecoveryReport, Result, Store, Uuid};

#[derive(Clone)]
pub(crate) struct LeasedReader {
    _pin: Arc<Pin>,
    lease: Arc<Lease>,
}

impl LeasedReader {
    pub(crate) fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }
}

impl Wal {
    /// The record at `record` ends at `new_end`.
    pub(crate) fn truncate_above(&self, record: Lsn, new_end: Lsn) -> Result<()> {
        let place = NewEnd { record, new_end };
        self.handle.truncate_above(place, FirstRecords::default()).map(drop)
    }

    pub(crate) fn replace_above(&self, record: Lsn, new_end: Lsn, records: &[&[u8]]) -> Result<()> {
        let place = NewEnd { record, new_end };
        let most = self.handle.max_frame_bytes as usize;
        let first = FirstRecords::copy(records.iter().map(|record| (0, record)), None, most)?;
        self.handle.truncate_above(place, first).map(drop)
    }

    pub(crate) fn durable_extents(&self) -> Vec<(Lsn, Lsn)> {
        let spans = self.handle.epochs.view(None, || self.durable_lsn()).spans;
        spans.iter().map(|span| (span.base, span.end)).collect()
    }

    pub(crate) fn reserved_extents(&self) -> Vec<(Lsn, Lsn)> {
        self.view(None).spans.iter().map(|span| (span.base, span.end)).collect()
    }

    pub(crate) fn leased_reader(&self, max_lag: u64) -> Result<LeasedReader> {
        let lease = Arc::new(Lease::new(max_lag));
        let (pin, _) = self.pinned_view(None, PinKind::Cursor, Some(Arc::clone(&lease)))?;
        Ok(LeasedReader { _pin: Arc::new(pin), lease })
    }

    pub(crate) fn save_head(&self, head: Lsn) -> Result<()> {
        self.handle.change_state(None, |state| state.head = head)
    }

    pub(crate) fn save_checkpoint(&self, checkpoint: Lsn) -> Result<()> {
        self.handle.change_state(None, |state| state.checkpoint = checkpoint)
    }

    pub(crate) fn commit_state(&self) -> &Commit {
        self.handle.commit.own().expect("models do not fork")
    }

    pub(crate) fn refuse_above_limit(&self) {
        self.commit_state().refuse_above_limit();
    }

    pub(crate) fn release(&self) -> Result<()> {
        self.handle.release_unpinned()
    }

    pub(crate) fn model(
        store: Arc<Store>,
        memory: Memory,
        base: Lsn,
        segment_bytes: u64,
        seed: EpochSeed,
        options: &Options,
    ) -> Wal {
        let state = State {
            uuid: Uuid::default(),
            segment_bytes,
            buffer_bytes: memory.len() as u64,
            epoch: 1,
            epoch_base: base,
            epoch_salt: 0,
            head: base,
            checkpoint: base,
            clean_end: base,
            clean: false,
            epochs: Vec::new(),
            codec: None,
            cursors: Vec::new(),
            bases: Vec::new(),
        };
        let spans = vec![EpochSpan { epoch: 1, salt: 0, seed, base, end: Lsn::LIMIT }];
        let report = RecoveryReport::default();
        let recovered = Recovered { state, spans, base, memory, report };
        Wal::begin(store, recovered, options).expect("a model's options are valid")
    }
}
