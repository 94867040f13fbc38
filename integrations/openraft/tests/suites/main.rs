//! The suites that openraft publishes for storages, on groups in one log on disk.

#![expect(dead_code, reason = "the state machine has calls that only the example uses")]

mod cluster;
#[path = "../../examples/kv/history.rs"]
mod history;
#[path = "../../examples/kv/machine.rs"]
mod kv;
mod machine;
mod snapshots;

use std::sync::atomic::{AtomicU64, Ordering};

use palisade_openraft::{v09, v010};
use palisade_streams::Streams;
use tempfile::TempDir;

/// Makes groups in one log: all cases of a suite share it.
#[derive(Debug)]
struct Groups {
    folder: TempDir,
    streams: Streams,
    made: AtomicU64,
}

impl Groups {
    fn new() -> Groups {
        let folder = tempfile::tempdir().unwrap();
        let streams = Streams::open(folder.path().join("log")).unwrap();
        Groups { folder, streams, made: AtomicU64::new(0) }
    }

    fn next_name(&self) -> String {
        // Relaxed: only the number counts.
        format!("group {}", self.made.fetch_add(1, Ordering::Relaxed))
    }
}

impl openraft_09::testing::StoreBuilder<kv::Types, v09::LogStore<kv::Types>, kv::Machine>
    for Groups
{
    async fn build(
        &self,
    ) -> Result<((), v09::LogStore<kv::Types>, kv::Machine), openraft_09::StorageError<u64>> {
        let name = self.next_name();
        let machine = kv::Machine::open(&self.folder.path().join(&name)).unwrap();
        Ok(((), v09::LogStore::open(&self.streams, name).unwrap(), machine))
    }
}

type Built010 = ((), v010::LogStore<machine::Types>, machine::Machine);

impl
    openraft_010::testing::log::StoreBuilder<
        machine::Types,
        v010::LogStore<machine::Types>,
        machine::Machine,
    > for Groups
{
    async fn build(&self) -> Result<Built010, openraft_010::StorageError<machine::Types>> {
        let store = v010::LogStore::open(&self.streams, self.next_name()).unwrap();
        Ok(((), store, machine::Machine::default()))
    }
}

#[test]
fn openraft_09_passes_its_suite() {
    openraft_09::testing::Suite::test_all(Groups::new()).unwrap();
}

#[tokio::test]
async fn openraft_010_passes_its_suite() {
    openraft_010::testing::log::Suite::test_all(Groups::new()).await.unwrap();
}
