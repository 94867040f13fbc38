//! Results as an aligned table and as comma-separated values.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::measurement::Measurement;

/// Appends results to a file of comma-separated values, which it begins with the names.
#[derive(Debug)]
pub struct Csv(File);

const COLUMNS: &str = "\
    workload,contender,version,threads,record_bytes,batch,records_per_s,mib_per_s,p50_us,p99_us,\
    p999_us,syncs_per_s,records_per_sync,seconds,rounds,dir_fs,cpu,cores,commit,records_per_s_min,\
    records_per_s_max,open_ms,log_bytes,segments,p9999_us,variant,tasks,offered_per_s,rotation_us,\
    records,began,instructions,scan_records_per_s,stored_ratio,in_raw_syncs,\
    disk_bytes,streams,moved_percent,shards";

impl Csv {
    /// Begins the file anew.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Csv> {
        let mut file =
            File::create(path).with_context(|| format!("creating {}", path.display()))?;
        writeln!(file, "{COLUMNS}")?;
        Ok(Csv(file))
    }

    /// Writes one result.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, result: &Measurement) -> Result<()> {
        let values = serde_json::to_value(result)?;
        let cells: Vec<String> = COLUMNS.split(',').map(|name| cell(values.get(name))).collect();
        Ok(writeln!(self.0, "{}", cells.join(","))?)
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.contains([',', '"', '\n']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns the results of one workload as an aligned table, with ratios against the first
/// contender. A column in which no result has a value is left out.
#[must_use]
pub fn table(results: &[Measurement]) -> String {
    let mut rows = vec![header(results)];
    rows.extend(results.iter().map(|result| row(result, ratio(result, results))));
    let has_cells = |column: &usize| rows[1..].iter().any(|row| row[*column] != NONE);
    let columns: Vec<usize> = (0..rows[0].len()).filter(has_cells).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &rows {
        for &column in &columns {
            let (cell, width) = (&row[column], width(column));
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

const HEADER: &str = "form,threads,streams,shards,bytes,records/s,min,max,MiB/s,p50 us,p99 us,\
                      p99.9 us,p99.99 us,syncs/s,rec/sync,open ms,scan/s,stored,raw syncs,disk KiB,\
                      segments,moved %,ratio";
/// Where a result has no value.
const NONE: &str = "-";

fn header(results: &[Measurement]) -> Vec<String> {
    let workload = results.first().map_or("", |result| &result.workload);
    [workload].into_iter().chain(HEADER.split(',')).map(String::from).collect()
}

fn row(result: &Measurement, ratio: Option<f64>) -> Vec<String> {
    let optional =
        |value: Option<f64>| value.map_or_else(|| NONE.into(), |value| format!("{value:.1}"));
    let optional_rate = |value: Option<f64>| value.map_or_else(|| NONE.into(), rate);
    let count = |count: Option<usize>| count.map_or_else(|| NONE.into(), |count| count.to_string());
    let stored = |ratio: f64| format!("{ratio:.3}x");
    vec![
        result.contender.clone(),
        result.variant.clone().unwrap_or_else(|| NONE.into()),
        result.threads.to_string(),
        count(result.streams),
        count(result.shards),
        result.record_bytes.to_string(),
        rate(result.records_per_s),
        rate(result.records_per_s_min),
        rate(result.records_per_s_max),
        format!("{:.1}", result.mib_per_s),
        optional(result.p50_us),
        optional(result.p99_us),
        optional(result.p999_us),
        optional(result.p9999_us),
        optional_rate(result.syncs_per_s),
        optional(result.records_per_sync),
        optional(result.open_ms),
        optional_rate(result.scan_records_per_s),
        result.stored_ratio.map_or_else(|| NONE.into(), stored),
        optional(result.in_raw_syncs),
        result.disk_bytes.map_or_else(|| NONE.into(), |bytes| (bytes >> 10).to_string()),
        result.segments.map_or_else(|| NONE.into(), |segments| segments.to_string()),
        result.moved_percent.map_or_else(|| NONE.into(), |percent| format!("{percent:.4}")),
        ratio.map_or_else(|| NONE.into(), |ratio| format!("{ratio:.2}x")),
    ]
}

/// Formats a number as short as a table needs it.
pub(crate) fn rate(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{:.1} M", value / 1e6),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// Returns how many times as fast the result is as the first contender with the same parameters. If
/// the first contender has no result with as many threads, its first result counts.
fn ratio(result: &Measurement, results: &[Measurement]) -> Option<f64> {
    let first = &results.first()?.contender;
    let is_alike = |base: &&Measurement| {
        base.contender == *first
            && base.record_bytes == result.record_bytes
            && base.variant == result.variant
            && base.batch == result.batch
            && base.records == result.records
            && base.streams == result.streams
            && base.shards == result.shards
    };
    let of_first = || results.iter().filter(is_alike);
    let base = of_first().find(|base| base.threads == result.threads).or(of_first().next())?;
    (base.records_per_s > 0.0).then(|| result.records_per_s / base.records_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::tests::result;

    #[test]
    fn csv_has_a_cell_for_each_column() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let mut csv = Csv::create(&path).unwrap();
        csv.write(&result("naive", 1, &[2.0])).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let json = serde_json::to_value(result("naive", 1, &[2.0])).unwrap();
        for name in COLUMNS.split(',').take(21) {
            assert!(json.get(name).is_some(), "{name}");
        }
        assert!(lines[0].starts_with("workload,contender,version,"), "{text}");
        // The name of the processor has a comma of its own.
        assert_eq!(lines[0].split(',').count() + 1, lines[1].split(',').count(), "{text}");
        assert!(lines[1].starts_with("commit,naive,,1,256,,2.0,"), "{text}");
        assert!(lines[1].contains("\"a, \"\"b\"\"\""), "{text}");
    }

    #[test]
    fn ratios_are_against_the_first_contender_with_as_many_threads() {
        let results = [
            result("naive", 1, &[10.0]),
            result("palisade", 1, &[20.0]),
            result("naive", 8, &[5.0]),
            result("palisade", 8, &[50.0]),
        ];
        let ratios: Vec<_> = results.iter().map(|result| ratio(result, &results)).collect();
        assert_eq!(ratios, [Some(1.0), Some(2.0), Some(1.0), Some(10.0)]);
    }

    #[test]
    fn a_first_contender_on_one_thread_is_the_base_of_all() {
        let results = [result("raw", 1, &[10.0]), result("palisade", 8, &[80.0])];
        assert_eq!(ratio(&results[1], &results), Some(8.0));
        assert!(table(&results).contains("8.00x"));
    }

    #[test]
    fn a_column_that_no_result_has_a_value_for_is_left_out() {
        let mut results = [result("naive", 1, &[10.0]), result("palisade", 1, &[20.0])];
        assert!(!table(&results).contains("raw syncs"));
        results[1].in_raw_syncs = Some(2.0);
        let text = table(&results);
        assert!(text.lines().next().unwrap().contains("raw syncs"), "{text}");
    }
}
