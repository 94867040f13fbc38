//! A folder that was copied file by file, as `cp -r` does: nobody knows what of the copy is on the
//! medium before the first open of it.

use palisade::Result;

use crate::prelude::*;

const RECORDS: u64 = 200;

/// Opens the log in `folder`, which must be there.
fn open(disk: &SimDisk, folder: &str) -> Result<Wal> {
    small().open_mode(OpenMode::MustExist).open_on(disk.as_disk(), folder)
}

/// A closed log, and a copy of its folder in `/copy` that nobody has synced; and where its records
/// begin. Another process comes next.
fn copied_log(seed: u64) -> (SimDisk, Vec<Lsn>) {
    watch();
    let disk = SimDisk::new(seed);
    let wal = small().open_on(disk.as_disk(), "/log").unwrap();
    let places = append(&wal, 0..RECORDS, 1000);
    wal.close().unwrap();
    copy(&disk, "/log", "/copy");
    disk.restart();
    (disk, places)
}

fn copy(disk: &SimDisk, from: &str, to: &str) {
    let disk = disk.as_disk();
    disk.create_folder(Path::new(to), 0o600).unwrap();
    let folder = |path| disk.open_folder(Path::new(path), 0o600).unwrap();
    let (from, to) = (folder(from), folder(to));
    for name in from.list().unwrap() {
        let old = from.open(&name, Access::Read).unwrap();
        let new = to.open(&name, Access::Fresh).unwrap();
        let mut bytes = vec![0; old.len().unwrap() as usize];
        assert_eq!(old.read_at(0, &mut bytes).unwrap(), bytes.len());
        assert_eq!(new.write_at(0, &[IoSlice::new(&bytes)]).unwrap(), bytes.len());
    }
}

/// Protection: the open of a copy syncs its files, their names, and the name of the folder.
#[test]
fn reported_and_new_records_of_a_copied_log_survive_power_loss() {
    for seed in 0..20 {
        let (disk, _) = copied_log(seed);
        let wal = open(&disk, "/copy").unwrap();
        assert_eq!(numbers(&wal), all(RECORDS));
        wal.commit(&record(RECORDS, 1000)).unwrap();
        disk.lose_power();
        drop(wal);
        let wal = open(&disk, "/copy").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(numbers(&wal), all(RECORDS + 1), "seed {seed}");
    }
}

/// Protection: an open that cannot sync a copy takes the state's name away. The system reports the
/// error once, and the bytes read right until the power is lost.
/// Checks the open in the same boot, and what the log shows after power loss.
#[test]
fn a_copy_that_could_not_be_synced_is_refused_and_hides_no_loss() {
    let mut damaged = 0;
    for seed in 0..20 {
        let (disk, places) = copied_log(seed);
        // All but the segments is on the medium.
        let folder = |path| disk.as_disk().open_folder(Path::new(path), 0o600).unwrap();
        folder("/").sync().unwrap();
        folder("/copy").sync().unwrap();
        folder("/copy").open("meta", Access::Read).unwrap().sync_data().unwrap();
        disk.fail(Fault::nth(CallKind::Sync, seed % 4, FaultKind::Eio));
        let error = open(&disk, "/copy").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("copy the log again"), "{error}");
        disk.heal();
        disk.restart();
        let error = open(&disk, "/copy").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        assert!(error.to_string().contains("copy the log again"), "{error}");
        disk.lose_power();
        // As the advice says where it is the only copy. The log was closed: all records are there,
        // or an error says which one is not.
        let _ = folder("/copy").rename("meta.unsynced", "meta");
        let wal = match open(&disk, "/copy") {
            Ok(wal) => wal,
            Err(error) => {
                assert!(is_damage(&error), "seed {seed}: {error}");
                continue;
            }
        };
        let is_whole = places.iter().all(|lsn| wal.get(*lsn).is_ok());
        let (found, end) = read_until_error(wal.records().unwrap());
        let is_number =
            |(number, (_, data)): (u64, &(Lsn, Vec<u8>))| number_of(data) == Some(number);
        let is_all = found.len() as u64 == RECORDS && (0..).zip(&found).all(is_number);
        match end {
            Some(error) => assert!(is_damage(&error), "seed {seed}: {error}"),
            None => assert!(is_whole && is_all, "seed {seed}: {} records", found.len()),
        }
        damaged += u64::from(!is_whole);
    }
    assert!(damaged > 0, "no power loss took a record and left the end");
}

/// Protection: tools call no log whole that opens refuse.
#[test]
fn a_copy_that_could_not_be_synced_is_no_whole_log_to_a_tool() {
    let (_dir, path, wal) = log_on_files(heap());
    append(&wal, 0..10, 100);
    wal.close().unwrap();
    let verdict = || Inspector::open(&path).unwrap().verify().unwrap();
    assert_eq!(verdict().outcome, Outcome::Clean);
    Inspector::open(&path).unwrap().check_synced().unwrap();
    // `rsync` may put the state back beside the same segments.
    for state_is_back in [true, false] {
        fs::rename(path.join("meta"), path.join("meta.unsynced")).unwrap();
        if state_is_back {
            fs::copy(path.join("meta.unsynced"), path.join("meta")).unwrap();
        }
        let error = Inspector::open(&path).unwrap().check_synced().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        let refused = heap().open(&path).unwrap_err();
        assert_eq!(refused.to_string(), error.to_string());
        let verdict = verdict();
        assert_eq!((verdict.outcome, verdict.records), (Outcome::Corrupt, 10));
        assert!(verdict.why.unwrap().contains("could not sync"));
    }
}

fn is_damage(error: &palisade::Error) -> bool {
    error.kind() == ErrorKind::Corrupt
}

/// Protection: nobody knows whether a spare of a copy is on the medium, or a write to it failed.
#[test]
fn spares_of_a_copied_log_are_not_used() {
    let (disk, _) = copied_log(1);
    let folder = disk.as_disk().open_folder(Path::new("/copy"), 0o600).unwrap();
    let spare = folder.open("spare-000077", Access::New).unwrap();
    spare.write_at(0, &[IoSlice::new(&vec![0; 80 << 10])]).unwrap();
    drop(spare);
    let spares = || {
        let names = folder.list().unwrap().into_iter();
        names.filter(|name| name.starts_with("spare-")).collect::<Vec<_>>()
    };
    let copied = spares();
    open(&disk, "/copy").unwrap().close().unwrap();
    let kept = spares();
    assert!(copied.iter().all(|spare| !kept.contains(spare)), "{copied:?}, now {kept:?}");
}
