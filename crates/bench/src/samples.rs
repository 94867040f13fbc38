//! What `cargo bench --bench compare` measured, as figures like the driver's.
//!
//! criterion leaves a folder for each benchmark, `<group>/<contender>/new`, with `benchmark.json` (who,
//! and how many commits an iteration has) and `sample.json` (iterations and nanoseconds of each
//! sample). A sample is what a round is to the driver: the figure is their median, with the slowest
//! and the fastest.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::environment::Environment;
use crate::report::Figure;
use crate::workload::Outcome;

/// The group's name up to the threads, as in `compare/8x16`.
const GROUP: &str = "compare/";
/// What the target's records have.
const RECORD_BYTES: usize = 256;
/// What the target asks criterion for: 3 s for ten samples.
const SAMPLE_SECONDS: f64 = 0.3;

#[derive(Deserialize)]
struct Benchmark {
    group_id: String,
    value_str: Option<String>,
    throughput: Option<Throughput>,
}

#[derive(Deserialize)]
enum Throughput {
    Elements(u64),
    #[serde(untagged)]
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Samples {
    iters: Vec<f64>,
    times: Vec<f64>,
}

/// The figures of `compare` below `dir`, criterion's folder (`target/criterion`), by threads, then in
/// the order of their names.
///
/// # Errors
/// If there are none, or if a file of theirs cannot be read or is damaged: says which.
pub fn figures(dir: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for group in folders(dir)? {
        for contender in folders(&group)? {
            let new = contender.join("new");
            if new.join("benchmark.json").is_file() {
                figures.extend(figure(&new)?);
            }
        }
    }
    ensure!(
        !figures.is_empty(),
        "{} has no figures of `cargo bench --bench compare`",
        dir.display()
    );
    figures.sort_by(|one, other| {
        (one.threads, &one.contender).cmp(&(other.threads, &other.contender))
    });
    Ok(figures)
}

/// The figure of one benchmark, if it is one of `compare`.
fn figure(dir: &Path) -> Result<Option<Figure>> {
    let benchmark: Benchmark = read(&dir.join("benchmark.json"))?;
    let Some((threads, _)) =
        benchmark.group_id.strip_prefix(GROUP).and_then(|threads| threads.split_once('x'))
    else {
        return Ok(None);
    };
    let place = || dir.display().to_string();
    let threads = threads.parse().context("no number of threads").with_context(place)?;
    let contender = benchmark.value_str.context("nobody is named").with_context(place)?;
    let Some(Throughput::Elements(commits)) = benchmark.throughput else {
        return Err(anyhow::anyhow!("no number of commits").context(place()));
    };
    let Samples { iters, times } = read(&dir.join("sample.json"))?;
    let rate = |(iters, ns): (&f64, &f64)| iters * commits as f64 / (ns / 1e9);
    let rounds: Vec<Outcome> = iters
        .iter()
        .zip(&times)
        .map(|sample| Outcome { records_per_s: rate(sample), ..Outcome::default() })
        .collect();
    ensure!(!rounds.is_empty(), "{}: no sample", place());
    let Environment { dir_fs, cpu, cores, commit } = Environment::of(dir);
    let figure = Figure {
        workload: "compare".into(),
        contender,
        threads,
        record_bytes: RECORD_BYTES,
        seconds: SAMPLE_SECONDS,
        rounds: rounds.len() as u32,
        dir_fs,
        cpu,
        cores,
        commit,
        ..Figure::default()
    };
    Ok(Some(figure.with_medians_of(&rounds)))
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let place = || format!("reading {}", dir.display());
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir).with_context(place)? {
        let path = entry.with_context(place)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    Ok(folders)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(dir: &Path, group: &str, contender: &str, files: [&str; 2]) {
        let new = dir.join(group.replace('/', "_")).join(contender).join("new");
        fs::create_dir_all(&new).unwrap();
        fs::write(new.join("benchmark.json"), files[0]).unwrap();
        fs::write(new.join("sample.json"), files[1]).unwrap();
    }

    fn benchmark(group: &str, contender: &str) -> String {
        format!(
            r#"{{"group_id":"{group}","function_id":null,"value_str":"{contender}",
                "throughput":{{"Elements":128}}}}"#
        )
    }

    const SAMPLES: &str = r#"{"sampling_mode":"Flat","iters":[2.0,2.0,4.0],"times":[2e6,1e6,8e6]}"#;

    #[test]
    fn samples_become_medians_and_other_groups_are_passed_over() {
        let temp = tempfile::tempdir().unwrap();
        add(
            temp.path(),
            "compare/8x16",
            "palisade",
            [&benchmark("compare/8x16", "palisade"), SAMPLES],
        );
        add(temp.path(), "compare/1x16", "naive", [&benchmark("compare/1x16", "naive"), SAMPLES]);
        add(temp.path(), "scan/all", "palisade", [&benchmark("scan/all", "palisade"), "not read"]);
        let figures = figures(temp.path()).unwrap();
        let who: Vec<_> = figures.iter().map(|f| (f.threads, f.contender.as_str())).collect();
        assert_eq!(who, [(1, "naive"), (8, "palisade")]);
        let found = &figures[1];
        assert_eq!((found.workload.as_str(), found.rounds), ("compare", 3));
        let rates = [found.records_per_s_min, found.records_per_s, found.records_per_s_max];
        assert_eq!(rates, [64_000.0, 128_000.0, 256_000.0]);
    }

    #[test]
    fn what_is_damaged_or_missing_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let none = figures(temp.path()).unwrap_err().to_string();
        assert!(none.contains("no figures of `cargo bench --bench compare`"), "{none}");
        add(temp.path(), "compare/8x16", "naive", [&benchmark("compare/8x16", "naive"), "{"]);
        let damaged = figures(temp.path()).unwrap_err().to_string();
        assert!(damaged.contains("sample.json"), "{damaged}");
        add(temp.path(), "compare/8x16", "naive", [&benchmark("compare/ax16", "naive"), SAMPLES]);
        let threads = format!("{:#}", figures(temp.path()).unwrap_err());
        assert!(threads.contains("naive") && threads.contains("no number of threads"), "{threads}");
    }
}
