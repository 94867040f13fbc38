//! Point reads with block caches of several sizes. The table has 12 MB; 80 of 100 reads go to 20 of
//! 100 keys, which are neighbours. `sstable-counts` has the hits.

use criterion::{BenchmarkId, Criterion};

use crate::entries::{ENTRIES, Table, one_table, picks_80_20, sorted_keys};
use crate::reads;

pub(crate) fn cache(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cache");
    let keys = picks_80_20(&sorted_keys(ENTRIES), ENTRIES);
    let mut table = Table::of(&one_table(), ENTRIES);
    for mib in [0, 1, 4, 16] {
        table = table.with(&one_table().cache_bytes(mib << 20));
        group.bench_function(BenchmarkId::new("80-20", format!("{mib} MiB")), |bencher| {
            reads(bencher, &table, &keys, true);
        });
    }
    group.finish();
}
