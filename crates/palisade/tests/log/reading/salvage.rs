//! What is left of a damaged log: salvage gives everything that validates, deep verification names
//! what does not, and neither changes a byte.

use crate::prelude::*;
use crate::two_epochs::{damage, damage_header, log, salvage};

#[test]
fn salvage_goes_on_behind_a_block_that_cannot_be_read() {
    let (wal, store) = new_log(SEGMENT_BYTES, Options::new().buffer_bytes(1 << 14));
    let lsns: Vec<Lsn> = (0..600).map(|_| wal.commit(&[1; 200]).unwrap()).collect();
    wal.close().unwrap();
    let log = Inspector::open_on(store.disk_without(8 * 4096), "/log").unwrap();
    let mut salvage = log.salvage(None).unwrap();
    let (mut found, mut errors) = (Vec::new(), 0);
    loop {
        match salvage.next() {
            Ok(Some(Salvaged::Record(record))) => found.push(record.lsn()),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error.kind(), palisade::ErrorKind::Io, "{error}");
                errors += 1;
                assert!(errors < 10, "it has to come to an end");
            }
        }
    }
    let near = |lsn: &&Lsn| **lsn < Lsn::new(7 * 4096) || **lsn > Lsn::new(10 * 4096);
    let is_there = |lsn: &Lsn| found.binary_search(lsn).is_ok();
    assert!(errors > 0 && lsns.iter().filter(near).all(is_there), "{errors} errors");
}

#[test]
fn salvage_returns_all_valid_records_and_names_what_it_skips() {
    for closed in [false, true] {
        let (_dir, path, records) = log(closed);
        assert_eq!(salvage(&path, None), (records.clone(), vec![]));
        let bad = [0, 5, 6, 300, 699, 700, 1000, 1399];
        bad.iter().for_each(|index| damage(&path, records[*index].0));
        let (found, gaps) = salvage(&path, None);
        let expected: Vec<_> = (0..1400).filter(|index| !bad.contains(index)).collect();
        let expected: Vec<_> = expected.into_iter().map(|index| records[index].clone()).collect();
        assert_eq!(found, expected);
        let froms: Vec<Lsn> = gaps.iter().map(|gap| gap.from).collect();
        let expected: Vec<Lsn> =
            [0, 5, 300, 699, 700, 1000, 1399].iter().map(|index| records[*index].0).collect();
        assert_eq!(froms, expected, "{gaps:?}");
        assert_eq!(gaps[1].to, records[7].0, "neighbours are one gap");
        let (found, _) = salvage(&path, Some(records[1000].0));
        assert_eq!(found, records[1001..1399]);
    }
}

#[test]
fn salvage_reads_on_behind_missing_segments_and_damaged_headers() {
    let (_dir, path, records) = log(false);
    let (file, _) = place_of(&path, records[400].0, SEGMENT_BYTES);
    fs::remove_file(&file).unwrap();
    damage_header(&path, records[100].0);
    damage_header(&path, records[1000].0);
    let segment = records[400].0.as_u64() / SEGMENT_BYTES;
    let is_left = |(lsn, _): &&(Lsn, Vec<u8>)| lsn.as_u64() / SEGMENT_BYTES != segment;
    let expected: Vec<_> = records.iter().filter(is_left).cloned().collect();
    let (found, gaps) = salvage(&path, None);
    assert_eq!(found, expected);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0].from, Lsn::new(segment * SEGMENT_BYTES));
}

#[test]
fn salvage_leaves_out_what_was_truncated_at_both_ends() {
    let (_dir, path, records) = log(false);
    let wal = small().open(&path).unwrap();
    wal.truncate_after(records[999].0).unwrap();
    let last = wal.commit(b"last").unwrap();
    wal.truncate_before(records[400].0).unwrap();
    wal.close().unwrap();
    let (found, gaps) = salvage(&path, None);
    let mut expected = records[400..1000].to_vec();
    expected.push((last, b"last".to_vec()));
    assert_eq!((found, gaps), (expected, vec![]));
}

#[test]
fn deep_verification_names_a_bad_place_of_each_damaged_segment() {
    let (_dir, path, records) = log(true);
    let clean = Inspector::open(&path).unwrap().verify_deep(0).unwrap();
    assert_eq!((clean.outcome, clean.records), (Outcome::Clean, 1400));
    assert_eq!(clean.bad_places, []);
    let bad = [10, 11, 400, 1000, 1300];
    bad.iter().for_each(|index| damage(&path, records[*index].0));
    let before = snapshot(&path);
    for threads in [0, 1, 7] {
        let verdict = Inspector::open(&path).unwrap().verify_deep(threads).unwrap();
        assert_eq!((verdict.outcome, verdict.end), (Outcome::Corrupt, records[10].0));
        let places: Vec<Lsn> = verdict.bad_places.iter().map(|bad| bad.lsn).collect();
        let expected: Vec<Lsn> =
            [10, 400, 1000, 1300].iter().map(|index| records[*index].0).collect();
        assert_eq!(places, expected);
    }
    assert!(snapshot(&path) == before);
    damage_header(&path, records[700].0);
    let headless = Inspector::open(&path).unwrap().verify_deep(0).unwrap();
    let places: Vec<Lsn> = headless.bad_places.iter().map(|bad| bad.lsn).collect();
    assert_eq!(headless.outcome, Outcome::Corrupt);
    for index in [10, 400, 700, 1000, 1300] {
        assert!(places.contains(&records[index].0), "record {index}: {headless:?}");
    }
    assert_eq!(headless.records, 1395, "what still validates behind a damaged header");
    let shallow = Inspector::open(&path).unwrap().verify().unwrap();
    assert_eq!((shallow.outcome, shallow.bad_places.len()), (Outcome::Corrupt, 1));
}
