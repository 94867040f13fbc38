//! Published crates as contenders, under the feature `peers`.

mod ironwal;
mod okaywal;
mod raft_engine;
mod wal_db;
pub mod walrus;

use crate::{Contender, Form, Plan};

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

/// Why a crate lacks what needs a call that makes appended records durable.
const NO_SYNC: &str = "it has no sync of its own";

/// Returns why a crate whose open always checks only a part of the records lacks `form`; `None` if
/// it has it.
fn lacks_full_check(form: &Form) -> Option<&'static str> {
    form.full_check.then_some("its open has no such check")
}

/// Returns the names of a log's streams, for crates that have named ones: as many as the workload
/// asks for, or one if it is no workload of streams.
fn stream_names(plan: &Plan) -> Vec<String> {
    if plan.workload.has_streams() {
        return (0..plan.streams).map(|stream| format!("stream-{stream}")).collect();
    }
    vec!["log".into()]
}
