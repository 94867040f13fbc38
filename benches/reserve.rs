//! The one atomic read-modify-write of an append, alone: `fetch_add` on one word by 1 to 8
//! threads. No log that shares one order of records can append faster. The element is a
//! `fetch_add` of one thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade_bench::together;

const FRAME_BYTES: u64 = 280;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = reserve
}
criterion_main!(benches);

fn reserve(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reserve");
    for threads in [1, 2, 4, 8] {
        let tail = AtomicU64::new(0);
        group.throughput(Throughput::Elements(threads as u64));
        group.bench_function(BenchmarkId::new("fetch_add", threads), |bencher| {
            bencher.iter_custom(|iterations| {
                together(threads, |_| {
                    for _ in 0..iterations {
                        // Relaxed: the cost of the instruction is asked for, not an order.
                        tail.fetch_add(FRAME_BYTES, Ordering::Relaxed);
                    }
                    Ok(())
                })
                .expect("no thread fails")
                .0
            });
        });
    }
    group.finish();
}
