//! What works on stored bytes needs no codec, and what it makes of a log has the log's codec.

use crate::prelude::*;

fn masked() -> Options {
    heap().codec(Masked(0x5a))
}

/// `path` is a log with this codec and these records.
fn assert_log(path: &Path, records: &[(Lsn, Vec<u8>)]) {
    assert_eq!(small().open(path).unwrap_err().kind(), ErrorKind::Mismatch);
    let wal = masked().verify(Verify::Full).open(path).unwrap();
    assert_eq!(contents(&wal)[..], *records);
}

#[test]
fn verification_finds_nothing_and_damage_where_there_is_some() {
    let (_dir, path, wal) = log_on_files(masked());
    let records = append_bytes(&wal, 0..60, 3000);
    wal.checkpoint(records[59].0).unwrap();
    let (_copy, path) = copy_as_killed(&path);
    let inspector = Inspector::open(&path).unwrap();
    for verdict in [inspector.verify().unwrap(), inspector.verify_deep(1).unwrap()] {
        assert_eq!((verdict.outcome, verdict.records), (Outcome::Unclean, 60));
    }
    let (file, at) = place_of(&path, records[7].0, SEGMENT_BYTES);
    flip(&file, at + 100);
    let verdict = inspector.verify_deep(1).unwrap();
    assert_eq!((verdict.outcome, verdict.end), (Outcome::Corrupt, records[7].0));
    let repaired = path.with_file_name("repaired");
    let report = repair(&path, &repaired, records[7].0).unwrap();
    assert_eq!((report.records, report.given_up_records), (7, 52));
    assert_log(&repaired, &records[..7]);
}

/// The readers of the tools return stored bytes, and say so.
#[test]
fn tools_return_stored_bytes_and_say_so() {
    let (_dir, path, wal) = log_on_files(masked());
    let lsn = wal.append_tagged(3, b"abc").unwrap().lsn();
    wal.close().unwrap();
    let inspector = Inspector::open(&path).unwrap();
    let stored = [&3_u16.to_le_bytes()[..], &b"abc".map(|b| b ^ 0x5a), &3_u32.to_le_bytes()];
    let mut records = inspector.records(None).unwrap();
    let record = records.next().unwrap().unwrap();
    assert!(record.is_encoded() && record.lsn() == lsn && record.tag() == 3);
    assert_eq!(record.data(), stored.concat());
    let mut salvage = inspector.salvage(None).unwrap();
    let Some(Salvaged::Record(record)) = salvage.next().unwrap() else { panic!("a record") };
    assert!(record.is_encoded() && record.data() == stored.concat());
}

#[test]
fn a_killed_log_is_recovered_and_a_closed_log_goes_on() {
    let (_dir, path, wal) = log_on_files(masked());
    let mut records = append_bytes(&wal, 0..30, 3000);
    wal.sync().unwrap();
    let (_copy, path) = copy_as_killed(&path);
    assert_log(&path, &records);
    let wal = masked().open(&path).unwrap();
    records.extend(append_bytes(&wal, 0..5, 3000));
    wal.close().unwrap();
    assert_log(&path, &records);
}

#[test]
fn a_backup_has_the_codec() {
    let (_dir, path, wal) = log_on_files(masked());
    let records = append_bytes(&wal, 0..30, 3000);
    let backup = path.with_file_name("backup");
    wal.backup_to(&backup).unwrap();
    assert_log(&backup, &records);
}

/// Protection: the header of each segment names the codec, too. An archive has nothing else.
#[test]
fn a_log_restored_from_an_archive_alone_has_the_codec() {
    let (dir, path) = folder();
    let archive = dir.path().join("archive");
    let wal = masked().on_release(Archive::open(&archive).unwrap()).open(&path).unwrap();
    let records = append_bytes(&wal, 0..90, 3000);
    wal.truncate_before(records[80].0).unwrap();
    wal.close().unwrap();
    let reader = ArchiveReader::open(&archive).unwrap();
    let mut archived = reader.records(None).unwrap();
    assert!(archived.next().unwrap().unwrap().is_encoded());
    let count = 1 + archived.into_iter().count();
    assert!((50..80).contains(&count), "{count}");
    let restore = |from, into: &str| {
        let into = dir.path().join(into);
        Restore::plan(from, None, &mut |_| {}).unwrap().write(&into, &mut |_| {}).unwrap();
        into
    };
    let alone = restore(RestoreFrom::archive(&archive), "alone");
    assert_log(&alone, &records[..count]);
    let both = restore(RestoreFrom::archive(&archive).with_log(&path), "both");
    assert_log(&both, &records);
    // A log that was copied, and goes on, archives segments that name the codec, too.
    let archive = dir.path().join("archive of the copy");
    let options = masked().on_release(Archive::open(&archive).unwrap());
    let wal = options.open(&both).unwrap();
    wal.truncate_before(wal.reserved_lsn()).unwrap();
    wal.close().unwrap();
    assert_log(&restore(RestoreFrom::archive(&archive), "again"), &records);
}

#[test]
fn a_log_that_lost_its_meta_file_shows_its_codec_to_the_tools() {
    let (_dir, path, wal) = log_on_files(masked());
    append_bytes(&wal, 0..30, 3000);
    wal.close().unwrap();
    fs::remove_file(path.join("meta")).unwrap();
    let inspector = Inspector::open(&path).unwrap();
    assert!(inspector.has_rebuilt_state());
    assert_eq!(inspector.state().unwrap().codec.unwrap().name(), "test-masked");
    assert!(inspector.records(None).unwrap().next().unwrap().unwrap().is_encoded());
}

/// Protection: a version of Palisade without codecs refuses the log, as it has an incompatible
/// feature. A log without a codec has no feature, and zeros in place of a codec.
#[test]
fn meta_and_segments_have_the_feature_bit_only_with_a_codec() {
    for (options, feature) in [(masked(), 1), (heap(), 0)] {
        let (_dir, path, wal) = log_on_files(options);
        append_bytes(&wal, 0..30, 3000);
        wal.close().unwrap();
        let blocks = [("meta", 200), ("segment-00000000000000000000", 104)];
        for (name, codec_at) in blocks.into_iter().chain([("segment-00000000000000000001", 104)]) {
            let bytes = fs::read(path.join(name)).unwrap();
            assert_eq!(bytes[16..20], [feature, 0, 0, 0], "{name}");
            let codec = &bytes[codec_at..codec_at + 48];
            assert_eq!(codec.starts_with(b"test-masked\0"), feature == 1, "{name}");
            let key = if feature == 1 { [0x5a; 16] } else { [0; 16] };
            assert_eq!(codec[32..], key, "{name}");
        }
    }
}
