//! RocksDB, measured by its own program for benchmarks, `db_bench`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Work;

/// `db_bench` as this engine is set: memtables of 64 MiB, which is its default, a cache of 32 MiB,
/// filters of 10 bits (here level 0 has 19), and LZ4. The benchmark's values compress well, so
/// these do. Its level 1 is compressed, because a compaction of all leaves the tables there, and
/// here in the last level.
const SETTINGS: [&str; 8] = [
    "--key_size=16",
    "--value_size=100",
    "--compression_ratio=0.05",
    "--compression_type=lz4",
    "--min_level_to_compress=1",
    "--cache_size=33554432",
    "--bloom_bits=10",
    "--stats_dump_period_sec=0",
];

/// The program, if it is installed.
pub(crate) struct DbBench {
    program: String,
    pub(crate) version: String,
}

impl DbBench {
    /// Looks for the program that `DB_BENCH` names, or else for `db_bench`.
    pub(crate) fn find() -> Option<DbBench> {
        let program = std::env::var("DB_BENCH").unwrap_or_else(|_| "db_bench".into());
        let output = Command::new(&program).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.split_whitespace().last()?.to_owned();
        Some(DbBench { program, version })
    }

    /// Returns the calls a second. Uses `folder`, which is empty.
    pub(crate) fn rate(&self, work: Work, folder: &Path) -> f64 {
        let number = |name: &str, value: u64| format!("--{name}={value}");
        let numbers_of = |threads, calls| {
            [number("threads", threads), number("num", threads * calls), number("writes", calls)]
        };
        let measure = |benchmarks: &str, numbers: &[String]| {
            let mut command = Command::new(&self.program);
            command.arg(format!("--db={}", folder.join("db").display()));
            command.arg(format!("--benchmarks={benchmarks}")).args(SETTINGS).args(numbers);
            let output = command.stderr(Stdio::null()).output().expect("db_bench runs");
            assert!(output.status.success(), "db_bench: {}", output.status);
            let text = String::from_utf8(output.stdout).expect("db_bench prints text");
            rate_of(benchmarks.rsplit(',').next().expect("a benchmark"), &text)
        };
        match work {
            Work::Durable { threads, calls } => measure(
                writes(threads),
                &[&numbers_of(threads, calls)[..], &["--sync".into()]].concat(),
            ),
            Work::Append { threads, calls } => {
                measure(writes(threads), &numbers_of(threads, calls))
            }
            Work::GetFromMemtable { keys } => {
                let numbers = [number("num", keys), number("reads", 2 * keys)];
                measure("filluniquerandom,readrandom", &numbers)
            }
            Work::GetFromTables { threads, keys } => {
                let all = number("num", keys);
                measure("filluniquerandom,flush,compact", std::slice::from_ref(&all));
                let reads = [number("threads", threads), number("reads", 2 * keys)];
                let opened = [all, "--use_existing_db".into()];
                measure("readrandom,readrandom", &[&reads[..], &opened].concat())
            }
        }
    }
}

/// The benchmark that writes. That of different keys is for one thread; with more, some keys come
/// twice: of all that are drawn, 63 % differ.
fn writes(threads: u64) -> &'static str {
    if threads == 1 { "filluniquerandom" } else { "fillrandom" }
}

/// The rate of the last result that `db_bench` prints, which is that of `benchmark`:
/// `fillrandom   :   11.5 micros/op 86956 ops/sec ...`.
fn rate_of(benchmark: &str, text: &str) -> f64 {
    let line = text.lines().rfind(|line| line.starts_with(benchmark) && line.contains("ops/sec"));
    let line = line.unwrap_or_else(|| panic!("db_bench printed no result of {benchmark}: {text}"));
    let words: Vec<_> = line.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("ops/sec")).expect("it is in the line");
    words[at - 1].parse().expect("a number")
}
