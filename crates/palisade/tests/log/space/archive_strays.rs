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

fn restored(dir: &TempDir, from: RestoreFrom) -> palisade::Result<(Entries, Vec<PathBuf>)> {
    let into = dir.path().join("restored");
    let _ = fs::remove_dir_all(&into);
    let restore = Restore::plan(from, None, &mut |_| {})?;
    let strays = restore.strays().to_vec();
    restore.write(&into, &mut |_| {})?;
    Ok((contents(&small().open(&into).unwrap()), strays))
}

/// Protection: the log is whole, so nothing sends its user to a repair.
#[test]
fn a_stray_file_in_place_of_a_segment_is_no_damage_to_the_log() {
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

/// The archive has lost the file that names its log. The log's folder names it.
#[test]
fn a_restore_finds_its_logs_segments_among_more_of_another() {
    let (dir, path, archive, wal, records) = with_one_archived();
    fs::remove_file(archive.join(format!("archive-of-{}", wal.uuid()))).unwrap();
    wal.close().unwrap();
    let (_other, others) = of_another_log();
    let strays: Vec<PathBuf> = (10..13).map(|number| segment(&archive, number)).collect();
    for (from, to) in others.iter().zip(&strays) {
        fs::copy(from, to).unwrap();
    }
    let from = RestoreFrom::archive(&archive).with_log(&path);
    assert_eq!(restored(&dir, from).unwrap(), (records, strays));
}

/// A copy of a segment in use ends before the segment's records do.
#[test]
fn a_segment_copied_while_in_use_is_restored_from_the_log() {
    for more in [0, 2, 30] {
        let (dir, path, archive, wal, mut records) = with_one_archived();
        wal.sync().unwrap();
        let last = records[59].0.segment(SEGMENT_BYTES);
        let copies: Vec<PathBuf> = (1..=last).map(|number| segment(&archive, number)).collect();
        for (number, copy) in (1..).zip(&copies) {
            fs::copy(segment(&path, number), copy).unwrap();
        }
        records.extend(append_bytes(&wal, 100..100 + more, 4000));
        wal.close().unwrap();
        let both = || RestoreFrom::archive(&archive).with_log(&path);
        let copy = copies.last().unwrap();
        if more == 30 {
            assert_eq!(restored(&dir, both()).unwrap(), (records, vec![copy.clone()]));
            continue;
        }
        // Nothing tells whether the archived segment had more records than the log.
        let error = restored(&dir, both()).unwrap_err();
        let text = error.to_string();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&**copy)), "{text}");
        assert!(error.lsn() > Some(records.last().unwrap().0), "{text}");
        assert!(text.contains("move it away"), "{text}");
        fs::remove_file(copy).unwrap();
        assert_eq!(restored(&dir, both()).unwrap().0, records);
    }
}

/// Protection: an older copy of the log does not end what the archive had, whatever rots there.
#[test]
fn a_damaged_archived_segment_is_not_replaced_by_a_shorter_one() {
    let (dir, path, archive, wal, mut records) = with_one_archived();
    let backup = dir.path().join("backup");
    wal.backup_to(&backup).unwrap();
    let last = records[59].0.segment(SEGMENT_BYTES);
    let rots = records.iter().position(|(lsn, _)| *lsn >= Lsn::new(last * SEGMENT_BYTES)).unwrap();
    assert!(rots < 58);
    records.extend(append_bytes(&wal, 100..130, 4000));
    let above = records.iter().find(|(lsn, _)| *lsn >= Lsn::new((last + 1) * SEGMENT_BYTES));
    wal.truncate_before(above.unwrap().0).unwrap();
    wal.close().unwrap();
    assert!(segment(&archive, last).exists() && !segment(&archive, last + 1).exists());
    let (file, at) = place_of(&archive, records[rots].0.plus(100), SEGMENT_BYTES);
    flip(&file, at);
    let from = RestoreFrom::archive(&archive).with_log(&backup);
    let error = restored(&dir, from.clone()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*file)), "{error}");
    // The backup has the record that rots.
    assert_eq!(error.lsn(), Some(records[59].0.plus(framed_bytes(4000))), "{error}");
    let restore = Restore::plan(from, error.lsn(), &mut |_| {}).unwrap();
    assert_eq!((restore.report().records, restore.strays()), (60, &[file][..]));
    assert!(path.exists());
}
