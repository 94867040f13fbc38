//! Result files: what the driver printed with `--json`, under a line that says where.
//!
//! A file is one machine's lines. The first is an object with `machine`, `date` and, if there is
//! something to say, `remarks` and `commands`, lists of text. Each other line is a [`Figure`] as the
//! driver prints it; a line of another tool has at least `workload`, `contender`, `threads`,
//! `record_bytes` and what it measured. Fields that nobody knows are passed over.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::report::Figure;

/// What every figure says, whichever tool took it.
const REQUIRED: [&str; 4] = ["workload", "contender", "threads", "record_bytes"];
/// A figure has at least one of these.
const MEASURED: [&str; 2] = ["records_per_s", "instructions"];

/// Where and when a file's figures were taken.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Header {
    /// The machine, in words.
    pub(super) machine: String,
    /// The day, as 2026-11-21.
    pub(super) date: String,
    /// What a reader has to know beside.
    #[serde(default)]
    pub(super) remarks: Vec<String>,
    /// The commands that took the figures.
    #[serde(default)]
    pub(super) commands: Vec<String>,
}

/// A result file.
#[derive(Debug)]
pub(super) struct ResultFile {
    /// The file's name without its ending.
    pub(super) name: String,
    pub(super) header: Header,
    pub(super) runs: Vec<Run>,
}

/// Figures of one run of the driver, which may be compared with each other.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) figures: Vec<Figure>,
}

/// The parameters of a figure: contenders of one case were measured in turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) workload: String,
    pub(super) threads: usize,
    pub(super) record_bytes: usize,
    pub(super) batch: Option<u32>,
    pub(super) records: Option<u64>,
    pub(super) form: Option<String>,
}

/// All result files in `dir`, the latest first.
///
/// # Errors
/// If a file cannot be read, or a line of it is damaged: says which.
pub(super) fn read_all(dir: &Path) -> Result<Vec<ResultFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry.with_context(|| format!("reading {}", dir.display()))?.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            files.push(read(&path)?);
        }
    }
    ensure!(!files.is_empty(), "{} has no result file (*.jsonl)", dir.display());
    files.sort_by(|one, other| {
        other.header.date.cmp(&one.header.date).then_with(|| one.name.cmp(&other.name))
    });
    Ok(files)
}

fn read(path: &Path) -> Result<ResultFile> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut header = None;
    let mut figures = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|line| !line.1.trim().is_empty()) {
        let place = || format!("{}:{}", path.display(), number + 1);
        if header.is_none() {
            header = Some(header_of(line).with_context(place)?);
        } else {
            figures.push(figure_of(line).with_context(place)?);
        }
    }
    let header = header.with_context(|| format!("{} is empty", path.display()))?;
    Ok(ResultFile { name, header, runs: into_runs(figures) })
}

fn header_of(line: &str) -> Result<Header> {
    serde_json::from_str(line).context(
        "the first line has to say where the figures are from, \
         as {\"machine\":\"...\",\"date\":\"2026-11-21\"}",
    )
}

fn figure_of(line: &str) -> Result<Figure> {
    let value: Value = serde_json::from_str(line).context("not a JSON object on one line")?;
    for name in REQUIRED {
        ensure!(value.get(name).is_some(), "a figure without `{name}`");
    }
    if MEASURED.iter().all(|name| value.get(name).is_none()) {
        bail!("a figure with none of `{}`", MEASURED.join("`, `"));
    }
    serde_json::from_value(value).context("not a figure as `palisade-bench --json` prints it")
}

/// A run ends where another run's begin comes, where a figure comes a second time, or where
/// something differs that one run has in common.
fn into_runs(figures: Vec<Figure>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for figure in figures {
        match runs.last_mut().filter(|run| run.may_hold(&figure)) {
            Some(run) => run.figures.push(figure),
            None => runs.push(Run { figures: vec![figure] }),
        }
    }
    runs
}

impl Run {
    fn may_hold(&self, figure: &Figure) -> bool {
        let common = |figure: &Figure| {
            (
                figure.began,
                figure.commit.clone(),
                (figure.rounds, figure.seconds.to_bits()),
                (figure.cpu.clone(), figure.cores, figure.dir_fs.clone()),
            )
        };
        let is_same = |other: &Figure| {
            other.contender == figure.contender && Case::of(other) == Case::of(figure)
        };
        self.figures.first().is_some_and(|first| common(first) == common(figure))
            && !self.figures.iter().any(is_same)
    }

    /// The rounds of its figures.
    pub(super) fn rounds(&self) -> u32 {
        self.figures.first().map_or(0, |figure| figure.rounds)
    }

    /// The names of its workloads, as headings, in the order of its figures.
    pub(super) fn titles(&self) -> Vec<String> {
        distinct(self.figures.iter().map(title))
    }

    /// The figures under a heading.
    pub(super) fn under(&self, heading: &str) -> Vec<&Figure> {
        self.figures.iter().filter(|figure| title(figure) == heading).collect()
    }

    /// Its cases, in the order of its figures.
    pub(super) fn cases(&self) -> Vec<Case> {
        distinct(self.figures.iter().map(Case::of))
    }

    /// The figures of a case.
    pub(super) fn of_case(&self, case: &Case) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(move |figure| Case::of(figure) == *case)
    }

    /// A contender's figure of a case.
    pub(super) fn find(&self, case: &Case, contender: &str) -> Option<&Figure> {
        self.of_case(case).find(|figure| figure.contender == contender)
    }
}

/// The workload as the command line asks for it.
fn title(figure: &Figure) -> String {
    if figure.tasks.is_some() { "commit --tasks".into() } else { figure.workload.clone() }
}

/// Each value once, in the order in which they come first.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

impl Case {
    pub(super) fn of(figure: &Figure) -> Case {
        Case {
            workload: figure.workload.clone(),
            threads: figure.threads,
            record_bytes: figure.record_bytes,
            batch: figure.batch,
            records: figure.records,
            form: figure.variant.clone(),
        }
    }

    /// The workload and its parameters, in words.
    pub(super) fn words(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        let mut words =
            format!("{}, {} {threads}, {} B", self.workload, self.threads, self.record_bytes);
        if let Some(batch) = self.batch {
            words += &format!(", batches of {batch}");
        }
        if let Some(records) = self.records {
            words += &format!(", {records} records");
        }
        if let Some(form) = &self.form {
            words += &format!(", {form}");
        }
        words
    }
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
