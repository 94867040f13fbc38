use super::*;

pub(crate) fn figure(contender: &str, threads: usize, rates: &[f64]) -> Figure {
    let blank = Figure {
        workload: "commit".into(),
        contender: contender.into(),
        threads,
        record_bytes: 256,
        seconds: 1.0,
        rounds: rates.len() as u32,
        dir_fs: Some("ext4".into()),
        cpu: Some("a, \"b\"".into()),
        cores: 2,
        ..Figure::default()
    };
    let round = |&rate| Outcome { records_per_s: rate, ..Outcome::default() };
    let rounds: Vec<Outcome> = rates.iter().map(round).collect();
    blank.with_medians_of(&rounds)
}

#[test]
fn the_median_counts_and_the_extremes_are_kept() {
    let figure = figure("naive", 1, &[4096.0, 1.0, 9000.0]);
    assert_eq!(figure.records_per_s, 4096.0);
    assert_eq!(figure.records_per_s_min, 1.0);
    assert_eq!(figure.records_per_s_max, 9000.0);
    assert_eq!(figure.mib_per_s, 1.0);
    assert_eq!(median([1.0, 2.0]), Some(1.5));
    assert_eq!(median([]), None);
}

#[test]
fn json_has_the_published_fields_in_order_and_null_where_none_applies() {
    let line = serde_json::to_string(&figure("naive", 1, &[1.0])).unwrap();
    let mut last = 0;
    for name in &COLUMNS[..21] {
        let at = line.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {line}"));
        assert!(at >= last, "{name} is out of order: {line}");
        last = at;
    }
    assert!(line.contains("\"p50_us\":null"), "{line}");
    assert!(!line.contains("open_ms"), "{line}");
}

#[test]
fn a_figure_is_read_back_as_it_was_printed() {
    let mut figure = figure("palisade", 1, &[1.0]);
    figure.records = Some(10);
    figure.timeline = vec![Moment { at_ms: 10.0, worst_us: 2.5, rotations: 1 }];
    let line = serde_json::to_string(&figure).unwrap();
    assert!(line.contains("\"timeline\":[[10.0,2.5,1]]"), "{line}");
    assert_eq!(serde_json::from_str::<Figure>(&line).unwrap(), figure);
    let sparse = r#"{"workload":"get","a field of tomorrow":[1]}"#;
    assert_eq!(serde_json::from_str::<Figure>(sparse).unwrap().workload, "get");
}

#[test]
fn csv_has_a_cell_for_each_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("figures.csv");
    let mut csv = Csv::create(&path).unwrap();
    csv.write(&figure("naive", 1, &[2.0])).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].split(',').count(), COLUMNS.len());
    assert!(lines[1].starts_with("commit,naive,,1,256,,2.0,"), "{text}");
    assert!(lines[1].contains("\"a, \"\"b\"\"\""), "{text}");
}

#[test]
fn ratios_are_against_the_first_contender_with_as_many_threads() {
    let figures = [
        figure("naive", 1, &[10.0]),
        figure("palisade", 1, &[20.0]),
        figure("naive", 8, &[5.0]),
        figure("palisade", 8, &[50.0]),
    ];
    let ratios: Vec<_> = figures.iter().map(|figure| ratio(figure, &figures)).collect();
    assert_eq!(ratios, [Some(1.0), Some(2.0), Some(1.0), Some(10.0)]);
}

#[test]
fn a_first_contender_on_one_thread_is_the_base_of_all() {
    let figures = [figure("raw", 1, &[10.0]), figure("palisade", 8, &[80.0])];
    assert_eq!(ratio(&figures[1], &figures), Some(8.0));
    assert!(table(&figures).contains("8.00x"));
}
