//! Published crates as contenders, under the feature `peers`.

mod ironwal;
mod okaywal;
mod raft_engine;
mod wal_db;
pub mod walrus;

use crate::{Contender, Plan};

/// All of them.
pub(super) const ALL: &[Contender] = &[
    wal_db::FILE,
    wal_db::MEMORY,
    okaywal::OKAYWAL,
    raft_engine::RAFT_ENGINE,
    ironwal::IRONWAL,
    ironwal::IRONWAL_SHARDED,
    walrus::WALRUS,
];

/// Records that each named stream begins with. In crates with named streams the first append makes
/// a stream, which takes long, and a trim deletes it: so a log appends these records before the
/// clock starts, and a scan leaves them out.
const FIRST_RECORDS: usize = 1;

/// Returns the names of a log's streams, for crates that have named ones: as many as the workload
/// asks for, or one if it is no workload of streams.
fn stream_names(plan: &Plan) -> Vec<String> {
    if plan.workload.has_streams() {
        return (0..plan.streams).map(|stream| format!("stream-{stream}")).collect();
    }
    vec!["log".into()]
}
