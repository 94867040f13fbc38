//! A log without an open: recovery is no part of the models.

use std::sync::Arc;

use super::{Handle, Wal};
use crate::buffer::Buffer;
use crate::commit::Commit;
use crate::frame::EpochSeed;
use crate::reader::EpochSpan;
use crate::store::{State, Store};
use crate::sync::{Mutex, RwLock};
use crate::{Lsn, Memory, Options, RecoveryReport, Uuid};

impl Wal {
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
        };
        let buffer = Buffer::new(memory, base, segment_bytes, seed);
        let handle = Handle {
            policy: options.sync_policy,
            piece_mask: !(options.write_bytes as u64 - 1),
            writes_behind: false,
            max_frame_bytes: buffer.max_reservation_bytes(),
            read_ahead_bytes: options.read_ahead_bytes,
            running_base: base,
            pins: Arc::default(),
            log: Arc::new(Commit::new(buffer, store, base, options)),
            state: Mutex::new(state),
            spans: RwLock::new(vec![EpochSpan { epoch: 1, seed, base, end: Lsn::LIMIT }]),
            report: RecoveryReport::default(),
        };
        Wal { handle: Arc::new(handle) }
    }
}
