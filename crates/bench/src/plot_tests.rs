use super::*;
use crate::report::tests::figure;
use crate::workload::Moment;

fn drawn(figures: &[Figure]) -> Vec<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    draw(figures, dir.path()).unwrap();
    let mut files: Vec<(String, String)> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn throughput_is_drawn_over_threads_with_a_line_for_each_contender() {
    let files = drawn(&[
        figure("naive", 1, &[10.0]),
        figure("palisade", 1, &[20.0]),
        figure("naive", 8, &[5.0]),
        figure("palisade", 8, &[50.0]),
    ]);
    assert_eq!(files.len(), 1, "{files:?}");
    let (name, svg) = &files[0];
    assert_eq!(name, "commit-throughput.svg");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for text in ["naive", "palisade", "threads", "records/s"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn latencies_and_sizes_have_a_picture_where_there_are_any() {
    let mut small = figure("naive", 2, &[10.0]);
    small.p50_us = Some(80.0);
    small.p99_us = Some(900.0);
    let mut large = figure("naive", 2, &[9.0]);
    large.record_bytes = 1024;
    let names: Vec<String> = drawn(&[small, large]).into_iter().map(|file| file.0).collect();
    assert_eq!(names, ["commit-latency.svg", "commit-size.svg"]);
}

#[test]
fn a_sweep_has_a_line_for_each_value_that_is_not_on_the_axis() {
    let mut figures = Vec::new();
    for (batch, threads) in [(10, 1), (10, 8), (1000, 1), (1000, 8)] {
        let mut figure = figure("palisade", threads, &[10.0]);
        figure.batch = Some(batch);
        figure.p50_us = Some(1.0);
        figures.push(figure);
    }
    let charts = charts(&figures, "batch");
    let lines = |name: &str| -> Vec<&str> {
        let chart = charts.iter().find(|chart| chart.file == name).unwrap();
        chart.lines.iter().map(|line| line.name.as_str()).collect()
    };
    let batches = ["palisade, batches of 10", "palisade, batches of 1000"];
    assert_eq!(lines("batch-throughput"), batches);
    assert_eq!(lines("batch-latency"), batches);
    assert_eq!(lines("batch-batch"), ["palisade, 1 thread", "palisade, 8 threads"]);
}

#[test]
fn of_too_many_lines_palisades_stay() {
    let names: Vec<String> = (0..MOST_LINES).map(|number| format!("crate {number}")).collect();
    let all = |names: &[&str]| {
        let at = |threads| names.iter().map(move |name| figure(name, threads, &[9.0]));
        charts(&at(1).chain(at(8)).collect::<Vec<_>>(), "commit").remove(0).lines.len()
    };
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(all(&names), MOST_LINES);
    names.extend(["palisade", "palisade-mem"]);
    assert_eq!(all(&names), 1);
}

#[test]
fn logs_of_about_the_same_length_are_at_one_place() {
    assert_eq!([0, 7, 560_000, 561_120].map(two_digits), [0, 7, 560_000, 560_000]);
    assert_eq!([1_075_200_000, 555].map(two_digits), [1_100_000_000, 560]);
    assert_eq!([1024, 560_000].map(place_name), ["1024", "560 k"]);
}

#[test]
fn a_timeline_has_a_picture_of_its_own() {
    let mut figure = figure("palisade", 1, &[10.0]);
    figure.workload = "rotation".into();
    let moment = |at_ms, worst_us, rotations| Moment { at_ms, worst_us, rotations };
    figure.timeline = vec![moment(0.0, 2.0, 0), moment(10.0, 90.0, 1)];
    let files = drawn(&[figure]);
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].0, "rotation-timeline-1.svg");
}

#[test]
fn a_contender_has_the_same_colour_in_all_pictures() {
    let color_of_palisade = |others: &[&str]| {
        let names = [others, &["palisade"]].concat();
        let figures =
            [1, 8].map(|threads| names.iter().map(move |name| figure(name, threads, &[9.0])));
        let chart = charts(&figures.into_iter().flatten().collect::<Vec<_>>(), "commit").remove(0);
        chart.color(chart.lines.iter().position(|line| line.name == "palisade").unwrap())
    };
    assert_eq!(color_of_palisade(&["naive"]), color_of_palisade(&["raw", "wake", "walrus"]));
    assert_eq!(color_of_palisade(&["a crate of tomorrow"]), 1);
}

#[test]
fn nothing_measured_is_nothing_drawn() {
    assert!(drawn(&[]).is_empty());
    assert!(drawn(&[figure("naive", 1, &[10.0])]).is_empty());
}

#[test]
fn a_floor_on_one_thread_is_a_line_for_all() {
    let files = drawn(&[
        figure("raw", 1, &[10.0]),
        figure("palisade", 1, &[9.0]),
        figure("palisade", 8, &[9000.0]),
    ]);
    let svg = &files[0].1;
    assert!(svg.contains("raw (at 1)"), "{svg}");
    assert!(svg.contains("1000"), "a logarithmic scale has its decades: {svg}");
}
