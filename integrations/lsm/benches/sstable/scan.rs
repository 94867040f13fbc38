//! Scans of entries in a row, from a random key on.

use criterion::{BenchmarkId, Criterion, Throughput};
use palisade_lsm::Compression;

use crate::entries::{ENTRIES, ENTRY_BYTES, Key, Table, one_table, sorted_keys};

const CACHE: u64 = 64 << 20;
const FORMS: [(&str, Compression, u64); 3] = [
    ("cached", Compression::None, CACHE),
    ("uncached raw", Compression::None, 0),
    ("uncached lz4", Compression::Lz4, 0),
];

pub(crate) fn scan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scan");
    let sorted = sorted_keys(ENTRIES);
    for (name, compression, cache_bytes) in FORMS {
        let options = one_table().compression(compression).cache_bytes(cache_bytes);
        let table = Table::of(&options, ENTRIES);
        assert_eq!(bytes(&table, &sorted[0], ENTRIES), ENTRIES * ENTRY_BYTES); // fills the cache
        for count in [1_000, 10_000] {
            group.throughput(Throughput::Elements(count));
            let starts = &sorted[..(ENTRIES - count) as usize];
            let mut starts = starts.iter().step_by(7_919).cycle();
            group.bench_function(BenchmarkId::new(name, count), |bencher| {
                bencher.iter(|| {
                    let start = starts.next().expect("there are keys");
                    assert_eq!(bytes(&table, start, count), count * ENTRY_BYTES);
                });
            });
        }
    }
    group.finish();
}

/// Returns the bytes of the entries from `start` on.
fn bytes(table: &Table, start: &Key, count: u64) -> u64 {
    let found = table.keyspace.range(&start[..]..).take(count as usize);
    found
        .map(|pair| pair.map(|(key, value)| (key.len() + value.len()) as u64).expect("a read"))
        .sum()
}
