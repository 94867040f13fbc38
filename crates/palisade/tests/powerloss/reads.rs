//! What can happen at each read of an open: the system drops pages that it could not write back, or
//! the device cannot read. Then power is lost, and all that was reported must be there.

use palisade::ErrorKind;
use palisade::sim::{CallKind, Fault, FaultKind, WriteBackFailure};

use crate::oracle::Crash;
use crate::session::Session;
use crate::shape::Shape;

/// Opens that a test must reach, one for each read.
const MANY: u64 = 20;

/// A log with frames that are longer than the read buffer, killed. The write-back of what no sync
/// has covered has failed, but it reads as it was written.
fn killed(heap: bool) -> Session {
    let (segment_bytes, buffer_bytes) = (32_768, 32_768);
    let failure = WriteBackFailure::KeepsPages;
    // Without zeros ahead, no sync of the preparer covers the records.
    let zero_fill = false;
    let read_ahead = 4096;
    let shape = Shape {
        segment_bytes,
        buffer_bytes,
        heap,
        zero_fill,
        failure,
        read_ahead,
        ..Shape::smallest()
    };
    let mut session = Session::new(shape, 7);
    let wal = session.open().unwrap();
    session.commit(&wal, 9000).unwrap();
    session.append(&wal, 100).unwrap();
    session.append(&wal, 12_000).unwrap();
    session.append_batch(&wal, &[5000, 4000]).unwrap();
    session.append(&wal, 11_000).unwrap();
    session.flush(&wal).unwrap();
    session.disk.kill();
    drop(wal);
    session
}

/// Opens the log with `fault` at each of its reads, and returns how many there were. `open` opens
/// the log.
fn at_each_read(base: &Session, fault: FaultKind, open: impl Fn(&mut Session)) -> u64 {
    for read in 0.. {
        let mut session = base.fork(read);
        session.disk.restart();
        for _ in 0..4 {
            session.disk.fail_write_back();
        }
        session.disk.fail(Fault::nth(CallKind::Read, read, fault));
        let faults_before = session.disk.waiting_faults();
        open(&mut session);
        let is_reached = session.disk.waiting_faults() < faults_before;
        session.disk.heal();
        session.crash(Crash::Kill);
        drop(session.open_and_check(Some(Crash::Kill)));
        session.crash(Crash::PowerLoss);
        drop(session.open_and_check(Some(Crash::PowerLoss)));
        if !is_reached {
            return read;
        }
    }
    0
}

#[test]
fn pages_lost_at_any_read_of_an_open_damage_no_reported_record() {
    for heap in [false, true] {
        let opens = at_each_read(&killed(heap), FaultKind::DropPages, |session| {
            let wal = session.open_until_reported();
            session.reported(&wal, Crash::Kill);
        });
        assert!(opens >= MANY, "{opens} reads");
    }
}

#[test]
fn a_failed_read_at_any_place_ends_the_open_and_loses_nothing() {
    for heap in [false, true] {
        let opens = at_each_read(&killed(heap), FaultKind::Eio, |session| match session.open() {
            Ok(wal) => session.reported(&wal, Crash::Kill),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        });
        assert!(opens >= MANY, "{opens} reads");
    }
}
