//! The bars: what Palisade means to reach, as data, and whether a result file reaches it.
//!
//! A ratio counts within one run only. Where several runs of a file have both sides, the one with
//! the most rounds counts, of equals the last.

use super::kind::Kind;
use super::quantity::{Quantity, times};
use super::results::{Case, ResultFile, Run};
use super::text::table;
use crate::report::Figure;

/// Durable writes a second of the machine that the bars were set on: a positioned overwrite of
/// 256 bytes and `fdatasync`, one after the other.
const REFERENCE_FLOOR_PER_S: f64 = 12_100.0;
/// A log of a GiB, near enough.
const GIB_LOG_BYTES: u64 = 1_000_000_000;

/// A figure to look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    workload: &'static str,
    contender: &'static str,
    threads: usize,
    /// Where it is `None`, records of any size count.
    record_bytes: Option<usize>,
    batch: Option<u32>,
    form: Option<&'static str>,
    /// Logs with fewer bytes or segments do not count.
    log_bytes_min: u64,
    segments_min: u64,
    quantity: Quantity,
}

/// What a figure is held against.
#[derive(Clone, Copy, Debug)]
pub(super) enum Against {
    /// Nothing: the value itself counts.
    Nothing,
    /// The same, on a machine whose floor is that of the machine that the bars were set on.
    NothingAtReferenceFloor,
    /// Another figure, so many times.
    Figure(Side, f64),
    /// The best crate on files in the same case.
    BestPeer,
}

/// What is aimed at beyond the bar.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim {
    /// A value of the same kind as the bar's.
    Value(f64),
    /// What is no number here.
    Words(&'static str),
}

/// One bar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    name: &'static str,
    of: Side,
    against: Against,
    /// The least that reaches the bar, of a cost the most.
    bar: f64,
    aim: Aim,
}

const BASE: Side = Side {
    workload: "append",
    contender: "palisade",
    threads: 1,
    record_bytes: Some(256),
    batch: None,
    form: None,
    log_bytes_min: 0,
    segments_min: 0,
    quantity: Quantity::Rate,
};

const fn append(contender: &'static str, threads: usize) -> Side {
    Side { contender, threads, ..BASE }
}

const fn commit(contender: &'static str, threads: usize) -> Side {
    Side { workload: "commit", contender, threads, ..BASE }
}

const fn batch(contender: &'static str, threads: usize, bytes: usize, batch: u32) -> Side {
    let (record_bytes, batch) = (Some(bytes), Some(batch));
    Side { workload: "batch", contender, threads, record_bytes, batch, ..BASE }
}

const fn open(workload: &'static str, form: Option<&'static str>, quantity: Quantity) -> Side {
    Side { workload, record_bytes: None, form, quantity, ..BASE }
}

/// Longest latency but one in a thousand of appends to segments of a form.
const fn rotation(form: &'static str) -> Side {
    Side { workload: "rotation", form: Some(form), quantity: Quantity::P999Us, ..BASE }
}

const fn ratio(name: &'static str, of: Side, to: Side, bar: f64, aim: f64) -> Bar {
    Bar { name, of, against: Against::Figure(to, 1.0), bar, aim: Aim::Value(aim) }
}

const fn best(name: &'static str, threads: usize, bar: f64, aim: f64) -> Bar {
    let of = commit("palisade", threads);
    Bar { name, of, against: Against::BestPeer, bar, aim: Aim::Value(aim) }
}

const fn absolute(name: &'static str, of: Side, bar: f64, aim: Aim) -> Bar {
    Bar { name, of, against: Against::Nothing, bar, aim }
}

const ENDLESS: Side = rotation("no rotation");

/// All bars, in the order in which they are listed.
pub(super) const BARS: &[Bar] = &[
    ratio("append, 1 thread / wal-db", append("palisade", 1), append("wal-db", 1), 18.0, 28.0),
    ratio("append, 8 threads / wal-db", append("palisade", 8), append("wal-db", 8), 14.0, 23.0),
    ratio("append, 8 threads / 1 thread", append("palisade", 8), append("palisade", 1), 0.9, 1.1),
    ratio(
        "append in memory, 1 thread / wal-db-mem",
        append("palisade-mem", 1),
        append("wal-db-mem", 1),
        8.0,
        12.0,
    ),
    ratio(
        "append in memory, 8 threads / wal-db-mem",
        append("palisade-mem", 8),
        append("wal-db-mem", 8),
        6.0,
        12.0,
    ),
    ratio(
        "append, 1 thread, mapped buffer / heap buffer",
        append("palisade", 1),
        append("palisade-heap", 1),
        0.9,
        1.0,
    ),
    ratio(
        "append, 8 threads, mapped buffer / heap buffer",
        append("palisade", 8),
        append("palisade-heap", 8),
        0.9,
        1.0,
    ),
    ratio("commit, 1 thread / raw", commit("palisade", 1), commit("raw", 1), 0.95, 1.0),
    best("commit, 2 threads / best peer", 2, 1.2, 1.6),
    best("commit, 8 threads / best peer", 8, 1.4, 2.0),
    best("commit, 32 threads / best peer", 32, 1.6, 2.2),
    best("commit, 64 threads / best peer", 64, 1.7, 2.0),
    ratio("commit, 64 threads / wal-db", commit("palisade", 64), commit("wal-db", 64), 7.0, 8.0),
    ratio("commit, 64 threads / naive", commit("palisade", 64), commit("naive", 64), 30.0, 36.0),
    Bar {
        name: "commit, 8 threads / (8 x raw)",
        of: commit("palisade", 8),
        against: Against::Figure(commit("raw", 1), 8.0),
        bar: 0.55,
        aim: Aim::Value(0.8),
    },
    ratio("commit, 64 threads / wake", commit("palisade", 64), commit("wake", 64), 0.85, 0.95),
    Bar {
        name: "commit by 1 024 futures on 2 threads",
        of: Side { form: Some("1024 tasks"), ..commit("palisade", 2) },
        against: Against::NothingAtReferenceFloor,
        bar: 1e6,
        aim: Aim::Value(2e6),
    },
    Bar {
        name: "2 threads that wait once per 1 024 appends",
        of: batch("palisade", 2, 256, 1024),
        against: Against::NothingAtReferenceFloor,
        bar: 6e6,
        aim: Aim::Value(10e6),
    },
    ratio(
        "1 000 x 1 KiB, then sync / raw",
        batch("palisade", 1, 1024, 1000),
        batch("raw", 1, 1024, 1000),
        0.8,
        0.95,
    ),
    absolute(
        "scan of 256 B records, verified, hot",
        Side { workload: "scan", ..BASE },
        15e6,
        Aim::Value(30e6),
    ),
    absolute(
        "full verification of a 1 GiB log",
        Side {
            log_bytes_min: GIB_LOG_BYTES,
            ..open("recover", Some("full check"), Quantity::LogGib)
        },
        4.0,
        Aim::Words("memory bandwidth"),
    ),
    absolute(
        "unclean reopen of a 1 GiB log, 56 MiB unsynced",
        Side {
            log_bytes_min: GIB_LOG_BYTES,
            ..open("recover", Some("56 MiB unsynced"), Quantity::OpenMs)
        },
        40.0,
        Aim::Value(15.0),
    ),
    absolute(
        "clean reopen of 1 000 segments",
        Side { segments_min: 900, ..open("reopen", None, Quantity::OpenMs) },
        1.0,
        Aim::Value(0.5),
    ),
    Bar {
        name: "append p99.9 across segments of 64 MiB / without rotation",
        of: rotation("64 MiB segments"),
        against: Against::Figure(ENDLESS, 1.0),
        bar: 2.0,
        aim: Aim::Value(1.0),
    },
    Bar {
        name: "append p99.9 across segments of 4 MiB / without rotation",
        of: rotation("4 MiB segments"),
        against: Against::Figure(ENDLESS, 1.0),
        bar: 2.0,
        aim: Aim::Value(1.0),
    },
    absolute(
        "instructions of an append, the writer's share included",
        Side { quantity: Quantity::Instructions, ..BASE },
        400.0,
        Aim::Value(200.0),
    ),
];

/// How a bar stands in a result file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    NotMeasured,
    NotMet,
    Met,
    AimMet,
}

/// A bar's value in a result file.
#[derive(Debug)]
pub(super) struct Measured {
    value: f64,
    /// What has to be known about it: who the best peer is, how fast the disk.
    note: Option<String>,
}

impl Side {
    fn matches(&self, figure: &Figure) -> bool {
        figure.workload == self.workload
            && figure.contender == self.contender
            && figure.threads == self.threads
            && self.record_bytes.is_none_or(|bytes| figure.record_bytes == bytes)
            && figure.batch == self.batch
            && figure.variant.as_deref() == self.form
            && figure.log_bytes.unwrap_or_default() >= self.log_bytes_min
            && figure.segments.unwrap_or_default() >= self.segments_min
    }

    fn find<'a>(&self, run: &'a Run) -> Option<(&'a Figure, f64)> {
        let matching = run.figures.iter().filter(|figure| self.matches(figure));
        matching.filter_map(|figure| Some((figure, self.quantity.value(figure)?))).next_back()
    }
}

impl Bar {
    /// Its value in the file; `None` where it was not measured.
    pub(super) fn measured(&self, file: &ResultFile) -> Option<Measured> {
        let measured = file.runs.iter().filter_map(|run| Some((run, self.measured_in(run)?)));
        // Of equals, the last one is the greatest.
        let (_, mut measured) = measured.max_by_key(|(run, _)| run.rounds())?;
        if matches!(self.against, Against::NothingAtReferenceFloor) {
            measured.note = floor(file);
        }
        Some(measured)
    }

    fn measured_in(&self, run: &Run) -> Option<Measured> {
        let (figure, value) = self.of.find(run)?;
        let (value, note) = match self.against {
            Against::Nothing | Against::NothingAtReferenceFloor => (value, None),
            Against::Figure(side, factor) => (value / (side.find(run)?.1 * factor), None),
            Against::BestPeer => {
                let case = Case::of(figure);
                let is_peer = |figure: &&Figure| Kind::of(&figure.contender) == Kind::Peer;
                let peers = run.of_case(&case).filter(is_peer);
                let values = peers.filter_map(|peer| Some((peer, self.of.quantity.value(peer)?)));
                let (peer, best) = values.max_by(|one, other| one.1.total_cmp(&other.1))?;
                (value / best, Some(peer.contender.clone()))
            }
        };
        Some(Measured { value, note })
    }

    /// Whether a value reaches it.
    pub(super) fn verdict(&self, measured: Option<&Measured>) -> Verdict {
        let Some(measured) = measured else { return Verdict::NotMeasured };
        let reaches = |mark: f64| {
            if self.of.quantity.is_a_cost() {
                measured.value <= mark
            } else {
                measured.value >= mark
            }
        };
        match self.aim {
            Aim::Value(aim) if reaches(aim) => Verdict::AimMet,
            _ if reaches(self.bar) => Verdict::Met,
            _ => Verdict::NotMet,
        }
    }

    fn is_a_ratio(&self) -> bool {
        matches!(self.against, Against::Figure(..) | Against::BestPeer)
    }

    /// The bar or its aim, as it was set.
    fn show_mark(&self, mark: f64) -> String {
        if self.is_a_ratio() { format!("{mark}x") } else { self.of.quantity.show(mark) }
    }

    fn show(&self, value: f64) -> String {
        if self.is_a_ratio() { times(value) } else { self.of.quantity.show(value) }
    }

    fn cell(&self, file: &ResultFile) -> String {
        let measured = self.measured(file);
        let verdict = match self.verdict(measured.as_ref()) {
            Verdict::NotMeasured => return "-".into(),
            Verdict::NotMet => "not met",
            Verdict::Met => "met",
            Verdict::AimMet => "aim met",
        };
        let Some(measured) = measured else { return "-".into() };
        let note = measured.note.map_or(String::new(), |note| format!(" ({note})"));
        format!("{}{note}, {verdict}", self.show(measured.value))
    }
}

/// The file's own floor, as a part of the reference machine's.
fn floor(file: &ResultFile) -> Option<String> {
    let raw = commit("raw", 1);
    let floors = file.runs.iter().filter_map(|run| Some((run.rounds(), raw.find(run)?.1)));
    let (_, rate) = floors.max_by_key(|(rounds, _)| *rounds)?;
    Some(format!("floor {}", times(rate / REFERENCE_FLOOR_PER_S)))
}

/// Each bar with its value in each file.
pub(super) fn section(files: &[ResultFile]) -> String {
    let mut header = vec!["bar".into(), "at least".into(), "aim".into()];
    header.extend(files.iter().map(|file| format!("`{}`", file.name)));
    let row = |bar: &Bar| {
        let most = if bar.of.quantity.is_a_cost() { "at most " } else { "" };
        let aim = match bar.aim {
            Aim::Value(value) => bar.show_mark(value),
            Aim::Words(words) => words.into(),
        };
        let mut row = vec![bar.name.into(), format!("{most}{}", bar.show_mark(bar.bar)), aim];
        row.extend(files.iter().map(|file| bar.cell(file)));
        row
    };
    let mut rows: Vec<Vec<String>> = BARS.iter().map(row).collect();
    let mut sum = vec!["**met, of those measured**".into(), String::new(), String::new()];
    sum.extend(files.iter().map(|file| {
        let verdicts = BARS.iter().map(|bar| bar.verdict(bar.measured(file).as_ref()));
        let measured: Vec<_> = verdicts.filter(|v| *v != Verdict::NotMeasured).collect();
        let met = measured.iter().filter(|verdict| **verdict != Verdict::NotMet).count();
        format!("**{met} of {}**", measured.len())
    }));
    rows.push(sum);
    table(&header, &rows)
}

#[cfg(test)]
#[path = "bars_tests.rs"]
mod tests;
