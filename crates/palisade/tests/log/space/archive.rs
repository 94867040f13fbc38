//! The archive: released segments are copied into a folder, readable, before the log loses them.

use palisade::disk::OsDisk;

use crate::prelude::*;

fn archiving(archive: &Path) -> Options {
    small().on_release(Archive::open(archive).unwrap())
}

/// A log that archives: its folders, itself, and the records that were appended to it.
fn with_sixty_records() -> (TempDir, PathBuf, PathBuf, Wal, Entries) {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let wal = archiving(&archive).open(&path).unwrap();
    let records = append_bytes(&wal, 0..60, 4000);
    (dir, path, archive, wal, records)
}

/// The archive has `expected`, and then an error at `bad`: what is missing is no end.
fn assert_damaged(archive: &Path, expected: &[(Lsn, Vec<u8>)], bad: Lsn) {
    let (found, error) = archived_from(archive, None);
    let error = error.expect("the archive is damaged");
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(bad)), "{error}");
    assert_eq!(found, expected);
}

/// The archive and the log together hold all of `expected`, but for what lies below the head in
/// the head's own segment.
fn assert_kept(archive: &Path, wal: &Wal, expected: &Entries) {
    let released = archived(archive);
    let head = wal.head_lsn();
    assert!(!released.is_empty());
    assert_eq!(released, expected[..released.len()]);
    let behind = &expected[released.len()..];
    assert!(behind[0].0 >= Lsn::new(head.as_u64() - head.as_u64() % SEGMENT_BYTES));
    let from_head: Entries = behind.iter().filter(|(lsn, _)| *lsn >= head).cloned().collect();
    assert_eq!(contents(wal), from_head);
}

/// The archive has the first 40 of `expected` at least, and nothing else.
fn assert_kept_from(archive: &Path, expected: &Entries) {
    let released = archived(archive);
    assert!(released.len() >= 40 && released == expected[..released.len()]);
}

#[test]
fn released_segments_stay_readable_across_runs_and_truncations() {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let mut expected = Entries::new();
    for run in 0..4_u8 {
        let wal = archiving(&archive).open(&path).unwrap();
        expected.extend(append_bytes(&wal, run * 50..run * 50 + 40, 4000));
        if run % 2 == 0 {
            // What is truncated is in no archive.
            let kept = expected.len() - 10;
            wal.truncate_after(expected[kept].0).unwrap();
            expected.truncate(kept + 1);
            expected.extend(append_bytes(&wal, 240..250, 4000));
        }
        wal.truncate_before(expected[expected.len() - 3].0).unwrap();
        assert_kept(&archive, &wal, &expected);
        if run == 1 {
            wal.close().unwrap();
        }
    }
}

/// The error names the archive's folder, and nothing was released.
fn assert_not_there(error: &Error, archive: &Path, log: &Path) {
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{text}");
    assert_eq!(error.path(), Some(archive), "{text}");
    assert!(text.contains("mount"), "{text}");
    assert!(place_of(log, Lsn::ZERO, SEGMENT_BYTES).0.exists());
}

/// Protection: another folder in the archive's place gets no segment, and the log keeps it.
#[test]
fn what_cannot_be_archived_stays_in_the_log_until_it_can() {
    let (dir, path, archive, wal, expected) = with_sixty_records();
    let moved = dir.path().join("moved");
    fs::rename(&archive, &moved).unwrap();
    let head = expected[50].0;
    assert_not_there(&wal.truncate_before(head).unwrap_err(), &archive, &path);
    fs::create_dir(&archive).unwrap();
    assert_not_there(&wal.truncate_before(head).unwrap_err(), &archive, &path);
    wal.commit(b"the log goes on").unwrap();
    assert_eq!((snapshot(&archive).len(), snapshot(&moved).len()), (0, 0));
    fs::remove_dir(&archive).unwrap();
    fs::rename(&moved, &archive).unwrap();
    wal.truncate_before(head).unwrap();
    assert!(!place_of(&path, Lsn::ZERO, SEGMENT_BYTES).0.exists());
    assert_kept_from(&archive, &expected);
}

/// Protection: a folder that is not the log's archive gets none of the later segments.
#[test]
fn an_empty_folder_does_not_continue_a_moved_archive() {
    let (dir, path, archive, wal, mut expected) = with_sixty_records();
    wal.truncate_before(expected[20].0).unwrap();
    drop(wal);
    let moved = dir.path().join("moved");
    fs::rename(&archive, &moved).unwrap();

    // A mount point without its disk.
    fs::create_dir(&archive).unwrap();
    let wal = archiving(&archive).open(&path).unwrap();
    expected.extend(append_bytes(&wal, 100..160, 4000));
    let error = wal.truncate_before(expected[110].0).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*archive)), "{error}");
    let owner = format!("archive-of-{}", wal.uuid());
    assert!(error.to_string().contains(&owner), "{error}");
    assert_eq!(snapshot(&archive).len(), 0);
    assert!(place_of(&path, expected[20].0, SEGMENT_BYTES).0.exists(), "it stays in the log");
    drop(wal);

    // The operator decides that an archive begins here; later opens go on with it.
    fs::write(archive.join(&owner), []).unwrap();
    let wal = archiving(&archive).open(&path).unwrap();
    wal.truncate_before(expected[110].0).unwrap();
    let first = archived(&moved).len();
    let released = archived(&archive);
    assert!(released.len() > 60 && released == expected[first..first + released.len()]);
    drop(wal);
    let wal = archiving(&archive).open(&path).unwrap();
    wal.truncate_before(expected[118].0).unwrap();
    drop(wal);

    // With the disk mounted the first archive goes on, too.
    let (_killed, killed) = copy_as_killed(&path);
    let wal = archiving(&moved).open(&killed).unwrap();
    let more = append_bytes(&wal, 160..220, 4000);
    wal.truncate_before(more[50].0).unwrap();
    assert!(archived_from(&moved, Some(more[0].0)).0.len() > 30);
}

/// A program that takes the archived segments away leaves the file that says whose archive it is.
#[test]
fn an_archive_goes_on_without_its_segments_or_its_owner_file() {
    let (_dir, path, archive, wal, expected) = with_sixty_records();
    wal.truncate_before(expected[20].0).unwrap();
    let owner = archive.join(format!("archive-of-{}", wal.uuid()));
    drop(wal);
    let taken = archived(&archive).len();
    fs::remove_file(segment(&archive, 0)).unwrap();
    let wal = archiving(&archive).open(&path).unwrap();
    wal.truncate_before(expected[40].0).unwrap();
    let released = archived(&archive);
    assert!(released.len() >= 15 && released == expected[taken..taken + released.len()]);
    drop(wal);
    // The headers of the segments name the log, too.
    fs::remove_file(&owner).unwrap();
    let wal = archiving(&archive).open(&path).unwrap();
    let more = append_bytes(&wal, 60..100, 4000);
    wal.truncate_before(more[30].0).unwrap();
    assert!(owner.exists());
    assert!(archived(&archive).len() > released.len());
}

/// Its first epoch had no records, so its number is not that of the log's first segment.
#[test]
fn an_archive_begins_at_the_first_segment_with_records() {
    for begin in [Lsn::ZERO, Lsn::new(7 * SEGMENT_BYTES)] {
        let (dir, path) = folder();
        let archive = dir.path().join("archive");
        let options = archiving(&archive).first_lsn(begin);
        drop(options.open(&path).unwrap());
        drop(options.open(&path).unwrap());
        let wal = options.open(&path).unwrap();
        let records = append_bytes(&wal, 0..60, 4000);
        wal.truncate_before(records[50].0).unwrap();
        assert_kept_from(&archive, &records);
    }
}

/// Records are as secret in the archive as in the log.
#[cfg(unix)]
#[test]
fn archived_files_and_their_folder_are_for_their_user_only() {
    use std::os::unix::fs::MetadataExt;
    let (_dir, _path, archive, wal, expected) = with_sixty_records();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&archive), 0o700);
    wal.truncate_before(expected[50].0).unwrap();
    let names: Vec<String> = snapshot(&archive).into_keys().collect();
    assert!(names.len() > 2, "{names:?}");
    for name in names {
        assert_eq!(mode(&archive.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn a_reader_keeps_its_segments_from_being_archived() {
    let (_dir, _path, archive, wal, expected) = with_sixty_records();
    let mut records = wal.records().unwrap();
    wal.truncate_before(expected[50].0).unwrap();
    assert_eq!(ArchiveReader::open(&archive).unwrap_err().kind(), ErrorKind::NotFound);
    for (lsn, _) in &expected {
        assert_eq!(records.next().unwrap().unwrap().lsn(), *lsn);
    }
    drop(records);
    assert!(archived(&archive).len() >= 40);
}

#[test]
fn damage_in_an_archive_is_named_and_not_passed_over() {
    let (_dir, _path, archive, wal, expected) = with_sixty_records();
    wal.truncate_before(expected[50].0).unwrap();
    let (file, at) = place_of(&archive, expected[20].0.plus(100), SEGMENT_BYTES);
    flip(&file, at);
    assert_damaged(&archive, &expected[..20], expected[20].0);
    fs::remove_file(file).unwrap();
    let base = Lsn::new(expected[20].0.segment(SEGMENT_BYTES) * SEGMENT_BYTES);
    let below = expected.iter().take_while(|(lsn, _)| *lsn < base).count();
    assert_damaged(&archive, &expected[..below], base);
}

#[test]
fn an_archive_that_cannot_be_there_is_refused() {
    let (dir, _path) = folder();
    let file = dir.path().join("file");
    fs::write(&file, "a file").unwrap();
    for (path, kind) in [
        (dir.path().join("not mounted").join("archive"), ErrorKind::NotFound),
        (PathBuf::new(), ErrorKind::InvalidArgument),
        (file, ErrorKind::Foreign),
    ] {
        let error = Archive::open(&path).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let missing = ArchiveReader::open(dir.path().join("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
}

/// A copy would take the place of what it is made of, and then be freed.
#[test]
fn a_logs_folder_is_no_archive_by_whatever_name() {
    let (_dir, path) = folder();
    drop(small().open(&path).unwrap());
    let before = snapshot(&path);
    for name in [path.clone(), path.join("..").join(path.file_name().unwrap())] {
        let error = Archive::open(&name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(snapshot(&path), before);
    }
}

#[test]
fn a_folder_in_which_a_log_was_made_later_is_no_archive() {
    let (_dir, path) = folder();
    let wal = archiving(&path).open(&path).unwrap();
    let expected = append_bytes(&wal, 0..60, 4000);
    let error = wal.truncate_before(expected[50].0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    for number in 0..2 {
        let base = Lsn::new(number * SEGMENT_BYTES);
        assert!(place_of(&path, base, SEGMENT_BYTES).0.exists(), "it stays in the log");
    }
}

/// The error names the archive, and both logs.
fn assert_others(error: &Error, archive: &Path) {
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let text = error.to_string();
    assert!(text.contains(archive.to_str().unwrap()), "{text}");
    let is_uuid =
        |word: &&str| word.len() >= 32 && word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let words = text.split([' ', ',', ':', ';']);
    let uuids: BTreeSet<&str> = words.filter(is_uuid).collect();
    assert_eq!(uuids.len(), 2, "both logs are named: {text}");
}

#[test]
fn an_archive_of_another_log_is_refused_and_left_as_it_is() {
    let (_dir, path, archive, wal, expected) = with_sixty_records();
    wal.truncate_before(expected[50].0).unwrap();
    drop(wal);
    // The other log's first copy would replace nothing.
    fs::remove_file(place_of(&archive, Lsn::ZERO, SEGMENT_BYTES).0).unwrap();
    let before = snapshot(&archive);
    assert!(!before.is_empty());
    // A log that was deleted and made again is another one.
    fs::remove_dir_all(&path).unwrap();
    let wal = archiving(&archive).open(&path).unwrap();
    let others = append_bytes(&wal, 0..60, 4000);
    for _ in 0..2 {
        assert_others(&wal.truncate_before(others[50].0).unwrap_err(), &archive);
        assert!(place_of(&path, Lsn::ZERO, SEGMENT_BYTES).0.exists(), "it stays in the log");
    }
    assert_eq!(snapshot(&archive), before);
}

/// Each of the two has seen an empty folder, and a file that it may not replace.
#[test]
fn two_logs_with_one_archive_never_replace_each_others_segments() {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let other_path = dir.path().join("other");
    let wal = archiving(&archive).open(&path).unwrap();
    let other = archiving(&archive).open(&other_path).unwrap();
    let expected = append_bytes(&wal, 0..60, 4000);
    let others = append_bytes(&other, 100..160, 4000);
    wal.truncate_before(expected[20].0).unwrap();
    let before = snapshot(&archive);
    assert_others(&other.truncate_before(others[50].0).unwrap_err(), &archive);
    assert_eq!(snapshot(&archive), before);
    // A file of the other log that came behind the first one's back.
    let name = format!("segment-{:020}", 1);
    fs::copy(other_path.join(&name), archive.join(&name)).unwrap();
    assert_others(&wal.truncate_before(expected[50].0).unwrap_err(), &archive);
    assert!(path.join(&name).exists());
    other.commit(b"the log goes on").unwrap();
    drop(other);
    // With an archive of its own nothing of it is lost.
    let own = dir.path().join("own");
    let other = archiving(&own).open(&other_path).unwrap();
    other.truncate_before(others[50].0).unwrap();
    assert_kept_from(&own, &others);
}

#[test]
fn an_interrupted_copy_is_made_again_and_is_no_segment() {
    let (_dir, _path, archive, wal, expected) = with_sixty_records();
    let temp = archive.join(format!("segment-{}.tmp", wal.uuid()));
    fs::write(&temp, vec![7; 200_000]).unwrap();
    assert_eq!(ArchiveReader::open(&archive).unwrap_err().kind(), ErrorKind::NotFound);
    wal.truncate_before(expected[50].0).unwrap();
    assert!(!temp.exists());
    assert_kept_from(&archive, &expected);
}

/// A copy that cannot be completed gets no segment's name, and gives its space back.
#[test]
fn a_copy_for_which_space_is_lacking_leaves_no_file() {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let disk = FaultDisk::new(Arc::new(OsDisk));
    let opened = Archive::open_on(Arc::new(disk.clone()), &archive).unwrap();
    let wal = small().on_release(opened).open(&path).unwrap();
    let expected = append_bytes(&wal, 0..60, 4000);
    for kind in [CallKind::Create, CallKind::Write, CallKind::Sync, CallKind::Rename] {
        let target = if kind == CallKind::Rename { Target::Segment } else { Target::Other };
        disk.set((kind, target), Effect::NoSpace);
        let error = wal.truncate_before(expected[50].0).unwrap_err();
        assert_eq!((error.kind(), error.segment()), (ErrorKind::NoSpace, Some(0)), "{error}");
        assert_eq!(bytes_of(&archive), 0, "{kind:?}");
        assert!(place_of(&path, Lsn::ZERO, SEGMENT_BYTES).0.exists());
        disk.set((kind, target), Effect::Pass);
    }
    wal.truncate_before(expected[50].0).unwrap();
    assert_kept_from(&archive, &expected);
}

fn bytes_of(folder: &Path) -> usize {
    snapshot(folder).values().map(Vec::len).sum()
}

/// What a damaged log lacks is found missing by the reader of its archive, too.
#[test]
fn a_segment_whose_file_is_too_short_is_damaged_in_the_archive() {
    let (_dir, path, archive, wal, expected) = with_sixty_records();
    wal.sync().unwrap();
    let (file, at) = place_of(&path, expected[20].0.plus(100), SEGMENT_BYTES);
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(at).unwrap();
    wal.truncate_before(expected[50].0).unwrap();
    let copy = archive.join(file.file_name().unwrap());
    assert_eq!(fs::metadata(copy).unwrap().len(), 4096 + SEGMENT_BYTES);
    assert_damaged(&archive, &expected[..20], expected[20].0);
}

#[test]
fn a_failing_archive_keeps_segments_and_does_not_block_opens() {
    let (_dir, path, archive, wal, expected) = with_sixty_records();
    // A file that cannot be read.
    let (first, _) = place_of(&archive, Lsn::ZERO, SEGMENT_BYTES);
    fs::create_dir(&first).unwrap();
    let head = expected[50].0;
    assert_eq!(wal.truncate_before(head).unwrap_err().kind(), ErrorKind::Foreign);
    let (_copy, killed) = copy_as_killed(&path);
    drop(wal);
    let wal = archiving(&archive).open(&killed).unwrap();
    assert!(!wal.recovery_report().clean);
    assert!(place_of(&killed, Lsn::ZERO, SEGMENT_BYTES).0.exists(), "it stays in the log");
    assert_eq!(wal.head_lsn(), head);
    wal.commit(b"the log goes on").unwrap();
    let error = wal.truncate_before(head).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert!(error.to_string().contains(first.to_str().unwrap()), "{error}");
    fs::remove_dir(&first).unwrap();
    wal.truncate_before(head).unwrap();
    assert!(!place_of(&killed, Lsn::ZERO, SEGMENT_BYTES).0.exists());
    assert_kept_from(&archive, &expected);
}

#[test]
fn what_cannot_be_freed_fails_the_open() {
    let (wal, store) = new_log(SEGMENT_BYTES, Options::new());
    let records = append_bytes(&wal, 0..60, 4000);
    wal.flush_to_os(records[59].0).unwrap();
    // Segments of which a power loss leaves nothing lie between the end and the next epoch.
    let store = store.after_power_loss(wal);
    RELEASE.iter().for_each(|op| store.set(*op, Effect::Eio));
    let error = store.try_open(Options::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[test]
fn an_archive_may_lie_in_the_logs_folder() {
    let (_dir, path) = folder();
    let archive = path.join("archive");
    drop(small().open(&path).unwrap());
    let wal = archiving(&archive).open(&path).unwrap();
    let expected = append_bytes(&wal, 0..60, 4000);
    wal.truncate_before(expected[50].0).unwrap();
    drop(wal);
    let wal = archiving(&archive).open(&path).unwrap();
    assert_kept(&archive, &wal, &expected);
}

#[test]
fn a_damaged_header_brings_no_truncated_record_into_the_archive() {
    // In the run that began the epoch, and in one that found it.
    for reopens in [false, true] {
        truncate_then_rot(reopens);
    }
}

fn truncate_then_rot(reopens: bool) {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let mut wal = archiving(&archive).open(&path).unwrap();
    let kept = append_bytes(&wal, 0..40, 4000);
    wal.truncate_after(kept[29].0).unwrap();
    let more = append_bytes(&wal, 100..160, 4000);
    if reopens {
        wal.close().unwrap();
        wal = archiving(&archive).open(&path).unwrap();
    }
    let (file, _) = place_of(&path, more[0].0, SEGMENT_BYTES);
    flip(&file, 50);
    let error = wal.truncate_before(more[50].0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(file.exists());
    assert_eq!(archived(&archive), kept[..30]);
}

/// Protection: an open frees the segments of an empty epoch, which lie above others that are still
/// to be archived.
#[test]
fn discarded_ranges_below_what_an_open_frees_are_kept() {
    watch();
    for truncates in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (path, archive) = (dir.path().join("log"), dir.path().join("archive"));
        let open = || archiving(&archive).open(&path).unwrap();
        let wal = open();
        let stays = wal.append(b"stays").unwrap().lsn();
        if truncates {
            let gone = wal.append(b"truncated").unwrap().lsn();
            wal.truncate_from(gone).unwrap();
        }
        drop(wal);
        let wal = open();
        let next = wal.append(b"stays, too").unwrap().lsn();
        drop(wal);
        drop(open());
        open().truncate_before(next).unwrap();
        assert_eq!(archived(&archive), [(stays, b"stays".to_vec())]);
    }
}
