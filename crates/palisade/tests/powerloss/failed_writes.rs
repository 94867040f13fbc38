//! Devices that fail: a write, a sync or a write-back in the background fails at each call of a
//! process run; a second run in the same boot goes on; then the page cache goes, in good order or
//! not, and everything that was acknowledged or reported must be there.

use palisade::sim::{Fault, FaultKind, WriteBackFailure};
use palisade::{Error, ErrorKind, Result, Wal};

use crate::device::FAILURES;
use crate::ends::End;
use crate::oracle::Crash;
use crate::session::Session;
use crate::shape::Shape;

/// How the page cache goes after the second run.
const ENDS: [End; 4] = [End::Remount, End::Reboot, End::PowerLoss, End::FileSystemCrash];
const FAULTS: [FaultKind; 3] = [FaultKind::Eio, FaultKind::NoSpace, FaultKind::WriteBack];

/// Work that fills, rotates, truncates and recycles segments.
fn work(session: &mut Session, wal: &Wal) -> Result<()> {
    for round in 0..2 {
        session.append(wal, 300)?;
        for _ in 0..5 {
            session.commit(wal, 1300)?;
        }
        session.checkpoint(wal, 1)?;
        session.append_batch(wal, &[100, 900])?;
        session.truncate_before(wal, 3 + round)?;
    }
    session.append(wal, 20)
}

/// Whether the run goes on after `error`: a process frees space and tries again.
fn goes_on(session: &Session, error: &Error) -> bool {
    !session.disk.is_dead() && error.kind() == ErrorKind::NoSpace
}

/// The first run, in which `fault` waits for its call; if it `dies`, it does so at the next one.
/// Says whether it met the fault.
fn first_run(session: &mut Session, fault: FaultKind, call: u64, dies: bool) -> bool {
    session.disk.fail(Fault::at(call, fault));
    if dies {
        session.disk.crash_at(call + 1);
    }
    if let Ok(wal) = session.open() {
        for _ in 0..2 {
            match work(session, &wal) {
                Err(error) if goes_on(session, &error) => {}
                Err(error) if error.kind() == ErrorKind::Poisoned => {
                    session.check_poisoned(&wal);
                    break;
                }
                _ => break,
            }
        }
        // Every third run ends well, if it can.
        if call.is_multiple_of(3) {
            let _ = session.close(wal);
        } else {
            session.disk.kill();
        }
    }
    let has_failed = session.disk.calls() > call;
    session.disk.heal();
    session.oracle.forget_kill_promise();
    if session.disk.is_shut_down() {
        session.crash_file_system();
    } else {
        session.crash(Crash::Kill);
    }
    has_failed
}

/// The second run in the same boot, on a device that works again.
fn second_run(session: &mut Session, closes: bool) {
    // What failed in the background is reported once, perhaps to this open.
    drop(session.open().map_err(|error| assert_eq!(error.kind(), ErrorKind::Io, "{error}")));
    let wal = session.open_and_check(Some(Crash::PowerLoss));
    work(session, &wal).expect("the device works again");
    if closes {
        session.close(wal).expect("the device works again");
    } else {
        session.disk.kill();
    }
}

/// Every call of the first run fails, one at a time.
fn every_call_fails(
    shape: &Shape,
    failure: WriteBackFailure,
    fault: FaultKind,
    dies: bool,
) -> Vec<String> {
    let mut failed = Vec::new();
    for call in 0.. {
        let mut has_failed = false;
        for (index, how) in ENDS.into_iter().enumerate() {
            let run = std::panic::AssertUnwindSafe(|| {
                let mut session = Session::new(shape.clone(), call ^ 0xfa11);
                session.disk = session.disk.clone().failing_as(failure);
                has_failed |= first_run(&mut session, fault, call, dies);
                second_run(&mut session, (call + index as u64).is_multiple_of(2));
                session.end_as(how);
                drop(session.open_and_check(Some(Crash::PowerLoss)));
            });
            if std::panic::catch_unwind(run).is_err() {
                failed.push(format!("{failure:?}, {fault:?} at call {call}, then {how:?}"));
            }
        }
        if !has_failed {
            return failed;
        }
    }
    failed
}

fn assert_held(shape: &Shape, dies: bool) {
    let mut failed = Vec::new();
    for failure in FAILURES {
        for fault in FAULTS {
            failed.extend(every_call_fails(shape, failure, fault, dies));
        }
    }
    assert!(failed.is_empty(), "{} runs lost something:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_device_that_fails_at_any_call_loses_nothing_acknowledged() {
    assert_held(&Shape::smallest(), false);
}

#[test]
fn a_failure_at_any_call_loses_nothing_without_zeros_ahead() {
    assert_held(&Shape { zero_fill: false, ..Shape::smallest() }, false);
}

#[test]
fn a_failure_at_any_call_loses_nothing_with_a_heap_buffer() {
    assert_held(&Shape { heap: true, spares: 0, ..Shape::smallest() }, false);
}

#[test]
fn a_failure_at_any_call_loses_nothing_with_copy_on_write() {
    assert_held(&Shape { in_place: false, ..Shape::smallest() }, false);
}

/// The process cannot remove the file in which the call failed.
#[test]
fn a_failure_at_the_last_call_of_a_process_loses_nothing() {
    assert_held(&Shape::smallest(), true);
}

#[test]
fn with_a_heap_buffer_a_failure_at_the_last_call_loses_nothing() {
    assert_held(&Shape { heap: true, ..Shape::smallest() }, true);
}
