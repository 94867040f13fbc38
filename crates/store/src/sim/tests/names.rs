//! Power loss and the names of files.

use std::collections::BTreeSet;

use super::*;

/// Loses power once for each subset of the changes of names; returns what each left.
fn every_subset(disk: &SimDisk) -> BTreeSet<Vec<(String, Vec<u8>)>> {
    let changes = disk.losses().iter().filter(|loss| !is_of_bytes(loss)).count();
    assert!((1..12).contains(&changes), "{:?}", disk.losses());
    let left = (0..1_u32 << changes).map(|subset| {
        let fork = disk.fork(1);
        let mut index = 0;
        fork.lose_power_choosing(&mut |loss| {
            if is_of_bytes(&loss) {
                return Fate::Keep;
            }
            index += 1;
            if subset >> (index - 1) & 1 == 1 { Fate::Keep } else { Fate::Drop }
        });
        let named = |name: String| {
            let bytes = fork.file(&name).unwrap();
            (name, bytes)
        };
        fork.files().into_iter().map(named).collect()
    });
    left.collect()
}

fn is_of_bytes(loss: &Loss) -> bool {
    matches!(loss, Loss::Sector { .. } | Loss::Growth { .. } | Loss::Truncation { .. })
}

fn named(name: &str, content: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), content.to_vec())
}

#[test]
fn the_sync_of_a_file_does_not_cover_its_name() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    let file = log.open("file", Access::Fresh).unwrap();
    write_bytes(file.as_ref(), 0, b"bytes").unwrap();
    file.sync_data().unwrap();
    let left = every_subset(&disk);
    assert_eq!(left, [vec![], vec![named("file", b"bytes")]].into());
    log.sync().unwrap();
    assert_eq!(disk.losses(), []);
}

#[test]
fn a_renamed_file_has_the_old_or_the_new_name() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    drop(durable_file(&log, "old", b"bytes"));
    log.rename("old", "new").unwrap();
    let left = every_subset(&disk);
    assert_eq!(left, [vec![named("old", b"bytes")], vec![named("new", b"bytes")]].into());
}

#[test]
fn a_rename_over_a_file_leaves_one_of_the_two() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    drop(durable_file(&log, "meta", b"old"));
    drop(durable_file(&log, "meta.tmp", b"new"));
    log.rename("meta.tmp", "meta").unwrap();
    let both = vec![named("meta", b"old"), named("meta.tmp", b"new")];
    assert_eq!(every_subset(&disk), [both, vec![named("meta", b"new")]].into());
}

#[test]
fn a_file_that_was_named_durably_is_never_without_a_name() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    drop(durable_file(&log, "a", b"first"));
    drop(durable_file(&log, "b", b"second"));
    log.rename("a", "c").unwrap();
    log.rename("b", "a").unwrap();
    log.rename("c", "b").unwrap();
    let file = log.open("c", Access::Fresh).unwrap();
    write_bytes(file.as_ref(), 0, b"third").unwrap();
    let left = every_subset(&disk);
    for files in &left {
        let contents: Vec<&[u8]> = files.iter().map(|(_, bytes)| &bytes[..]).collect();
        for durable in [&b"first"[..], b"second"] {
            let names = contents.iter().filter(|bytes| **bytes == durable).count();
            assert_eq!(names, 1, "{files:?}");
        }
    }
    assert!(left.len() >= 6, "{left:?}");
}

#[test]
fn a_removed_file_is_there_or_not() {
    let disk = SimDisk::new(1);
    let log = begin(&disk);
    drop(durable_file(&log, "file", b"bytes"));
    log.remove("file").unwrap();
    assert_eq!(disk.files(), [""; 0]);
    assert_eq!(every_subset(&disk), [vec![], vec![named("file", b"bytes")]].into());
}

#[test]
fn a_folder_that_was_not_synced_takes_its_files_along() {
    let disk = SimDisk::new(1);
    disk.as_disk().create_folder(&absolute(FOLDER), 0o600).unwrap();
    let log = folder(&disk);
    drop(durable_file(&log, "file", b"bytes"));
    disk.lose_power_choosing(&mut |_| Fate::Drop);
    assert_eq!(disk.files(), [""; 0]);
    assert!(disk.as_disk().open_folder(&absolute(FOLDER), 0o600).is_err());
}
