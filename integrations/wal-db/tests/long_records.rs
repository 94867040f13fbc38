//! Records that are too long for one record of the log below, which are stored in parts.

mod common;

use std::io::ErrorKind;
use std::path::Path;

use palisade::disk::DEFAULT_FILE_MODE;
use palisade::sim::SimDisk;
use palisade::{Codec, Options};
use wal_db::{FileStore, Lsn, MemStore, Wal, WalConfig, WalError};

use common::{Place, contents, corrupt_at, kind_of};

#[test]
fn records_up_to_the_limit_are_read_and_longer_ones_refused() {
    let place = Place::new();
    let long: Vec<u8> = (0..5_000_000_u32).map(|number| (number >> 3) as u8).collect();
    let config = WalConfig::new().with_max_record_size(long.len() as u32);
    let wal = Wal::open_with(place.log(), config).unwrap();
    let before = wal.append(b"before").unwrap();
    let at = wal.append_and_sync(&long).unwrap();
    let after = wal.append(b"after").unwrap();
    let refused = wal.append(&vec![0; long.len() + 1]).unwrap_err();
    let expected = (long.len() + 1, long.len() as u32);
    assert!(matches!(refused, WalError::RecordTooLarge { len, max } if (len, max) == expected));
    drop(wal);

    let wal = Wal::open_with(place.log(), config).unwrap();
    let found: Vec<_> = wal.iter().unwrap().map(|record| record.unwrap()).collect();
    assert_eq!(found.iter().map(wal_db::Record::lsn).collect::<Vec<_>>(), [before, at, after]);
    assert!(found[1].data() == long);
    // An LSN within the record is not that of a record.
    let part = wal.log().records().unwrap().into_iter().nth(2).unwrap().unwrap().lsn();
    let part = Lsn::new(part.as_u64());
    assert_eq!(corrupt_at(wal.iter_from(part).unwrap().next().unwrap()), part.get());
    assert_eq!(corrupt_at(wal.truncate_after(part)), part.get());

    wal.truncate_after(at).unwrap();
    assert_eq!(contents(&wal).len(), 2);
    wal.append(b"again").unwrap();
    assert_eq!(contents(&wal).last().unwrap(), b"again");
}

#[test]
fn a_segmented_log_is_truncated_at_long_records() {
    let place = Place::new();
    let open = || Wal::open_segmented(place.path("wal"), 64 << 10).unwrap();
    let wal = open();
    let records: Vec<_> = (0..5).map(|number| vec![number; 200_000]).collect();
    let lsns: Vec<_> = records.iter().map(|record| wal.append(record).unwrap()).collect();
    // An LSN within a record is not that of a record.
    let part = wal.log().records().unwrap().into_iter().nth(1).unwrap().unwrap().lsn().as_u64();
    assert!(lsns[0].get() < part && part < lsns[1].get());
    assert_eq!(corrupt_at(wal.truncate_before(Lsn::new(part))), part);
    assert_eq!(corrupt_at(wal.truncate_after(Lsn::new(part))), part);
    assert!(contents(&wal) == records);

    assert_eq!(wal.truncate_before(lsns[1]).unwrap(), lsns[1]);
    wal.truncate_after(lsns[3]).unwrap();
    assert!(contents(&wal) == records[1..4]);
    assert_eq!(corrupt_at(wal.truncate_after(lsns[4])), lsns[4].get());
    wal.log().clone().abandon();
    drop(wal);
    let wal = open();
    assert!(contents(&wal) == records[1..4]);
    wal.append(&records[0]).unwrap();
    assert!(contents(&wal)[3] == records[0]);
}

#[test]
fn a_log_with_only_an_incomplete_long_record_is_empty() {
    let place = Place::new();
    let wal = Wal::open(place.log()).unwrap();
    // What a crash leaves after one part, and after two.
    let mut first = 5_000_000_u64.to_le_bytes().to_vec();
    first.resize(1000, 1);
    for part in 1..=2 {
        wal.log().append_tagged(part, &first).unwrap();
        assert!(wal.is_empty() && contents(&wal).is_empty());
    }
    drop(wal);
    let wal = Wal::open(place.log()).unwrap();
    assert!(wal.is_empty() && contents(&wal).is_empty());
    wal.append(&vec![2; 1_000_000]).unwrap();
    assert!(!wal.is_empty());
}

#[test]
fn a_long_record_that_was_not_completed_is_no_record() {
    let place = Place::new();
    let wal = Wal::open(place.log()).unwrap();
    wal.append(b"before").unwrap();
    // What a crash leaves after two parts.
    let most = wal.log().max_record_bytes();
    let mut first = 5_000_000_u64.to_le_bytes().to_vec();
    first.resize(most, 1);
    wal.log().append_tagged(1, &first).unwrap();
    wal.log().append_tagged(2, &vec![1; most]).unwrap();
    drop(wal);
    let wal = Wal::open(place.log()).unwrap();
    wal.append(b"after").unwrap();
    wal.append(&vec![2; 3 * most]).unwrap();
    assert_eq!(contents(&wal), [b"before".to_vec(), b"after".to_vec(), vec![2; 3 * most]]);
}

#[test]
fn the_lsn_of_an_incomplete_long_record_is_an_earlier_end() {
    let wal = Wal::with_store(MemStore::new()).unwrap();
    wal.append(b"before").unwrap();
    let mut first = 5_000_000_u64.to_le_bytes().to_vec();
    first.resize(1000, 1);
    let lsn = Lsn::new(wal.log().append_tagged(1, &first).unwrap().lsn().as_u64());
    let check = |expected: &[&[u8]]| {
        // It is an earlier end of the log, so an iterator from there has the records above.
        let above = wal.iter_from(lsn).unwrap().map(|record| record.unwrap().into_data());
        assert_eq!(above.collect::<Vec<_>>(), expected[1..]);
        assert_eq!(corrupt_at(wal.truncate_after(lsn)), lsn.get());
        assert_eq!(contents(&wal), expected);
    };
    check(&[b"before"]);
    wal.append(b"after").unwrap();
    check(&[b"before", b"after"]);
}

/// The process dies at a call within the append of a long record. An engine has saved the end of
/// the log before that.
#[test]
fn the_end_before_a_long_append_is_accepted_after_any_crash() {
    let mut were_lost = 0;
    for call in 0..30 {
        let disk = SimDisk::new(call);
        let os = disk.as_disk();
        os.create_folder(Path::new("/db"), DEFAULT_FILE_MODE).unwrap();
        os.open_folder(Path::new("/"), DEFAULT_FILE_MODE).unwrap().sync().unwrap();
        let open = || {
            let store = FileStore::open_on(disk.as_disk(), Path::new("/db/wal.log")).unwrap();
            let options = Options::new().segment_bytes(64 << 10).buffer_bytes(4 << 10);
            Wal::with_store(store.with_options(options)).unwrap()
        };
        let wal = open();
        wal.append_and_sync(b"before").unwrap();
        let saved = Lsn::new(wal.len());
        disk.crash_at(disk.calls() + call);
        let _ = wal.append_and_sync(&[9; 60_000]);
        disk.kill();
        drop(wal);
        if call % 2 == 0 {
            disk.restart()
        } else {
            disk.lose_power()
        }

        let wal = open();
        let is_lost = contents(&wal).len() == 1;
        were_lost += u32::from(is_lost);
        wal.append(b"after").unwrap();
        let found = wal.iter_from(saved).unwrap().map(|record| record.unwrap().into_data());
        let expected = [vec![9; 60_000], b"after".to_vec()];
        assert!(found.eq(expected.into_iter().skip(usize::from(is_lost))), "call {call}");
    }
    assert!(were_lost > 5, "{were_lost}");
}

/// A codec that makes each record eight bytes longer.
#[derive(Debug)]
struct Longer;

impl Codec for Longer {
    fn name(&self) -> &str {
        "test-longer"
    }

    fn encode(&self, _tag: u16, data: &[u8], into: &mut Vec<u8>) -> palisade::Result<()> {
        into.extend([0; 8]);
        into.extend(data);
        Ok(())
    }

    fn decode(&self, _tag: u16, stored: &[u8], into: &mut [u8]) -> palisade::Result<usize> {
        into.copy_from_slice(&stored[8..]);
        Ok(stored.len() - 8)
    }
}

#[test]
fn records_of_any_length_fit_with_a_codec_that_lengthens_them() {
    for buffer_bytes in [4 << 10, 64 << 10] {
        let place = Place::new();
        let options = Options::new().buffer_bytes(buffer_bytes).codec(Longer);
        let store = FileStore::open(place.log()).unwrap().with_options(options);
        let wal = Wal::with_store(store).unwrap();
        let most = wal.log().max_record_bytes();
        let lens = [most - 9, most - 8, most - 7, most, most + 1, 10 * most];
        let records = lens.map(|len| vec![5; len]);
        for record in &records {
            wal.append_and_sync(record).unwrap();
        }
        assert!(contents(&wal) == records);
    }
}

/// The options of a log of at most eight segments of 64 KiB.
fn small() -> Options {
    let segment_bytes = 64 << 10;
    let options = Options::new().segment_bytes(segment_bytes).buffer_bytes(64 << 10);
    options.max_bytes(8 * (segment_bytes + 4096))
}

fn open_small(place: &Place) -> Wal {
    Wal::with_store(FileStore::open(place.log()).unwrap().with_options(small())).unwrap()
}

#[test]
fn a_long_record_that_does_not_fit_leaves_the_log_as_it_was() {
    // The first one is above the limit of the log. Of the other one, some parts fit.
    for bytes in [1 << 20, (8 << 16) - 1000] {
        let place = Place::new();
        let wal = open_small(&place);
        let too_long = vec![1; bytes];
        for _ in 0..5 {
            assert_eq!(kind_of(wal.append(&too_long)), ErrorKind::StorageFull);
            assert!(contents(&wal).is_empty() && wal.is_empty());
        }
        let mut expected = vec![vec![2; 1000]];
        wal.append(&expected[0]).unwrap();
        wal.sync().unwrap();
        for _ in 0..20 {
            assert_eq!(kind_of(wal.append_and_sync(&too_long)), ErrorKind::StorageFull);
            expected.push(vec![2; 1000]);
            wal.append_and_sync(&expected[0]).unwrap();
        }
        let space = wal.log().space().unwrap();
        assert!(space.segments <= 3, "refused records take {} segments", space.segments);
        expected.push(vec![3; 200_000]);
        wal.append_and_sync(&vec![3; 200_000]).unwrap();
        assert!(contents(&wal) == expected);
        wal.log().clone().abandon();
        drop(wal);
        assert!(contents(&open_small(&place)) == expected);
    }
}

#[test]
fn readers_do_not_see_the_parts_of_a_record_that_does_not_fit() {
    let place = Place::new();
    let wal = open_small(&place);
    wal.append(b"small").unwrap();
    wal.append(&vec![1; (8 << 16) - 1000]).unwrap_err();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let end = wal.len();
            for _ in 0..20 {
                // Seven segments are free, and two parts fit into each.
                wal.append(&vec![1; (7 << 16) - 100]).unwrap_err();
            }
            assert!(wal.len() > end, "no part was appended");
        });
        while !writer.is_finished() {
            assert_eq!(contents(&wal), [b"small"]);
            assert!(!wal.is_empty());
        }
    });
}

/// A codec that keeps the first eight bytes of a record, and the last one for all others.
#[derive(Debug)]
struct Shorter;

impl Codec for Shorter {
    fn name(&self) -> &str {
        "test-shorter"
    }

    fn encode(&self, _tag: u16, data: &[u8], into: &mut Vec<u8>) -> palisade::Result<()> {
        into.extend(&data[..8]);
        into.extend(data.last());
        Ok(())
    }

    fn decode(&self, _tag: u16, stored: &[u8], into: &mut [u8]) -> palisade::Result<usize> {
        into.fill(stored[8]);
        into[..8].copy_from_slice(&stored[..8]);
        Ok(into.len())
    }
}

#[test]
fn a_codec_that_shortens_records_lets_a_longer_one_fit() {
    let place = Place::new();
    let store = FileStore::open(place.log()).unwrap().with_options(small().codec(Shorter));
    let wal = Wal::with_store(store).unwrap();
    let record = vec![5; 1 << 20];
    wal.append_and_sync(&record).unwrap();
    assert!(contents(&wal) == [record]);
}
