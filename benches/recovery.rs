//! Opening logs that were not closed: 1 k to 100 k records of 1 KiB, and 10 k of 256 B; 10 k of
//! 1 KiB also with a torn tail, and in several segments.
//!
//! All records are durable; the image of a killed process is made anew for each open, outside of
//! the timing, because an open changes the log.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade_bench::contenders::PALISADE;
use palisade_bench::folder::settle;
use palisade_bench::{End, Form, Plan, Workload};

const LOGS: [(u64, usize, &str); 11] = [
    (10_000, 256, "plain"),
    (1_000, 1024, "plain"),
    (10_000, 1024, "plain"),
    (50_000, 1024, "plain"),
    (100_000, 1024, "plain"),
    (10_000, 1024, "64-KiB-torn"),
    (10_000, 1024, "1024-KiB-torn"),
    (10_000, 1024, "16384-KiB-torn"),
    (10_000, 1024, "2-segments"),
    (10_000, 1024, "5-segments"),
    (10_000, 1024, "10-segments"),
];

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(2));
    targets = recovery
}
criterion_main!(benches);

fn recovery(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("recovery");
    for (records, record_bytes, name) in LOGS {
        let named = |form: &&Form| form.option() == name;
        let form = *Workload::Recover.forms().iter().find(named).expect("a form of that name");
        group.throughput(Throughput::Bytes(records * record_bytes as u64));
        let id = BenchmarkId::new(format!("{record_bytes}B-{name}"), records);
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|iterations| {
                (0..iterations).map(|_| open_once(records, record_bytes, form)).sum()
            });
        });
    }
    group.finish();
}

fn open_once(records: u64, record_bytes: usize, form: Form) -> Duration {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let plan = Plan {
        dir: dir.path().into(),
        records,
        record_bytes,
        form,
        ..Plan::new(PALISADE, Workload::Recover)
    };
    let log = plan.fill().expect("a log of records");
    let opening = plan.end(log, End::Killed).expect("an image of the log");
    settle(dir.path());
    let begin = Instant::now();
    let _log = opening().expect("a log that was not closed opens");
    begin.elapsed()
}
