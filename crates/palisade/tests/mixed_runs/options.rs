//! What one log keeps for all of its runs, and the options that each open rolls anew.

use std::sync::Arc;
use std::time::Duration;

use palisade::sim::{SimDisk, WriteBackFailure};
use palisade::{BufferKind, Options, Result, SyncPolicy, Verify, Wal};
use palisade_store::FileOptions;

use crate::codecs::Chosen;
use crate::device::{POLICIES, new_disk};
use crate::dice::Dice;
use crate::run::Run;
use crate::seeds::number;

/// What one log and its disk keep for ever.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) segment_bytes: u64,
    pub(crate) in_place: bool,
    pub(crate) powersafe: bool,
    pub(crate) keeps_released: bool,
    pub(crate) threads: bool,
    /// Its runs end with `close` more often than not, and go on in the same boot, with the same
    /// buffer.
    pub(crate) closes: bool,
    pub(crate) failure: WriteBackFailure,
    pub(crate) codec: Chosen,
}

/// The options of one open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    pub(crate) buffer: BufferKind,
    pub(crate) buffer_bytes: usize,
    pub(crate) zero_fill: bool,
    pub(crate) spares: usize,
    pub(crate) policy: SyncPolicy,
    pub(crate) pad: bool,
    pub(crate) write_bytes: usize,
    pub(crate) gather: u32,
    pub(crate) verify: Verify,
    pub(crate) read_ahead: usize,
}

impl Fixed {
    pub(crate) fn rolled(dice: &mut Dice, seed: u64, failure: WriteBackFailure) -> Fixed {
        Fixed {
            segment_bytes: dice.pick(&[4096, 4096, 8192, 12_288, 20_480, 28_672]),
            in_place: !dice.once_in(3),
            powersafe: !dice.once_in(4),
            keeps_released: dice.once_in(3),
            threads: dice.once_in(one_in_unless("PALISADE_THREADS", 4)),
            // With dice of its own: a log that is not closed so often has the run that it had.
            closes: Dice::new(seed ^ 0xc105_e000).once_in(one_in_unless("PALISADE_CLOSES", 3)),
            failure,
            codec: Chosen::of_seed(seed),
        }
    }

    pub(crate) fn disk(&self, seed: u64) -> SimDisk {
        new_disk(seed, self.failure, self.in_place, self.powersafe)
    }
}

/// One in `usually`, or every one where the environment has `name`.
fn one_in_unless(name: &str, usually: u64) -> u64 {
    if number(name).is_some() { 1 } else { usually }
}

impl Run {
    /// Other options for the next open.
    pub(crate) fn roll(&mut self) {
        self.failures.opens(&self.disk);
        let d = &mut self.dice;
        let keeps_buffer = self.fixed.closes && !d.once_in(4);
        let before = self.opening.clone();
        let mut policies = POLICIES.to_vec();
        if self.fixed.threads {
            policies.push(SyncPolicy::Interval(Duration::from_micros(300)));
        }
        self.opening = Opening {
            buffer: d.pick(&[
                BufferKind::Auto,
                BufferKind::Auto,
                BufferKind::Heap,
                BufferKind::Mapped,
            ]),
            buffer_bytes: d.pick(&[4096, 4096, 8192, 16_384, 32_768]),
            zero_fill: !d.once_in(3),
            spares: d.below(6) as usize,
            policy: d.pick(&policies),
            pad: !self.fixed.powersafe || d.once_in(4),
            write_bytes: d.pick(&[1, 100, 1000, 4096, 1 << 20]),
            gather: d.pick(&[0, 25, 100]),
            verify: d.pick(&[Verify::Tail, Verify::Full]),
            read_ahead: d.pick(&[4096, 5000, 65_536]),
        };
        if keeps_buffer {
            let Opening { buffer, buffer_bytes, pad, .. } = before;
            let pad = pad || !self.fixed.powersafe;
            self.opening = Opening { buffer, buffer_bytes, pad, ..self.opening.clone() };
        }
    }

    pub(crate) fn open(&self) -> Result<Wal> {
        Wal::with_store(self.disk.open(&self.files())?, self.log())
    }

    pub(crate) fn files(&self) -> FileOptions {
        let o = &self.opening;
        let mut files = FileOptions::new();
        files.segment_bytes = Some(self.fixed.segment_bytes);
        files.buffer = o.buffer;
        files.zero_fill = o.zero_fill;
        files.spare_segments = o.spares;
        self.fixed.codec.set_in_files(&mut files);
        if self.fixed.keeps_released {
            files.on_release = Some(Arc::new(self.kept.clone()));
        }
        files
    }

    pub(crate) fn log(&self) -> Options {
        let o = &self.opening;
        let options = Options::new()
            .buffer_bytes(o.buffer_bytes)
            .sync_policy(o.policy)
            .pad_to_block(o.pad)
            .write_bytes(o.write_bytes)
            .gather_percent(o.gather)
            .verify(o.verify)
            .read_ahead_bytes(o.read_ahead)
            .verify_threads(1);
        self.fixed.codec.set_in(options)
    }
}
