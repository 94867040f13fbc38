//! Reading logs that lie in the page cache, checksums verified: scans of 100 to 10 k records of
//! 1 KiB and of 10 k of 128 B, and single records of the latter in random order.
//!
//! With the feature `peers`, other crates as well. walrus-rust is not among them: it needs a
//! process that was started for it, as the driver is.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade_bench::contenders;
use palisade_bench::{Log, Plan, Tally, Workload};

const LOGS: [(u64, usize); 4] = [(100, 1024), (1_000, 1024), (10_000, 1024), (10_000, 128)];
/// Has no divisor in common with the records of a log, so it visits all in a row without order.
const STRIDE: u64 = 7_919;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = scan, get
}
criterion_main!(benches);

fn scan(criterion: &mut Criterion) {
    for (records, record_bytes) in LOGS {
        let mut group = criterion.benchmark_group(format!("scan/{record_bytes}B"));
        group.throughput(Throughput::Elements(records));
        on_each(Workload::Scan, records, record_bytes, |name, log| {
            group.bench_function(BenchmarkId::new(name, records), |bencher| {
                bencher.iter(|| {
                    let mut tally = Tally::default();
                    log.scan(&mut tally).expect("each record is there");
                    assert_eq!(black_box(tally).records, records);
                });
            });
        });
        group.finish();
    }
}

fn get(criterion: &mut Criterion) {
    let (records, record_bytes) = LOGS[3];
    let mut group = criterion.benchmark_group(format!("get/{record_bytes}B"));
    on_each(Workload::Get, records, record_bytes, |name, log| {
        group.bench_function(BenchmarkId::new(name, records), |bencher| {
            let mut number = 0;
            bencher.iter(|| {
                number = (number + STRIDE) % records;
                let mut tally = Tally::default();
                log.get(number, &mut tally).expect("the record is there");
                assert_eq!(black_box(tally).records, 1);
            });
        });
    });
    group.finish();
}

fn on_each(
    workload: Workload,
    records: u64,
    record_bytes: usize,
    mut measure: impl FnMut(&str, &dyn Log),
) {
    let able = contenders::all().filter(|contender| contender.supports(workload));
    for contender in able.filter(|contender| contender.name != "walrus") {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let plan = Plan {
            dir: dir.path().into(),
            records,
            record_bytes,
            ..Plan::new(contender, workload)
        };
        let mut log = plan.fill().expect("a log of records");
        log.index().expect("each record is there");
        measure(contender.name, &*log);
    }
}
