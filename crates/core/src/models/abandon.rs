//! Models of a log that is abandoned beside a thread that changes its files.

use super::store::{Fault, ModelStore};
use super::{Bound, LARGE_FRAME, Log, SMALL_FRAME, Shape, check, spawn};
use crate::{ErrorKind, Lsn, Result};

fn check_beside(name: &str, fault: Fault, call: fn(&Log) -> Result<()>) {
    check(name, Bound::At(3), move || {
        let store = ModelStore::with_fault(Shape::ROOMY.base, fault).abandoned();
        let log = Log::new(Shape::ROOMY, store);
        let caller = spawn(&log, move |log| call(log).map_err(|error| error.kind()));
        log.wal.clone().abandon();
        let result = caller.join().unwrap();
        assert!(matches!(result, Ok(()) | Err(ErrorKind::Poisoned | ErrorKind::Closed)));
    });
}

#[test]
fn an_abandoned_log_commits_nothing() {
    check_beside("an_abandoned_log_commits_nothing", Fault::None, |log| log.commit(1));
}

#[test]
fn an_abandoned_log_saves_nothing() {
    check_beside("an_abandoned_log_saves_nothing", Fault::None, |log| {
        log.wal.save_checkpoint(log.wal.head_lsn().plus(LARGE_FRAME))
    });
}

#[test]
fn an_abandoned_log_frees_nothing() {
    check_beside("an_abandoned_log_frees_nothing", Fault::None, |log| log.wal.release());
}

#[test]
fn an_abandoned_log_begins_no_epoch() {
    check_beside("an_abandoned_log_begins_no_epoch", Fault::Save, |log| {
        // A truncation saves a state again whose save failed.
        let saved = log.wal.save_checkpoint(Lsn::new(SMALL_FRAME));
        assert!(saved.is_err());
        let lsn = log.wal.append(b"")?.lsn();
        log.wal.append(b"")?;
        log.wal.truncate_above(lsn, lsn.plus(SMALL_FRAME))
    });
}
