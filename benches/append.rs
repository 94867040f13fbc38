//! Appends without a sync: one thread with records of 100 B to 10 KiB, and 1 to 8 threads with
//! 256 B. The element is an append. With the feature `peers`, other crates as well; okaywal has no
//! append without a sync, and walrus-rust needs a process that was started for it.
//!
//! The log is emptied whenever 128 MiB are in it, outside of the timing, so that the result
//! holds neither the device nor a disk that fills up.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade_bench::contenders;
use palisade_bench::{Contender, Log, Plan, Workload, together};

const BURST_BYTES: u64 = 128 << 20;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = single, multi
}
criterion_main!(benches);

fn single(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append/single");
    for record_bytes in [100, 256, 1024, 10 * 1024] {
        group.throughput(Throughput::Bytes(record_bytes as u64));
        for contender in able() {
            let id = BenchmarkId::new(contender.name, record_bytes);
            appends(&mut group, id, contender, 1, record_bytes);
        }
    }
    group.finish();
}

fn multi(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append/multi");
    for threads in [1, 2, 4, 8] {
        group.throughput(Throughput::Elements(threads as u64));
        for contender in able() {
            let id = BenchmarkId::new(contender.name, threads);
            appends(&mut group, id, contender, threads, 256);
        }
    }
    group.finish();
}

fn able() -> impl Iterator<Item = Contender> {
    let in_this_process = |contender: &Contender| contender.name != "walrus";
    contenders::all()
        .filter(|contender| contender.supports(Workload::Append))
        .filter(in_this_process)
}

fn appends(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    contender: Contender,
    threads: usize,
    record_bytes: usize,
) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let plan = Plan {
        dir: dir.path().into(),
        threads,
        streams: threads,
        record_bytes,
        ..Plan::new(contender, Workload::Append)
    };
    let mut log = plan.create().expect("an empty log");
    group.bench_function(id, |bencher| {
        bencher.iter_custom(|iterations| bursts(&mut *log, &plan, iterations));
    });
}

/// `iterations` appends by each thread, in as many bursts as their bytes ask for.
fn bursts(log: &mut dyn Log, plan: &Plan, iterations: u64) -> Duration {
    let record = plan.record();
    let longest = (BURST_BYTES / (plan.threads * plan.record_bytes) as u64).max(1);
    let mut elapsed = Duration::ZERO;
    let mut left = iterations;
    while left > 0 {
        let count = left.min(longest);
        let shared = &*log;
        let burst = together(plan.threads, |thread| shared.appends(thread, &record, count as u32));
        let (burst, _) = burst.expect("each append has room");
        log.trim().expect("the log can be emptied");
        elapsed += burst;
        left -= count;
    }
    elapsed
}
