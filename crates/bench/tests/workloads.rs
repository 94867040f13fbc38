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

/// Whether it refuses in a process that was not started for it.
fn needs_a_process(contender: Contender) -> bool {
    contender.name() == "walrus"
}

fn each_supported(check: impl Fn(Contender, Workload, &Outcome)) {
    for workload in Workload::ALL {
        for &contender in Contender::value_variants() {
            if contender.supports(workload) && !needs_a_process(contender) {
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
        assert!(outcome.kept.is_some() || contender.is_floor(), "{name}");
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

#[cfg(feature = "peers")]
#[test]
fn walrus_is_measured_in_a_process_of_its_own_and_refuses_elsewhere() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plan = Plan::at(dir.path(), 1, 8);
    let refusal = Contender::Walrus.create(Workload::Append, &plan).err().unwrap();
    assert!(refusal.to_string().contains("WALRUS_DATA_DIR"), "{refusal}");
    for workload in ["append", "commit", "batch"] {
        let driver = std::process::Command::new(env!("CARGO_BIN_EXE_palisade-bench"))
            .args([workload, "--contenders", "walrus,naive", "--threads", "2", "--rounds", "2"])
            .args(["--seconds", "0.05", "--batch", "10", "--allow-tmpfs", "--json", "--dir"])
            .arg(dir.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&driver.stderr);
        assert!(driver.status.success(), "{workload}: {stderr}");
        let stdout = String::from_utf8(driver.stdout).unwrap();
        assert_eq!(stdout.lines().count(), 2, "{workload}: {stdout}");
        assert!(stdout.starts_with(&format!("{{\"workload\":\"{workload}\"")), "{stdout}");
    }
}

/// A contender's version is that of the crate which is linked.
#[cfg(feature = "peers")]
#[test]
fn versions_are_those_of_the_lock_file() {
    let lock = include_str!("../../../Cargo.lock");
    for &contender in Contender::value_variants() {
        let Some(version) = contender.version().filter(|_| !contender.is_palisade()) else {
            continue;
        };
        let name = match contender.name() {
            "walrus" => "walrus-rust",
            "wal-db-mem" => "wal-db",
            name => name,
        };
        let line = format!("name = \"{name}\"\nversion = \"{version}\"");
        assert!(lock.contains(&line), "{name} {version}");
    }
}
