//! Writes of 100 000 random keys over a table that has them, until all are in tables: with small
//! memtables the engine flushes and compacts more often. `sstable-counts` has the bytes.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};

use crate::entries::{ENTRIES, Table, mix, one_table};

pub(crate) fn amplification(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("amplification");
    group.throughput(Throughput::Elements(ENTRIES)).sampling_mode(SamplingMode::Flat);
    for mib in [1, 4, 16] {
        let options = one_table().background(true).table_bytes(mib << 20);
        let table = Table::of(&options.memtable_bytes(mib << 20), ENTRIES);
        let mut round = 0;
        let mut overwrite = || {
            round += 1;
            let start = Instant::now();
            table.append((0..ENTRIES).map(|number| mix(round * ENTRIES + number) % ENTRIES));
            table.database.flush().expect("a flush");
            start.elapsed()
        };
        group.bench_function(BenchmarkId::new("memtable", format!("{mib} MiB")), |bencher| {
            bencher
                .iter_custom(|iterations| (0..iterations).map(|_| overwrite()).sum::<Duration>());
        });
    }
    group.finish();
}
