//! A file `meta` that was saved earlier, put back: the tools follow the log as far as an open does.

use tempfile::TempDir;

use super::*;

const EARLY: usize = 40;
const ALL: usize = 80;

fn record(number: usize) -> Vec<u8> {
    format!("record {number} ").into_bytes().repeat(500)
}

fn append(wal: &Wal, numbers: std::ops::Range<usize>) -> Vec<Lsn> {
    numbers.map(|number| wal.commit(&record(number)).unwrap()).collect()
}

/// A log whose `meta` is that of a close with [`EARLY`] of its [`ALL`] records. Between the two
/// parts `between` may end an epoch.
fn log(between: impl FnOnce(&Path)) -> (TempDir, Vec<Lsn>) {
    let (folder, wal) = open_log(&small());
    let meta = folder.path().join("meta");
    let mut lsns = append(&wal, 0..EARLY);
    wal.close().unwrap();
    let saved = fs::read(&meta).unwrap();
    between(folder.path());
    let wal = small().open(folder.path()).unwrap();
    lsns.extend(append(&wal, EARLY..ALL));
    wal.close().unwrap();
    fs::write(&meta, saved).unwrap();
    (folder, lsns)
}

/// Expects all tools to find all records, and to say that they follow the clean end.
fn has_all(folder: &Path, lsns: &[Lsn]) {
    let follow = "records follow the clean end";
    let (exit, stat) = json(folder, &["stat"]);
    assert_eq!((exit, stat["records"].as_u64()), (0, Some(ALL as u64)), "{stat}");
    for tool in ["stat", "map", "info", "verify"] {
        let output = palisade(folder, &[tool]);
        let printed = [out(&output), err(&output)].concat();
        assert!(printed.contains(follow), "{tool}: {printed}");
    }
    let (_, map) = json(folder, &["map"]);
    assert!(map["end"].as_u64().unwrap() > lsns[ALL - 1].as_u64(), "{map}");
    let (_, info) = json(folder, &["info"]);
    assert_eq!((info["state"].as_str(), &info["end"]), (Some("unclean"), &Value::Null), "{info}");
    assert_eq!(out(&palisade(folder, &["dump"])).lines().count(), ALL);

    let copies = common::folder();
    let into = |name: &str| copies.path().join(name).display().to_string();
    let copied = palisade(folder, &["backup", "--into", &into("backup")]);
    assert!(out(&copied).contains("records    80 in "), "{copied:?}");
    let (dir, restored) = (folder.display().to_string(), into("restored"));
    let copied = words(&["restore", "--log", &dir, "--into", &restored]).output().unwrap();
    assert!(out(&copied).contains("records    80 in "), "{copied:?}");
    let from = lsns[60].to_string();
    let repaired = palisade(folder, &["repair", "--from", &from, "--into", &into("repaired")]);
    assert!(out(&repaired).contains("kept       60 records"), "{repaired:?}");
    let wal = small().open(folder).unwrap();
    assert_eq!(wal.records().unwrap().into_iter().count(), ALL);
    wal.close().unwrap();
}

#[test]
fn tools_follow_a_log_past_an_earlier_clean_end() {
    let (folder, lsns) = log(|_| {});
    has_all(folder.path(), &lsns);
}

#[test]
fn tools_follow_a_log_past_an_old_clean_end_into_later_epochs() {
    let (folder, lsns) = log(|folder| {
        for _ in 0..2 {
            small().open(folder).unwrap().abandon();
        }
    });
    has_all(folder.path(), &lsns);
}

#[test]
fn damage_above_an_earlier_clean_end_is_named() {
    let (folder, lsns) = log(|_| {});
    damage_record(folder.path(), lsns[70]);
    let (exit, verdict) = json(folder.path(), &["verify"]);
    assert_eq!((exit, verdict["end"].as_u64()), (4, Some(lsns[70].as_u64())), "{verdict}");
    let dumped = palisade(folder.path(), &["dump"]);
    assert_eq!((code(&dumped), out(&dumped).lines().count()), (4, 70), "{dumped:?}");
    let (exit, counted) = json(folder.path(), &["stat"]);
    assert_eq!((exit, counted["records"].as_u64()), (4, Some(70)), "{counted}");
    let from = lsns[75].to_string();
    let refused = palisade(folder.path(), &["repair", "--dry-run", "--from", &from]);
    assert!(err(&refused).contains(&format!("(LSN {})", lsns[70])), "{refused:?}");
}
