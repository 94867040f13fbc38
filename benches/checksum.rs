//! The candidates for the log's one checksum, CRC-32C: the crates `crc32c` and `crc-fast`, and
//! `palisade`, the choice that the log runs on.
//!
//! `header` is what every append does once: 32 bytes with a seed. `payload` starts from 0.
//! `append` is both in a row, as one record pays them; the choice goes by this group.

use std::hint::black_box;

use crc_fast::{CrcAlgorithm, Digest};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use criterion::{criterion_group, criterion_main};

const HEADER_BYTES: usize = 32;
const PAYLOAD_BYTES: [usize; 5] = [64, 256, 1 << 10, 4 << 10, 64 << 10];
const SEED: u32 = 0x5eed_c0de;
/// Payloads lie behind a 24-byte header: at a multiple of 8, not of a vector register.
const PAYLOAD_OFFSET: usize = 24;

criterion_group!(benches, header, payload, append);
criterion_main!(benches);

type Checksum = fn(u32, &[u8]) -> u32;

const CANDIDATES: [(&str, Checksum); 3] = [
    ("crc32c", |crc, data| crc32c::crc32c_append(crc, data)),
    ("crc-fast", |crc, data| crc_fast_append(crc, data)),
    ("palisade", |crc, data| palisade::crc32c_append(crc, data)),
];

/// The best that `crc-fast` alone can do: its one-shot call has less to set up than a digest.
fn crc_fast_append(crc: u32, data: &[u8]) -> u32 {
    if crc == 0 {
        return crc_fast::crc32_iscsi(data);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(data);
    digest.finalize() as u32
}

fn header(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum/header");
    sweep(&mut group, &[HEADER_BYTES], |checksum, data| checksum(SEED, data));
    group.finish();
}

fn payload(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum/payload");
    sweep(&mut group, &PAYLOAD_BYTES, |checksum, data| checksum(0, data));
    group.finish();
}

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum/append");
    sweep(&mut group, &PAYLOAD_BYTES, |checksum, data| {
        let payload_checksum = checksum(0, data);
        let mut header = [7; HEADER_BYTES];
        header[20..24].copy_from_slice(&payload_checksum.to_le_bytes());
        checksum(SEED, black_box(&header))
    });
    group.finish();
}

fn sweep(
    group: &mut BenchmarkGroup<'_, WallTime>,
    sizes: &[usize],
    work: impl Fn(Checksum, &[u8]) -> u32,
) {
    for &bytes in sizes {
        group.throughput(Throughput::Bytes(bytes as u64));
        let buffer: Vec<u8> = (0..PAYLOAD_OFFSET + bytes).map(|i| i as u8).collect();
        let data = &buffer[PAYLOAD_OFFSET..];
        for (name, checksum) in CANDIDATES {
            group.bench_function(BenchmarkId::new(name, bytes), |bencher| {
                bencher.iter(|| work(black_box(checksum), black_box(data)));
            });
        }
    }
}
