use lsm_tree::AbstractTree;

use crate::Database;

/// What reads of tables have done since the open, over all keyspaces. With the feature `metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reads {
    /// How often a table with a filter was asked for a key that it did not have.
    pub filter_queries: u64,
    /// How many of the queries the filter answered. The others are false positives: they read
    /// blocks to find nothing.
    pub filter_denials: u64,
    /// The data blocks that reads needed.
    pub data_blocks: u64,
    /// The data blocks that the cache had.
    pub cached_data_blocks: u64,
}

impl Reads {
    /// Returns what happened after `earlier`, which the same database returned before.
    #[must_use]
    pub fn since(self, earlier: Reads) -> Reads {
        Reads {
            filter_queries: self.filter_queries.saturating_sub(earlier.filter_queries),
            filter_denials: self.filter_denials.saturating_sub(earlier.filter_denials),
            data_blocks: self.data_blocks.saturating_sub(earlier.data_blocks),
            cached_data_blocks: self.cached_data_blocks.saturating_sub(earlier.cached_data_blocks),
        }
    }
}

impl Database {
    /// Returns what reads of tables have done since the open. The call does not wait for the
    /// device.
    #[must_use]
    pub fn reads(&self) -> Reads {
        self.engine().keyspaces().iter().fold(Reads::default(), |sum, tables| {
            let found = tables.tree.metrics();
            Reads {
                filter_queries: sum.filter_queries + found.filter_queries() as u64,
                filter_denials: sum.filter_denials + found.io_skipped_by_filter() as u64,
                data_blocks: sum.data_blocks + found.data_block_load_count() as u64,
                cached_data_blocks: sum.cached_data_blocks
                    + found.data_block_load_cached_count() as u64,
            }
        })
    }
}
