//! Tables of the engine: build, point reads, filters, scans, caches, opens and writes.
//!
//!     cargo bench -p palisade-lsm --bench sstable                  # about two minutes
//!     SSTABLE_LONG=1 cargo bench -p palisade-lsm --bench sstable   # also a table of 1 GB
//!
//! Entries have 120 bytes: a key of 20 and a value of 100, half of which compresses. Unless a bench
//! says otherwise, the database has 100 000 of them in one table of the last level.
//!
//! | reads | where the blocks are |
//! |---|---|
//! | `cached` | in the block cache of the engine |
//! | `uncached` | in the page cache of the operating system: the engine has no block cache |
//! | `cold` | on the device: no block cache, and no page of a table in the page cache |
//!
//! Before each cold read, `posix_fadvise(DONTNEED)` drops the tables from the page cache. The bench
//! sees in `/proc/self/io` that reads go to the device; else it leaves them out. A virtual disk can
//! still have the blocks in the memory of its host.
//!
//! With the feature `metrics`, reads also count. `sstable-counts` prints what is no time.

mod amplification;
mod bloom;
mod build;
mod cache;
#[cfg(target_os = "linux")]
mod disk;
mod entries;
mod get;
mod open;
mod scan;

use std::time::Duration;

use criterion::{Bencher, Criterion, criterion_group};

use self::entries::{Key, Table};

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = build::build, get::get, bloom::bloom, scan::scan, cache::cache, open::open,
        amplification::amplification
}

fn main() {
    #[cfg(target_os = "linux")]
    disk::refuse_memory();
    benches();
    Criterion::default().configure_from_args().final_summary();
}

/// Times point reads of `keys` in turn, after one untimed read of each.
fn reads(bencher: &mut Bencher<'_>, table: &Table, keys: &[Key], is_there: bool) {
    let get = |key: &Key| {
        let found = table.keyspace.get(key).expect("a read");
        assert_eq!(found.is_some(), is_there);
    };
    keys.iter().for_each(get);
    let mut keys = keys.iter().cycle();
    bencher.iter(|| get(keys.next().expect("there are keys")));
}
