//! A process writes from four threads and reports each acknowledged write. The test kills it after
//! a random number of reports, opens the database, and looks for each of them.
//!
//! `LSM_KILLS` sets the number of kills, 6 by default.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use palisade_lsm::{Database, Options};

const WRITERS: u64 = 4;
const CHILD: &str = "LSM_CHILD";
const KEYSPACES: [&str; 2] = ["left", "right"];

fn open(folder: &Path) -> Database {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    Options::new().memtable_bytes(32 << 10).log(log).open(folder).unwrap()
}

fn key(writer: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&writer.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Writes batches over both keyspaces until it is killed. Every third one is durable; every
/// sixteenth deletes the batch before it.
fn child(folder: &Path, first: u64) {
    let database = open(folder);
    let keyspaces = KEYSPACES.map(|name| database.keyspace_or_create(name).unwrap());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (database, keyspaces) = (&database, &keyspaces);
            scope.spawn(move || {
                for number in first.. {
                    let mut batch = database.batch();
                    for keyspace in keyspaces {
                        let value = [number as u8; 100];
                        batch.put(keyspace, key(writer, number), value).unwrap();
                        if number % 16 == 15 {
                            batch.delete(keyspace, key(writer, number - 1)).unwrap();
                        }
                    }
                    if number % 3 == 0 {
                        batch.commit().unwrap();
                    } else {
                        batch.append().unwrap();
                    }
                    // One write for each line: a kill leaves whole lines, or a part of the last.
                    let line = format!("{writer} {number}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn acknowledged_batches_survive_a_kill() {
    if let Ok(folder) = env::var(CHILD) {
        return child(Path::new(&folder), env::var("LSM_FIRST").unwrap().parse().unwrap());
    }
    let kills = env::var("LSM_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut random = std::process::id();
    // The last number of each writer that was acknowledged, or that the last open has found.
    let mut acknowledged = BTreeMap::<u64, u64>::new();
    let mut first = 0;
    for kill in 0..kills {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let reports = 50 + random % 3000;
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "acknowledged_batches_survive_a_kill", "--nocapture"])
            .env(CHILD, folder.path())
            .env("LSM_FIRST", first.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut count = 0;
        // After the kill the pipe still has reports: they count, too.
        for line in lines.by_ref().map_while(Result::ok) {
            let Some((writer, number)) = line.split_once(' ') else { continue };
            let (Ok(writer), Ok(number)) = (writer.parse(), number.parse()) else { continue };
            acknowledged.insert(writer, number);
            count += 1;
            if count == reports {
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        assert!(count >= reports, "kill {kill}: the process has ended after {count} reports");
        first = check(folder.path(), &acknowledged, &format!("kill {kill} after {reports}"));
    }
}

/// Returns the number that no writer has used.
fn check(folder: &Path, acknowledged: &BTreeMap<u64, u64>, context: &str) -> u64 {
    let database = open(folder);
    let shared = database.log().recovery_report().appends_survive_kill;
    let snapshot = database.snapshot();
    let [left, right] = KEYSPACES.map(|name| {
        let keyspace = database.keyspace(name).unwrap();
        let pairs = snapshot.range::<&str>(&keyspace, ..).map(Result::unwrap);
        pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<BTreeMap<_, _>>()
    });
    assert_eq!(left, right, "{context}: a batch is divided");
    let mut unused = 0;
    for (writer, last) in acknowledged {
        let found = left.range(key(*writer, 0).to_vec()..key(*writer + 1, 0).to_vec());
        let found: Vec<u64> = found
            .map(|(key, value)| {
                let number = u64::from_be_bytes(key[8..].try_into().unwrap());
                assert_eq!(*value, [number as u8; 100], "{context}");
                number
            })
            .collect();
        let end = found.last().map_or(0, |number| number + 1);
        if shared {
            assert!(end > *last, "{context}: writer {writer} lost {last}, found {end}");
        }
        unused = unused.max(end).max(last + 1);
        // Each process run of the writer has left numbers without a gap, except those deleted.
        for pair in found.windows(2).filter(|pair| pair[0] + 1 != pair[1]) {
            let is_deleted = (pair[0] + 1) % 16 == 14 && pair[0] + 2 == pair[1];
            let is_new_run = pair[1] % 16 == 0;
            assert!(is_deleted || is_new_run, "{context}: writer {writer} has a gap in {pair:?}");
        }
    }
    unused.next_multiple_of(16)
}
