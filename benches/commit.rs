//! Durable commits of 256 B by 1 to 64 threads, with the floors of disk and of waking beside
//! them. The element is a commit.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade_bench::contenders::{PALISADE, RAW, WAKE};
use palisade_bench::{Plan, Workload, together};

const RECORD_BYTES: usize = 256;
const THREADS: [usize; 5] = [1, 2, 8, 32, 64];

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = commit
}
criterion_main!(benches);

fn commit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("commit");
    for threads in THREADS {
        group.throughput(Throughput::Elements(threads as u64));
        for contender in [RAW, WAKE, PALISADE] {
            if (contender.has_one_thread)(Workload::Commit) && threads > 1 {
                continue;
            }
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
            let plan = Plan {
                dir: dir.path().into(),
                threads,
                record_bytes: RECORD_BYTES,
                ..Plan::new(contender, Workload::Commit)
            };
            let log = plan.create().expect("an empty log");
            let record = plan.record();
            group.bench_function(BenchmarkId::new(contender.name, threads), |bencher| {
                bencher.iter_custom(|iterations| {
                    let commits = together(threads, |thread| {
                        (0..iterations).try_for_each(|_| log.commit(thread, &record))
                    });
                    commits.expect("acknowledged").0
                });
            });
        }
    }
    group.finish();
}
