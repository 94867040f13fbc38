//! Every contender does what it says it supports, and reads back what it acknowledged.

use std::time::Duration;

use clap::ValueEnum;
use palisade_bench::contender::Contender;
use palisade_bench::plan::Plan;
use palisade_bench::workload::{Outcome, Workload};

fn measure(contender: Contender, workload: Workload, threads: usize) -> Outcome {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plan = Plan {
        dir: dir.path().into(),
        threads,
        record_bytes: 300,
        batch: 10,
        records: 500,
        time: Duration::from_millis(10),
    };
    workload.measure(contender, &plan).unwrap()
}

fn each_supported(check: impl Fn(Contender, Workload, &Outcome)) {
    for workload in Workload::ALL {
        for &contender in Contender::value_variants() {
            if contender.supports(workload) {
                let threads = if workload.has_threads() { 2 } else { 1 };
                let threads = contender.only_threads(workload).unwrap_or(threads);
                check(contender, workload, &measure(contender, workload, threads));
            }
        }
    }
}

#[test]
fn each_contender_has_a_figure_for_each_workload_that_it_supports() {
    each_supported(|contender, workload, outcome| {
        let name = format!("{} of {}", workload.name(), contender.name());
        assert!(outcome.records_per_s > 0.0, "{name}");
        assert_eq!(outcome.quantiles_us.is_some(), workload.writes(), "{name}");
        assert_eq!(outcome.opened.is_some(), workload == Workload::Recover, "{name}");
        let keeps = contender.is_palisade() || contender == Contender::Naive;
        assert!(outcome.kept.is_some() || !keeps, "{name}");
        if let Some(kept) = outcome.kept {
            assert!(!kept.is_short(), "{name}: {kept:?}");
        }
    });
}

#[test]
fn a_contender_without_the_workload_refuses() {
    let plan = Plan::at("unused".as_ref(), 1, 8);
    assert!(Contender::Wake.create(Workload::Append, &plan).is_err());
    assert!(Contender::Palisade.create(Workload::Scan, &plan).is_err());
}
