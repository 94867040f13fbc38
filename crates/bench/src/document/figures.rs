//! The figures of each result file: where they are from, ratios at a glance, and every line.

use std::fmt::Write as _;

use super::quantity::{Quantity, short, times};
use super::results::{Case, ResultFile, Run, distinct};
use super::text::table;
use crate::plot::Picture;
use crate::report::{Figure, rate};

const BYTES_PER_MIB: f64 = (1 << 20) as f64;

/// Where the files' figures are from.
pub(super) fn files(files: &[ResultFile]) -> String {
    let header = ["results", "machine", "taken", "commits", "rounds of each figure"];
    let row = |file: &ResultFile| {
        let figures = || file.runs.iter().flat_map(|run| &run.figures);
        let commits = distinct(figures().filter_map(|figure| figure.commit.clone()));
        let rounds = distinct(figures().map(|figure| figure.rounds).filter(|rounds| *rounds > 0));
        let rounds: Vec<String> = rounds.iter().map(ToString::to_string).collect();
        vec![
            format!("[`{0}`](benches/results/{0}.jsonl)", file.name),
            file.header.machine.clone(),
            file.header.date.clone(),
            commits.join(", "),
            rounds.join(", "),
        ]
    };
    table(&header.map(String::from), &files.iter().map(row).collect::<Vec<_>>())
}

/// All figures of a file; `pictures` is what was drawn of them.
pub(super) fn section(file: &ResultFile, pictures: &[Picture], folder: &str) -> String {
    let header = &file.header;
    let mut text = format!("### `{}`\n\n{}, {}.\n", file.name, header.machine, header.date);
    for remark in &header.remarks {
        let _ = writeln!(text, "\n{remark}");
    }
    if !header.commands.is_empty() {
        let _ = writeln!(text, "\n```\n{}\n```", header.commands.join("\n"));
    }
    if let Some(overview) = overview(file) {
        text += "\nHow many times better Palisade is, by medians:\n\n";
        text += &overview;
    }
    for run in &file.runs {
        for title in run.titles() {
            let figures = run.under(&title);
            let _ = write!(text, "\n{}\n\n{}", caption(&title, &figures), rows(run, &figures));
        }
    }
    for picture in pictures {
        let _ = writeln!(text, "\n![{}]({folder}/{})", picture.title, picture.file);
    }
    text
}

/// A row for each case that Palisade shares with others, a column for each of them.
fn overview(file: &ResultFile) -> Option<String> {
    let names = file.runs.iter().flat_map(|run| &run.figures).map(|f| f.contender.as_str());
    let others: Vec<&str> = distinct(names.filter(|name| *name != "palisade"));
    let mut rows = Vec::new();
    for run in &file.runs {
        for case in run.cases().iter().filter(|case| run.of_case(case).count() > 1) {
            rows.extend(overview_row(run, case, &others));
        }
    }
    let mut header: Vec<String> = ["of", "rounds", "palisade"].map(String::from).to_vec();
    header.extend(others.iter().map(|name| format!("/ {name}")));
    (!rows.is_empty()).then(|| table(&header, &rows))
}

fn overview_row(run: &Run, case: &Case, others: &[&str]) -> Option<Vec<String>> {
    let quantity = Quantity::of(&case.workload);
    let ours = run.find(case, "palisade")?;
    let value = quantity.value(ours)?;
    let mut row = vec![
        case.words(),
        run.rounds().to_string(),
        match quantity {
            Quantity::Rate => quantity.show(value),
            other => format!("{} {}", other.name(), other.show(value)),
        },
    ];
    row.extend(others.iter().map(|name| {
        let theirs = run.find(case, name);
        let advantage = theirs.and_then(|theirs| quantity.advantage(ours, theirs));
        advantage.map_or_else(String::new, times)
    }));
    Some(row)
}

/// The workload, and what all of its figures have in common.
fn caption(title: &str, figures: &[&Figure]) -> String {
    let mut words = vec![format!("**{title}**")];
    for column in COLUMNS.iter().filter(|column| column.is_parameter) {
        if let [value] = &distinct(figures.iter().filter_map(|f| (column.cell)(f)))[..] {
            words.push(format!("{} {value}", column.name));
        }
    }
    let measure = distinct(figures.iter().map(|figure| (figure.rounds, figure.seconds)));
    if let [(rounds @ 1.., seconds)] = measure[..] {
        let plural = if rounds == 1 { "" } else { "s" };
        words.push(format!("{rounds} round{plural} of {seconds} s"));
    }
    words.join(", ")
}

/// A column of the table of all figures; it is left out where no figure has it.
struct Column {
    name: &'static str,
    /// Left out, too, where all figures have the same: then the caption says it.
    is_parameter: bool,
    cell: fn(&Figure) -> Option<String>,
}

const fn parameter(name: &'static str, cell: fn(&Figure) -> Option<String>) -> Column {
    Column { name, is_parameter: true, cell }
}

const fn measured(name: &'static str, cell: fn(&Figure) -> Option<String>) -> Column {
    Column { name, is_parameter: false, cell }
}

const COLUMNS: &[Column] = &[
    parameter("threads", |f| Some(f.threads.to_string())),
    parameter("record bytes", |f| Some(f.record_bytes.to_string())),
    parameter("batch", |f| f.batch.map(|batch| batch.to_string())),
    parameter("records", |f| f.records.map(|records| records.to_string())),
    parameter("form", |f| f.variant.clone()),
    measured("contender", |f| Some(f.contender.clone())),
    measured("records/s, median (min to max)", rate_with_spread),
    measured("MiB/s", |f| positive(f.mib_per_s).map(short)),
    measured("offered/s", |f| f.offered_per_s.map(rate)),
    measured("open ms", |f| f.open_ms.map(short)),
    measured("log MiB", |f| f.log_bytes.map(|bytes| short(bytes as f64 / BYTES_PER_MIB))),
    measured("segments", |f| f.segments.map(|segments| segments.to_string())),
    measured("p50 us", |f| f.p50_us.map(short)),
    measured("p99 us", |f| f.p99_us.map(short)),
    measured("p99.9 us", |f| f.p999_us.map(short)),
    measured("p99.99 us", |f| f.p9999_us.map(short)),
    measured("rotation us", |f| f.rotation_us.map(short)),
    measured("records per sync", |f| f.records_per_sync.map(short)),
    measured("instructions", |f| f.instructions.map(|count| format!("{count:.0}"))),
];

fn rate_with_spread(figure: &Figure) -> Option<String> {
    let [least, most] = [figure.records_per_s_min, figure.records_per_s_max].map(rate);
    positive(figure.records_per_s).map(|value| format!("{} ({least} to {most})", rate(value)))
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn rows(run: &Run, figures: &[&Figure]) -> String {
    let is_told = |column: &&Column| {
        let mut cells = figures.iter().map(|figure| (column.cell)(figure));
        if column.is_parameter {
            distinct(cells).len() > 1
        } else {
            cells.any(|cell| cell.is_some())
        }
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_told).collect();
    let ratios: Vec<Option<String>> = figures.iter().map(|figure| ratio(run, figure)).collect();
    let has_ratios = ratios.iter().any(Option::is_some);
    let mut header: Vec<String> = columns.iter().map(|column| column.name.into()).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (figure, ratio) in figures.iter().zip(ratios) {
        let cells = columns.iter().map(|column| (column.cell)(figure).unwrap_or_default());
        let mut row: Vec<String> = cells.collect();
        row.extend(has_ratios.then(|| ratio.unwrap_or_default()));
        rows.push(row);
    }
    header.extend(has_ratios.then(|| "Palisade / it".into()));
    table(&header, &rows)
}

/// How many times better Palisade is than another contender's figure.
fn ratio(run: &Run, figure: &Figure) -> Option<String> {
    let case = Case::of(figure);
    let ours = run.find(&case, "palisade").filter(|_| figure.contender != "palisade")?;
    Quantity::of(&case.workload).advantage(ours, figure).map(times)
}
