//! Payloads that look like the log itself.
//!
//! What is not defended: a writer that reads the running epoch's salt out of the folder and forges
//! a frame for the very place at which its payload will lie.

use palisade_core::frame::{EpochSeed, HEADER_BYTES, Header, Kind};

use crate::prelude::*;

const SEGMENT_BYTES: u64 = 1 << 16;

fn options() -> Options {
    Options::new().buffer_bytes(1 << 14)
}

fn frame(seed: EpochSeed, at: Lsn, payload: &[u8]) -> Vec<u8> {
    let checksum = crc32c_append(0, payload);
    let header = Header::new(Kind::Data, 0, payload.len() as u32, checksum);
    let mut bytes = header.encode(seed, at).to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Frames with the running epoch's seed for other places, and with other epochs' seeds for the
/// place at which they will lie, if they are copied to `at`.
fn forged(store: &FaultyLog, at: Lsn) -> Vec<u8> {
    let state = store.inner.reader().unwrap().state().unwrap();
    let seed = EpochSeed::new(state.uuid, state.epoch, state.epoch_salt);
    let elsewhere = [Lsn::ZERO, at.plus(8), at.plus(SEGMENT_BYTES), Lsn::new(at.as_u64() / 2 * 8)];
    let other_runs = [
        EpochSeed::new(state.uuid, state.epoch + 1, state.epoch_salt),
        EpochSeed::new(state.uuid, state.epoch, state.epoch_salt + 1),
        EpochSeed::new(palisade::Uuid([0; 16]), state.epoch, state.epoch_salt),
    ];
    let mut bytes = Vec::new();
    for lsn in elsewhere {
        bytes.extend(frame(seed, lsn, b"forged for another place"));
    }
    for seed in other_runs {
        let here = at.plus(bytes.len() as u64);
        bytes.extend(frame(seed, here, b"forged for another run"));
    }
    bytes
}

/// The bytes of the first `len` bytes of the log: real frames, to be copied into payloads.
fn real_frames(store: &FaultyLog, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = store.inner.reader().unwrap().read(Lsn::ZERO, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

/// A log of some records; where the payload of the next one begins, and a payload for it of frames
/// that are forged and of the log's own.
fn begun() -> (FaultyLog, Wal, Lsn, Vec<u8>) {
    let (wal, store) = new_log(SEGMENT_BYTES, options());
    append(&wal, 0..20, 100);
    wal.sync().unwrap();
    let at = wal.reserved_lsn().plus(HEADER_BYTES as u64);
    let payload = [forged(&store, at), real_frames(&store, 2000)].concat();
    (store, wal, at, payload)
}

/// Protection: a header's checksum covers its LSN and its epoch's seed. The thread that owned the
/// range died before it published: recovery looks through its bytes for the next record.
#[test]
fn frames_forged_in_the_payload_of_a_hole_are_never_records() {
    let (store, wal, _, payload) = begun();
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel::<()>();
    thread::scope(|scope| {
        let (owner, payload) = (wal.clone(), &payload);
        scope.spawn(move || {
            let filled = owner.append_with(payload.len(), |_, bytes| {
                bytes.copy_from_slice(payload);
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
            });
            drop(filled);
        });
        has_begun.recv().unwrap();
        let behind = wal.append(&record(20, 100)).unwrap().lsn();
        store.kill();
        let next = store.next_run().open(options());
        assert_eq!(numbers(&next), all(21));
        assert_eq!(lsns_of(&next)[20], behind, "it goes on at the record behind the hole");
        assert_eq!(next.recovery_report().holes_padded, 1);
        go_on.send(()).unwrap();
    });
}

/// Protection: the same where the record that carries them is torn, and evidence is looked for in
/// what follows: a forged frame is none.
#[test]
fn frames_forged_in_a_torn_record_are_no_records_or_evidence() {
    let (store, wal, at, payload) = begun();
    let torn = wal.append(&payload).unwrap().lsn();
    wal.flush_to_os(torn).unwrap();
    store.kill();
    drop(wal);
    let everything = real_frames(&store, SEGMENT_BYTES as usize);
    store.inner.lose_power();
    // The medium kept the payload and not the header.
    let from = at.as_u64() as usize;
    store.inner.damage(at, &everything[from..]).unwrap();
    let wal = store.next_run().open(options());
    assert_eq!(numbers(&wal), all(20));
    let report = wal.recovery_report();
    assert_eq!((report.end, report.torn_bytes), (torn, 0), "nothing in there is a frame");
}

/// Protection: a payload is stepped over as a whole, and none of the frames in it is of its place
/// and of the running epoch. A record may hold whatever it likes.
#[test]
fn a_record_that_holds_frames_comes_back_as_it_is() {
    let (store, wal, _, payload) = begun();
    let lsn = wal.commit(&payload).unwrap();
    let batch = wal.append_batch(&[&payload, &payload]).unwrap().lsn();
    wal.commit(&record(21, 8)).unwrap();
    let wal = store.after_power_loss(wal).open(options());
    let found = contents(&wal);
    assert_eq!(found.len(), 20 + 1 + 2 + 1);
    assert_eq!(found[20], (lsn, payload.clone()));
    assert_eq!((&found[21].0, &found[21].1, &found[22].1), (&batch, &payload, &payload));
}

/// Protection: a payload is stepped over as a whole, even where a frame in it would validate.
#[test]
fn a_record_with_a_frame_for_its_own_place_is_read_unchanged() {
    let (store, wal, ..) = begun();
    let state = store.inner.reader().unwrap().state().unwrap();
    let seed = EpochSeed::new(state.uuid, state.epoch, state.epoch_salt);
    let next = |headers: u64| {
        let at = wal.reserved_lsn().plus(headers * HEADER_BYTES as u64);
        frame(seed, at, b"forged for this very place")
    };
    let in_record = next(1);
    let lsn = wal.commit(&in_record).unwrap();
    // Behind the header of the batch and that of its first member.
    let in_batch = next(2);
    let first = wal.append_batch([&in_batch[..], b"second"]).unwrap().lsn();
    let behind = wal.commit(&record(20, 8)).unwrap();
    let wal = store.after_power_loss(wal).open(options());
    let found = contents(&wal);
    assert_eq!(found.len(), 20 + 1 + 2 + 1);
    assert_eq!(found[20..22], [(lsn, in_record), (first, in_batch)]);
    assert_eq!((&found[22].1[..], found[23].0), (&b"second"[..], behind));
}
