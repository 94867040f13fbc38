//! Opens of a closed database, and point reads, against the size of its table. The page cache has
//! the files. The block cache has 32 MiB, and tables are compressed: the defaults. An open also
//! opens the log; the database of `0 MB` has nothing else.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, SamplingMode};
use palisade_lsm::Compression;

use crate::entries::{ENTRIES, ENTRY_BYTES, Key, Table, key, one_table};
use crate::reads;

pub(crate) fn open(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open");
    let options = one_table().compression(Compression::Lz4Below);
    let long = std::env::var_os("SSTABLE_LONG").map(|_| 1024);
    for megabytes in [0, 1, 16, 64, 256].into_iter().chain(long) {
        let entries = megabytes * 1_000_000 / ENTRY_BYTES;
        let table = Table::of(&options, entries);
        let name = format!("{megabytes} MB");
        if entries > 0 {
            let step = entries.div_ceil(ENTRIES) as usize;
            let keys: Vec<Key> = (0..entries).step_by(step).map(key).collect();
            group.sampling_mode(SamplingMode::Auto);
            group.bench_function(BenchmarkId::new("get", &name), |bencher| {
                reads(bencher, &table, &keys, true);
            });
        }
        let Table { keyspace, database, folder } = table;
        drop(keyspace);
        database.close().expect("a close");
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(BenchmarkId::new("open", &name), |bencher| {
            bencher.iter_custom(|iterations| {
                let open = || {
                    let start = Instant::now();
                    let database = options.open(folder.path()).expect("a database");
                    let time = start.elapsed();
                    black_box(database).close().expect("a close");
                    time
                };
                (0..iterations).map(|_| open()).sum::<Duration>()
            });
        });
    }
    group.finish();
}
