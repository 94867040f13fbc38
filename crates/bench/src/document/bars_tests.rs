use super::*;
use crate::document::results::Header;
use crate::report::tests::figure;
use crate::workload::Workload;

fn file(runs: Vec<Vec<Figure>>) -> ResultFile {
    let runs = runs.into_iter().map(|figures| Run { figures }).collect();
    ResultFile { name: "some".into(), header: Header::default(), runs }
}

fn bar(name: &str) -> &'static Bar {
    BARS.iter().find(|bar| bar.name == name).unwrap()
}

/// The verdict on a bar, and its cell in the table.
fn stands(name: &str, file: &ResultFile) -> (Verdict, String) {
    let bar = bar(name);
    (bar.verdict(bar.measured(file).as_ref()), bar.cell(file))
}

#[test]
fn a_ratio_meets_its_bar_its_aim_or_neither() {
    let against_raw = |rate: f64| {
        let figures = vec![figure("raw", 1, &[100.0]), figure("palisade", 1, &[rate])];
        stands("commit, 1 thread / raw", &file(vec![figures]))
    };
    assert_eq!(against_raw(94.9), (Verdict::NotMet, "0.94x, not met".into()));
    assert_eq!(against_raw(95.0), (Verdict::Met, "0.95x, met".into()));
    assert_eq!(against_raw(100.0), (Verdict::AimMet, "1.00x, aim met".into()));
}

#[test]
fn a_bar_without_both_of_its_sides_in_one_run_is_not_measured() {
    let apart = file(vec![vec![figure("raw", 1, &[1.0])], vec![figure("palisade", 1, &[1.0])]]);
    let not_measured = (Verdict::NotMeasured, "-".into());
    assert_eq!(stands("commit, 1 thread / raw", &apart), not_measured);
    assert_eq!(stands("commit, 8 threads / best peer", &apart), not_measured);
}

#[test]
fn the_best_peer_is_the_fastest_crate_on_files() {
    let figures = vec![
        figure("palisade", 8, &[30.0]),
        figure("naive", 8, &[90.0]),
        figure("wal-db", 8, &[10.0]),
        figure("okaywal", 8, &[20.0]),
        figure("wal-db-mem", 8, &[90.0]),
        figure("raft-engine", 2, &[90.0]),
    ];
    let stands = stands("commit, 8 threads / best peer", &file(vec![figures]));
    assert_eq!(stands, (Verdict::Met, "1.50x (okaywal), met".into()));
}

#[test]
fn the_run_with_the_most_rounds_counts_and_of_equals_the_last() {
    let run = |rates: &[f64]| vec![figure("raw", 1, &[1.0]), figure("palisade", 1, rates)];
    let mut most = run(&[3.0; 5]);
    most[0].rounds = 5;
    let some = file(vec![run(&[1.0]), most, run(&[4.0]), run(&[5.0])]);
    assert_eq!(stands("commit, 1 thread / raw", &some).1, "3.00x, aim met");
    let equal = file(vec![run(&[1.0]), run(&[4.0]), run(&[5.0])]);
    assert_eq!(stands("commit, 1 thread / raw", &equal).1, "5.00x, aim met");
}

#[test]
fn a_cost_meets_its_bar_from_below() {
    let opened = |open_ms: f64, segments: u64| {
        let mut figure = figure("palisade", 1, &[1.0]);
        figure.workload = "reopen".into();
        (figure.open_ms, figure.segments) = (Some(open_ms), Some(segments));
        stands("clean reopen of 1 000 segments", &file(vec![vec![figure]]))
    };
    assert_eq!(opened(0.7, 1000), (Verdict::Met, "0.70 ms, met".into()));
    assert_eq!(opened(0.5, 1000).0, Verdict::AimMet);
    assert_eq!(opened(1.1, 1000).0, Verdict::NotMet);
    assert_eq!(opened(0.1, 10).0, Verdict::NotMeasured);
}

#[test]
fn a_value_at_the_reference_floor_says_how_fast_the_disk_was() {
    let mut many = figure("palisade", 2, &[700e3]);
    many.variant = Some("1024 tasks".into());
    let slow = file(vec![vec![many], vec![figure("raw", 1, &[6_050.0])]]);
    let stands = stands("commit by 1 024 futures on 2 threads", &slow);
    assert_eq!(stands, (Verdict::NotMet, "700.0 k/s (floor 0.50x), not met".into()));
}

#[test]
fn each_bar_has_a_name_of_its_own_and_an_aim_beyond_it() {
    for (place, bar) in BARS.iter().enumerate() {
        assert!(BARS[..place].iter().all(|other| other.name != bar.name), "{}", bar.name);
        if let Aim::Value(aim) = bar.aim {
            let is_cost = bar.of.quantity.is_a_cost();
            assert!(if is_cost { aim < bar.bar } else { aim > bar.bar }, "{}", bar.name);
        }
    }
}

#[test]
fn the_table_ends_with_how_many_are_met() {
    let figures = vec![figure("raw", 1, &[100.0]), figure("palisade", 1, &[50.0])];
    let text = section(&[file(vec![figures])]);
    assert!(text.contains("| commit, 1 thread / raw | 0.95x | 1x | 0.50x, not met |"), "{text}");
    assert!(text.ends_with("| **0 of 1** |\n"), "{text}");
}

#[test]
fn the_forms_of_the_bars_are_forms_that_the_driver_measures() {
    let mut checked = 0;
    for bar in BARS {
        let side = match bar.against {
            Against::Figure(side, _) => side,
            _ => bar.of,
        };
        for (workload, form) in [bar.of, side].map(|side| (side.workload, side.form)) {
            let named = Workload::ALL.into_iter().filter(|known| known.name() == workload);
            let forms: Vec<String> = named
                .flat_map(|known| known.default_variants())
                .map(ToString::to_string)
                .filter(|form| !form.is_empty())
                .collect();
            if let Some(form) = form.filter(|_| !forms.is_empty()) {
                assert!(forms.iter().any(|known| known == form), "{}: {forms:?}", bar.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 4, "{checked}");
}
