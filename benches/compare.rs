//! The head-to-head: n threads make 16 records of 256 B durable each, by Palisade, by a mutex and
//! a file, and with the feature `peers` by other crates.
//!
//! walrus-rust is not among them: it needs a process that was started for it, as the driver is.
//!
//! The element is a commit. Threads are spawned and joined outside of the timing and run all
//! iterations of a sample at one go, so that neither is in the result.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade_bench::contenders;
use palisade_bench::{Log, Plan, Workload, together};

const COMMITS_PER_THREAD: u64 = 16;
const RECORD_BYTES: usize = 256;
/// Those of them that this build has.
const NAMES: [&str; 6] = ["naive", "palisade", "wal-db", "okaywal", "raft-engine", "ironwal"];

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    targets = compare
}
criterion_main!(benches);

fn compare(criterion: &mut Criterion) {
    for threads in [8, 1, 2, 32, 64] {
        let mut group = criterion.benchmark_group(format!("compare/{threads}x16"));
        group.throughput(Throughput::Elements(threads as u64 * COMMITS_PER_THREAD));
        for contender in NAMES.into_iter().filter_map(|name| contenders::find(name).ok()) {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
            let plan = Plan {
                dir: dir.path().into(),
                threads,
                streams: threads,
                record_bytes: RECORD_BYTES,
                ..Plan::new(contender, Workload::Commit)
            };
            let log = plan.create().expect("an empty log");
            let record = plan.record();
            group.bench_function(BenchmarkId::from_parameter(contender.name), |bencher| {
                bencher.iter_custom(|iterations| {
                    commit(&*log, threads, &record, iterations * COMMITS_PER_THREAD)
                });
            });
        }
        group.finish();
    }
}

fn commit(log: &dyn Log, threads: usize, record: &[u8], commits: u64) -> Duration {
    let commits =
        together(threads, |thread| (0..commits).try_for_each(|_| log.commit(thread, record)));
    commits.expect("each commit is acknowledged").0
}
