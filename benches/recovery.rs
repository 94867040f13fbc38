//! Opening logs that were not closed: 1 k to 100 k records of 1 KiB, and 10 k of 256 B.
//!
//! All records are durable; the image of a killed process is made anew for each open, outside of
//! the timing, because an open changes the log.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade_bench::contender::Contender;
use palisade_bench::contender::palisade::PalisadeLog;

const LOGS: [(u64, usize); 5] =
    [(10_000, 256), (1_000, 1024), (10_000, 1024), (50_000, 1024), (100_000, 1024)];

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
    for (records, record_bytes) in LOGS {
        group.throughput(Throughput::Bytes(records * record_bytes as u64));
        let record = vec![7; record_bytes];
        group.bench_function(BenchmarkId::new(format!("{record_bytes}B"), records), |bencher| {
            bencher.iter_custom(|iterations| {
                (0..iterations).map(|_| open_once(&record, records)).sum()
            });
        });
    }
    group.finish();
}

fn open_once(record: &[u8], records: u64) -> Duration {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let log = PalisadeLog::filled(Contender::Palisade, dir.path(), record, records);
    let (_log, elapsed) = log
        .and_then(|log| log.crash_and_open(&dir.path().join("image")))
        .expect("a log that was not closed opens");
    elapsed
}
