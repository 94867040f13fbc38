//! Figures as pictures: SVG, drawn without any font of the system.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::Figure;

const SIZE: (u32, u32) = (1000, 540);
const LEGEND_TOP: i32 = 50;
const LEGEND_STEP: i32 = 18;
const LETTER_WIDTH: u32 = 7;
/// All contenders that there are, or so.
const MOST_LINES: usize = 12;
const THREADS: &str = "threads";
const BYTES: &str = "bytes of a record";
const BATCH: &str = "records of a batch";
const LOG_BYTES: &str = "bytes of the log";
/// Above the highest point, in parts of the whole height.
const HEADROOM: f64 = 0.08;
/// Contenders in the order of the palette, where the third is hard to see.
const COLORED: [&str; 14] = [
    "naive",
    "raw",
    "wal-db-mem",
    "palisade",
    "wake",
    "palisade-heap",
    "palisade-mem",
    "wal-db",
    "okaywal",
    "raft-engine",
    "ironwal",
    "walrus",
    "palisade-direct",
    "palisade-fdatasync",
];
/// Values further apart than this need a logarithmic scale.
const WIDEST_LINEAR: f64 = 30.0;

/// Draws whatever the figures of one workload can show into files in `dir`.
///
/// # Errors
/// If the folder or a file cannot be written.
pub fn draw(figures: &[Figure], dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    for picture in pictures(figures)? {
        let path = dir.join(&picture.file);
        fs::write(&path, &picture.svg).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// A drawn chart.
#[derive(Debug)]
pub struct Picture {
    /// The name that its file gets.
    pub file: String,
    /// What it shows, in a line.
    pub title: String,
    /// The picture itself.
    pub svg: String,
}

/// Draws whatever the figures of one workload can show.
///
/// # Errors
/// If a chart cannot be drawn.
pub fn pictures(figures: &[Figure]) -> Result<Vec<Picture>> {
    let Some(first) = figures.first() else { return Ok(Vec::new()) };
    let stem = if first.tasks.is_some() { "commit-tasks" } else { &first.workload };
    let picture = |chart: Chart| {
        let svg = chart.svg().with_context(|| format!("drawing {}", chart.file))?;
        Ok(Picture { file: format!("{}.svg", chart.file), title: chart.title, svg })
    };
    charts(figures, stem).into_iter().map(picture).collect()
}

fn charts(figures: &[Figure], stem: &str) -> Vec<Chart> {
    let rate = |figure: &Figure| Some(figure.records_per_s);
    let threads = |figure: &Figure| figure.threads as u64;
    let per_sync = |figure: &Figure| figure.records_per_sync;
    let bytes = |figure: &Figure| figure.record_bytes as u64;
    let batch = |figure: &Figure| figure.batch.unwrap_or_default().into();
    let mib = |figure: &Figure| Some(figure.mib_per_s);
    let mut charts = vec![
        Chart::over(figures, stem, "throughput", [THREADS, "records/s"], threads, rate),
        Chart::over(figures, stem, "sync", [THREADS, "records per sync"], threads, per_sync),
        Chart::over(figures, stem, "size", [BYTES, "MiB/s"], bytes, mib),
        Chart::over(figures, stem, "batch", [BATCH, "MiB/s"], batch, mib),
        Chart::over(
            figures,
            stem,
            "open",
            [LOG_BYTES, "ms to open"],
            |figure| two_digits(figure.log_bytes.unwrap_or_default()),
            |figure| figure.open_ms,
        ),
        Chart::of_latencies(figures, stem),
    ];
    charts.retain(Chart::shows_something);
    let timelines = figures.iter().filter(|figure| !figure.timeline.is_empty()).enumerate();
    charts.extend(timelines.map(|(number, figure)| Chart::timeline(figure, stem, number + 1)));
    charts
}

/// Lines over one axis.
#[derive(Debug)]
struct Chart {
    file: String,
    title: String,
    axes: [&'static str; 2],
    /// Names of the places 0, 1, 2 ... of the x axis; none where it is a plain number.
    places: Vec<String>,
    has_log_scale: bool,
    lines: Vec<Line>,
    /// Where something happened, as places of the x axis.
    marks: Vec<f64>,
}

#[derive(Debug)]
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Chart {
    /// What `y` says of the figures over the distinct values of `x`, a line for each contender.
    fn over(
        figures: &[Figure],
        stem: &str,
        name: &str,
        axes: [&'static str; 2],
        x: impl Fn(&Figure) -> u64,
        y: impl Fn(&Figure) -> Option<f64>,
    ) -> Chart {
        let mut values: Vec<u64> = figures.iter().map(&x).collect();
        values.sort_unstable();
        values.dedup();
        let lines = by_line(figures, axes[0]).into_iter().map(|(name, figures)| {
            let point = |figure: &&Figure| {
                let place = values.iter().position(|&value| value == x(figure))?;
                Some((place as f64, y(figure)?))
            };
            let mut points: Vec<(f64, f64)> = figures.iter().filter_map(point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Line { name, points }
        });
        Chart {
            file: format!("{stem}-{name}"),
            title: format!("{stem}: {} over {}", axes[1], axes[0]),
            axes,
            places: values.iter().map(|value| place_name(*value)).collect(),
            has_log_scale: false,
            lines: lines.filter(|line| !line.points.is_empty()).collect(),
            marks: Vec::new(),
        }
        .with_few_lines()
        .with_floors()
        .with_a_fitting_scale()
    }

    /// Where there are more lines than an eye can tell apart, only Palisade's.
    fn with_few_lines(mut self) -> Chart {
        let is_palisade = |line: &Line| line.name.split(',').next() == Some("palisade");
        if self.lines.len() > MOST_LINES && self.lines.iter().any(is_palisade) {
            self.lines.retain(is_palisade);
        }
        self
    }

    /// What was measured at one place only is drawn from end to end: a floor for all.
    fn with_floors(mut self) -> Chart {
        let last = self.places.len().saturating_sub(1) as f64;
        for line in &mut self.lines {
            if let [(at, value)] = line.points[..] {
                line.name += &format!(" (at {})", self.places[at as usize]);
                line.points = vec![(0.0, value), (last, value)];
            }
        }
        self
    }

    /// A logarithmic scale where one line would press the others to the ground.
    fn with_a_fitting_scale(mut self) -> Chart {
        let values = || self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let (least, greatest) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        self.has_log_scale = least > 0.0 && greatest > least * WIDEST_LINEAR;
        self
    }

    /// Percentiles of the latency, a line for each figure with the most threads.
    fn of_latencies(figures: &[Figure], stem: &str) -> Chart {
        let most = figures.iter().map(|figure| figure.threads).max().unwrap_or_default();
        let line = |figure: &Figure| {
            let quantiles = [figure.p50_us, figure.p99_us, figure.p999_us, figure.p9999_us];
            let quantiles = quantiles.into_iter().enumerate();
            let points = quantiles.filter_map(|(place, us)| Some((place as f64, us?))).collect();
            Line { name: full_name(figure, figures, THREADS), points }
        };
        let with_most = figures.iter().filter(|figure| figure.threads == most);
        Chart {
            file: format!("{stem}-latency"),
            title: format!("{stem}: latency, {most} thread{}", if most == 1 { "" } else { "s" }),
            axes: ["percentile", "microseconds"],
            places: ["50", "99", "99.9", "99.99"].map(String::from).to_vec(),
            has_log_scale: true,
            lines: with_most.map(line).filter(|line| !line.points.is_empty()).collect(),
            marks: Vec::new(),
        }
        .with_few_lines()
    }

    /// The longest latency of each moment, and when segments began.
    fn timeline(figure: &Figure, stem: &str, number: usize) -> Chart {
        let moments = figure.timeline.iter().filter(|moment| moment.worst_us > 0.0);
        let points = moments.clone().map(|moment| (moment.at_ms, moment.worst_us)).collect();
        let rotated = moments.filter(|moment| moment.rotations > 0);
        Chart {
            file: format!("{stem}-timeline-{number}"),
            title: format!("{stem}: {}, segments begin at the marks", name(figure)),
            axes: ["milliseconds", "longest latency, microseconds"],
            places: Vec::new(),
            has_log_scale: true,
            lines: vec![Line { name: name(figure), points }],
            marks: rotated.map(|moment| moment.at_ms).collect(),
        }
    }

    fn shows_something(&self) -> bool {
        self.places.len() > 1 && !self.lines.is_empty()
    }

    fn y(&self, value: f64) -> f64 {
        if self.has_log_scale { value.max(1e-3).log10() } else { value }
    }

    /// The least and the greatest of both axes.
    fn ranges(&self) -> ([f64; 2], [f64; 2]) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let greatest_x = points().map(|point| point.0).fold(1.0, f64::max);
        let last_place = self.places.len().saturating_sub(1) as f64;
        let greatest = points().map(|point| self.y(point.1)).fold(f64::MIN, f64::max);
        let least = points().map(|point| self.y(point.1)).fold(f64::MAX, f64::min);
        let least = if self.has_log_scale { least.floor() } else { 0.0 };
        let room = ((greatest - least) * HEADROOM).max(f64::EPSILON);
        ([0.0, greatest_x.max(last_place)], [least, greatest + room])
    }

    fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw_on(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
        Ok(svg)
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
        area.fill(&WHITE)?;
        let ([left, right], [bottom, top]) = self.ranges();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(14)
            .margin_right(self.legend_width())
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(left..right, bottom..top)?;
        let places = if self.places.is_empty() { 10 } else { self.places.len() };
        chart
            .configure_mesh()
            .x_desc(self.axes[0])
            .y_desc(self.axes[1])
            .x_labels(places)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|x| self.place(*x))
            .y_label_formatter(&|y| number(if self.has_log_scale { 10_f64.powf(*y) } else { *y }))
            .draw()?;
        for &mark in &self.marks {
            let ends = vec![(mark, bottom), (mark, bottom + (top - bottom) * HEADROOM)];
            chart.draw_series([PathElement::new(ends, BLACK)])?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            let color = Palette99::pick(self.color(index)).to_rgba();
            let points = line.points.iter().map(|&(x, y)| (x, self.y(y)));
            chart.draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?;
            let y = LEGEND_TOP + LEGEND_STEP * index as i32;
            let x = SIZE.0 as i32 - self.legend_width() as i32;
            let dash = vec![(x + 10, y), (x + 30, y)];
            area.draw(&PathElement::new(dash, color.stroke_width(2)))?;
            area.draw(&Text::new(line.name.as_str(), (x + 38, y - 6), ("sans-serif", 12)))?;
        }
        Ok(area.present()?)
    }

    /// Room for the names of the lines, which stand at the right.
    fn legend_width(&self) -> u32 {
        let longest = self.lines.iter().map(|line| line.name.len()).max().unwrap_or_default();
        50 + LETTER_WIDTH * longest as u32
    }

    /// Each contender has the same colour in all pictures where it has one line.
    fn color(&self, line: usize) -> usize {
        let of_contender = |line: &Line| {
            let name = line.name.split_once(" (").map_or(&*line.name, |parts| parts.0);
            COLORED.iter().position(|colored| *colored == name)
        };
        let colors: Option<Vec<usize>> = self.lines.iter().map(of_contender).collect();
        colors.map_or(line, |colors| colors[line])
    }

    fn place(&self, x: f64) -> String {
        if self.places.is_empty() {
            return number(x);
        }
        let is_place = (x - x.round()).abs() < 1e-6 && x >= 0.0;
        let name = is_place.then(|| self.places.get(x.round() as usize)).flatten();
        name.cloned().unwrap_or_default()
    }
}

/// The figures of each line: those of one contender, alike but for the x axis.
fn by_line<'a>(figures: &'a [Figure], axis: &str) -> Vec<(String, Vec<&'a Figure>)> {
    let mut lines: Vec<(String, Vec<&Figure>)> = Vec::new();
    for figure in figures {
        let name = full_name(figure, figures, axis);
        match lines.iter_mut().find(|line| line.0 == name) {
            Some(line) => line.1.push(figure),
            None => lines.push((name, vec![figure])),
        }
    }
    lines
}

/// What one contender may have been measured with several values of: the axis that shows them, and
/// one figure's value in words.
const SWEPT: [(&str, Words); 4] = [
    (BYTES, |figure| Some(format!("{} B", figure.record_bytes))),
    (THREADS, |figure| {
        Some(format!("{} thread{}", figure.threads, if figure.threads == 1 { "" } else { "s" }))
    }),
    (BATCH, |figure| figure.batch.map(|batch| format!("batches of {batch}"))),
    (LOG_BYTES, |figure| figure.records.map(|records| format!("{records} records"))),
];

type Words = fn(&Figure) -> Option<String>;

/// The contender and the form, and whatever else tells this figure from the contender's others
/// and is not on the axis.
fn full_name(figure: &Figure, figures: &[Figure], axis: &str) -> String {
    let mut full = name(figure);
    for (_, words) in SWEPT.iter().filter(|(shown_by, _)| *shown_by != axis) {
        let differs = |other: &Figure| name(other) == name(figure) && words(other) != words(figure);
        if let Some(words) = words(figure).filter(|_| figures.iter().any(differs)) {
            full += &format!(", {words}");
        }
    }
    full
}

fn name(figure: &Figure) -> String {
    match &figure.variant {
        Some(variant) => format!("{}, {variant}", figure.contender),
        None => figure.contender.clone(),
    }
}

/// Logs that are all but equally long are at one place.
fn two_digits(value: u64) -> u64 {
    let unit = 10_u64.pow(value.max(1).ilog10().saturating_sub(1));
    (value + unit / 2) / unit * unit
}

fn place_name(value: u64) -> String {
    if value < 100_000 { value.to_string() } else { number(value as f64) }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", round(value / 1e6)),
        value if value >= 1e4 => format!("{} k", round(value / 1e3)),
        value if value < 0.1 && value > 0.0 => format!("{value:.3}").trim_end_matches('0').into(),
        value => round(value),
    }
}

fn round(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), String::from)
}

#[cfg(test)]
#[path = "plot_tests.rs"]
mod tests;
