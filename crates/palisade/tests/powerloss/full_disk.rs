//! G7: a log whose disk is full to the last block opens again.

use palisade::ErrorKind;

use crate::oracle::Crash;
use crate::session::Session;
use crate::shape::Shape;

/// A session whose disk is full from now on, and its log, all of which is durable.
fn full(shape: Shape) -> (Session, palisade::Wal) {
    let mut session = Session::new(shape, 3);
    let wal = session.open_and_check(None);
    (0..4).try_for_each(|_| session.commit(&wal, 900)).expect("there is space");
    session.disk.fill();
    (session, wal)
}

fn shapes() -> [Shape; 2] {
    [Shape::smallest(), Shape { heap: true, spares: 0, ..Shape::smallest() }]
}

#[test]
fn a_log_opens_on_a_disk_that_is_full_to_the_last_block() {
    for shape in shapes() {
        for crash in [Crash::Kill, Crash::PowerLoss] {
            let (mut session, wal) = full(shape.clone());
            session.disk.kill();
            drop(wal);
            session.crash(crash);
            drop(session.open_and_check(Some(crash)));
        }
    }
}

#[test]
fn truncations_on_a_full_disk_leave_the_space_for_an_open() {
    for shape in shapes() {
        let (mut session, wal) = full(shape);
        for _ in 0..4 {
            if let Err(error) = session.truncate_after(&wal, 1) {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
            }
        }
        session.disk.fill();
        session.disk.kill();
        drop(wal);
        session.crash(Crash::Kill);
        drop(session.open_and_check(Some(Crash::Kill)));
    }
}
