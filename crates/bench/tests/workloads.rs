//! Every contender does what it says it supports, and reads back what it acknowledged.

use std::time::Duration;

use clap::ValueEnum;
use palisade_bench::contender::Contender;
use palisade_bench::plan::Plan;
use palisade_bench::workload::{Outcome, Variant, Workload};

fn measure(contender: Contender, workload: Workload, variant: Variant, threads: usize) -> Outcome {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plan = Plan {
        dir: dir.path().into(),
        threads,
        record_bytes: 300,
        batch: 10,
        records: 500,
        variant,
        time: Duration::from_millis(10),
    };
    workload.measure(contender, &plan).unwrap()
}

/// Whether it refuses in a process that was not started for it.
fn needs_a_process(contender: Contender) -> bool {
    contender.name() == "walrus"
}

fn each_supported(check: impl Fn(Contender, Workload, Variant, &Outcome)) {
    for workload in Workload::ALL {
        for &contender in Contender::value_variants() {
            if contender.supports(workload) && !needs_a_process(contender) {
                let threads = if workload.has_threads() { 2 } else { 1 };
                let threads = contender.only_threads(workload).unwrap_or(threads);
                for &variant in workload.default_variants() {
                    let outcome = measure(contender, workload, variant, threads);
                    check(contender, workload, variant, &outcome);
                }
            }
        }
    }
}

#[test]
fn each_contender_has_a_figure_for_each_workload_that_it_supports() {
    each_supported(|contender, workload, variant, outcome| {
        let name = format!("{} of {} {variant}", workload.full_name(), contender.name());
        assert!(outcome.records_per_s > 0.0 || variant == Variant::Dirty(0), "{name}");
        let offers = workload == Workload::OpenLoop;
        assert_eq!(outcome.offered_per_s.is_some(), offers, "{name}");
        assert_eq!(!outcome.timeline.is_empty(), workload == Workload::Rotation, "{name}");
        assert_eq!(outcome.quantiles_us.is_some(), workload.has_latency(), "{name}");
        let opens = matches!(workload, Workload::Recover | Workload::Reopen);
        assert_eq!(outcome.opened.is_some(), opens, "{name}");
        let keeps = !contender.is_floor() && workload != Workload::Get;
        assert_eq!(outcome.kept.is_some(), keeps || workload == Workload::Scan, "{name}");
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
