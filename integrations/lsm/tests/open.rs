//! Which log and tables an open takes, and which it refuses.

#[expect(dead_code, reason = "other tests use the rest")]
mod folders;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use palisade::disk::{DEFAULT_FILE_MODE, Disk, MemDisk};
use palisade::sim::{FaultDisk, SimDisk};
use palisade::{Lsn, OpenMode};
use palisade_lsm::{Database, Error, Options, Result};

use folders::copy_folder;

const IDENTITY: &str = "engine";

fn log_options() -> palisade::Options {
    palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10)
}

fn small() -> Options {
    Options::new().background(false).cache_bytes(1 << 20).log(log_options())
}

fn value(database: &Database) -> Option<palisade_lsm::Slice> {
    database.keyspace("k").ok().and_then(|keyspace| keyspace.get("key").unwrap())
}

/// Makes a database with one key in `folder`, flushed or not, and closes it.
fn one_key(folder: &Path, is_flushed: bool) {
    let database = small().open(folder).unwrap();
    database.create_keyspace("k").unwrap().put("key", "value").unwrap();
    if is_flushed {
        database.flush().unwrap();
    }
    database.close().unwrap();
}

fn assert_refused(opened: Result<Database>, context: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, Error::Mismatch(_)), "{context}: {error}");
    assert!(error.to_string().contains("from one backup"), "{context}: {error}");
}

#[test]
fn a_folder_whose_parent_is_missing_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let refused = small().open(missing.join("db")).unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    assert!(!missing.exists());
    small().open(&missing).unwrap();
}

/// To `lsm-tree` a reader at seqno 0 is one that sees nothing, so no log of this engine has LSN 0.
#[test]
fn a_log_that_begins_at_lsn_0_is_refused() {
    for (has_identity, is_closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        if has_identity {
            small().open(path).unwrap().close().unwrap();
            fs::remove_dir_all(path.join("log")).unwrap();
        }
        let log = log_options().open(path.join("log")).unwrap();
        if has_identity {
            fs::write(path.join(IDENTITY), format!("palisade-lsm 1 {}", log.uuid())).unwrap();
        }
        if is_closed {
            log.close().unwrap();
        }
        drop(log);
        let context = format!("identity {has_identity}, closed {is_closed}");
        assert_refused(small().open(path), &context);
    }
}

#[test]
fn without_the_engine_file_a_log_that_was_in_use_is_refused() {
    for is_flushed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database");
        one_key(&path, is_flushed);
        let [identity, away] = [path.join(IDENTITY), folder.path().join("away")];
        fs::rename(&identity, &away).unwrap();
        assert_refused(small().open(&path), "log and tables");

        let tables = folder.path().join("tables");
        fs::rename(path.join("tables"), &tables).unwrap();
        assert_refused(small().open(&path), "the log alone");

        // The refused opens have changed nothing: with all parts back in place the key is there.
        fs::remove_dir_all(path.join("tables")).unwrap();
        fs::rename(&tables, path.join("tables")).unwrap();
        fs::rename(&away, &identity).unwrap();
        assert_eq!(value(&small().open(&path).unwrap()).unwrap(), b"value");
    }
}

#[test]
fn without_the_engine_file_tables_that_were_in_use_are_refused() {
    for is_flushed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        one_key(folder.path(), is_flushed);
        fs::remove_file(folder.path().join(IDENTITY)).unwrap();
        fs::remove_dir_all(folder.path().join("log")).unwrap();
        assert_refused(small().open(folder.path()), &format!("flushed {is_flushed}"));
    }
}

#[test]
fn the_log_of_another_program_is_refused_and_keeps_its_records() {
    for tag in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = log_options().first_lsn(Lsn::new(1)).open(&path).unwrap();
        let lsn = log.append_tagged(tag, b"of another program").unwrap().wait().unwrap();
        log.close().unwrap();
        assert_refused(small().open(folder.path()), &format!("tag {tag}"));
        let log = log_options().open_mode(OpenMode::MustExist).open(&path).unwrap();
        assert_eq!(log.get(lsn).unwrap().data(), b"of another program");
    }
}

/// The log is on a simulated disk, which dies at each call of the first open in turn.
#[test]
fn a_first_open_that_a_crash_has_ended_is_continued() {
    for call in 0.. {
        let mut was_dead = true;
        for loses_power in [false, true] {
            let disk = SimDisk::new(call);
            let os = disk.as_disk();
            os.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
            os.open_folder(Path::new("/"), DEFAULT_FILE_MODE).unwrap().sync().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let open = || small().open_on(disk.as_disk(), "/db/log", folder.path());
            // Twice: an open that continues the first one can end in the same way.
            for _ in 0..2 {
                disk.crash_at(disk.calls() + call);
                drop(open());
                was_dead &= disk.is_dead();
                if loses_power { disk.lose_power() } else { disk.restart() }
            }
            let database = open().unwrap_or_else(|error| panic!("call {call}: {error}"));
            database.create_keyspace("k").unwrap().put("key", "value").unwrap();
            disk.lose_power();
            drop(database);
            assert_eq!(value(&open().unwrap()).unwrap(), b"value", "call {call}");
        }
        if !was_dead {
            break;
        }
    }
}

/// The last step of the first open writes the file `engine`.
#[test]
fn a_first_open_that_ended_before_its_last_step_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let database = small().open(folder.path()).unwrap();
        database.log().clone().abandon();
        drop(database);
        fs::remove_file(folder.path().join(IDENTITY)).unwrap();
        fs::write(folder.path().join("engine.new"), "palis").unwrap();
    }
    small().open(folder.path()).unwrap().close().unwrap();
    fs::remove_file(folder.path().join(IDENTITY)).unwrap();
    let database = small().open(folder.path()).unwrap();
    database.create_keyspace("k").unwrap().put("key", "value").unwrap();
    assert_eq!(value(&database).unwrap(), b"value");
}

/// Another process makes the database while an open of it begins.
#[test]
fn an_open_beside_the_first_one_takes_the_database_it_finds() {
    let folder = tempfile::tempdir().unwrap();
    let below = MemDisk::new();
    below.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
    let disk = FaultDisk::new(Arc::new(below.clone()));
    let (is_made, path) = (AtomicBool::new(false), folder.path().to_owned());
    disk.watch(move |_| {
        if !is_made.swap(true, Ordering::Relaxed) {
            let first = small().open_on(Arc::new(below.clone()), "/db/log", &path).unwrap();
            first.create_keyspace("k").unwrap().put("key", "value").unwrap();
            first.close().unwrap();
        }
        Ok(())
    });
    let database = small().open_on(Arc::new(disk), "/db/log", folder.path()).unwrap();
    assert_eq!(value(&database).unwrap(), b"value");
}

/// Makes a database of two keyspaces whose tables in `tables-old` lack the last flush.
fn with_older_tables(folder: &Path, is_first_flushed: bool) {
    let path = folder.join("database");
    let database = small().open(&path).unwrap();
    let [k, other] = ["k", "other"].map(|name| database.create_keyspace(name).unwrap());
    other.put("key", "value").unwrap();
    k.put("old", "value").unwrap();
    if is_first_flushed {
        database.flush().unwrap();
    }
    drop((k, other));
    database.close().unwrap();
    copy_folder(&path.join("tables"), &folder.join("tables-old"));
    let database = small().open(&path).unwrap();
    database.keyspace("k").unwrap().put("key", "value").unwrap();
    database.flush().unwrap();
    database.close().unwrap();
}

#[test]
fn tables_that_are_older_than_the_log_are_refused() {
    for is_first_flushed in [false, true] {
        for part in ["tables", "tables/0", "tables/1", "tables/flushed"] {
            // The second flush has nothing for the catalogue if the first one has written it.
            if part == "tables/0" && is_first_flushed {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            with_older_tables(folder.path(), is_first_flushed);
            let path = folder.path().join("database");
            let older = folder.path().join(part.replacen("tables", "tables-old", 1));
            let [part_path, away] = [path.join(part), folder.path().join("away")];
            fs::rename(&part_path, &away).unwrap();
            if older.exists() {
                fs::rename(&older, &part_path).unwrap();
            }
            assert_refused(small().open(&path), &format!("{part}, flushed {is_first_flushed}"));
            if part_path.exists() {
                fs::rename(&part_path, &older).unwrap();
            }
            fs::rename(&away, &part_path).unwrap();
            assert_eq!(value(&small().open(&path).unwrap()).unwrap(), b"value");
        }
    }
}

#[test]
fn tables_are_complete_with_a_log_that_begins_below_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database");
    one_key(&path, false);
    let saved = folder.path().join("saved");
    copy_folder(&path.join("log"), &saved);
    let database = small().open(&path).unwrap();
    database.flush().unwrap();
    database.close().unwrap();
    // As after a crash between the tables and the truncation.
    fs::remove_dir_all(path.join("log")).unwrap();
    fs::rename(&saved, path.join("log")).unwrap();
    assert_eq!(value(&small().open(&path).unwrap()).unwrap(), b"value");
}

/// Without a truncation the log still has every change.
#[test]
fn without_the_file_flushed_a_truncated_log_is_refused() {
    for is_flushed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        one_key(folder.path(), is_flushed);
        fs::remove_file(folder.path().join("tables/flushed")).unwrap();
        let opened = small().open(folder.path());
        if is_flushed {
            assert_refused(opened, "flushed");
        } else {
            assert_eq!(value(&opened.unwrap()).unwrap(), b"value");
        }
    }
}

#[test]
fn a_flush_that_cannot_write_flushed_does_not_truncate_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let obstacle = folder.path().join("tables/flushed.new");
    let database = small().open(folder.path()).unwrap();
    database.create_keyspace("k").unwrap().put("key", "value").unwrap();
    fs::create_dir(&obstacle).unwrap();
    let head = database.log().head_lsn();
    assert!(matches!(database.flush(), Err(Error::Stopped(_))));
    assert_eq!(database.log().head_lsn(), head);
    drop(database);
    fs::remove_dir(&obstacle).unwrap();
    let database = small().open(folder.path()).unwrap();
    assert_eq!(value(&database).unwrap(), b"value");
    database.flush().unwrap();
}

/// The copy of an empty log begins above the log itself.
#[test]
fn a_backup_of_the_log_opens_with_the_tables_of_its_time() {
    for ends in ["", "f", "c", "fc", "cf", "fcf", "fcc", "fccf", "cfcccf", "fb", "fcfb", "fcb"] {
        let folder = tempfile::tempdir().unwrap();
        let (path, saved) = (folder.path().join("database"), folder.path().join("saved"));
        let mut database = small().open(&path).unwrap();
        database.create_keyspace("k").unwrap().put("key", "value").unwrap();
        for end in ends.chars().chain(['b']) {
            if end == 'f' {
                database.flush().unwrap();
                continue;
            }
            if end == 'b' {
                database.log().backup_to(&saved).unwrap();
            }
            database.log().clone().abandon();
            drop(database);
            if end == 'b' {
                fs::remove_dir_all(path.join("log")).unwrap();
                fs::rename(&saved, path.join("log")).unwrap();
            }
            database = small().open(&path).unwrap_or_else(|error| panic!("{ends}: {error}"));
            assert_eq!(value(&database).unwrap(), b"value", "{ends}");
        }
    }
}

#[test]
fn a_backup_of_an_unused_log_opens_with_the_tables_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let (path, saved) = (folder.path().join("database"), folder.path().join("saved"));
    small().open(&path).unwrap().log().backup_to(&saved).unwrap();
    fs::remove_dir_all(path.join("log")).unwrap();
    fs::rename(&saved, path.join("log")).unwrap();
    small().open(&path).unwrap().create_keyspace("k").unwrap();
}
