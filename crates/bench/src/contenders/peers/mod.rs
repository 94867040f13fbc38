//! Published crates as contenders, under the feature `peers`.

mod ironwal;
mod okaywal;
mod raft_engine;
mod wal_db;
pub mod walrus;

use crate::contender::Contender;

/// All of them.
pub(super) const ALL: &[Contender] = &[
    wal_db::FILE,
    wal_db::MEMORY,
    okaywal::OKAYWAL,
    raft_engine::RAFT_ENGINE,
    ironwal::IRONWAL,
    walrus::WALRUS,
];
