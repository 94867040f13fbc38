//! What must hold for the store in memory.

use palisade_core::{Options, Wal};

use super::*;

const SEGMENT_BYTES: u64 = 4096;
const EPOCH: Epoch = Epoch {
    number: 1,
    salt: 7,
    base: Lsn::ZERO,
    predecessor: Predecessor { epoch: 0, end: Lsn::ZERO },
};

fn begun() -> MemStore {
    let store = MemStore::new(SEGMENT_BYTES);
    store.begin_epoch(&EPOCH).unwrap();
    store.prepare(Lsn::new(3 * SEGMENT_BYTES)).unwrap();
    store
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8 + 1).collect()
}

fn bytes(store: &MemStore, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        let count = store.read(Lsn::new(at + done as u64), &mut bytes[done..]).unwrap();
        if count == 0 {
            break;
        }
        done += count;
    }
    bytes.truncate(done);
    bytes
}

#[test]
fn writes_come_back_across_segment_ends_on_a_clone() {
    let store = begun();
    let content = pattern(9000);
    let (first, second) = content.split_at(5000);
    store.write(Lsn::new(8), &[IoSlice::new(first), IoSlice::new(second)]).unwrap();
    assert_eq!(bytes(&store.clone(), 8, 9000), content);
    let mut whole = [0; 8192];
    assert_eq!(store.read(Lsn::ZERO, &mut whole).unwrap(), 4096, "a read ends with its segment");
    assert_eq!(store.read(Lsn::new(40_960), &mut whole).unwrap(), 0);
}

#[test]
fn power_loss_takes_what_was_not_synced() {
    let store = begun();
    let content = pattern(9000);
    store.write(Lsn::ZERO, &[IoSlice::new(&content)]).unwrap();
    store.sync(Lsn::ZERO, Lsn::new(4096)).unwrap();
    store.sync(Lsn::new(4096), Lsn::new(5000)).unwrap();
    store.lose_power();
    assert_eq!(bytes(&store, 0, 9000), content[..5000]);
    assert_eq!(store.segments().unwrap().len(), 3);
}

#[test]
fn a_kept_buffer_outlives_the_log_and_not_the_power() {
    let store = begun();
    assert!(matches!(store.old_buffer().unwrap(), OldBuffer::Missing));
    let memory = store.renew_buffer(1, 4096, Lsn::ZERO).unwrap();
    store.mark_durable(Lsn::new(64)).unwrap();
    drop(memory);
    match store.old_buffer().unwrap() {
        OldBuffer::Found { epoch: 1, durable, memory, .. } => {
            assert_eq!((durable, memory.len()), (Lsn::new(64), 4096));
        }
        other => panic!("{other:?}"),
    }
    store.lose_power();
    assert!(matches!(store.old_buffer().unwrap(), OldBuffer::Missing));
}

#[test]
fn a_second_log_beside_a_running_one_is_refused() {
    let store = MemStore::new(SEGMENT_BYTES);
    let options = Options::default();
    let log = Wal::with_store(store.clone(), &options).unwrap();
    let lsn = log.commit(b"first").unwrap();
    let refused = Wal::with_store(store.clone(), &options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked, "{refused}");
    assert_eq!(log.get(lsn).unwrap().data(), b"first");
    drop(log);
    let log = Wal::with_store(store, &options).unwrap();
    assert_eq!(log.get(lsn).unwrap().data(), b"first");
}

#[test]
fn a_heap_buffer_leaves_nothing() {
    let store = MemStore::new(SEGMENT_BYTES).kept_buffer(false);
    let memory = store.renew_buffer(1, 4096, Lsn::ZERO).unwrap();
    assert_eq!(memory.len(), 4096);
    let found = store.old_buffer().unwrap();
    assert!(matches!(found, OldBuffer::Found { memory, .. } if memory.is_empty()));
}

#[test]
fn released_segments_are_gone_and_only_whole_ones() {
    let store = begun();
    store.write(Lsn::ZERO, &[IoSlice::new(&pattern(9000))]).unwrap();
    store.release(Lsn::ZERO, Lsn::new(8000)).unwrap();
    let numbers: Vec<u64> = store.segments().unwrap().iter().map(|found| found.number).collect();
    assert_eq!(numbers, [1, 2]);
    store.prepare(Lsn::new(4 * SEGMENT_BYTES)).unwrap();
    assert!(bytes(&store, 3 * SEGMENT_BYTES, 100).is_empty(), "old bytes do not come back");
}

#[test]
fn a_resumed_epoch_goes_on_behind_the_last_segment() {
    let store = begun();
    store.resume_epoch(&EPOCH, Lsn::new(100)).unwrap();
    assert_eq!(store.prepared(), Lsn::new(3 * SEGMENT_BYTES));
}
