//! A log without an open: recovery is no part of the models.

use std::sync::Arc;

use super::Wal;
use crate::frame::EpochSeed;
use crate::reader::EpochSpan;
use crate::recovery::Recovered;
use crate::store::{State, Store};
use crate::{Lsn, Memory, Options, RecoveryReport, Result, Uuid};

impl Wal {
    /// `truncate_after` for the record at `lsn`, which is known to end at `cut`.
    pub(crate) fn cut_after(&self, lsn: Lsn, cut: Lsn) -> Result<()> {
        self.handle.cut_after(lsn, cut)
    }

    /// A log that begins at `base` with `memory` as its ring.
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
        };
        let spans = vec![EpochSpan { epoch: 1, salt: 0, seed, base, end: Lsn::LIMIT }];
        let report = RecoveryReport::default();
        let recovered = Recovered { state, spans, base, memory, report };
        Wal::begin(store, recovered, options).expect("a model's options are valid")
    }
}
