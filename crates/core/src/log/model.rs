//! A log without an open: the models leave recovery out.

use std::sync::Arc;

use super::Wal;
use super::first_records::FirstRecords;
use super::truncate_after::Place;
use crate::frame::EpochSeed;
use crate::reader::EpochSpan;
use crate::recovery::Recovered;
use crate::store::{State, Store};
use crate::{Lsn, Memory, Options, RecoveryReport, Result, Uuid};

impl Wal {
    /// Truncates after the record at `record`, which ends at `new_end`.
    pub(crate) fn truncate_above(&self, record: Lsn, new_end: Lsn) -> Result<()> {
        let place = Place { record, new_end };
        self.handle.truncate_above(place, FirstRecords::default()).map(drop)
    }

    /// Saves `checkpoint` with the state.
    pub(crate) fn save_checkpoint(&self, checkpoint: Lsn) -> Result<()> {
        self.handle.change_state(None, |state| state.checkpoint = checkpoint)
    }

    /// Frees the segments below the head.
    pub(crate) fn release(&self) -> Result<()> {
        self.handle.release_unpinned()
    }

    /// Creates a log that begins at `base` with `memory` as its log buffer.
    pub(crate) fn model(
        store: Arc<dyn Store>,
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
