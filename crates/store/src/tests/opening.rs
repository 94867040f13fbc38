//! What an open, a close and a kill leave behind.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::support::*;
use crate::FileReader;
use crate::disk::MemDisk;
use crate::folder::META;
use crate::sim::{CallKind, FaultDisk, Target};
use crate::testing::TestDisk;
use crate::{ErrorKind, Lsn};
use crate::{OldBuffer, ReadStore};

#[test]
fn opening_an_empty_log_takes_few_syncs() {
    let (disk, store) = opened();
    let mut state = store.state().unwrap();
    store.begin_epoch(&epoch(1, 0), &[]).unwrap();
    store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap();
    (state.epoch, state.clean) = (1, false);
    store.save_state(&state).unwrap();
    // The folder's name 1, meta 2, segment 2, state 2; the spare and the reserve, beside all this,
    // 4.
    assert!(disk.syncs() <= 11, "{}", disk.syncs());
}

#[test]
fn no_folder_is_made_where_its_name_cannot_be_synced() {
    let disk = TestDisk::new();
    disk.faults.watch(|call| match (call.kind, call.name) {
        (CallKind::Open, "/") => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Ok(()),
    });
    let open = || disk.open(&options(SEGMENT_BYTES));
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(error.path(), Some(Path::new("/")), "{error}");
    assert!(!disk.has_folder("/log"), "nothing was made");
    // Who made a folder there could sync its name: it is no business of the log's.
    disk.make_folder("/log");
    drop(open().unwrap());
}

/// Checks a mount point in a file system that cannot sync folders.
#[test]
fn a_parent_that_can_never_be_synced_stops_no_open() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    disk.watch(|call| match (call.kind, call.name) {
        (CallKind::SyncFolder, "/") => Err(io::ErrorKind::InvalidInput.into()),
        _ => Ok(()),
    });
    drop(disk.open(&options(SEGMENT_BYTES)).unwrap());
}

#[test]
fn a_meta_file_that_is_listed_and_not_found_is_an_error() {
    let (disk, store) = begun();
    drop(store);
    disk.faults.watch(|call| match (call.kind, call.name) {
        (CallKind::Open, META) => Err(io::ErrorKind::NotFound.into()),
        _ => Ok(()),
    });
    let reader = FileReader::open_on(Arc::new(disk.faults.clone()), Path::new("/log"));
    for error in [disk.open(&options(SEGMENT_BYTES)).unwrap_err(), reader.unwrap_err()] {
        let found = (error.kind(), error.io_kind());
        assert_eq!(found, (ErrorKind::Io, Some(io::ErrorKind::NotFound)), "{error}");
        assert_eq!(error.path(), Some(Path::new("/log/meta")), "{error}");
    }
}

#[test]
fn a_kill_leaves_the_buffer_and_its_marks() {
    let (disk, store) = opened();
    assert!(matches!(store.old_buffer().unwrap(), OldBuffer::Missing));
    begin(&store, 4, 0);
    store.write(Lsn::ZERO, &[IoSlice::new(&[1; 800])]).unwrap();
    store.mark_durable(Lsn::new(640)).unwrap();
    drop(store);

    let store = open(&disk);
    match store.old_buffer().unwrap() {
        OldBuffer::Found { epoch: 4, durable, written, ring } => {
            let marks = (durable, written, ring.len());
            assert_eq!(marks, (Lsn::new(640), Lsn::new(800), RING_BYTES));
        }
        other => panic!("{other:?}"),
    }
}

/// Checks it because a thread may still fill a record in an abandoned log's buffer.
#[test]
fn an_old_buffer_is_copied_and_not_mapped() {
    let (disk, store) = begun();
    drop(store);
    let store = open(&disk);
    let counts = |kind| disk.faults.count((kind, Target::Buffer));
    let (maps, reads) = (counts(CallKind::Map), counts(CallKind::Read));
    assert!(matches!(store.old_buffer().unwrap(), OldBuffer::Found { .. }));
    assert_eq!(counts(CallKind::Map), maps);
    assert!(counts(CallKind::Read) > reads);
}

/// Checks it because that user could forge the buffer, which may have records that no segment has.
#[test]
fn a_buffer_of_another_user_is_neither_read_nor_passed_over() {
    let (disk, store) = begun();
    drop(store);
    disk.faults.disown_buffers();
    let store = open(&disk);
    let reads = disk.faults.count((CallKind::Read, Target::Buffer));
    let error = store.old_buffer().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let name = disk.buffers().pop().unwrap();
    assert!(error.path().unwrap().ends_with(name) && error.to_string().contains("remove the file"));
    assert_eq!(disk.faults.count((CallKind::Read, Target::Buffer)), reads);
    // Nor is it removed: nobody knows what it is.
    begin(&store, 2, SEGMENT_BYTES);
    assert_eq!(disk.buffers().len(), 2);
}

#[test]
fn a_log_that_was_closed_leaves_no_buffer() {
    let (disk, store) = begun();
    assert_eq!(disk.buffers().len(), 1);
    let mut state = store.state().unwrap();
    state.clean = true;
    store.save_state(&state).unwrap();
    store.close();
    assert_eq!(disk.buffers(), Vec::<String>::new());
}

#[test]
fn an_open_removes_the_buffers_of_earlier_process_runs() {
    let disk = TestDisk::new();
    for number in 1..4 {
        let store = open(&disk);
        begin(&store, number, (number - 1) * SEGMENT_BYTES);
        assert_eq!(disk.buffers().len(), 1);
    }
}

#[test]
fn closing_lets_another_store_have_the_log_and_can_be_repeated() {
    let (disk, store) = running(1);
    store.write(Lsn::ZERO, &[IoSlice::new(b"12345678")]).unwrap();
    store.close();
    store.close();
    drop(open(&disk));
    let mut bytes = [0; 8];
    assert_eq!(store.read(Lsn::ZERO, &mut bytes).unwrap(), 8);
    assert_eq!(&bytes, b"12345678");
}

#[test]
fn an_epoch_after_a_running_one_begins_above_what_is_prepared() {
    let (disk, store) = begun();
    store.prepare(Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    let refused = store.begin_epoch(&epoch(2, 2 * SEGMENT_BYTES), &[]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfRange, "{refused}");
    let base = store.prepared();
    store.begin_epoch(&epoch(2, base.as_u64()), &[]).unwrap();
    store.mark_durable(base).unwrap();
    store.pass_buffer_on(2).unwrap();
    store.discard(Lsn::new(100), base).unwrap();
    let segments = store.segments().unwrap();
    let epochs: Vec<_> = segments.into_iter().map(|found| found.header.unwrap().epoch).collect();
    assert_eq!((epochs[0], epochs[1..].iter().all(|epoch| *epoch == 2)), (1, true), "{epochs:?}");
    drop(store);
    let store = open(&disk);
    let found = store.old_buffer().unwrap();
    let OldBuffer::Found { epoch: 2, durable, ring, .. } = found else { panic!("{found:?}") };
    assert_eq!((durable, ring.len()), (base, RING_BYTES));
}
