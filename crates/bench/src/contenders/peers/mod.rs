//! Published crates as contenders, under the feature `peers`.

mod ironwal;
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
    walrus::WALRUS,
];

/// The names of a log's streams, for crates that have named ones: as many as the workload asks for,
/// or one with one order if it is no workload of streams.
fn stream_names(workload: Workload, plan: &Plan) -> Vec<String> {
    if workload.has_streams() {
        return (0..plan.streams).map(|stream| format!("stream-{stream}")).collect();
    }
    vec!["log".into()]
}
