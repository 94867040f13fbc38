//! Published crates as contenders, under the feature `peers`.

mod ironwal;
mod ironwal_sharded;
mod okaywal;
mod raft_engine;
mod wal_db;
pub mod walrus;

use crate::contender::Contender;
use crate::plan::Plan;
use crate::workload::Workload;

/// All of them.
pub(super) const ALL: &[Contender] = &[
    wal_db::FILE,
    wal_db::MEMORY,
    okaywal::OKAYWAL,
    raft_engine::RAFT_ENGINE,
    ironwal::IRONWAL,
    ironwal_sharded::IRONWAL_SHARDED,
    walrus::WALRUS,
];

/// Returns how many records each stream gets before the clock starts. In crates with named streams
/// the first append makes a stream, which takes long, and a trim deletes it. A scan leaves these
/// records out.
fn records_that_make_a_stream(workload: Workload) -> usize {
    usize::from(workload.has_streams() && !workload.reads())
}

/// Returns the names of a log's streams, for crates that have named ones: as many as the workload
/// asks for, or one if it is no workload of streams.
fn stream_names(workload: Workload, plan: &Plan) -> Vec<String> {
    if workload.has_streams() {
        return (0..plan.streams).map(|stream| format!("stream-{stream}")).collect();
    }
    vec!["log".into()]
}
