//! Results as an aligned table and as comma-separated values.

use std::fmt::Write;

use serde_json::Value;

use crate::Measurement;

/// The first line of comma-separated values: names of fields. Scripts read them, so names are added
/// at the end.
pub const CSV_HEADER: &str = "\
    workload,contender,version,threads,record_bytes,batch,records_per_s,mib_per_s,p50_us,p99_us,\
    p999_us,syncs_per_s,records_per_sync,seconds,rounds,dir_fs,cpu,cores,commit,records_per_s_min,\
    records_per_s_max,open_ms,log_bytes,segments,p9999_us,variant,tasks,offered_per_s,rotation_us,\
    records,began,instructions,scan_records_per_s,stored_ratio,in_raw_syncs,\
    disk_bytes,streams,moved_percent,shards";

/// Returns a result as a line of comma-separated values, without the line's end.
///
/// # Errors
/// As [`serde_json::to_value`].
pub fn csv_line(result: &Measurement) -> serde_json::Result<String> {
    let values = serde_json::to_value(result)?;
    let cell = |name| match &values[name] {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Ok(CSV_HEADER.split(',').map(cell).collect::<Vec<_>>().join(","))
}

/// Returns the results of one workload as an aligned table, with ratios against the first
/// contender. A column in which no result has a value is left out.
pub fn table(results: &[Measurement]) -> String {
    let rows: Vec<_> = results.iter().map(|result| row(result, ratio(result, results))).collect();
    let mut lines = vec![String::new(); rows.len() + 1];
    for column in 0..rows.first().map_or(0, |row| row.len()) {
        if rows.iter().all(|row| row[column].1.is_none()) {
            continue;
        }
        let cells = rows.iter().map(|row| row[column].1.as_deref().unwrap_or("-"));
        let cells: Vec<&str> = [rows[0][column].0].into_iter().chain(cells).collect();
        let width = cells.iter().map(|cell| cell.len()).max().unwrap_or_default();
        for (line, cell) in lines.iter_mut().zip(cells) {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(line, "{cell:width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the header and the cell of each column.
fn row(result: &Measurement, ratio: Option<f64>) -> [(&str, Option<String>); 24] {
    let tenths = |value: Option<f64>| value.map(|value| format!("{value:.1}"));
    let count = |count: Option<usize>| count.map(|count| count.to_string());
    [
        (&result.workload, Some(result.contender.clone())),
        ("form", result.variant.clone()),
        ("threads", Some(result.threads.to_string())),
        ("streams", count(result.streams)),
        ("shards", count(result.shards)),
        ("bytes", Some(result.record_bytes.to_string())),
        ("records/s", Some(rate(result.records_per_s))),
        ("min", Some(rate(result.records_per_s_min))),
        ("max", Some(rate(result.records_per_s_max))),
        ("MiB/s", Some(format!("{:.1}", result.mib_per_s))),
        ("p50 us", tenths(result.p50_us)),
        ("p99 us", tenths(result.p99_us)),
        ("p99.9 us", tenths(result.p999_us)),
        ("p99.99 us", tenths(result.p9999_us)),
        ("syncs/s", result.syncs_per_s.map(rate)),
        ("rec/sync", tenths(result.records_per_sync)),
        ("open ms", tenths(result.open_ms)),
        ("scan/s", result.scan_records_per_s.map(rate)),
        ("stored", result.stored_ratio.map(|ratio| format!("{ratio:.3}x"))),
        ("raw syncs", tenths(result.in_raw_syncs)),
        ("disk KiB", result.disk_bytes.map(|bytes| (bytes >> 10).to_string())),
        ("segments", result.segments.map(|segments| segments.to_string())),
        ("moved %", result.moved_percent.map(|percent| format!("{percent:.4}"))),
        ("ratio", ratio.map(|ratio| format!("{ratio:.2}x"))),
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
    let first = results.first()?.contender.as_str();
    let case = |of: &Measurement| {
        (of.record_bytes, of.variant.clone(), of.batch, of.records, of.streams, of.shards)
    };
    let is_alike = |base: &&Measurement| base.contender == first && case(base) == case(result);
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
        let result = result("naive", 1, &[2.0]);
        let (json, line) = (serde_json::to_value(&result).unwrap(), csv_line(&result).unwrap());
        for name in CSV_HEADER.split(',') {
            assert!(json.get(name).is_some(), "{name}");
        }
        assert!(CSV_HEADER.starts_with("workload,contender,version,"));
        // The name of the processor has a comma of its own.
        assert_eq!(CSV_HEADER.split(',').count() + 1, line.split(',').count(), "{line}");
        assert!(line.starts_with("commit,naive,,1,256,,2.0,"), "{line}");
        assert!(line.contains("\"a, \"\"b\"\"\""), "{line}");
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
