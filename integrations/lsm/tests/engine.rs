//! What the calls promise, in one process. `open.rs` has the opens of foreign and lost parts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use palisade::disk::MemDisk;
use palisade::sim::{CallKind, Effect, FaultDisk, Target};
use palisade::{ErrorKind, SyncPolicy};
use palisade_lsm::{Database, Error, Keyspace, Options, Result};

fn small() -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
    Options::new().memtable_bytes(64 << 10).cache_bytes(1 << 20).log(log)
}

fn pairs(
    found: impl Iterator<Item = Result<(palisade_lsm::Slice, palisade_lsm::Slice)>>,
) -> String {
    let shown = found.map(|pair| {
        let (key, value) = pair.unwrap();
        format!("{}={}", key.escape_ascii(), value.escape_ascii())
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn fill(keyspace: &Keyspace, count: u32) {
    for number in 0..count {
        keyspace.append_put(format!("{number:06}"), [7; 100]).unwrap();
    }
}

#[test]
fn changes_are_there_after_each_kind_of_end() {
    let folder = tempfile::tempdir().unwrap();
    let open = || small().open(folder.path()).unwrap();
    type End = fn(Database);
    let ends: [End; 4] = [
        |database| database.close().unwrap(),
        drop,
        |database| database.log().clone().abandon(),
        |database| {
            database.flush().unwrap();
            database.compact().unwrap();
        },
    ];
    for (round, end) in ends.into_iter().enumerate() {
        let database = open();
        let keyspace = database.keyspace_or_create("k").unwrap();
        keyspace.put("stays", format!("{round}")).unwrap();
        keyspace.put("goes", "x").unwrap();
        keyspace.delete("goes").unwrap();
        keyspace.append_put(format!("new{round}"), "").unwrap().wait().unwrap();
        drop(keyspace);
        end(database);

        let keyspace = open().keyspace("k").unwrap();
        assert_eq!(keyspace.get("stays").unwrap().unwrap(), format!("{round}").as_bytes());
        assert_eq!(keyspace.get("goes").unwrap(), None);
        assert_eq!(keyspace.prefix("new").count(), round + 1);
    }
}

#[test]
fn ranges_are_in_order_from_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    for (key, value) in [("b", "1"), ("a", "2"), ("ab", "3"), ("c", "4")] {
        keyspace.append_put(key, value).unwrap();
        if key == "a" {
            database.flush().unwrap();
        }
    }
    assert_eq!(pairs(keyspace.range::<&str>(..)), "a=2 ab=3 b=1 c=4");
    assert_eq!(pairs(keyspace.range("ab".."c")), "ab=3 b=1");
    assert_eq!(pairs(keyspace.range::<&str>(..).rev()), "c=4 b=1 ab=3 a=2");
    assert_eq!(pairs(keyspace.prefix("a")), "a=2 ab=3");
    assert_eq!(pairs(keyspace.range("c".."a")), "");
}

#[test]
fn keyspaces_have_names_and_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let [left, right] = ["left", "right"].map(|name| database.create_keyspace(name).unwrap());
    left.put("key", "l").unwrap();
    right.put("key", "r").unwrap();
    assert!(matches!(database.create_keyspace("left"), Err(Error::AlreadyExists(_))));
    assert!(matches!(database.create_keyspace(""), Err(Error::InvalidArgument(_))));
    assert!(matches!(database.keyspace("none"), Err(Error::NotFound(_))));
    database.flush().unwrap();
    database.create_keyspace("late").unwrap();
    drop((left, right, database));

    let database = small().open(folder.path()).unwrap();
    assert_eq!(database.keyspaces(), ["left", "right", "late"]);
    assert_eq!(database.keyspace("left").unwrap().get("key").unwrap().unwrap(), b"l");
    assert_eq!(database.keyspace("right").unwrap().get("key").unwrap().unwrap(), b"r");
    assert_eq!(database.keyspace_or_create("late").unwrap().range::<&str>(..).count(), 0);
    assert_eq!(database.keyspace_or_create("later").unwrap().name(), "later");
}

#[test]
fn a_batch_is_one_record_over_keyspaces() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let [left, right] = ["left", "right"].map(|name| database.create_keyspace(name).unwrap());
    let mut batch = database.batch();
    assert!(matches!(batch.commit(), Err(Error::InvalidArgument(_))));
    batch.put(&left, "a", "1").unwrap();
    batch.put(&right, "b", "1").unwrap();
    batch.put(&right, "b", "2").unwrap();
    batch.put(&left, "c", "3").unwrap();
    batch.delete(&left, "c").unwrap();
    let lsn = batch.commit().unwrap();
    assert!(database.log().get(lsn).is_ok());
    assert_eq!(pairs(left.range::<&str>(..)), "a=1");
    assert_eq!(pairs(right.range::<&str>(..)), "b=2");

    let elsewhere = tempfile::tempdir().unwrap();
    let other = small().open(elsewhere.path()).unwrap().create_keyspace("k").unwrap();
    assert!(matches!(batch.put(&other, "a", ""), Err(Error::InvalidArgument(_))));
}

#[test]
fn a_snapshot_keeps_its_moment() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    let mut snapshots = vec![database.snapshot()];
    for value in 1..=5_u8 {
        keyspace.put("key", [value]).unwrap();
        keyspace.put([value], "").unwrap();
        if value == 4 {
            keyspace.delete("key").unwrap();
        }
        snapshots.push(database.snapshot());
        database.flush().unwrap();
        if value == 3 {
            database.compact().unwrap();
        }
        let range = snapshots[usize::from(value)].range::<&str>(&keyspace, ..);
        for (moment, snapshot) in snapshots.iter().enumerate() {
            let expected = Some([moment as u8]).filter(|value| ![[0], [4]].contains(value));
            let found = snapshot.get(&keyspace, "key").unwrap();
            assert_eq!(found.as_deref(), expected.as_ref().map(|value| value.as_slice()));
            let keys = moment + usize::from(expected.is_some());
            assert_eq!(snapshot.range::<&str>(&keyspace, ..).count(), keys);
        }
        let keys = snapshots[usize::from(value)].range::<&str>(&keyspace, ..).count();
        assert_eq!(range.count(), keys);
    }
    assert_eq!(database.stats().snapshots, 6);
    drop(snapshots);
    assert_eq!(database.stats().oldest_snapshot, None);
    database.compact().unwrap();
    assert_eq!(keyspace.get("key").unwrap().unwrap(), [5]);
}

/// Each compaction takes a seqno of `lsm-tree`. None of them may reach the LSN of a later record.
#[test]
fn many_compactions_hide_no_later_change() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().background(false).open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    keyspace.put("key", "0").unwrap();
    database.flush().unwrap();
    for _ in 0..200 {
        database.compact().unwrap();
    }
    for value in ["1", "2", "3"] {
        keyspace.put("key", value).unwrap();
        let snapshot = database.snapshot();
        assert_eq!(snapshot.get(&keyspace, "key").unwrap().unwrap(), value.as_bytes());
        database.flush().unwrap();
        assert_eq!(snapshot.get(&keyspace, "key").unwrap().unwrap(), value.as_bytes());
    }
}

/// `lsm-tree` forgets all runs of level 0 when there is the 256th.
#[test]
fn many_flushes_without_a_compaction_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().background(false).open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    for round in 0..260_u32 {
        let value = round.to_le_bytes();
        keyspace.append_put("first", value).unwrap();
        keyspace.append_put("last", value).unwrap();
        database.flush().unwrap();
    }
    assert!(database.stats().most_runs <= 21, "{:?}", database.stats());
    drop((keyspace, database));
    let database = small().background(false).open(folder.path()).unwrap();
    let keyspace = database.keyspace("k").unwrap();
    assert_eq!(keyspace.get("last").unwrap().unwrap(), 259_u32.to_le_bytes());
}

#[test]
fn a_snapshot_has_only_what_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    keyspace.put("key", "old").unwrap();
    let ticket = keyspace.append_put("key", "new").unwrap();
    if !ticket.is_durable() {
        let snapshot = database.snapshot();
        assert!(snapshot.lsn() <= ticket.lsn() && snapshot.is_durable());
        assert_eq!(snapshot.get(&keyspace, "key").unwrap().unwrap(), b"old");
    }
    let newest = database.newest_snapshot();
    assert_eq!(newest.get(&keyspace, "key").unwrap().unwrap(), b"new");
    assert_eq!(keyspace.get("key").unwrap().unwrap(), b"new");
    ticket.wait().unwrap();
    assert!(newest.is_durable());
    assert_eq!(database.snapshot().get(&keyspace, "key").unwrap().unwrap(), b"new");
}

/// Writers move 1 from one account to another, in batches. Each snapshot has the same sum, while
/// flushes and compactions run.
#[test]
fn snapshots_beside_writers_have_whole_batches() {
    const ACCOUNTS: u64 = 8;
    let folder = tempfile::tempdir().unwrap();
    let database = small().memtable_bytes(8 << 10).open(folder.path()).unwrap();
    let keyspaces = ["left", "right"].map(|name| database.create_keyspace(name).unwrap());
    let done = AtomicU64::new(0);
    let read = |value: Option<palisade_lsm::Slice>| {
        value.map_or(0, |value| i64::from_le_bytes(value.as_ref().try_into().unwrap()))
    };
    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (database, keyspaces, done) = (&database, &keyspaces, &done);
            scope.spawn(move || {
                for step in 0..1500_u64 {
                    // Each writer has accounts of its own.
                    let from = (step * 7 % ACCOUNTS) * 2 + writer;
                    let to = (step * 3 % ACCOUNTS) * 2 + writer;
                    let mut batch = database.batch();
                    for (keyspace, key, by) in [(0, from, -1), (1, to, 1)] {
                        let keyspace = &keyspaces[keyspace];
                        let key = key.to_be_bytes();
                        let value: i64 = read(keyspace.get(key).unwrap()) + by;
                        batch.put(keyspace, key, value.to_le_bytes()).unwrap();
                    }
                    batch.append().unwrap();
                    if step % 100 == 0 {
                        database.sync().unwrap();
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        while done.load(Ordering::Relaxed) < 2 {
            for snapshot in [database.snapshot(), database.newest_snapshot()] {
                let sum: i64 = keyspaces
                    .iter()
                    .flat_map(|keyspace| snapshot.range::<&str>(keyspace, ..))
                    .map(|pair| read(Some(pair.unwrap().1)))
                    .sum();
                assert_eq!(sum, 0, "at {}", snapshot.lsn());
                let again = || keyspaces.each_ref().map(|k| pairs(snapshot.range::<&str>(k, ..)));
                assert_eq!(again(), again(), "at {}", snapshot.lsn());
            }
        }
    });
    assert!(database.stats().tables > 0);
}

#[test]
fn flushes_keep_the_log_and_the_memtables_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    let (mut most_log, mut most_memtable) = (0, 0);
    for _ in 0..40 {
        fill(&keyspace, 1000);
        let stats = database.stats();
        most_log = most_log.max(stats.log_bytes);
        most_memtable = most_memtable.max(stats.memtable_bytes);
    }
    // 40 000 changes of about 140 bytes: 5.6 MB. Twice 64 KiB are in the memtables, twice 64 KiB in
    // a flush.
    assert!(most_log < 512 << 10, "{most_log}");
    assert!(most_memtable < (128 << 10) + 200, "{most_memtable}");
    database.flush().unwrap();
    assert!(database.log().is_empty().unwrap());
    assert_eq!(database.stats().memtable_bytes, 0);
    assert_eq!(keyspace.range::<&str>(..).count(), 1000);
}

#[test]
fn without_a_background_thread_a_writer_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().background(false).open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    fill(&keyspace, 3000);
    let stats = database.stats();
    assert!(stats.tables > 3 && stats.memtable_bytes < 65 << 10, "{stats:?}");
    assert_eq!(keyspace.range::<&str>(..).count(), 3000);
    database.compact().unwrap();
    assert_eq!(database.stats().most_runs, 0);
}

#[test]
fn an_open_applies_only_what_the_tables_lack() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().background(false).open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    fill(&keyspace, 100);
    database.flush().unwrap();
    keyspace.put("after", "").unwrap();
    drop((keyspace, database));
    let database = small().background(false).open(folder.path()).unwrap();
    let bytes = database.stats().memtable_bytes;
    assert!((1..200).contains(&bytes), "{bytes}");
    assert_eq!(database.keyspace("k").unwrap().range::<&str>(..).count(), 101);
}

#[test]
fn a_key_that_is_too_long_is_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    let (longest, longer) = (&[5; (1 << 16) - 1][..], &[5; 1 << 16][..]);
    keyspace.put(longest, "x").unwrap();
    keyspace.put([6], "y").unwrap();
    assert_eq!(keyspace.get(longer).unwrap(), None);
    assert_eq!(database.snapshot().get(&keyspace, longer).unwrap(), None);
    assert_eq!(keyspace.prefix(longer).count(), 0);
    let values =
        |range: palisade_lsm::Range| -> Vec<_> { range.map(|pair| pair.unwrap().1[0]).collect() };
    assert_eq!(values(keyspace.range(longer..)), *b"y");
    assert_eq!(values(keyspace.range(..longer)), *b"x");
    assert_eq!(values(keyspace.range(..=longer)), *b"x");
    assert_eq!(values(keyspace.range(longest..longer)), *b"x");
}

#[test]
fn keys_and_batches_have_limits() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    assert!(matches!(keyspace.put("", "x"), Err(Error::InvalidArgument(_))));
    assert!(matches!(keyspace.delete(vec![0; 1 << 16]), Err(Error::InvalidArgument(_))));
    let refused = keyspace.put("key", vec![0; 16 << 10]).unwrap_err();
    assert!(matches!(refused, Error::Log(error) if error.kind() == ErrorKind::TooLarge));
    assert_eq!(keyspace.get("key").unwrap(), None);
    drop(keyspace);
    assert!(matches!(
        small().memtable_bytes(0).open(folder.path()),
        Err(Error::InvalidArgument(_))
    ));
}

fn changed(change: impl FnOnce(&Path)) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let database = small().open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    fill(&keyspace, 100);
    database.flush().unwrap();
    fill(&keyspace, 100);
    database.sync().unwrap();
    drop(keyspace);
    database.close().unwrap();
    change(folder.path());
    small().open(folder.path()).unwrap_err()
}

fn log_kind(error: &Error) -> Option<ErrorKind> {
    match error {
        Error::Log(error) => Some(error.kind()),
        _ => None,
    }
}

#[test]
fn damage_to_the_log_is_an_error() {
    let error = changed(|folder| {
        let first = (0_u64..).map(|number| folder.join(format!("log/segment-{number:020}")));
        let first = first.take(100).find(|path| path.exists()).expect("a log has a segment");
        let mut bytes = std::fs::read(&first).unwrap();
        // The flush has truncated the first 100 values. Those after it stay.
        let value = bytes.windows(50).rposition(|bytes| bytes == [7; 50]).unwrap();
        bytes[value] ^= 1;
        std::fs::write(first, bytes).unwrap();
    });
    assert_eq!(log_kind(&error), Some(ErrorKind::Corrupt), "{error}");
}

#[test]
fn a_lost_part_is_an_error() {
    let lost_log = changed(|folder| std::fs::remove_dir_all(folder.join("log")).unwrap());
    assert_eq!(log_kind(&lost_log), Some(ErrorKind::NotFound), "{lost_log}");
    for tables in ["tables/0", "tables/1"] {
        let lost = changed(|folder| std::fs::remove_dir_all(folder.join(tables)).unwrap());
        assert!(matches!(lost, Error::Mismatch(_)), "{lost}");
    }
    let other_log = changed(|folder| {
        std::fs::remove_dir_all(folder.join("log")).unwrap();
        let options = palisade::Options::new().segment_bytes(64 << 10);
        let log = options.first_lsn(palisade::Lsn::new(1 << 30)).open(folder.join("log")).unwrap();
        log.close().unwrap();
    });
    assert!(matches!(other_log, Error::Mismatch(_)), "{other_log}");
    let lost_table = changed(|folder| {
        let tables = std::fs::read_dir(folder.join("tables/1/tables")).unwrap();
        tables.for_each(|table| std::fs::remove_file(table.unwrap().path()).unwrap());
    });
    assert!(matches!(lost_table, Error::Tables { .. }), "{lost_table}");
}

#[test]
fn a_log_that_is_behind_the_tables_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    let path = folder.path().join("database");
    let database = small().open(&path).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    database.log().backup_to(&saved).unwrap();
    keyspace.put("key", "value").unwrap();
    database.flush().unwrap();
    drop((keyspace, database));
    std::fs::remove_dir_all(path.join("log")).unwrap();
    std::fs::rename(&saved, path.join("log")).unwrap();
    let error = small().open(&path).unwrap_err();
    assert!(matches!(error, Error::Mismatch(_)), "{error}");
}

#[test]
fn a_failed_flush_stops_writes_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = small().background(false).open(folder.path()).unwrap();
    let keyspace = database.create_keyspace("k").unwrap();
    fill(&keyspace, 10);
    let [tables, away] = ["tables/1/tables", "away"].map(|name| folder.path().join(name));
    std::fs::rename(&tables, &away).unwrap();
    assert!(matches!(database.flush(), Err(Error::Stopped(_))));
    assert!(matches!(keyspace.put("key", "value"), Err(Error::Stopped(_))));
    assert_eq!(keyspace.get("000007").unwrap().unwrap(), [7; 100]);
    drop((keyspace, database));
    std::fs::rename(&away, &tables).unwrap();
    let database = small().open(folder.path()).unwrap();
    assert_eq!(database.keyspace("k").unwrap().range::<&str>(..).count(), 10);
}

#[test]
fn the_sync_policy_of_the_log_holds_when_an_append_returns() {
    for policy in [SyncPolicy::Always, SyncPolicy::Os] {
        let folder = tempfile::tempdir().unwrap();
        let log = palisade::Options::new().sync_policy(policy);
        let database = small().log(log).open(folder.path()).unwrap();
        let keyspace = database.create_keyspace("k").unwrap();
        let mut batch = database.batch();
        batch.put(&keyspace, "key", "value").unwrap();
        for ticket in [keyspace.append_put("key", "value").unwrap(), batch.append().unwrap()] {
            assert!(database.log().written_lsn() >= ticket.end_lsn(), "{policy:?}");
            assert!(ticket.is_durable() || policy == SyncPolicy::Os, "{policy:?}");
        }
    }
}

/// While the device holds the call of one writer, another writer appends and applies its change.
#[test]
fn a_writer_that_waits_for_the_sync_policy_blocks_no_append() {
    const LIMIT: Duration = Duration::from_secs(60);
    for (policy, kind) in [(SyncPolicy::Always, CallKind::Sync), (SyncPolicy::Os, CallKind::Write)]
    {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let log = palisade::Options::new().sync_policy(policy);
        let options = small().background(false).log(log);
        let database = options.open_on(Arc::new(disk.clone()), "/log", folder.path()).unwrap();
        let keyspace = &database.create_keyspace("k").unwrap();
        disk.set((kind, Target::Segment), Effect::Hold);
        thread::scope(|scope| {
            let writers = ["first", "second"]
                .map(|key| scope.spawn(move || keyspace.append_put(key, "value").map(drop)));
            let begin = Instant::now();
            let are_applied =
                || ["first", "second"].iter().all(|key| keyspace.get(key).unwrap().is_some());
            while !are_applied() && begin.elapsed() < LIMIT {
                thread::yield_now();
            }
            let are_applied = are_applied();
            let is_held = writers.iter().all(|writer| !writer.is_finished());
            disk.set((kind, Target::Segment), Effect::Pass);
            assert!(are_applied && is_held, "{policy:?}");
        });
    }
}
