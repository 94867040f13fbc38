//! The state machine of the example: which snapshot it keeps, and which entries it refuses.

use futures_util::FutureExt;
use openraft_09::storage::RaftStateMachine;
use openraft_09::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftSnapshotBuilder, Snapshot};
use tempfile::TempDir;

use crate::kv::{Machine, Types};

fn entry(index: u64, key: &str, count: u64) -> Entry<Types> {
    let log_id = LogId::new(CommittedLeaderId::new(1, 1), index);
    Entry { log_id, payload: EntryPayload::Normal((key.to_string(), count)) }
}

fn open(folder: &TempDir) -> Machine {
    Machine::open(folder.path()).unwrap()
}

/// Returns the snapshot of a machine that has applied entry `index`.
async fn snapshot_at(index: u64) -> Snapshot<Types> {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = open(&folder);
    machine.apply([entry(index, "key", 1)]).await.unwrap();
    machine.build_snapshot().await.unwrap()
}

async fn current(machine: &mut Machine) -> (u64, u64) {
    let stored = machine.get_current_snapshot().await.unwrap().unwrap().meta.last_log_id;
    (stored.unwrap().index, machine.applied_state().await.unwrap().0.unwrap().index)
}

#[tokio::test]
async fn an_older_snapshot_does_not_replace_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = open(&folder);
    for index in [9, 5] {
        let Snapshot { meta, snapshot } = snapshot_at(index).await;
        machine.install_snapshot(&meta, snapshot).await.unwrap();
        assert_eq!(current(&mut machine).await, (9, 9));
    }
    assert_eq!(current(&mut open(&folder)).await, (9, 9));
    machine.apply([entry(10, "key", 2)]).await.unwrap();
    machine.build_snapshot().await.unwrap();
    assert_eq!(current(&mut open(&folder)).await, (10, 10));
}

#[tokio::test]
async fn snapshots_of_several_threads_leave_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let machine = open(&folder);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut machine = machine.clone();
            scope.spawn(move || {
                for index in (thread..40).step_by(4) {
                    // None of these calls waits.
                    let Snapshot { meta, snapshot } = snapshot_at(index).now_or_never().unwrap();
                    let installed = machine.install_snapshot(&meta, snapshot);
                    installed.now_or_never().unwrap().unwrap();
                }
            });
        }
    });
    assert_eq!(current(&mut open(&folder)).await, (39, 39));
}

#[tokio::test]
async fn a_repeated_entry_or_one_after_a_missing_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = open(&folder);
    machine.apply([entry(1, "a", 1), entry(2, "b", 1), entry(3, "a", 2)]).await.unwrap();
    // A client that got no answer has written again: that changes nothing.
    machine.apply([entry(4, "a", 1)]).await.unwrap();
    let again = machine.apply([entry(4, "a", 3)]).await.unwrap_err().to_string();
    assert!(again.contains("entry 4 comes after entry 4"), "{again}");
    let lost = machine.apply([entry(5, "b", 3)]).await.unwrap_err().to_string();
    assert!(lost.contains("write 3 of b comes after write 1"), "{lost}");
    assert_eq!((machine.get("a"), machine.get("b"), machine.get("c")), (Some(2), Some(1), None));
}
