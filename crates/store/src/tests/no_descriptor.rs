//! What the store does without a free file descriptor.

use std::io::IoSlice;

use super::support::*;
use crate::sim::{CallKind, Effect, Target};
use crate::{ErrorKind, Lsn, MemoryKind};
use crate::{OldBuffer, ReadStore, State};

#[test]
fn a_buffer_is_passed_on_without_another_file_descriptor() {
    let (disk, store) = running(1);
    store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap();
    let base = store.prepared();
    store.begin_epoch(&epoch(2, base.as_u64()), &[]).unwrap();
    disk.lack_a_descriptor_after(0);
    store.mark_durable(base).unwrap();
    store.pass_buffer_on(2).unwrap();
    let refused = store.begin_epoch(&epoch(3, 2 * base.as_u64()), &[]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoFiles, "{refused}");
}

/// Checks that the open fails, because the buffer may have records that no segment has.
#[test]
fn a_lack_of_a_file_descriptor_at_an_open_hides_no_log_buffer() {
    let (disk, store) = begun();
    drop(store);
    for opens in 0.. {
        disk.lack_a_descriptor_after(opens);
        let store = disk.open(&options(SEGMENT_BYTES));
        match store.and_then(|store| store.old_buffer()) {
            Ok(OldBuffer::Found { epoch: 1, .. }) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoFiles, "{opens}: {error}"),
            Ok(other) => panic!("{opens}: {other:?}"),
        }
        if !disk.has_lacked_a_descriptor() {
            break;
        }
    }
}

#[test]
fn a_lack_of_a_file_descriptor_puts_no_log_buffer_on_the_heap() {
    let (disk, store) = running(1);
    disk.lack_a_descriptor_after(0);
    let error = store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoFiles, "{error}");
    let memory = store.renew_buffer(1, RING_BYTES, Lsn::ZERO).unwrap();
    assert_eq!(memory.kind(), MemoryKind::Mapped);
}

#[test]
fn a_lack_of_a_file_descriptor_takes_no_spare() {
    let (disk, store) = with_a_spare(4 << 20);
    store.close();
    let to = store.prepared().plus(1);
    // For the look whether the name is free, and for the header.
    for opens in 0..2 {
        disk.lack_a_descriptor_after(opens);
        assert_eq!(store.prepare(to).unwrap_err().kind(), ErrorKind::NoFiles);
        assert!(has_spare(&disk), "{opens}");
    }
    store.prepare(to).unwrap();
    assert!(!has_spare(&disk), "the segment is made of it");
}

/// Checks that no later clean end vouches for the spare.
#[test]
fn an_unsynced_spare_is_not_kept_without_a_file_descriptor() {
    let (disk, store) = running(1);
    let to = store.prepared().plus(1);
    // Behind the making of the spare: for the look whether the name is free, and for the header.
    for opens in 1..3 {
        disk.lack_a_descriptor_after(opens);
        assert_eq!(store.prepare(to).unwrap_err().kind(), ErrorKind::NoFiles);
        assert_eq!(disk.spares(), Vec::<String>::new(), "{opens}");
    }
    store.prepare(to).unwrap();
}

/// Checks a sync that fails with EMFILE.
#[test]
fn a_spare_is_removed_after_a_failed_sync_whatever_its_error() {
    let (disk, store) = with_a_spare(4 << 20);
    store.close();
    let to = store.prepared().plus(1);
    disk.lack_descriptors_at((CallKind::Sync, Target::Spare));
    assert_eq!(store.prepare(to).unwrap_err().kind(), ErrorKind::NoFiles);
    assert!(!has_spare(&disk), "its bytes are not trusted");
    disk.faults.watch(|_| Ok(()));
    store.prepare(to).unwrap();
}

#[test]
fn no_clean_end_leaves_a_spare_whose_sync_failed() {
    let (disk, store) = with_a_spare(4 << 20);
    store.close();
    disk.lack_descriptors_at((CallKind::Sync, Target::Spare));
    disk.faults.set((CallKind::Remove, Target::Spare), Effect::Eio);
    let refused = store.prepare(store.prepared().plus(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoFiles);
    let clean = State { clean: true, ..store.state().unwrap() };
    assert_eq!(store.save_state(&clean).unwrap_err().kind(), ErrorKind::Io);
    assert!(!store.state().unwrap().clean);
    disk.faults.set((CallKind::Remove, Target::Spare), Effect::Pass);
    store.save_state(&clean).unwrap();
    assert!(!has_spare(&disk));
}

/// Checks that it poisons: the next sync could succeed although bytes are lost.
#[test]
fn a_sync_that_fails_without_a_file_descriptor_is_an_io_error() {
    let (disk, store) = begun();
    store.write(Lsn::ZERO, &[IoSlice::new(&[1; 8])]).unwrap();
    disk.lack_descriptors_at((CallKind::Sync, Target::Segment));
    assert_eq!(store.sync(Lsn::ZERO, Lsn::new(8)).unwrap_err().kind(), ErrorKind::Io);
}
