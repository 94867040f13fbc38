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
use palisade_bench::form::Form;
use palisade_bench::log::End;
use palisade_bench::plan::Plan;
use palisade_bench::workload::Workload;

const LOGS: [(u64, usize, Form); 11] = [
    (10_000, 256, Form::Plain),
    (1_000, 1024, Form::Plain),
    (10_000, 1024, Form::Plain),
    (50_000, 1024, Form::Plain),
    (100_000, 1024, Form::Plain),
    (10_000, 1024, Form::Torn(64 << 10)),
    (10_000, 1024, Form::Torn(1 << 20)),
    (10_000, 1024, Form::Torn(16 << 20)),
    (10_000, 1024, Form::Segments(2)),
    (10_000, 1024, Form::Segments(5)),
    (10_000, 1024, Form::Segments(10)),
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
    for (records, record_bytes, form) in LOGS {
        group.throughput(Throughput::Bytes(records * record_bytes as u64));
        let id = BenchmarkId::new(format!("{record_bytes}B-{}", form.name()), records);
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
    let plan = Plan { records, form, ..Plan::at(dir.path(), 1, record_bytes) };
    let torn_bytes = if let Form::Torn(bytes) = form { bytes } else { 0 };
    let log = PALISADE.fill(Workload::Recover, &plan).expect("a log of records");
    let opening = log.end(End::Killed { torn_bytes }).expect("an image of the log");
    let opening = opening.expect("Palisade keeps its records");
    settle(dir.path());
    let begin = Instant::now();
    let _log = opening().expect("a log that was not closed opens");
    begin.elapsed()
}
