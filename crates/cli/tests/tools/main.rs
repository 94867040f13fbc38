//! The command as a user runs it. The tests of this file run `info`, `dump` and `verify` on logs in
//! every state that they can be found in.

mod codecs;
mod common;
mod demo;
mod doctor;
mod follow;
mod info;
mod json;
mod manual;
mod map;
mod missing;
mod put_back;
mod refusals;
mod repair;
mod restore;
mod stat;
mod streams;
#[cfg(target_os = "linux")]
mod terminal;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use palisade::{Lsn, Wal};
use serde_json::Value;

use crate::common::{
    RECORDS, SEGMENT, code, command, content, damage, damage_record, err, folder, has, help,
    is_documented, json, open_log, options, out, palisade, small, text, words, write, written,
};

#[test]
fn a_clean_log_is_clean_for_all_tools() {
    let (folder, lsns) = written();
    let verified = palisade(folder.path(), &["verify"]);
    assert_eq!(code(&verified), 0, "{verified:?}");
    let verdict = text(&verified.stdout);
    assert!(verdict.starts_with("clean\n"), "{verdict}");
    assert!(verdict.contains("records    100 "), "{verdict}");

    let shown = palisade(folder.path(), &["info"]);
    assert_eq!(code(&shown), 0, "{shown:?}");
    let info = text(&shown.stdout);
    let parts = ["format      version 1", "closed cleanly", "segments    1", "head        LSN 0"];
    has(&info, &parts);
    assert!(lsns.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn dump_prints_records_in_three_forms() {
    let (folder, lsns) = written();
    let lines = text(&palisade(folder.path(), &["dump"]).stdout);
    assert_eq!(lines.lines().count(), RECORDS);
    assert!(lines.lines().nth(7).unwrap().ends_with("record 7\\n"), "{lines}");

    let from = lsns[40].to_string();
    let flags = ["dump", "--from", &from, "--limit", "2", "--json"];
    let json = text(&palisade(folder.path(), &flags).stdout);
    let objects: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[0]["lsn"], lsns[40].as_u64());
    assert_eq!(objects[0]["next_lsn"], lsns[41].as_u64());
    assert_eq!(objects[0]["bytes"], 10);
    assert_eq!(objects[0]["hex"], "7265636f72642034300a");

    let hex = text(&palisade(folder.path(), &["dump", "--limit", "1", "--hex"]).stdout);
    assert!(hex.contains("00000000  72 65 63 6f 72 64 20 30  0a"), "{hex}");
    assert!(hex.contains("|record 0.|"), "{hex}");
}

#[test]
fn dump_refuses_an_lsn_at_which_no_record_begins() {
    let (folder, lsns) = written();
    let from = lsns[3].plus(8).to_string();
    let output = palisade(folder.path(), &["dump", "--from", &from]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(text(&output.stderr).contains(&from), "{output:?}");
}

#[test]
fn a_dump_that_ends_at_damage_says_so() {
    let (folder, lsns) = written();
    damage(folder.path(), lsns[7].plus(25));
    let output = palisade(folder.path(), &["dump"]);
    assert_eq!(text(&output.stdout).lines().count(), 7);
    assert_eq!(code(&output), 4, "{output:?}");
    assert!(text(&output.stderr).contains(&format!("LSN {}", lsns[7])), "{output:?}");
    assert_eq!(code(&palisade(folder.path(), &["dump", "--limit", "7"])), 0);
}

#[test]
fn a_dump_of_a_killed_log_tells_damage_from_its_torn_tail() {
    let (folder, wal) = open_log(&options());
    let commit = |number| wal.commit(format!("record {number}").as_bytes()).unwrap();
    let lsns: Vec<Lsn> = (0..29).map(commit).collect();
    let last = wal.append(b"not durable").unwrap().lsn();
    wal.flush_to_os(last).unwrap();
    wal.abandon();
    damage(folder.path(), last.plus(25));
    let torn = palisade(folder.path(), &["dump"]);
    assert_eq!((code(&torn), text(&torn.stdout).lines().count()), (0, 29), "{torn:?}");
    damage(folder.path(), lsns[7].plus(25));
    let damaged = palisade(folder.path(), &["dump"]);
    assert_eq!((code(&damaged), text(&damaged.stdout).lines().count()), (4, 7), "{damaged:?}");
    assert!(text(&damaged.stderr).contains(&format!("(LSN {})", lsns[7])), "{damaged:?}");
    let behind = lsns[8].to_string();
    let rest = palisade(folder.path(), &["dump", "--from", &behind]);
    assert_eq!((code(&rest), text(&rest.stdout).lines().count()), (0, 21), "{rest:?}");
}

#[test]
fn dump_into_a_closed_pipe_ends_quietly() {
    let (folder, wal) = open_log(&options());
    let record = [b'x'; 1000];
    for _ in 0..2000 {
        drop(wal.append(&record).unwrap());
    }
    wal.close().unwrap();
    let mut dump = command(folder.path(), &["dump", "--hex"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(64, dump.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("LSN 0 "), "{line}");
    let output = dump.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn tools_work_beside_a_running_writer() {
    let (folder, wal) = open_log(&options());
    for number in 0..10 {
        wal.commit(format!("record {number}").as_bytes()).unwrap();
    }
    let verified = palisade(folder.path(), &["verify"]);
    assert_eq!(code(&verified), 0, "{verified:?}");
    assert_eq!(text(&palisade(folder.path(), &["dump"]).stdout).lines().count(), 10);
    assert!(text(&palisade(folder.path(), &["info"]).stdout).contains("a process holds the log"));
    wal.commit(b"goes on").unwrap();
    wal.close().unwrap();
}

/// Looks at a log while [`recycle`] writes it.
fn beside_a_recycler<T>(wal: Wal, look: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| recycle(wal, &is_over));
        let looked = std::panic::catch_unwind(AssertUnwindSafe(look));
        is_over.store(true, Ordering::Relaxed);
        looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Appends, truncates both ends and goes on, until `is_over`: files go around all the time.
fn recycle(wal: Wal, is_over: &AtomicBool) {
    let mut lsns = Vec::new();
    for number in 0_u32.. {
        lsns.push(wal.append(&number.to_le_bytes().repeat(200)).unwrap().lsn());
        if number % 50 == 0 {
            wal.sync().unwrap();
        }
        if number % 80 == 79 {
            let before = lsns.len().saturating_sub(300);
            wal.truncate_before(lsns[before]).unwrap();
            lsns.drain(..before);
        }
        if number % 1000 == 999 {
            wal.truncate_after(lsns[lsns.len() - 20]).unwrap();
            lsns.truncate(lsns.len() - 19);
        }
        // Relaxed: it ends a loop and orders nothing.
        if is_over.load(Ordering::Relaxed) {
            return wal.close().unwrap();
        }
    }
}

/// Runs a tool until its answer is not that the writer was faster. A process that is not scheduled
/// for a while finds that the head has passed it.
fn undisturbed(folder: &Path, tool: &[&str]) {
    let mut output = palisade(folder, tool);
    let start = std::time::Instant::now();
    while code(&output) == 2 && err(&output).contains("read the log again") {
        assert!(start.elapsed() < common::LIMIT, "{tool:?} never ends: {output:?}");
        output = palisade(folder, tool);
    }
    assert_eq!(code(&output), 0, "{tool:?}: {}", err(&output));
}

#[test]
fn tools_beside_a_writer_that_recycles_raise_no_alarm() {
    let (folder, wal) = open_log(&small());
    beside_a_recycler(wal, || {
        for _ in 0..12 {
            for tool in
                [&["verify"][..], &["verify", "--deep"], &["dump"], &["info"], &["map"], &["stat"]]
            {
                undisturbed(folder.path(), tool);
            }
        }
    });
    let verified = palisade(folder.path(), &["verify", "--deep"]);
    assert_eq!(code(&verified), 0, "{verified:?}");
}

#[test]
fn a_torn_tail_is_not_reported_as_corruption() {
    let (folder, wal) = open_log(&options());
    let durable = wal.commit(b"durable").unwrap();
    let last = wal.append(&[7; 500]).unwrap().lsn();
    drop(wal);
    damage(folder.path(), last.plus(100));
    let verified = palisade(folder.path(), &["verify"]);
    assert_eq!(code(&verified), 1, "{verified:?}");
    let verdict = text(&verified.stdout);
    assert!(verdict.starts_with("torn tail: a crash left it\n"), "{verdict}");
    assert!(verdict.contains("next       an open c"), "{verdict}");
    let dumped = text(&palisade(folder.path(), &["dump"]).stdout);
    assert_eq!(dumped.lines().count(), 1, "{dumped}");
    assert!(dumped.trim_start().starts_with(&format!("{durable} ")), "{dumped}");
    let info = text(&palisade(folder.path(), &["info"]).stdout);
    assert!(info.contains("not closed cleanly"), "{info}");
}

#[test]
fn a_log_that_was_not_closed_and_has_no_torn_tail_is_whole() {
    let (folder, wal) = open_log(&options());
    wal.commit(b"durable").unwrap();
    wal.abandon();
    for flags in [&["verify"][..], &["verify", "--deep"]] {
        let verified = palisade(folder.path(), flags);
        assert_eq!(code(&verified), 0, "{verified:?}");
        let verdict = text(&verified.stdout);
        assert!(verdict.starts_with("whole, but not closed: nothing is torn"), "{verdict}");
        assert!(verdict.contains("torn       0 bytes"), "{verdict}");
        assert!(verdict.contains("next       an open recovers"), "{verdict}");
        assert!(verdict.contains("floor      LSN 32 (below it, everything was"), "{verdict}");
    }
}

#[test]
fn a_damaged_segment_above_a_clean_end_is_no_torn_tail() {
    let (folder, wal) = open_log(&options());
    wal.commit(b"durable").unwrap();
    wal.close().unwrap();
    fs::write(folder.path().join(format!("segment-{:020}", 1)), b"no header").unwrap();
    let verified = palisade(folder.path(), &["verify"]);
    assert_eq!(code(&verified), 1, "{verified:?}");
    let verdict = text(&verified.stdout);
    assert!(verdict.starts_with("whole up to its clean end\n"), "{verdict}");
    assert!(verdict.contains("why        segment 1, above the clean end"), "{verdict}");
    assert!(verdict.contains("next       an open recovers\n"), "{verdict}");
    options().open(folder.path()).unwrap().close().unwrap();
}

#[test]
fn the_floor_of_a_damaged_log_is_what_recovery_proves_durable() {
    let (folder, wal) = open_log(&small());
    let lsns: Vec<Lsn> = (0..1000).map(|_| wal.commit(&[7; 200]).unwrap()).collect();
    drop(wal);
    let floor = |flags: &[&str]| -> u64 {
        let verified = palisade(folder.path(), flags);
        let verdict = text(&verified.stdout);
        let line = verdict.lines().find(|line| line.starts_with("floor ")).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    let whole = floor(&["verify"]);
    assert!(whole > lsns[500].as_u64(), "{whole}");
    // In the first segment, and in the last one, of which only the records behind tell.
    for damaged in [lsns[10], lsns[990]] {
        damage_record(folder.path(), damaged);
        let shallow = floor(&["verify"]);
        assert!(shallow >= whole && shallow > damaged.as_u64(), "{shallow} {whole} {damaged}");
        assert_eq!(shallow, floor(&["verify", "--deep"]));
        damage_record(folder.path(), damaged);
    }
}

#[test]
fn damage_to_what_was_acknowledged_is_corruption() {
    let (folder, lsns) = written();
    damage(folder.path(), lsns[50].plus(25));
    let verified = palisade(folder.path(), &["verify"]);
    assert_eq!(code(&verified), 4, "{verified:?}");
    let verdict = text(&verified.stdout);
    assert!(verdict.starts_with("corrupt") && verdict.contains("why "), "{verdict}");
    // What was read before the damage counts.
    let found = format!("records    50 below the first bad place ({} bytes)", lsns[50]);
    assert!(verdict.contains("segments   1\n") && verdict.contains(&found), "{verdict}");
}

#[test]
fn a_log_without_its_state_is_named_as_one() {
    let (folder, lsns) = written();
    let whole = palisade(folder.path(), &["dump"]).stdout;
    fs::remove_file(folder.path().join("meta")).unwrap();
    let expected = [("verify", 4), ("info", 0), ("dump", 0), ("salvage", 0)];
    for (tool, exit) in expected {
        let output = palisade(folder.path(), &[tool]);
        assert_eq!(code(&output), exit, "{output:?}");
        let printed = [text(&output.stdout), text(&output.stderr)].concat();
        assert!(printed.contains("`meta` is missing or damaged"), "{printed}");
        if ["dump", "salvage"].contains(&tool) {
            assert!(output.stdout == whole, "{tool} prints all {} records", lsns.len());
        }
    }
}

#[test]
fn wrong_usage_and_damage_have_exit_codes_of_their_own() {
    let (folder, lsns) = written();
    let all = ["verify", "dump", "salvage", "info"];
    for wrong in [&["--nonsense"][..], &["--from", "x"]] {
        for tool in all {
            let args = [&[tool], wrong].concat();
            assert_eq!(code(&palisade(folder.path(), &args)), 2, "{args:?}");
        }
    }
    let from = lsns[3].plus(8).to_string();
    assert_eq!(code(&palisade(folder.path(), &["dump", "--from", &from])), 2);
    damage(folder.path(), lsns[50].plus(25));
    let damaged = all.map(|tool| code(&palisade(folder.path(), &[tool])));
    assert_eq!(damaged, [4, 4, 4, 0]);
    let help = out(&words(&["--help"]).output().unwrap());
    has(&help, &["\n  2  wrong usage\n", "\n  4  acknowledged data is damaged or missing"]);
}

/// Names of the library, and what only a program can do.
const LIBRARY_WORDS: [&str; 12] = [
    "segment_bytes is",
    "buffer_bytes is",
    "_lsn",
    "_new",
    "truncate_",
    "max_waiters",
    "verify_on_open",
    "Policy",
    "Archive",
    "handle",
    "open again",
    "the log returned",
];

#[test]
fn messages_and_help_name_nothing_of_the_library() {
    let folder = folder();
    let [log, copy] = ["log", "copy"].map(|name| folder.path().join(name));
    let lsns = write(&log);
    let wal = options().open(&log).unwrap();
    wal.truncate_before(lsns[10]).unwrap();
    let into = copy.to_str().unwrap();
    let repair = |from: &str| palisade(&log, &["repair", "--into", into, "--from", from]);
    let mut outputs = vec![repair("0")];
    wal.close().unwrap();
    outputs.extend(["0", "1", "99999999", &lsns[20].plus(8).to_string()].map(repair));
    outputs.push(palisade(&log.join("meta"), &["verify"]));
    outputs.push(palisade(folder.path(), &["verify"]));
    for sizes in [["--segment-bytes", "5000"], ["--buffer-bytes", "5000"]] {
        outputs.push(demo::in_folder(folder.path(), &sizes));
    }
    let small_buffer = ["--buffer-bytes", "65536", "--record-bytes", "40000"];
    outputs.push(demo::in_folder(folder.path(), &small_buffer));
    assert!(outputs.iter().all(|output| code(output) >= 2), "{outputs:?}");
    for command in
        ["demo", "info", "map", "stat", "dump", "verify", "salvage", "repair", "streams", "doctor"]
    {
        outputs.push(words(&[command, "--help"]).output().unwrap());
    }
    for output in outputs {
        let printed = [text(&output.stdout), text(&output.stderr)].concat();
        // A field of `dump --json`.
        let printed = printed.replace("next_lsn", "");
        for word in LIBRARY_WORDS {
            assert!(!printed.contains(word), "`{word}` is in {printed}");
        }
    }
}

#[test]
fn help_of_every_command_has_examples() {
    let commands = manual::COMMANDS
        .iter()
        .flat_map(|command| [vec![*command, "-h"], vec![*command, "--help"]]);
    for args in commands.chain([vec!["--help"]]) {
        let output = words(&args).output().unwrap();
        assert_eq!(code(&output), 0);
        assert!(out(&output).contains("Examples:\n  palisade "), "{args:?}");
    }
}
