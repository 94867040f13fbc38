//! Files in the folder of an archive that are no segments of it, or not whole ones: none is taken
//! for damage to the log, and the error says which file to move away.

use crate::prelude::*;

fn archiving(archive: &Path) -> Options {
    small().on_release(Archive::open(archive).unwrap())
}

/// A log whose first segment is archived, and all records that were appended to it.
fn with_one_archived() -> (TempDir, PathBuf, PathBuf, Wal, Entries) {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let wal = archiving(&archive).open(&path).unwrap();
    let records = append_bytes(&wal, 0..60, 4000);
    wal.truncate_before(records[20].0).unwrap();
    assert!(segment(&archive, 0).exists() && !segment(&archive, 1).exists());
    (dir, path, archive, wal, records)
}

/// Segments 10 to 12 of another log.
fn of_another_log() -> (TempDir, Vec<PathBuf>) {
    let (dir, path) = folder();
    let wal = small().first_lsn(Lsn::new(10 * SEGMENT_BYTES)).open(&path).unwrap();
    append_bytes(&wal, 0..48, 4000);
    wal.close().unwrap();
    let files: Vec<PathBuf> = (10..13).map(|number| segment(&path, number)).collect();
    assert!(files.iter().all(|file| file.exists()), "{files:?}");
    (dir, files)
}

/// Protection: the log is whole, so nothing sends its user to a repair.
#[test]
fn a_stray_file_in_a_released_segments_place_is_no_damage_to_the_log() {
    let (_dir, path, archive, wal, records) = with_one_archived();
    let (_other, others) = of_another_log();
    let wrong: [(Vec<u8>, ErrorKind); 5] = [
        (Vec::new(), ErrorKind::Foreign),
        (b"not a segment".to_vec(), ErrorKind::Foreign),
        (vec![0; 70_000], ErrorKind::Foreign),
        (fs::read(segment(&path, 2)).unwrap(), ErrorKind::Foreign),
        (fs::read(&others[0]).unwrap(), ErrorKind::Mismatch),
    ];
    let file = segment(&archive, 1);
    for (bytes, kind) in wrong {
        fs::write(&file, &bytes).unwrap();
        let error = wal.truncate_before(records[50].0).unwrap_err();
        let text = error.to_string();
        assert_eq!((error.kind(), error.path()), (kind, Some(&*file)), "{text}");
        assert!(!error.is_fatal() && text.contains("move this file away"), "{text}");
        assert!(!text.contains("palisade repair") && !text.contains("open with"), "{text}");
        assert!(fs::read(&file).unwrap() == bytes && segment(&path, 1).exists());
    }
    fs::remove_file(&file).unwrap();
    wal.truncate_before(records[50].0).unwrap();
    let found = archived(&archive);
    assert!(found.len() > 40 && found == records[..found.len()]);
}

#[test]
fn only_the_exact_name_of_a_log_says_whose_archive_a_folder_is() {
    let (_dir, path, archive, wal, records) = with_one_archived();
    let owner = format!("archive-of-{}", wal.uuid());
    drop(wal);
    let upper = owner.replace("archive-of-", "").to_uppercase();
    for name in [format!("{owner}.bak"), "archive-of-".into(), format!("archive-of-{upper}")] {
        fs::write(archive.join(name), []).unwrap();
    }
    let wal = archiving(&archive).open(&path).unwrap();
    wal.truncate_before(records[40].0).unwrap();
    drop(wal);
    let other = format!("archive-of-{}", "0123abcd-0123-0123-0123-0123456789ab");
    fs::write(archive.join(other), []).unwrap();
    let wal = archiving(&archive).open(&path).unwrap();
    let error = wal.truncate_before(records[55].0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    assert!(error.to_string().contains("name another folder"), "{error}");
}

#[test]
fn a_break_in_an_archive_is_for_no_repair() {
    let (_dir, _path, archive, wal, records) = with_one_archived();
    wal.truncate_before(records[55].0).unwrap();
    let first = segment(&archive, 0);
    let whole = fs::read(&first).unwrap();
    for place in [50, 5000] {
        flip(&first, place);
        let opened = ArchiveReader::open(&archive).unwrap().records(None);
        let error = opened.map_or_else(Some, |records| read_until_error(records).1).unwrap();
        let text = error.to_string();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*first)), "{text}");
        assert!(text.contains("move it away") && !text.contains("palisade repair"), "{text}");
        // What lies above can be read.
        let above = records.iter().find(|(lsn, _)| *lsn >= Lsn::new(SEGMENT_BYTES)).unwrap().0;
        let (found, error) = archived_from(&archive, Some(above));
        assert!(error.is_none() && found.len() > 20 && found[0].0 == above, "{error:?}");
        fs::write(&first, &whole).unwrap();
    }
}
