//! Point reads of keys that are not there, between keys that are: with filters of 10 bits for each
//! key, a check of the filter; without filters, the search in a block.

use criterion::{BenchmarkId, Criterion};

use crate::entries::{ENTRIES, Key, Table, key, one_table};
use crate::reads;

pub(crate) fn bloom(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bloom");
    let absent: Vec<Key> = (ENTRIES..2 * ENTRIES).map(key).collect();
    for (name, bits) in [("10 bits", 10), ("none", 0)] {
        let options = one_table().filter_bits(bits);
        let mut table = Table::of(&options, ENTRIES);
        for (place, cache_bytes) in [("cached", 64 << 20), ("uncached", 0)] {
            table = table.with(&options.clone().cache_bytes(cache_bytes));
            group.bench_function(BenchmarkId::new(place, name), |bencher| {
                reads(bencher, &table, &absent, false);
            });
        }
    }
    group.finish();
}
