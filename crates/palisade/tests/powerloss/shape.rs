//! What is fixed for all runs of a log, and what may differ from open to open.

use palisade::sim::{SimDisk, WriteBackFailure};
use palisade::{BufferKind, Lsn, Options, SyncPolicy, Verify};
use palisade_store::FileOptions;

use crate::codecs::Chosen;
use crate::device::new_disk;

/// What is fixed for all runs of a log.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) segment_bytes: u64,
    pub(crate) buffer_bytes: usize,
    pub(crate) heap: bool,
    pub(crate) zero_fill: bool,
    pub(crate) spares: usize,
    pub(crate) policy: SyncPolicy,
    pub(crate) in_place: bool,
    pub(crate) powersafe: bool,
    pub(crate) keeps_released: bool,
    pub(crate) first_lsn: u64,
    /// The limit of the log's files, in files.
    pub(crate) max_files: Option<u64>,
    pub(crate) failure: WriteBackFailure,
    pub(crate) codec: Chosen,
    /// The read buffer. The frames of some shapes are longer.
    pub(crate) read_ahead: usize,
}

/// What may differ from open to open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    pub(crate) verify: Verify,
    pub(crate) verify_threads: usize,
    /// In place of the shape's, for one run.
    pub(crate) policy: Option<SyncPolicy>,
}

impl Shape {
    /// The smallest log: segments and ring of one page, everything else as by default.
    pub(crate) fn smallest() -> Shape {
        Shape {
            segment_bytes: 4096,
            buffer_bytes: 4096,
            heap: false,
            zero_fill: true,
            spares: 2,
            policy: SyncPolicy::OnCommit,
            in_place: true,
            powersafe: true,
            keeps_released: false,
            first_lsn: 0,
            max_files: None,
            failure: WriteBackFailure::default(),
            codec: Chosen::None,
            read_ahead: 256 << 10,
        }
    }

    /// Whether frames can be longer than the read buffer.
    pub(crate) fn has_long_frames(&self) -> bool {
        self.read_ahead < 64 << 10
    }

    pub(crate) fn disk(&self, seed: u64) -> SimDisk {
        new_disk(seed, self.failure, self.in_place, self.powersafe)
    }

    pub(crate) fn files(&self) -> FileOptions {
        let mut files = FileOptions::new();
        files.segment_bytes = Some(self.segment_bytes);
        files.buffer = if self.heap { BufferKind::Heap } else { BufferKind::Auto };
        files.zero_fill = self.zero_fill;
        files.spare_segments = self.spares;
        files.first_lsn = Lsn::new(self.first_lsn);
        files.max_bytes = self.max_files.map(|files| files * (4096 + self.segment_bytes));
        self.codec.set_in_files(&mut files);
        files
    }

    pub(crate) fn log(&self, opening: &Opening) -> Options {
        let options = Options::new()
            .buffer_bytes(self.buffer_bytes)
            .sync_policy(opening.policy.unwrap_or(self.policy))
            .pad_to_block(!self.powersafe)
            .verify(opening.verify)
            .verify_threads(opening.verify_threads)
            .read_ahead_bytes(self.read_ahead);
        self.codec.set_in(options)
    }
}
