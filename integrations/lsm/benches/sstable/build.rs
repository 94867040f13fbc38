//! The time to write 100 000 entries to a table: the flush of a full memtable. It syncs the log,
//! writes and syncs the table, and truncates the log. The appends before it are not timed.
//!
//! `lsm-tree` has no Zstd. `zstd of the blocks` is the compression alone of the same entries, in
//! blocks of 4 KiB, at level 1.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use palisade::{Codec, Zstd};
use palisade_lsm::{Compression, Options};

use crate::entries::{ENTRIES, Table, blocks, one_table};

pub(crate) fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build");
    group.throughput(Throughput::Elements(ENTRIES)).sampling_mode(SamplingMode::Flat);
    for (name, compression) in [("raw", Compression::None), ("lz4", Compression::Lz4)] {
        let options = one_table().compression(compression);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| (0..iterations).map(|_| flush(&options)).sum());
        });
    }
    let (codec, blocks) = (Zstd::new(), blocks(ENTRIES));
    group.bench_function("zstd of the blocks", |bencher| {
        let mut into = Vec::new();
        bencher.iter(|| {
            for block in &blocks {
                into.clear();
                codec.encode(0, block, &mut into).expect("a block");
                black_box(&into);
            }
        });
    });
    group.finish();
}

fn flush(options: &Options) -> Duration {
    let table = Table::empty(options);
    table.append(0..ENTRIES);
    let start = Instant::now();
    table.database.flush().expect("a flush");
    start.elapsed()
}
