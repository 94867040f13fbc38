//! BENCHMARKS.md, README.md and the page of all results show what the result files say: their
//! tables and plots are made from them.
//!
//! `PALISADE_BENCH_WRITE=1 cargo test -p palisade-bench --test document` writes them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use palisade_bench::Measurement;
use palisade_bench::plot::pictures;

const OTHERS: [&str; 8] =
    ["raw", "wake", "naive", "wal-db", "okaywal", "raft-engine", "ironwal", "walrus"];
const FLOORS: [&str; 2] = ["raw", "wake"];
const PLOTS: [&str; 4] = [
    "append-throughput.svg",
    "commit-throughput.svg",
    "commit-latency.svg",
    "rotation-latency.svg",
];
/// Cases that say most about a log, with the goal of each.
const SUMMARY: [(&str, &str); 14] = [
    ("append, 1 thread, 256 B", "18x wal-db"),
    ("append, 8 threads, 256 B", "14x wal-db"),
    ("commit, 1 thread, 256 B", "0.95x raw"),
    ("commit, 2 threads, 256 B", "1.2x the best"),
    ("commit, 8 threads, 256 B", "1.4x the best"),
    ("commit, 32 threads, 256 B", "1.6x the best"),
    ("commit, 64 threads, 256 B", "1.7x the best"),
    ("commit, 2 threads, 256 B, 1024 tasks", "1.00 M/s"),
    ("batch, 1 thread, 1024 B, batches of 1000", "0.8x raw"),
    ("batch, 2 threads, 256 B, batches of 1024", "6.00 M/s"),
    ("scan, 1 thread, 256 B, 1048576 records", "15.0 M/s"),
    ("recover, 1 thread, 256 B, 3834793 records, full check", "250 ms"),
    ("recover, 1 thread, 256 B, 3834793 records, 56 MiB unsynced", "40 ms"),
    ("reopen, 1 thread, 256 B, 240000 records", "1.00 ms"),
];

/// Cases that README.md shows, with its words for each.
const COMPARISON: [(&str, &str); 8] = [
    ("append, 1 thread, 256 B", "append, 1 thread"),
    ("commit, 1 thread, 256 B", "commit, 1 thread"),
    ("commit, 8 threads, 256 B", "commit, 8 threads"),
    ("commit, 64 threads, 256 B", "commit, 64 threads"),
    ("batch, 1 thread, 256 B, batches of 1000", "1000 records, then one sync, 1 thread"),
    ("scan, 1 thread, 256 B, 1048576 records", "scan of 1 048 576 records"),
    ("reopen, 1 thread, 256 B, 240000 records", "open after a close, 240 000 records"),
    ("recover, 1 thread, 256 B, 10000 records", "open after a crash, 10 000 records"),
];

/// Contenders that took turns in one case.
struct Case {
    words: String,
    results: Vec<Measurement>,
}

#[test]
fn tables_and_plots_of_the_documents_match_the_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let amd = cases(&root, "2-cores-ext4-amd");
    let intel = cases(&root, "2-cores-ext4-intel");
    let report = [("summary", summary(&amd)), ("losses", losses(&amd))];
    check_tables(&root.join("BENCHMARKS.md"), &report);
    let results = [("amd", all(&amd)), ("intel", all(&intel))];
    check_tables(&root.join("benches/results/README.md"), &results);
    check_tables(&root.join("README.md"), &[("comparison", comparison(&amd))]);
    for (file, svg) in plots(&amd) {
        check_or_write(&root.join("benches/results/plots").join(file), &svg);
    }
}

/// Checks the parts of a document between `<!-- NAME -->` and `<!-- end -->`.
fn check_tables(path: &PathBuf, blocks: &[(&str, String)]) {
    let mut document = fs::read_to_string(path).unwrap();
    for (name, block) in blocks {
        let begin = format!("<!-- {name} -->\n");
        let (before, rest) = document.split_once(&begin).expect(name);
        let (_, after) = rest.split_once("<!-- end -->").expect(name);
        document = format!("{before}{begin}{block}<!-- end -->{after}");
    }
    check_or_write(path, &document);
}

fn check_or_write(path: &PathBuf, expected: &str) {
    if std::env::var_os("PALISADE_BENCH_WRITE").is_some() {
        fs::write(path, expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap();
    let same = found.lines().zip(expected.lines()).take_while(|(one, other)| one == other).count();
    let place = format!("{}:{}", path.display(), same + 1);
    assert!(found == expected, "{place}: not what the results give, see the head of this test");
}

/// The cases of a result file. Of several runs the one with the most rounds counts, of equals the
/// last one.
fn cases(root: &Path, name: &str) -> Vec<Case> {
    let path = root.join(format!("benches/results/{name}.jsonl"));
    let text = fs::read_to_string(&path).unwrap();
    // The first line names the machine.
    let results = text.lines().skip(1).map(|line| serde_json::from_str(line).expect(line));
    let mut cases: Vec<Case> = Vec::new();
    for result in results.filter(|result: &Measurement| result.instructions.is_none()) {
        let words = words(&result);
        let Some(case) = cases.iter_mut().find(|case| case.words == words) else {
            cases.push(Case { words, results: vec![result] });
            continue;
        };
        let run = |result: &Measurement| (result.began, result.commit.clone(), result.rounds);
        if run(&case.results[0]) == run(&result) && case.find(&result.contender).is_none() {
            case.results.push(result);
        } else if result.rounds >= case.results[0].rounds {
            case.results = vec![result];
        }
    }
    cases
}

fn words(result: &Measurement) -> String {
    let plural = if result.threads == 1 { "" } else { "s" };
    let (workload, threads, bytes) = (&result.workload, result.threads, result.record_bytes);
    let mut words = format!("{workload}, {threads} thread{plural}, {bytes} B");
    let optional = [
        result.batch.map(|batch| format!("batches of {batch}")),
        result.records.map(|records| format!("{records} records")),
        result.streams.map(|streams| format!("{streams} streams")),
        result.shards.map(|shards| format!("{shards} shards")),
        result.variant.clone(),
    ];
    optional.into_iter().flatten().for_each(|part| words += &format!(", {part}"));
    words
}

/// What counts in a workload, and its unit; `None` where it was not measured.
fn value(result: &Measurement) -> Option<(f64, &'static str)> {
    let (value, unit) = match result.workload.as_str() {
        "recover" | "reopen" | "streams-open" => (result.open_ms, "ms"),
        "sync" | "range" | "tail" => (result.p50_us, "us (p50)"),
        "suffix" | "shards-checkpoint" => (result.p50_us.map(|us| us / 1e3), "ms"),
        "opens" => (result.in_raw_syncs, "syncs"),
        "open-loop" => (result.p99_us, "us (p99)"),
        "rotation" | "release" => (result.p999_us, "us (p99.9)"),
        _ => (Some(result.records_per_s), "/s"),
    };
    value.filter(|value| *value > 0.0).map(|value| (value, unit))
}

impl Case {
    fn find(&self, contender: &str) -> Option<&Measurement> {
        self.results.iter().find(|result| result.contender == contender)
    }

    /// How many times better Palisade is than a contender. Latencies under loads that differ by
    /// more than a twentieth are not compared.
    fn ratio(&self, contender: &str) -> Option<f64> {
        let (ours, theirs) = (self.find("palisade")?, self.find(contender)?);
        let load = ours.offered_per_s.zip(theirs.offered_per_s);
        if load.is_some_and(|(one, other)| (one - other).abs() > one.max(other) / 20.0) {
            return None;
        }
        let ((ours, unit), (theirs, _)) = (value(ours)?, value(theirs)?);
        Some(if unit == "/s" { ours / theirs } else { theirs / ours })
    }

    /// The contender that is not a floor and comes closest, or is best.
    fn best_other(&self) -> Option<(&str, f64)> {
        let others = OTHERS.into_iter().filter(|name| !FLOORS.contains(name));
        let ratios = others.filter_map(|name| Some((name, self.ratio(name)?)));
        ratios.min_by(|one, other| one.1.total_cmp(&other.1))
    }

    fn show(&self, contender: &str) -> String {
        let Some((value, unit)) = self.find(contender).and_then(value) else { return "-".into() };
        match value {
            value if value >= 1e6 => format!("{:.2} M{unit}", value / 1e6),
            value if value >= 1e4 => format!("{:.1} k{unit}", value / 1e3),
            value if unit == "/s" => format!("{value:.0}{unit}"),
            value => format!("{value:.2} {unit}"),
        }
    }
}

/// A ratio, not rounded up, so that 0.949 does not read as 0.95.
fn times(ratio: f64) -> String {
    let digits = if ratio >= 10.0 { 1 } else { 2 };
    let scale = 10_f64.powi(digits);
    // The least part of a step makes up for what a division of equals may lack.
    format!("{:.*}x", digits as usize, (ratio * scale + 1e-9).floor() / scale)
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut text = row(&header.iter().map(ToString::to_string).collect::<Vec<_>>());
    let _ = writeln!(text, "|{}", "---|".repeat(header.len()));
    rows.iter().for_each(|cells| text += &row(cells));
    text
}

fn summary(cases: &[Case]) -> String {
    let row = |&(words, goal): &(&str, &str)| {
        let case = cases.iter().find(|case| case.words == words).expect(words);
        let best = case.best_other().map(|(name, ratio)| format!("{} {name}", times(ratio)));
        let floor = case.ratio("raw").map(times);
        let cells = [words.into(), case.show("palisade"), best.unwrap_or_default()];
        let more = [floor.unwrap_or_default(), goal.into()];
        cells.into_iter().chain(more).collect()
    };
    let header = ["case", "Palisade", "against the best other", "against `raw`", "goal"];
    table(&header, SUMMARY.iter().map(row).collect())
}

/// The table of README.md: all contenders but our own `naive` and the floors.
fn comparison(cases: &[Case]) -> String {
    let peers: Vec<&str> =
        OTHERS.into_iter().filter(|name| *name != "naive" && !FLOORS.contains(name)).collect();
    let row = |&(words, label): &(&str, &str)| {
        let case = cases.iter().find(|case| case.words == words).expect(words);
        let ratio = |name: &&str| case.ratio(name).map_or_else(|| "-".into(), times);
        let first = [label.into(), case.show("palisade")];
        first.into_iter().chain(peers.iter().map(ratio)).collect()
    };
    let header = [&["workload", "Palisade"], &peers[..]].concat();
    table(&header, COMPARISON.iter().map(row).collect())
}

fn losses(cases: &[Case]) -> String {
    let mut losses = Vec::new();
    for case in cases {
        for name in OTHERS.into_iter().filter(|name| !FLOORS.contains(name)) {
            losses.extend(case.ratio(name).filter(|ratio| *ratio < 1.0).map(|r| (r, case, name)));
        }
    }
    losses.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Of the opens after a crash the worst one: all lose for the same reason.
    let is_open = |case: &Case| case.words.starts_with("recover");
    let opens = losses.iter().filter(|(_, case, _)| is_open(case)).count();
    let mut passed = 0;
    losses.retain(|(_, case, _)| {
        passed += usize::from(is_open(case));
        !is_open(case) || passed == 1
    });
    let row = |(ratio, case, name): &(f64, &Case, &str)| {
        let theirs = format!("`{name}`: {}", case.show(name));
        let worst = if is_open(case) { format!(" (the worst of {opens})") } else { String::new() };
        vec![times(*ratio), case.words.clone() + &worst, case.show("palisade"), theirs]
    };
    table(&["ratio", "case", "Palisade", "other"], losses.iter().map(row).collect())
}

fn all(cases: &[Case]) -> String {
    let has = |name: &&str| cases.iter().any(|case| case.find(name).is_some());
    let others: Vec<&str> = OTHERS.into_iter().filter(has).collect();
    let row = |case: &Case| {
        let ratio = |name: &&str| case.ratio(name).map_or_else(String::new, times);
        let first = [case.words.clone(), case.show("palisade")];
        first.into_iter().chain(others.iter().map(ratio)).collect()
    };
    let header = [&["case", "Palisade"], &others[..]].concat();
    table(&header, cases.iter().map(row).collect())
}

/// The plots that the document shows.
fn plots(cases: &[Case]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for workload in ["append", "commit", "rotation"] {
        let has_plot = |result: &&Measurement| {
            result.workload == workload
                && result.tasks.is_none()
                && (workload == "rotation" || result.contender != "palisade-heap")
        };
        let results = cases.iter().flat_map(|case| &case.results).filter(has_plot).cloned();
        all.extend(pictures(&results.collect::<Vec<_>>()).unwrap());
    }
    all.retain(|(file, _)| PLOTS.contains(&file.as_str()));
    assert_eq!(all.len(), PLOTS.len());
    all
}
