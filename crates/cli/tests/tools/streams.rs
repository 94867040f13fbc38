//! `streams`: logs of streams that are truncated, moved, deleted and damaged, beside a writer, and
//! logs that are none of streams.

use std::process::Child;

use palisade_streams::{Options, Stream, Streams};
use serde_json::json;

use super::*;
use crate::common::{LIMIT, damage_record};

fn open(dir: &Path) -> Streams {
    Options::new().log(small()).move_percent(50).background(false).open(dir).unwrap()
}

/// The program with a command for streams, the folder, and the other arguments.
fn streams(dir: &Path, args: &[&str]) -> Output {
    words(&[&["streams", args[0], dir.to_str().unwrap()], &args[1..]].concat()).output().unwrap()
}

/// What a command prints with `--json`, and its exit code.
fn objects(dir: &Path, args: &[&str]) -> (i32, Vec<Value>) {
    let output = streams(dir, &[args, &["--json"]].concat());
    let objects = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (code(&output), objects)
}

fn help_of(command: &str) -> String {
    out(&words(&["streams", command, "--help"]).output().unwrap())
}

fn append(stream: &Stream, entries: u64) {
    for _ in 0..entries {
        let text = format!("entry {}\n{}", stream.next_index().unwrap(), "x".repeat(700));
        stream.append(text).unwrap();
    }
}

/// A log with a stream that was moved, one that was truncated at both ends, one that was deleted,
/// an empty one, and one that fills further segments.
fn write_streams(dir: &Path) -> Streams {
    let streams = open(dir);
    let [moved, cut, gone] =
        [&b"moved"[..], b"cut", b"gone"].map(|name| streams.create(name).unwrap());
    append(&moved, 3);
    moved.put("position", "7").unwrap();
    append(&cut, 400);
    append(&gone, 50);
    cut.truncate_before(350).unwrap();
    streams.sync().unwrap();
    let mut consumer = cut.consumer("mail \u{ff}").unwrap();
    while consumer.position() < 395 {
        consumer.next(LIMIT).unwrap().unwrap();
    }
    consumer.ack(360).unwrap();
    drop(cut.consumer("index").unwrap());
    cut.truncate_from(390).unwrap();
    append(&cut, 5);
    streams.delete("gone").unwrap();
    streams.create(b"a\xff\x00'").unwrap();
    streams.sync().unwrap();
    while streams.maintain().unwrap() {}
    // More segments, which have footers.
    append(&streams.create("late").unwrap(), 200);
    streams.sync().unwrap();
    while streams.maintain().unwrap() {}
    let stats = streams.stats();
    assert!(stats.moved_bytes > 0 && stats.released_bytes > 0, "{stats:?}");
    streams
}

/// All commands, on a stream that [`write_streams`] makes.
const READERS: [&[&str]; 4] = [&["ls"], &["stat"], &["dump", "cut"], &["verify"]];

#[test]
fn ls_and_stat_show_all_streams_beside_a_writer_and_after_it() {
    let folder = folder();
    let writer = write_streams(folder.path());
    let expected = json!([
        { "name": "a\\xff\\x00\\'", "first": 0, "next": 0, "entries": 0, "missing": 0, "values": 0,
          "bytes": 0 },
        { "name": "cut", "first": 350, "next": 395, "entries": 45, "missing": 0, "values": 0,
          "bytes": 45 * 710 },
        { "name": "late", "first": 0, "next": 200, "entries": 200, "missing": 0, "values": 0,
          "bytes": 10 * 708 + 90 * 709 + 100 * 710 },
        { "name": "moved", "first": 0, "next": 3, "entries": 3, "missing": 0, "values": 1,
          "bytes": 3 * 708 },
    ]);
    let (exit, found) = objects(folder.path(), &["ls"]);
    assert_eq!((exit, Value::from(found.clone())), (0, expected));
    let pinned = writer.pinned().into_iter().map(|pin| pin.name.escape_ascii().to_string());
    let mut pinned: Vec<String> = pinned.collect();
    pinned.sort();
    assert!(!pinned.is_empty());
    writer.close().unwrap();
    assert_eq!(objects(folder.path(), &["ls"]).1, found);
    let (exit, stats) = objects(folder.path(), &["stat"]);
    let stats = &stats[0];
    assert_eq!((exit, &stats["streams"], &stats["entries"]), (0, &4.into(), &248.into()));
    assert!(stats["moved"].as_u64() >= Some(3) && stats["footers"].as_u64() > Some(0), "{stats}");
    assert!(
        stats["head"].as_u64() > Some(0) && stats["live_bytes"].as_u64() > stats["bytes"].as_u64()
    );
    let pin = &stats["pinned"][0];
    let names = stats["pinned"].as_array().unwrap().iter().map(|pin| &pin["name"]);
    assert!(names.eq(pinned.iter().map(|name| name.as_str())), "{pinned:?}: {stats}");
    let consumers = &stats["consumers"];
    let expected = json!([
        { "stream": "cut", "consumer": "index", "acked": 350, "lag": 45, "truncated": false },
        { "stream": "cut", "consumer": "mail \\xc3\\xbf", "acked": 361, "lag": 34,
          "truncated": false },
    ]);
    assert_eq!(*consumers, expected);
    let stat = [stats.clone(), pin.clone(), consumers[0].clone()];
    for (command, objects) in [("ls", &found[..1]), ("stat", &stat)] {
        let help = help_of(command);
        for object in objects {
            let names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
            has(&help, &names);
        }
    }
    let listed = out(&streams(folder.path(), &["ls"]));
    has(&listed, &["a\\xff\\x00\\'\n", " 350 to 395 ", " 45 entries "]);
    let shown = out(&streams(folder.path(), &["stat"]));
    let consumer = "consumer  index of cut, at 350, 45 entries behind\n";
    has(&shown, &["streams   4\n", "entries   248, ", "keeps     ", consumer]);
}

#[test]
fn dump_prints_the_range_that_was_asked_for() {
    let folder = folder();
    write_streams(folder.path()).close().unwrap();
    let indexes = |flags: &[&str]| -> Vec<u64> {
        let (exit, found) = objects(folder.path(), &[&["dump", "cut"], flags].concat());
        assert_eq!(exit, 0);
        found.iter().map(|entry| entry["index"].as_u64().unwrap()).collect()
    };
    assert_eq!(indexes(&[]), (350..395).collect::<Vec<_>>());
    assert_eq!(indexes(&["--from", "360", "--to", "362"]), [360, 361, 362]);
    assert_eq!(indexes(&["--last", "2"]), [393, 394]);
    assert_eq!(indexes(&["--to", "362", "--last", "2"]), [361, 362]);
    assert_eq!(indexes(&["--from", "395"]), [0; 0]);
    assert_eq!(indexes(&["--from", "390", "--to", "9999"]), (390..395).collect::<Vec<_>>());
    let moved = out(&streams(folder.path(), &["dump", "moved"]));
    assert_eq!(moved.lines().count(), 3);
    has(&moved, &["           2       708 bytes  entry 2\\nxxx", "xxx...\n"]);
    let (_, entries) = objects(folder.path(), &["dump", "moved", "--last", "1"]);
    assert_eq!((&entries[0]["index"], &entries[0]["bytes"]), (&2.into(), &708.into()));
    assert!(entries[0]["hex"].as_str().unwrap().starts_with("656e7472792032"), "{entries:?}");
    has(&help_of("dump"), &["index", "bytes, hex"]);
    assert_eq!(objects(folder.path(), &["dump", "a\\xff\\x00\\'"]), (0, Vec::new()));
}

#[test]
fn what_is_not_there_is_refused_with_what_to_do() {
    let folder = folder();
    write_streams(folder.path()).close().unwrap();
    for command in ["dump", "tail"] {
        let cases = [
            (&["gone"][..], 3, "no stream \"gone\"; `palisade streams ls` prints the names"),
            (&["cut", "--from", "349"], 2, "entry 349 was truncated"),
            (&["cut", "--from", "396"], 2, "`palisade streams ls` prints the indexes"),
            (&["cut\\q"], 2, "a backslash begins"),
        ];
        for (args, exit, expected) in cases {
            let output = streams(folder.path(), &[&[command], args].concat());
            assert_eq!(code(&output), exit, "{output:?}");
            assert!(err(&output).contains(expected), "{output:?}");
        }
    }
    assert_eq!(code(&words(&["streams"]).output().unwrap()), 2);
}

#[test]
fn a_log_that_is_none_of_streams_is_named_as_one() {
    let (folder, _) = written();
    for tool in READERS.iter().chain([&["tail", "cut"][..]].iter()) {
        let output = streams(folder.path(), tool);
        assert_eq!(code(&output), 3, "{output:?}");
        let expected = "is none of a log of streams (LSN 0); read the log with `palisade dump`\n";
        assert!(err(&output).ends_with(expected), "{output:?}");
        let missing = streams(&folder.path().join("nowhere"), tool);
        assert_eq!(code(&missing), 3, "{missing:?}");
    }
}

#[test]
fn the_commands_beside_a_writer_change_nothing() {
    let folder = folder();
    let writer = write_streams(folder.path());
    let before = content(folder.path());
    for tool in READERS {
        let output = streams(folder.path(), tool);
        assert_eq!(code(&output), 0, "{output:?}");
    }
    assert!(before == content(folder.path()));
    writer.close().unwrap();
}

#[test]
fn verify_checks_a_log_that_was_killed_and_one_that_is_damaged() {
    let folder = folder();
    drop(write_streams(folder.path()));
    let (exit, verdict) = objects(folder.path(), &["verify"]);
    let verdict = &verdict[0];
    assert_eq!((exit, &verdict["whole"]), (0, &true.into()), "{verdict}");
    assert_eq!((&verdict["outcome"], &verdict["entries"]), (&"unclean".into(), &248.into()));
    assert!(verdict["footers"].as_u64() > Some(0), "{verdict}");
    let names: Vec<&str> = verdict.as_object().unwrap().keys().map(String::as_str).collect();
    has(&help_of("verify"), &names);

    let found = out(&palisade(folder.path(), &["dump", "--json"]));
    let records = found.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let entry = |index: u64| hex(format!("entry {index}\n").as_bytes());
    let lsn_of = |index: u64| {
        let is_it = |record: &Value| record["hex"].as_str().unwrap().contains(&entry(index));
        Lsn::new(records.clone().find(is_it).unwrap()["lsn"].as_u64().unwrap())
    };
    let (first, second) = (lsn_of(360), lsn_of(361));
    damage_record(folder.path(), first);
    damage_record(folder.path(), second);
    let (exit, verdict) = objects(folder.path(), &["verify"]);
    let missing = json!([{ "name": "cut", "first": 360, "last": 361 }]);
    assert_eq!((exit, &verdict[0]["missing"]), (4, &missing), "{verdict:?}");
    assert_eq!((&verdict[0]["outcome"], &verdict[0]["whole"]), (&"corrupt".into(), &false.into()));
    let shown = out(&streams(folder.path(), &["verify"]));
    has(
        &shown,
        &["corrupt\n", "missing    entries 360 to 361 of stream cut\n", "next       restore"],
    );
    for tool in [&["ls"][..], &["stat"], &["dump", "cut"], &["tail", "cut"]] {
        let output = streams(folder.path(), tool);
        assert_eq!(code(&output), 4, "{tool:?}: {output:?}");
        assert!(err(&output).starts_with("palisade: no valid record here"), "{tool:?}: {output:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A `streams tail`, killed at the end of the test.
struct Tail(Child);

impl Drop for Tail {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tail_prints_each_entry_once_and_names_truncations() {
    let folder = folder();
    let writer = write_streams(folder.path());
    let cut = writer.stream("cut").unwrap();
    let path = folder.path().to_str().unwrap();
    let args = ["streams", "tail", path, "cut", "--from", "390", "--poll-ms", "5", "--json"];
    let mut command = words(&args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut tail = Tail(child);
    let printed = follow::lines(tail.0.stdout.take().unwrap());
    let notes = follow::lines(tail.0.stderr.take().unwrap());
    let index = || {
        let line = printed.recv_timeout(LIMIT).expect("an entry is printed");
        serde_json::from_str::<Value>(&line).unwrap()["index"].as_u64().unwrap()
    };
    let note = || notes.recv_timeout(LIMIT).expect("a note is printed");
    (390..395).for_each(|expected| assert_eq!(index(), expected));
    append(&cut, 200);
    writer.sync().unwrap();
    (395..595).for_each(|expected| assert_eq!(index(), expected));
    cut.truncate_from(590).unwrap();
    append(&cut, 6);
    writer.sync().unwrap();
    (590..596).for_each(|expected| assert_eq!(index(), expected));
    let expected = "note: the writer truncated entries 590 to 594, which were printed";
    assert!(note().starts_with(expected));
    writer.delete("cut").unwrap().wait().unwrap();
    assert!(note().starts_with("palisade: the stream was deleted"));
    assert_eq!(tail.0.wait().unwrap().code(), Some(3));
    writer.close().unwrap();
}

#[test]
fn the_commands_beside_a_writer_that_truncates_raise_no_alarm() {
    let folder = folder();
    let is_over = AtomicBool::new(false);
    let writer = Options::new().log(small()).move_percent(50).open(folder.path()).unwrap();
    let [stays, busy] = ["stays", "cut"].map(|name| writer.create(name).unwrap());
    append(&stays, 3);
    append(&busy, 10);
    writer.sync().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                append(&busy, 50);
                writer.sync().unwrap();
                busy.truncate_before(busy.next_index().unwrap() - 30).unwrap();
                // So that the readers have a chance on a slow machine.
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let looked = std::panic::catch_unwind(|| {
            for _ in 0..10 {
                for tool in READERS.iter().chain([&["dump", "stays"][..]].iter()) {
                    let output = streams(folder.path(), tool);
                    assert_eq!(code(&output), 0, "{tool:?}: {output:?}");
                }
                assert_eq!(objects(folder.path(), &["dump", "stays"]).1.len(), 3);
            }
        });
        is_over.store(true, Ordering::Relaxed);
        looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(writer.stats().released_bytes > 0, "nothing was released meanwhile");
    writer.close().unwrap();
}

#[test]
fn each_command_has_examples_exit_codes_json_and_a_manual_page() {
    for command in ["ls", "stat", "dump", "tail", "verify"] {
        let help = help_of(command);
        let parts =
            ["Examples:\n  palisade streams ", "\nFields of ", "      --json", "Exit codes:"];
        has(&help, &parts);
        let page = out(&words(&["man", &format!("streams-{command}")]).output().unwrap());
        assert!(page.contains(&format!(".TH palisade-streams-{command} 1")), "{page}");
    }
}
