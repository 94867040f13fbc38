//! Every contender does what it says it supports, and reads back what it acknowledged.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use palisade_bench::contenders::{self, HEAP, PALISADE, SHARDED, STREAMS, WAKE};
use palisade_bench::workloads;
use palisade_bench::{Contender, Form, Measurement, Plan, Workload};
use serde_json::Value;

/// A plan that is over soon.
fn small(contender: Contender, workload: Workload) -> Plan {
    let time = Duration::from_millis(10);
    Plan {
        record_bytes: 300,
        batch: 10,
        records: 500,
        streams: 4,
        shards: 2,
        time,
        ..Plan::new(contender, workload)
    }
}

fn measure(plan: Plan) -> Measurement {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    workloads::measure(&Plan { dir: dir.path().into(), ..plan }).unwrap()
}

/// The form of that name on the command line.
fn form(workload: Workload, name: &str) -> Form {
    *workload.forms().iter().find(|form| form.option() == name).unwrap()
}

/// Whether it refuses in a process that was not started for it.
fn needs_a_process(contender: Contender) -> bool {
    contender.name == "walrus"
}

fn each_supported(check: impl Fn(Contender, Workload, Form, &Measurement)) {
    for &workload in Workload::all() {
        for contender in contenders::all() {
            if contender.supports(workload) && !needs_a_process(contender) {
                let has_one = (contender.has_one_thread)(workload) || !workload.has_threads();
                let mut forms = workload.forms().to_vec();
                forms.retain(|form| (contender.lacks_form)(form).is_none());
                // But for the log buffer, it does what Palisade does.
                let is_alike = workload == Workload::Recover || workload.forms_take_turns();
                if is_alike && contender.name == HEAP.name {
                    forms.truncate(1);
                }
                for form in forms {
                    let threads = if has_one { 1 } else { 2 };
                    let plan = Plan { threads, form, ..small(contender, workload) };
                    check(contender, workload, form, &measure(plan));
                }
            }
        }
    }
}

fn has_latency(workload: Workload) -> bool {
    let scans = matches!(workload, Workload::Scan | Workload::Codec | Workload::StreamsScan);
    !scans && !opens_a_log(workload) && workload != Workload::StreamsSlow
}

fn opens_a_log(workload: Workload) -> bool {
    matches!(workload, Workload::Recover | Workload::Reopen | Workload::StreamsOpen)
}

#[test]
fn each_contender_has_a_result_for_each_supported_workload() {
    each_supported(|contender, workload, form, outcome| {
        let name = format!("{} of {} {}", workload.full_name(), contender.name, form.name);
        assert!(outcome.records_per_s > 0.0 || form.name == "0 KiB dirty", "{name}");
        let offers = workload == Workload::OpenLoop;
        assert_eq!(outcome.offered_per_s.is_some(), offers, "{name}");
        assert_eq!(!outcome.timeline.is_empty(), workload == Workload::Rotation, "{name}");
        assert_eq!(outcome.p50_us.is_some(), has_latency(workload), "{name}");
        let opens = opens_a_log(workload);
        assert_eq!(outcome.open_ms.is_some(), opens, "{name}");
        let has_size = outcome.log_bytes.is_some() && outcome.segments.is_some();
        let keeps = workload == Workload::StreamsSlow;
        let of_ours = contender.name.starts_with("palisade");
        assert_eq!(has_size, (opens || keeps) && of_ours, "{name}");
        let codec = workload == Workload::Codec;
        assert_eq!(outcome.scan_records_per_s.is_some(), codec, "{name}");
        assert_eq!(outcome.stored_ratio.is_some(), codec, "{name}");
        let in_syncs = matches!(workload, Workload::Opens | Workload::Suffix);
        assert_eq!(outcome.in_raw_syncs.is_some(), in_syncs, "{name}");
        assert_eq!(outcome.disk_bytes.is_some(), form.name == "new", "{name}");
        assert_eq!(outcome.moved_percent.is_some(), keeps, "{name}");
        assert_eq!(outcome.kept.is_some(), !contender.is_floor || workload.reads(), "{name}");
        if let Some(kept) = outcome.kept {
            assert!(!kept.is_short(), "{name}: {kept:?}");
        }
    });
}

#[test]
fn a_release_frees_the_segments_of_the_fill_and_loses_no_commit() {
    for name in ["release", "background"] {
        // Six segments. The workload counts those that are left.
        let form = form(Workload::Release, name);
        let base = small(PALISADE, Workload::Release);
        let outcome = measure(Plan { form, threads: 2, records: 20_000, ..base });
        assert!(!outcome.kept.unwrap().is_short(), "{name}");
    }
}

#[test]
fn a_stream_that_stays_is_moved_within_the_budget() {
    let base = small(STREAMS, Workload::StreamsSlow);
    let outcome = measure(Plan { threads: 2, records: 20_000, ..base });
    let moved = outcome.moved_percent.unwrap();
    assert!(moved > 0.0 && moved < 10.0, "{moved} %");
    assert!(outcome.segments.is_some_and(|most| most > 0));
}

#[test]
fn truncated_entries_stay_gone_and_each_call_is_counted() {
    for form in Workload::StreamsTruncate.forms() {
        let base = small(STREAMS, Workload::StreamsTruncate);
        let outcome = measure(Plan { form: *form, threads: 2, streams: 3000, ..base });
        let kept = outcome.kept.unwrap();
        assert_eq!(kept.read_back, kept.acknowledged, "{}", form.name);
    }
}

#[test]
fn records_and_checkpoints_of_a_set_are_read_back_exactly_once() {
    for contender in contenders::all().filter(|c| c.supports(Workload::ShardsAppend)) {
        let of_shards = Workload::all().iter().filter(|workload| workload.has_shards());
        for (&workload, form) in
            of_shards.flat_map(|w| w.forms().iter().map(move |form| (w, *form)))
        {
            // Fewer records than streams, and more shards than some keys fill.
            for (streams, records, shards) in [(700, 500, 3), (2, 500, 4)] {
                let base = small(contender, workload);
                let outcome = measure(Plan { form, streams, records, shards, ..base });
                let kept = outcome.kept.unwrap();
                let name = format!("{} of {} {}", workload.name(), contender.name, form.name);
                assert_eq!(kept.read_back, kept.acknowledged, "{name}");
                assert!(kept.acknowledged > 0, "{name}");
            }
        }
    }
}

#[test]
fn a_checkpoint_has_what_precedes_it_and_a_prune_keeps_the_last() {
    for contender in contenders::all().filter(|c| c.supports(Workload::ShardsCheckpoint)) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let base = small(contender, Workload::ShardsCheckpoint);
        let log = Plan { dir: dir.path().into(), ..base }.create().unwrap();
        for (name, records) in [("one", 3), ("two", 2)] {
            log.append_batch(1, b"record", records).unwrap();
            log.checkpoint(name).unwrap();
        }
        log.append(0, b"record").unwrap();
        assert_eq!(log.load_checkpoint("one").unwrap(), 3, "{}", contender.name);
        assert_eq!(log.load_checkpoint("two").unwrap(), 5, "{}", contender.name);
        log.prune_checkpoints().unwrap();
        assert!(log.load_checkpoint("one").is_err(), "{}", contender.name);
        assert_eq!(log.load_checkpoint("two").unwrap(), 5, "{}", contender.name);
    }
}

#[test]
fn each_shard_count_is_a_separate_result_in_table_and_json() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let with_shards = |driver: &mut Command| {
        driver.args(["--contenders", SHARDED.name, "--threads", "1", "--rounds", "1"]);
        driver.args(["--streams", "9", "--shards", "1,3", "--forms", "by-key"]);
    };
    let mut json = driver("shards-append", dir.path());
    with_shards(&mut json);
    let of_shards = results(&mut json);
    let fields: Vec<_> = of_shards.iter().map(|line| (&line["shards"], &line["streams"])).collect();
    assert_eq!(fields, [(&Value::from(1), &Value::from(9)), (&Value::from(3), &Value::from(9))]);
    assert!(of_shards.iter().all(|line| line["variant"] == "by key"), "{of_shards:?}");
    let mut text = Command::new(env!("CARGO_BIN_EXE_palisade-bench"));
    text.args(["shards-append", "--seconds", "0.02", "--dir"]).arg(dir.path());
    with_shards(&mut text);
    let table = String::from_utf8(text.output().unwrap().stdout).unwrap();
    assert!(table.lines().next().unwrap().contains("streams  shards"), "{table}");
    assert_eq!(table.matches("by key").count(), 2, "{table}");
}

#[test]
fn a_codec_shrinks_json_but_not_random_bytes() {
    let ratio = |name: String| {
        let form = form(Workload::Codec, &name);
        let plan = Plan { form, record_bytes: 1024, ..small(PALISADE, Workload::Codec) };
        measure(plan).stored_ratio.unwrap()
    };
    let [none, lz4, zstd] = ["none", "lz4", "zstd"]
        .map(|codec| ["json", "random"].map(|kind| ratio(format!("{codec}-{kind}"))));
    assert!(none[0] > 1.0 && lz4[0] < 0.8 && zstd[0] < lz4[0], "{none:?} {lz4:?} {zstd:?}");
    assert!(lz4[1] >= 1.0 && zstd[1] >= 1.0, "{lz4:?} {zstd:?}");
}

#[test]
fn the_list_has_each_workload_with_its_forms() {
    let list = Command::new(env!("CARGO_BIN_EXE_palisade-bench")).args(["list", "--json"]).output();
    let text = String::from_utf8(list.unwrap().stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), Workload::all().len());
    for (line, workload) in lines.iter().zip(Workload::all()) {
        assert_eq!(line["workload"], workload.name());
        let names: Vec<String> = workload.forms().iter().map(|form| form.option()).collect();
        assert_eq!(line["form_names"], serde_json::json!(names));
        assert_eq!(line["streams"], serde_json::json!(workload.default_streams()));
        assert_eq!(line["shards"], serde_json::json!(workload.default_shards()));
    }
}

#[test]
fn the_document_has_each_workload() {
    let document = include_str!("../../../BENCHMARKS.md");
    for workload in Workload::all() {
        let is_named = |line: &str| {
            let first = line.split('|').nth(1).unwrap_or_default();
            first.contains(&format!("`{}`", workload.name()))
        };
        assert!(document.lines().any(is_named), "{}", workload.name());
    }
}

#[test]
fn a_contender_without_the_workload_or_the_form_refuses() {
    assert!(Plan::new(WAKE, Workload::Append).create().is_err());
    let unsynced = form(Workload::Recover, "1-MiB-unsynced");
    let plan = Plan { form: unsynced, ..Plan::new(HEAP, Workload::Recover) };
    let refusal = plan.fill().err().unwrap();
    assert!(refusal.to_string().contains("1 MiB unsynced"), "{refusal}");
}

#[cfg(feature = "peers")]
#[test]
fn walrus_is_measured_in_its_own_process_and_nowhere_else() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let walrus = contenders::find("walrus").unwrap();
    let plan = Plan { dir: dir.path().into(), ..Plan::new(walrus, Workload::Append) };
    let refusal = plan.create().err().unwrap();
    assert!(refusal.to_string().contains("WALRUS_DATA_DIR"), "{refusal}");
    let writing = ["append", "commit", "batch"].map(|workload| (workload, "walrus,naive"));
    let reading = ["scan", "recover", "reopen"].map(|workload| (workload, "walrus,wal-db"));
    let of_streams =
        ["streams-append", "streams-own", "streams-commit", "streams-batch", "streams-scan"]
            .map(|workload| (workload, "walrus,palisade-streams"));
    for (workload, contenders) in writing.into_iter().chain(reading).chain(of_streams) {
        let mut driver = driver(workload, dir.path());
        let threads = if workload.starts_with("streams") { "2" } else { "1" };
        driver.args(["--contenders", contenders, "--threads", threads, "--rounds", "2"]);
        if ["streams-append", "streams-scan"].contains(&workload) {
            driver.args(["--streams", "5"]);
        }
        if workload == "recover" {
            driver.args(["--forms", "plain"]);
        }
        let lines = results(&mut driver);
        let names: Vec<_> = lines.iter().map(|line| line["contender"].as_str().unwrap()).collect();
        assert_eq!(names.join(","), contenders, "{workload}");
    }
}

/// The driver with parameters that make it quick.
fn driver(workload: &str, dir: &Path) -> Command {
    let mut driver = Command::new(env!("CARGO_BIN_EXE_palisade-bench"));
    driver.args([workload, "--seconds", "0.02", "--allow-tmpfs", "--json", "--dir"]).arg(dir);
    if ["scan", "recover", "reopen", "streams-scan"].contains(&workload) {
        driver.args(["--records", "3000"]);
    }
    driver
}

fn results(driver: &mut Command) -> Vec<Value> {
    let done = driver.output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{driver:?}: {stderr}");
    let stdout = String::from_utf8(done.stdout).unwrap();
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_requested_batch_and_form_is_a_separate_result() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut batches = driver("batch", dir.path());
    batches.args(["--contenders", "naive", "--threads", "1", "--rounds", "1", "--batch", "3,7"]);
    let of_batches: Vec<_> =
        results(&mut batches).iter().map(|line| line["batch"].clone()).collect();
    assert_eq!(of_batches, [3, 7]);
    let mut forms = driver("recover", dir.path());
    forms.args(["--contenders", "palisade", "--rounds", "1", "--forms", "full-check,2-segments"]);
    let of_forms = results(&mut forms);
    assert_eq!(of_forms.len(), 2);
    assert_eq!(of_forms[0]["variant"], "2 segments");
    // Segments that are prepared ahead count as well.
    assert!(of_forms[0]["segments"].as_u64().unwrap() >= 2, "{of_forms:?}");
    assert_eq!(of_forms[1]["variant"], "full check");
}

#[test]
fn an_unknown_form_is_refused_with_the_known_ones() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let refusal = driver("recover", dir.path()).args(["--forms", "half"]).output().unwrap();
    assert!(!refusal.status.success());
    let stderr = String::from_utf8_lossy(&refusal.stderr);
    assert!(stderr.contains("no form half") && stderr.contains("16384-KiB-torn"), "{stderr}");
}

#[test]
fn a_form_that_a_contender_lacks_is_skipped_with_the_reason() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut recover = driver("recover", dir.path());
    recover.args(["--contenders", "palisade-mem", "--rounds", "1"]);
    recover.args(["--forms", "plain,64-KiB-torn"]);
    let skipped = recover.output().unwrap();
    let stderr = String::from_utf8_lossy(&skipped.stderr);
    assert!(stderr.contains("palisade-mem has no 64 KiB torn, it has no files"), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&skipped.stdout).lines().count(), 1);
}

/// A contender's version is that of the linked crate.
#[cfg(feature = "peers")]
#[test]
fn versions_are_those_of_the_lock_file() {
    let lock = include_str!("../../../Cargo.lock");
    for contender in contenders::all().filter(|contender| !contender.name.starts_with("palisade")) {
        let Some(version) = contender.version else { continue };
        let name = match contender.name {
            "walrus" => "walrus-rust",
            "ironwal-sharded" => "ironwal",
            "wal-db-mem" => "wal-db",
            name => name,
        };
        let line = format!("name = \"{name}\"\nversion = \"{version}\"");
        assert!(lock.contains(&line), "{name} {version}");
    }
}
