//! Point reads of keys that are there, in random order.

use criterion::{BenchmarkId, Criterion};
use palisade_lsm::Compression;

use crate::entries::{ENTRIES, Key, Table, key, one_table};
use crate::reads;

pub(crate) fn get(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("get");
    let keys: Vec<Key> = (0..ENTRIES).map(key).collect();
    for (name, compression) in [("raw", Compression::None), ("lz4", Compression::Lz4)] {
        let options = one_table().compression(compression);
        let table = Table::of(&options, ENTRIES).with(&options.clone().cache_bytes(64 << 20));
        group.bench_function(BenchmarkId::new("cached", name), |bencher| {
            reads(bencher, &table, &keys, true);
        });
        let table = table.with(&options.cache_bytes(0));
        group.bench_function(BenchmarkId::new("uncached", name), |bencher| {
            reads(bencher, &table, &keys, true);
        });
        #[cfg(target_os = "linux")]
        cold(&mut group, name, &table, &keys);
    }
    group.finish();
}

#[cfg(target_os = "linux")]
type Group<'g> = criterion::BenchmarkGroup<'g, criterion::measurement::WallTime>;

/// Times reads from the device, if the file system lets the process drop its pages.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "says why a figure is not there")]
fn cold(group: &mut Group<'_>, name: &str, table: &Table, keys: &[Key]) {
    use std::time::{Duration, Instant};

    let files = crate::disk::Files::below(&table.folder.path().join("tables"));
    let mut keys = keys.iter().cycle();
    let mut read = || {
        files.drop_pages();
        let key = keys.next().expect("there are keys");
        let start = Instant::now();
        let found = table.keyspace.get(key).expect("a read");
        let time = start.elapsed();
        assert!(found.is_some());
        time
    };
    let before = crate::disk::device_bytes();
    for _ in 0..10 {
        read();
    }
    // Ten reads, each with at least one page.
    let least = before.map(|bytes| bytes + 10 * 4096);
    if least.is_none() || crate::disk::device_bytes() < least {
        println!("get/cold/{name} is left out: the file system keeps the pages of the tables");
        return;
    }
    group.bench_function(BenchmarkId::new("cold", name), |bencher| {
        bencher.iter_custom(|iterations| (0..iterations).map(|_| read()).sum::<Duration>());
    });
}
