//! What the demo prints at the end.

use std::io::{self, Write};
use std::time::Duration;

use super::life::Measured;
use crate::args::{DemoArgs, Promise};
use crate::units::time;

/// The figures of one round.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Counted from 1.
    pub(crate) round: u32,
    /// Records that were acknowledged before the kill.
    pub(crate) acknowledged: u64,
    /// Those in a second.
    pub(crate) acknowledged_per_s: f64,
    /// `None` where the writer did not sync, or did not live long enough to say.
    pub(crate) records_per_sync: Option<f64>,
    /// Median and 99th percentile.
    pub(crate) latency_ns: Option<(u64, u64)>,
    /// What came back.
    pub(crate) recovery: Recovery,
}

/// What came back when the log was opened after a kill.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// Records of this round, acknowledged or not.
    pub(crate) records: u64,
    /// Records that were in the log buffer's file and not in the segments.
    pub(crate) records_from_buffer: u64,
    /// Bytes of an incomplete tail that were cut off.
    pub(crate) torn_bytes: u64,
    /// Holes of killed threads that were turned into padding.
    pub(crate) holes_padded: u64,
    /// How long the opening took.
    pub(crate) elapsed: Duration,
}

impl Figures {
    /// The figures of a round from its two halves.
    pub(crate) fn new(
        round: u32,
        acknowledged: u64,
        lived: Duration,
        measured: Measured,
        recovery: Recovery,
    ) -> Figures {
        let syncs = measured.syncs.filter(|(_, syncs)| *syncs > 0);
        Figures {
            round,
            acknowledged,
            acknowledged_per_s: acknowledged as f64 / lived.as_secs_f64(),
            records_per_sync: syncs.map(|(records, syncs)| records as f64 / syncs as f64),
            latency_ns: measured.latency_ns,
            recovery,
        }
    }
}

/// Prints the table.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print(
    out: &mut impl Write,
    args: &DemoArgs,
    floor: Duration,
    all: &[Figures],
) -> io::Result<()> {
    writeln!(
        out,
        "{} threads, records of {} bytes, killed after {}",
        args.threads,
        args.record_bytes,
        time(args.seconds)
    )?;
    let per_s = 1.0 / floor.as_secs_f64();
    writeln!(out, "disk's floor: one write and sync takes {} ({per_s:.0}/s)\n", time(floor))?;
    print_rounds(out, args.promise, all)?;
    let sum = |figure: fn(&Figures) -> u64| all.iter().map(figure).sum::<u64>();
    let acknowledged = sum(|figures| figures.acknowledged);
    writeln!(
        out,
        "\ncheck held: {} kills, {acknowledged} records acknowledged by {}, none missing; \
         {} more came back; nothing foreign",
        all.len(),
        args.promise.word(),
        sum(|figures| figures.recovery.records) - acknowledged,
    )
}

fn print_rounds(out: &mut impl Write, promise: Promise, all: &[Figures]) -> io::Result<()> {
    let rate = match promise {
        Promise::Commit => "commits/s",
        Promise::Append => "appends/s",
    };
    let heads = [
        "round",
        rate,
        "records/sync",
        "p50",
        "p99",
        "recovered",
        "from buffer",
        "torn bytes",
        "holes",
        "recovery",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(all.iter().map(row));
    let widths: [usize; 10] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}

fn row(figures: &Figures) -> [String; 10] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let latency = |ns: Option<u64>| or_dash(ns.map(|ns| time(Duration::from_nanos(ns))));
    let recovery = &figures.recovery;
    [
        figures.round.to_string(),
        format!("{:.0}", figures.acknowledged_per_s),
        or_dash(figures.records_per_sync.map(|records| format!("{records:.1}"))),
        latency(figures.latency_ns.map(|(p50, _)| p50)),
        latency(figures.latency_ns.map(|(_, p99)| p99)),
        recovery.records.to_string(),
        recovery.records_from_buffer.to_string(),
        recovery.torn_bytes.to_string(),
        recovery.holes_padded.to_string(),
        time(recovery.elapsed),
    ]
}
