//! A repair of a log on a bad medium: what it cannot read, and what rots meanwhile.

use crate::prelude::*;

/// A block that the medium cannot read is a bad place like any other: what lies below is kept, up
/// to the record before it.
#[test]
fn a_block_that_cannot_be_read_is_a_bad_place() {
    let (wal, store) = new_log(SEGMENT_BYTES, Options::new().buffer_bytes(1 << 14));
    let lsns: Vec<Lsn> = (0..600).map(|_| wal.commit(&[1; 200]).unwrap()).collect();
    wal.close().unwrap();
    let block = Lsn::new(8 * 4096);
    let bad = *lsns.iter().rfind(|lsn| **lsn < block).unwrap();
    let disk = store.disk_without(block.as_u64());
    let plan = |from| Repair::plan_on(Arc::clone(&disk), Path::new("/log"), from, &mut |_| {});
    let error = plan(lsns[599]).unwrap_err();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::OutOfRange, Some(bad)));
    let kept = plan(bad).unwrap();
    let count = lsns.iter().filter(|lsn| **lsn < bad).count() as u64;
    assert_eq!(kept.report().records, count);
    let given_up = kept.report().given_up_records;
    assert!(given_up < 600 - count && given_up > 400, "{given_up}");
    let copy = Arc::new(MemDisk::new());
    kept.write_on(copy, Path::new("/copy"), &mut |_| {}).unwrap();
}

/// What was checked is checked again when it is copied.
#[test]
fn a_record_that_rots_between_check_and_copy_ends_the_copy() {
    let store = MemStore::new(SEGMENT_BYTES);
    let wal = Wal::with_store(store.clone(), Options::new().buffer_bytes(1 << 14)).unwrap();
    let lsns: Vec<Lsn> = (0..100).map(|_| wal.commit(&[1; 200]).unwrap()).collect();
    wal.close().unwrap();
    let disk = Arc::new(store.disk().clone());
    let plan = Repair::plan_on(disk, Path::new("/log"), lsns[90], &mut |_| {}).unwrap();
    store.damage(lsns[50].plus(30), b"rot").unwrap();
    let copy = Arc::new(MemDisk::new());
    let error = plan.write_on(copy, Path::new("/copy"), &mut |_| {}).unwrap_err();
    assert_eq!((error.kind(), error.lsn()), (ErrorKind::Io, Some(lsns[50])));
}
