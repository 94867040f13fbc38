//! What callers of the published crate see, and where this crate keeps what engines do with it.

mod common;

use std::fs;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use palisade::Options;
use wal_db::{
    FileStore, Lsn, MemStore, OpenPolicy, RecoveryPolicy, Result, SegmentedStore, Wal, WalConfig,
    WalError, WalStore,
};

use common::{Place, contents, corrupt_at, kind_of};

#[test]
fn records_and_lsns_stay_the_same_after_clean_end_and_crash() {
    let place = Place::new();
    let wal = Wal::open(place.log()).unwrap();
    assert_eq!((wal.len(), wal.is_empty(), wal.truncated_on_open()), (0, true, 0));
    let mut lsns = vec![wal.append(b"one").unwrap(), wal.append(b"").unwrap()];
    lsns.push(wal.append_and_sync(&[3; 1000]).unwrap());
    assert_eq!(lsns[0], Lsn::new(0));
    assert!(lsns.is_sorted() && wal.len() > lsns[2].get());
    drop(wal);
    for crash in [false, true] {
        let wal = Wal::open(place.log()).unwrap();
        let records: Vec<_> = wal.iter().unwrap().collect::<Result<_>>().unwrap();
        assert_eq!(records.iter().map(wal_db::Record::lsn).collect::<Vec<_>>(), lsns);
        assert_eq!(records[2].data(), [3; 1000]);
        assert!(records[1].is_empty() && !wal.is_empty());
        if crash {
            wal.log().clone().abandon();
        }
    }
    let wal = Wal::open(place.log()).unwrap();
    assert!(wal.append(b"next").unwrap() > lsns[2]);
    assert_eq!(contents(&wal).len(), 4);
}

#[test]
fn a_new_log_that_is_opened_again_still_begins_at_lsn_0() {
    let place = Place::new();
    for _ in 0..3 {
        let wal = Wal::open(place.log()).unwrap();
        assert!(wal.is_empty());
    }
    let wal = Wal::open(place.log()).unwrap();
    assert!(wal.append(b"first").unwrap() < wal.append(b"second").unwrap());
}

#[test]
fn iterators_begin_where_they_are_asked_to() {
    let wal = Wal::with_store(MemStore::new()).unwrap();
    let lsns: Vec<_> = [b"a", b"b", b"c"].map(|data| wal.append(data).unwrap()).to_vec();
    let from = |lsn| wal.iter_from(lsn).unwrap().map(|record| record.map(|record| record.lsn()));
    assert_eq!(from(lsns[1]).collect::<Result<Vec<_>>>().unwrap(), lsns[1..]);
    assert_eq!(from(Lsn::new(wal.len())).count(), 0);
    assert_eq!(from(Lsn::new(u64::MAX)).count(), 0);
    let mut inside = from(Lsn::new(lsns[1].get() + 1));
    assert_eq!(corrupt_at(inside.next().unwrap()), lsns[1].get() + 1);
    assert!(inside.next().is_none());
    let before = wal.iter().unwrap();
    wal.append(b"later").unwrap();
    assert_eq!(before.count(), 3);
}

#[test]
fn removing_or_emptying_the_file_empties_the_log() {
    let place = Place::new();
    for round in 0..6 {
        let wal = Wal::open(place.log()).unwrap();
        assert_eq!((wal.len(), contents(&wal).len()), (0, 0));
        assert_eq!(wal.append_and_sync(&[round; 100]).unwrap(), Lsn::new(0));
        // As lsm-db does it; while the log is open; and without a clean end.
        let wal = if round % 3 == 0 { None } else { Some(wal) };
        if round == 4 {
            fs::write(place.log(), b"").unwrap();
        } else {
            fs::remove_file(place.log()).unwrap();
        }
        if let Some(wal) = wal.filter(|_| round % 3 == 1) {
            wal.log().clone().abandon();
        }
    }
    assert!(Wal::open(place.log()).unwrap().is_empty());
}

#[test]
fn two_handles_of_one_path_are_one_log() {
    let place = Place::new();
    let first = Wal::open(place.log()).unwrap();
    let kept = first.append(b"a").unwrap();
    let second = Wal::open(place.path(".").join("wal.log")).unwrap();
    second.append(b"b").unwrap();
    assert_eq!(contents(&first), [b"a", b"b"]);

    // One of them empties the log: LSNs go on, because the other one knows the old ones.
    fs::remove_file(place.log()).unwrap();
    let third = Wal::open(place.log()).unwrap();
    assert!(third.is_empty() && first.is_empty());
    assert!(second.append(b"c").unwrap() > kept);
    drop((first, second, third));
    assert_eq!(contents(&Wal::open(place.log()).unwrap()), [b"c"]);
}

#[test]
fn an_open_of_a_log_that_is_open_checks_its_settings() {
    let place = Place::new();
    let strict = WalConfig::new().with_open_policy(OpenPolicy::Strict);
    let wal = Wal::open(place.log()).unwrap();
    let lsns: Vec<_> = (0..3).map(|number| wal.append(&[number; 5000]).unwrap()).collect();
    assert_eq!(contents(&Wal::open_with(place.log(), strict).unwrap()).len(), 3);
    wal.sync().unwrap();
    damage(&place);
    assert_eq!(corrupt_at(Wal::open_with(place.log(), strict)), lsns[2].get());
    drop(Wal::open(place.log()).unwrap());

    let options = Options::new().segment_bytes(wal.log().segment_bytes());
    let with = |options| FileStore::open(place.log()).unwrap().with_options(options);
    Wal::with_store(with(options.clone())).unwrap();
    let refused = Wal::with_store(with(options.segment_bytes(1 << 20))).unwrap_err().to_string();
    assert!(refused.contains("segments of 16777216 bytes"), "{refused}");

    let folder = place.path("segmented");
    let wal = Wal::open_segmented(&folder, 100_000).unwrap();
    wal.append(b"record").unwrap();
    assert_eq!(contents(&Wal::open_segmented_with(&folder, 100_001, strict).unwrap()).len(), 1);
    let other = Wal::open_segmented(&folder, 1 << 20);
    drop(wal);
    let expected = kind_of(Wal::open_segmented(&folder, 1 << 20));
    assert_eq!(kind_of(other), expected);
}

#[test]
fn an_ended_log_is_not_opened_before_its_handles_are_dropped() {
    fn check<S: WalStore>(open: impl Fn() -> Result<Wal<S>>) {
        let ends: [fn(&palisade::Wal); 2] =
            [|log| log.clone().abandon(), |log| log.close().unwrap()];
        for (before, end) in ends.into_iter().enumerate() {
            let wal = open().unwrap();
            wal.append_and_sync(b"record").unwrap();
            end(wal.log());
            let refused = open();
            let text = refused.as_ref().unwrap_err().to_string();
            assert!(text.contains("Drop all handles"), "{text}");
            assert_eq!(kind_of(refused), ErrorKind::ResourceBusy);
            drop(wal);
            assert_eq!(contents(&open().unwrap()), vec![b"record"; before + 1]);
        }
    }
    let place = Place::new();
    check(|| Wal::open(place.log()));
    check(|| Wal::open_segmented(place.path("folder"), 1 << 20));
}

#[test]
fn threads_that_open_and_drop_a_log_do_not_refuse_each_other() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    Wal::open(place.log()).unwrap().append_and_sync(b"record").unwrap();
                }
            });
        }
    });
    assert_eq!(contents(&Wal::open(place.log()).unwrap()).len(), 80);
}

#[test]
fn a_file_of_the_published_crate_is_refused_and_kept() {
    let place = Place::new();
    let old = published::Wal::open(place.log()).unwrap();
    let _ = old.append_and_sync(b"precious").unwrap();
    drop(old);
    let bytes = fs::read(place.log()).unwrap();
    let refused = Wal::open(place.log());
    assert!(refused.as_ref().unwrap_err().to_string().contains("Moving a log"));
    assert_eq!(kind_of(refused), ErrorKind::InvalidData);
    assert_eq!(fs::read(place.log()).unwrap(), bytes);

    let old = published::Wal::open_segmented(place.path("old"), 4096).unwrap();
    let _ = old.append_and_sync(b"precious").unwrap();
    assert_eq!(kind_of(Wal::open_segmented(place.path("old"), 4096)), ErrorKind::InvalidData);
    assert_eq!(kind_of(Wal::with_store(MemStore::from_bytes(bytes))), ErrorKind::InvalidData);
}

#[test]
fn a_file_without_its_folder_is_refused() {
    let place = Place::new();
    Wal::open(place.log()).unwrap().append(b"precious").unwrap();
    Wal::open(place.path("other")).unwrap().append(b"other").unwrap();
    let folder = place.path("wal.log.palisade");

    // A copy or a move of the file alone.
    fs::copy(place.log(), place.path("copy")).unwrap();
    assert_eq!(kind_of(Wal::open(place.path("copy"))), ErrorKind::NotFound);
    fs::remove_file(place.path("copy")).unwrap();
    // Another log's folder.
    fs::rename(&folder, place.path("away")).unwrap();
    fs::rename(place.path("other.palisade"), &folder).unwrap();
    assert_eq!(kind_of(Wal::open(place.log())), ErrorKind::NotFound);
    fs::remove_dir_all(&folder).unwrap();
    fs::rename(place.path("away"), &folder).unwrap();
    assert_eq!(contents(&Wal::open(place.log()).unwrap()), [b"precious"]);

    // A damaged file, and bytes after it.
    let bytes = fs::read(place.log()).unwrap();
    let lines: usize = bytes.split_inclusive(|byte| *byte == b'\n').take(3).map(<[u8]>::len).sum();
    for at in 0..lines {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(place.log(), damaged).unwrap();
        assert_eq!(kind_of(Wal::open(place.log())), ErrorKind::InvalidData);
    }
    fs::write(place.log(), [&bytes[..], b"more"].concat()).unwrap();
    assert_eq!(contents(&Wal::open(place.log()).unwrap()), [b"precious"]);
    assert_eq!(kind_of(Wal::open(place.path("missing/wal.log"))), ErrorKind::NotFound);
    assert!(Wal::open(&folder).is_err());
}

#[cfg(unix)]
#[test]
fn a_file_that_was_renamed_or_moved_keeps_its_records() {
    let place = Place::new();
    fs::create_dir(place.path("archive")).unwrap();
    for to in [place.path("wal.old"), place.path("archive/wal.old")] {
        Wal::open(place.log()).unwrap().append(b"precious").unwrap();
        fs::rename(place.log(), &to).unwrap();
        assert_eq!(kind_of(Wal::open(place.log())), ErrorKind::AlreadyExists);
        fs::write(place.log(), b"").unwrap();
        assert_eq!(kind_of(Wal::open(place.log())), ErrorKind::AlreadyExists);
        fs::remove_file(place.log()).unwrap();
        let folder = to.with_extension("old.palisade");
        fs::rename(place.path("wal.log.palisade"), folder).unwrap();
        assert!(Wal::open(place.log()).unwrap().is_empty());
        assert_eq!(contents(&Wal::open(&to).unwrap()), [b"precious"]);
    }
}

/// The first segment of the log.
fn segment(place: &Place) -> PathBuf {
    place.path("wal.log.palisade").join(format!("segment-{:020}", 0))
}

/// Damages the record of 5000 twos in the log's file, and returns what the file has then.
fn damage(place: &Place) -> Vec<u8> {
    let mut bytes = fs::read(segment(place)).unwrap();
    let at = bytes.windows(5000).position(|window| window == [2; 5000]).unwrap();
    bytes[at + 100] ^= 1;
    // Only one byte: the log may be open.
    let mut file = fs::OpenOptions::new().write(true).open(segment(place)).unwrap();
    file.seek(SeekFrom::Start(at as u64 + 100)).unwrap();
    file.write_all(&bytes[at + 100..=at + 100]).unwrap();
    bytes
}

#[test]
fn damage_is_reported_where_it_is_and_nothing_is_cut() {
    let place = Place::new();
    let wal = Wal::open(place.log()).unwrap();
    let lsns: Vec<_> = (0..5).map(|number| wal.append(&[number; 5000]).unwrap()).collect();
    drop(wal);
    let bytes = damage(&place);
    let strict = WalConfig::new().with_open_policy(OpenPolicy::Strict);
    assert_eq!(corrupt_at(Wal::open_with(place.log(), strict)), lsns[2].get());
    assert!(fs::read(segment(&place)).unwrap() == bytes);

    let wal = Wal::open(place.log()).unwrap();
    let mut records = wal.iter().unwrap();
    let readable = records.by_ref().take(2).map(|record| record.unwrap().lsn());
    assert_eq!(readable.collect::<Vec<_>>(), lsns[..2]);
    assert_eq!(corrupt_at(records.next().unwrap()), lsns[2].get());
    assert!(records.next().is_none());
    drop(wal);

    let skip = WalConfig::new().with_recovery_policy(RecoveryPolicy::SkipBadRecords);
    let wal = Wal::open_with(place.log(), skip).unwrap();
    wal.append(b"new").unwrap();
    let records: Vec<_> = wal.iter().unwrap().collect();
    let lens = records.iter().map(|record| record.as_ref().map_or(0, wal_db::Record::len));
    assert_eq!(lens.collect::<Vec<_>>(), [5000, 5000, 0, 5000, 5000, 3]);
}

const CHILD: &str = "WAL_DB_CHILD";

#[test]
fn appends_survive_the_death_of_the_process() {
    if let Some(path) = std::env::var_os(CHILD) {
        let wal = Wal::open(path).unwrap();
        for number in 0..1000_u32 {
            wal.append(&number.to_le_bytes()).unwrap();
        }
        wal.append(&vec![9; 2_000_000]).unwrap();
        std::process::abort();
    }
    let place = Place::new();
    let run = |path: &Path| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["appends_survive_the_death_of_the_process", "--exact"]);
        let output = child.env(CHILD, path).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    run(&place.log());
    let wal = Wal::open(place.log()).unwrap();
    let found = contents(&wal);
    assert_eq!(found.len(), 1001);
    assert!(found[1000] == vec![9; 2_000_000]);
    // A second process is refused while this one has the log.
    let refused = run(&place.log());
    assert!(refused.contains("the log is open for writing elsewhere"), "{refused}");
    assert_eq!(contents(&wal).len(), 1001);
}

#[test]
fn handles_can_be_shared_with_threads() {
    fn is_shared<T: Send + Sync + std::fmt::Debug>() {}
    is_shared::<(Wal, Wal<SegmentedStore>, Wal<MemStore>, wal_db::WalIter<'_>)>();
    is_shared::<(FileStore, SegmentedStore, MemStore, WalError, wal_db::Record)>();
}

#[test]
fn stores_can_be_opened_apart_from_logs() {
    let place = Place::new();
    let store = FileStore::open(place.log()).unwrap();
    assert_eq!(store.path(), place.log());
    Wal::with_store(store).unwrap().append(b"a").unwrap();
    let store = SegmentedStore::open(place.path("folder"), 5000).unwrap();
    assert_eq!(store.segment_size(), 5000);
    fs::write(store.dir().join("MANIFEST"), b"of the engine").unwrap();
    Wal::with_store(store).unwrap().append(b"a").unwrap();
    assert_eq!(contents(&Wal::open_segmented(place.path("folder"), 5000).unwrap()), [b"a"]);
}

#[cfg(feature = "pack-io")]
#[test]
fn values_are_records() {
    let wal = Wal::with_store(MemStore::with_capacity(100)).unwrap();
    wal.append_typed(&(7_u64, "seven".to_owned())).unwrap();
    let record = wal.iter().unwrap().next().unwrap().unwrap();
    assert_eq!(record.decode::<(u64, String)>().unwrap(), (7, "seven".to_owned()));
    assert!(matches!(record.decode::<Vec<u64>>(), Err(WalError::Encoding { .. })));
}
