//! Results as pictures: SVG, drawn without any font of the system.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::Measurement;
use crate::table::rate;

const SIZE: (u32, u32) = (1000, 540);
const LEGEND_TOP: i32 = 50;
const LEGEND_STEP: i32 = 18;
const LETTER_WIDTH: u32 = 7;
/// The yellow of the palette, which is hard to see on white.
const YELLOW: usize = 2;

/// Draws the charts of one workload's results into files in `dir`.
///
/// # Errors
/// If the folder or a file cannot be written.
pub fn draw(results: &[Measurement], dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    for (file, svg) in pictures(results)? {
        let path = dir.join(&file);
        fs::write(&path, svg).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Draws the charts of one workload's results, throughput and latency. Returns the name and the
/// content of each file.
///
/// # Errors
/// If a chart cannot be drawn.
pub fn pictures(results: &[Measurement]) -> Result<Vec<(String, String)>> {
    let picture = |chart: &Chart| {
        let mut svg = String::new();
        chart.draw_on(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
        Ok((format!("{}.svg", chart.file), svg))
    };
    charts(results).iter().map(picture).collect()
}

fn charts(results: &[Measurement]) -> Vec<Chart> {
    let Some(first) = results.first() else { return Vec::new() };
    let stem = if first.tasks.is_some() { "commit-tasks" } else { &first.workload };
    let mut charts = vec![Chart::of_throughput(results, stem), Chart::of_latencies(results, stem)];
    charts.retain(|chart| chart.places.len() > 1 && !chart.lines.is_empty());
    charts
}

/// Lines over one axis. The other one is logarithmic, so that equal ratios look equal.
struct Chart {
    file: String,
    title: String,
    axes: [&'static str; 2],
    /// Names of the places 0, 1, 2 ... of the x axis.
    places: Vec<String>,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Chart {
    /// Makes the chart of records a second over threads, with a line for each contender and form.
    fn of_throughput(results: &[Measurement], stem: &str) -> Chart {
        let mut counts: Vec<usize> = results.iter().map(|result| result.threads).collect();
        counts.sort_unstable();
        counts.dedup();
        let mut lines: Vec<Line> = Vec::new();
        for result in results.iter().filter(|result| result.records_per_s > 0.0) {
            let name = name(result, results);
            let place = counts.partition_point(|&count| count < result.threads);
            let point = (place as f64, result.records_per_s);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { name, points: vec![point] }),
            }
        }
        for line in &mut lines {
            line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
            // A floor that was measured at one place is a floor for all.
            if let [(at, value)] = line.points[..] {
                line.name += &format!(" (at {})", counts[at as usize]);
                line.points = vec![(0.0, value), (counts.len() as f64 - 1.0, value)];
            }
        }
        Chart {
            file: format!("{stem}-throughput"),
            title: format!("{stem}: records/s over threads"),
            axes: ["threads", "records/s"],
            places: counts.iter().map(ToString::to_string).collect(),
            lines,
        }
    }

    /// Makes the chart of latency percentiles, with a line for each result with the most threads.
    fn of_latencies(results: &[Measurement], stem: &str) -> Chart {
        let most = results.iter().map(|result| result.threads).max().unwrap_or_default();
        let line = |result: &Measurement| {
            let quantiles = [result.p50_us, result.p99_us, result.p999_us, result.p9999_us];
            let point = |(place, us): (usize, Option<f64>)| Some((place as f64, us?));
            let points = quantiles.into_iter().enumerate().filter_map(point).collect();
            Line { name: name(result, results), points }
        };
        let with_most = results.iter().filter(|result| result.threads == most);
        Chart {
            file: format!("{stem}-latency"),
            title: format!("{stem}: latency, threads: {most}"),
            axes: ["percentile", "microseconds"],
            places: ["50", "99", "99.9", "99.99"].map(String::from).to_vec(),
            lines: with_most.map(line).filter(|line| !line.points.is_empty()).collect(),
        }
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
        area.fill(&WHITE)?;
        let longest = self.lines.iter().map(|line| line.name.len()).max().unwrap_or_default();
        let legend_width = 50 + LETTER_WIDTH * longest as u32;
        let values = || self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let (least, greatest) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(14)
            .margin_right(legend_width)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(
                0.0..self.places.len() as f64 - 1.0,
                (least / 1.5..greatest * 1.5).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(self.axes[0])
            .y_desc(self.axes[1])
            .x_labels(self.places.len())
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|x| self.place(*x))
            .y_label_formatter(&|y| if *y < 1.0 { format!("{y:.2}") } else { rate(*y) })
            .draw()?;
        for (index, line) in self.lines.iter().enumerate() {
            let color = Palette99::pick(index + usize::from(index >= YELLOW)).to_rgba();
            let points = LineSeries::new(line.points.clone(), color.stroke_width(2));
            chart.draw_series(points.point_size(3))?;
            let y = LEGEND_TOP + LEGEND_STEP * index as i32;
            let x = SIZE.0 as i32 - legend_width as i32;
            let dash = vec![(x + 10, y), (x + 30, y)];
            area.draw(&PathElement::new(dash, color.stroke_width(2)))?;
            area.draw(&Text::new(line.name.as_str(), (x + 38, y - 6), ("sans-serif", 12)))?;
        }
        Ok(area.present()?)
    }

    fn place(&self, x: f64) -> String {
        let is_place = (x - x.round()).abs() < 1e-6 && x >= 0.0;
        let name = is_place.then(|| self.places.get(x.round() as usize)).flatten();
        name.cloned().unwrap_or_default()
    }
}

/// Returns the name of a result's line: the contender and the form, and each of record size, batch,
/// streams and shards in which the results differ.
fn name(result: &Measurement, results: &[Measurement]) -> String {
    let parts: [fn(&Measurement) -> Option<String>; 4] = [
        |result| Some(format!("{} B", result.record_bytes)),
        |result| Some(format!("batch {}", result.batch?)),
        |result| Some(format!("{} streams", result.streams?)),
        |result| Some(format!("{} shards", result.shards?)),
    ];
    let differs = |part: &fn(&Measurement) -> Option<String>| {
        results.iter().any(|other| part(other) != part(result))
    };
    let parts = parts.into_iter().filter(differs).filter_map(|part| part(result));
    let words = [result.contender.clone()].into_iter().chain(result.variant.clone()).chain(parts);
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::tests::result;

    fn lines<'a>(charts: &'a [Chart], file: &str) -> Vec<&'a str> {
        let chart = charts.iter().find(|chart| chart.file == file).unwrap();
        chart.lines.iter().map(|line| line.name.as_str()).collect()
    }

    #[test]
    fn throughput_over_threads_has_a_line_for_each_contender() {
        let dir = tempfile::tempdir().unwrap();
        let results = [
            result("naive", 1, &[10.0]),
            result("palisade", 1, &[20.0]),
            result("naive", 8, &[5.0]),
            result("palisade", 8, &[50.0]),
        ];
        draw(&results, dir.path()).unwrap();
        let files: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let svg = fs::read_to_string(dir.path().join("commit-throughput.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["naive", "palisade", "threads", "records/s"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn a_sweep_of_batches_has_a_line_for_each() {
        let mut results = Vec::new();
        for (batch, threads) in [(10, 1), (10, 8), (1000, 1), (1000, 8)] {
            let mut result = result("palisade", threads, &[10.0]);
            result.batch = Some(batch);
            result.p50_us = Some(1.0);
            results.push(result);
        }
        let charts = charts(&results);
        let batches = ["palisade, batch 10", "palisade, batch 1000"];
        assert_eq!(lines(&charts, "commit-throughput"), batches);
        assert_eq!(lines(&charts, "commit-latency"), batches);
    }

    #[test]
    fn a_floor_on_one_thread_is_a_line_for_all() {
        let floor = result("raw", 1, &[10.0]);
        let charts =
            charts(&[floor, result("palisade", 1, &[9.0]), result("palisade", 8, &[9000.0])]);
        assert_eq!(lines(&charts, "commit-throughput"), ["raw (at 1)", "palisade"]);
        assert_eq!(charts[0].lines[0].points, [(0.0, 10.0), (1.0, 10.0)]);
    }

    #[test]
    fn without_two_places_there_is_no_picture() {
        assert!(pictures(&[]).unwrap().is_empty());
        assert!(pictures(&[result("naive", 1, &[10.0])]).unwrap().is_empty());
    }
}
