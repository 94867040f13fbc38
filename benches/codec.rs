//! Codecs: appends and scans of records of 1 KiB, JSON and random, without a codec and with LZ4 and
//! Zstd. The log is in memory, so neither result holds the device. The element is a record.
//!
//! For each codec and kind of record, prints how many times its frames are smaller than those
//! without a codec.
#![expect(clippy::print_stdout, reason = "criterion prints no ratio")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};
use palisade::{Lz4, MemStore, Options, Wal, Zstd, framed_bytes};

const RECORD_BYTES: usize = 1024;
/// Records that differ, appended in turn.
const RECORDS: usize = 1000;
/// The log is emptied after so many appends, outside of the timing.
const BURST: u64 = 20_000;

type Records = Vec<Vec<u8>>;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = append, scan
}
criterion_main!(benches);

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec/append");
    group.throughput(Throughput::Elements(1));
    on_each(|name, kind, options, records| {
        let wal = log(options);
        group.bench_function(BenchmarkId::new(name, kind), |bencher| {
            bencher.iter_custom(|iterations| appends(&wal, records, iterations));
        });
    });
    group.finish();
}

fn scan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec/scan");
    group.throughput(Throughput::Elements(RECORDS as u64));
    on_each(|name, kind, options, records| {
        let wal = log(options);
        let begin = wal.reserved_lsn();
        records.iter().for_each(|record| drop(wal.append(record).expect("there is room")));
        wal.sync().expect("the log is in memory");
        let stored = wal.reserved_lsn().bytes_since(begin);
        let plain = framed_bytes(RECORD_BYTES) * RECORDS as u64;
        println!("{name}, {kind}: {:.2} times smaller", plain as f64 / stored as f64);
        group.bench_function(BenchmarkId::new(name, kind), |bencher| {
            bencher.iter(|| {
                let mut found = wal.records().expect("the log is open");
                let mut bytes = 0;
                while let Some(record) = found.next().expect("each record is whole") {
                    bytes += black_box(record.data()).len();
                }
                assert_eq!(bytes, RECORDS * RECORD_BYTES);
            });
        });
    });
    group.finish();
}

fn on_each(mut measure: impl FnMut(&str, &str, Options, &Records)) {
    let plain = || Options::new().segment_bytes(64 << 20);
    for (kind, records) in [("json", json()), ("random", random())] {
        measure("none", kind, plain(), &records);
        measure("lz4", kind, plain().codec(Lz4::new()), &records);
        measure("zstd-1", kind, plain().codec(Zstd::new()), &records);
        measure("zstd-3", kind, plain().codec(Zstd::new().level(3)), &records);
    }
}

fn log(options: Options) -> Wal {
    Wal::with_store(MemStore::new(64 << 20), options).expect("a log in memory")
}

fn appends(wal: &Wal, records: &Records, iterations: u64) -> Duration {
    let mut elapsed = Duration::ZERO;
    let mut left = iterations;
    while left > 0 {
        let count = left.min(BURST);
        let start = Instant::now();
        for record in records.iter().cycle().take(count as usize) {
            drop(black_box(wal.append(record).expect("there is room")));
        }
        elapsed += start.elapsed();
        wal.truncate_before(wal.reserved_lsn()).expect("the log can be emptied");
        left -= count;
    }
    elapsed
}

/// Numbers without a pattern (xorshift).
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn random() -> Records {
    let mut next = numbers();
    let mut record = || (0..RECORD_BYTES).map(|_| next() as u8).collect();
    (0..RECORDS).map(|_| record()).collect()
}

/// Rows of an order, with fields that differ from row to row.
fn json() -> Records {
    let mut next = numbers();
    let record = |number| {
        let mut text = format!("{{\"order\": {number}, \"rows\": [");
        while text.len() < RECORD_BYTES {
            let (item, price) = (next() % 100_000, next() % 10_000);
            let row = format!("{{\"item\": {item}, \"price\": {price}, \"currency\": \"EUR\"}}, ");
            text.write_str(&row).expect("a string grows");
        }
        text.truncate(RECORD_BYTES);
        text.into_bytes()
    };
    (0..RECORDS).map(record).collect()
}
