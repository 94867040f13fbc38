//! What each option of tables does.

use std::path::Path;

use palisade_lsm::{Compression, Database, Error, Keyspace, Options};

const KEYS: u32 = 20_000;

fn options() -> Options {
    let log = palisade::Options::new().segment_bytes(1 << 20).buffer_bytes(64 << 10);
    Options::new().background(false).log(log)
}

fn open(options: &Options, path: &Path) -> (Database, Keyspace) {
    let database = options.open(path).unwrap();
    let keyspace = database.keyspace_or_create("k").unwrap();
    (database, keyspace)
}

/// Even numbers are keys that the database has, odd ones are between them.
fn key(number: u32) -> String {
    format!("{number:08}")
}

fn fill(keyspace: &Keyspace) {
    for number in 0..KEYS {
        keyspace.append_put(key(2 * number), [7; 100]).unwrap();
    }
}

fn assert_all_are_there(keyspace: &Keyspace) {
    for number in 0..KEYS {
        assert!(keyspace.get(key(2 * number)).unwrap().is_some(), "key {number} is there");
        assert!(keyspace.get(key(2 * number + 1)).unwrap().is_none(), "key {number} has no next");
    }
}

/// Writes all to tables of the last level.
fn merge(database: &Database) {
    database.flush().unwrap();
    database.compact().unwrap();
}

#[test]
fn an_option_out_of_its_range_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = [
        options().memtable_bytes(0),
        options().table_bytes((4 << 10) - 1),
        options().table_bytes((4 << 30) + 1),
        options().filter_bits(33),
    ];
    for options in wrong {
        let refused = options.open(folder.path());
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{options:?}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    for options in [
        options().table_bytes(4 << 10).filter_bits(32),
        options().table_bytes(4 << 30).filter_bits(1),
    ] {
        options.open(folder.path()).unwrap().close().unwrap();
    }
}

#[test]
fn a_table_keeps_its_compression_until_it_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let plain = options().compression(Compression::None);
    let (database, keyspace) = open(&plain, folder.path());
    fill(&keyspace);
    merge(&database);
    let raw = database.stats().table_bytes;
    assert!(raw > 100 * u64::from(KEYS), "the values take {raw} bytes");
    drop(keyspace);
    database.close().unwrap();

    for (compression, is_smaller) in
        [(Compression::Lz4, true), (Compression::None, false), (Compression::Lz4Below, true)]
    {
        let (database, keyspace) = open(&options().compression(compression), folder.path());
        assert_all_are_there(&keyspace);
        database.compact().unwrap();
        let bytes = database.stats().table_bytes;
        assert_eq!(bytes < raw / 2, is_smaller, "{compression:?}: {bytes} of {raw}");
        assert_all_are_there(&keyspace);
        drop(keyspace);
        database.close().unwrap();
    }
}

#[test]
fn lz4_below_leaves_new_tables_as_they_are() {
    let flushed = |compression| {
        let folder = tempfile::tempdir().unwrap();
        let (database, keyspace) = open(&options().compression(compression), folder.path());
        fill(&keyspace);
        database.flush().unwrap();
        database.stats().flushed_bytes
    };
    assert_eq!(flushed(Compression::Lz4Below), flushed(Compression::None));
    assert!(flushed(Compression::Lz4) < flushed(Compression::None) / 2);
}

#[test]
fn a_compaction_begins_a_table_at_table_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let plain = options().compression(Compression::None);
    let (database, keyspace) = open(&plain, folder.path());
    fill(&keyspace);
    merge(&database);
    let bytes = database.stats().table_bytes;
    drop(keyspace);
    database.close().unwrap();
    for table_bytes in [64 << 10, 1 << 20, 4 << 30] {
        let (database, keyspace) = open(&plain.clone().table_bytes(table_bytes), folder.path());
        database.compact().unwrap();
        // The keyspaces share no table, and the catalogue has one.
        let tables = database.stats().tables as u64 - 1;
        let most = bytes.div_ceil(table_bytes);
        assert!((most.div_ceil(2)..=most).contains(&tables), "{tables} tables of {table_bytes}");
        assert_all_are_there(&keyspace);
        drop(keyspace);
        database.close().unwrap();
    }
}

#[test]
fn stats_count_what_flushes_and_compactions_write() {
    let folder = tempfile::tempdir().unwrap();
    let (database, keyspace) = open(&options(), folder.path());
    let before = database.stats();
    assert_eq!((before.flushed_bytes, before.compacted_bytes), (0, 0));
    fill(&keyspace);
    database.flush().unwrap();
    let first = database.stats();
    assert_eq!((first.flushed_bytes, first.compacted_bytes), (first.table_bytes, 0));
    fill(&keyspace);
    database.flush().unwrap();
    let second = database.stats();
    assert_eq!((second.flushed_bytes, second.compacted_bytes), (second.table_bytes, 0));
    database.compact().unwrap();
    let third = database.stats();
    assert_eq!(third.flushed_bytes, second.flushed_bytes);
    assert_eq!(third.compacted_bytes, third.table_bytes);
    database.compact().unwrap();
    assert_eq!(database.stats().compacted_bytes, third.compacted_bytes + third.table_bytes);
    drop((keyspace, database));
    let (database, _) = open(&options(), folder.path());
    assert_eq!(database.stats().compacted_bytes, 0);
}

#[test]
fn a_filter_never_denies_a_key_that_is_there() {
    for bits in [0, 1, 2, 5, 10, 20, 32] {
        let folder = tempfile::tempdir().unwrap();
        let (database, keyspace) = open(&options().filter_bits(bits), folder.path());
        fill(&keyspace);
        database.flush().unwrap();
        assert_all_are_there(&keyspace); // level 0
        database.compact().unwrap();
        assert_all_are_there(&keyspace); // the last level
    }
}

#[cfg(feature = "metrics")]
mod counted {
    use palisade_lsm::Reads;

    use super::*;

    /// Asks once for each key that is between two others. Returns what the reads did.
    fn reads_of_absent_keys(database: &Database, keyspace: &Keyspace) -> Reads {
        let before = database.reads();
        for number in 0..KEYS {
            assert!(keyspace.get(key(2 * number + 1)).unwrap().is_none());
        }
        database.reads().since(before)
    }

    #[test]
    fn a_filter_of_10_bits_passes_under_two_of_100_absent_keys() {
        let folder = tempfile::tempdir().unwrap();
        let (database, keyspace) = open(&options().filter_bits(10), folder.path());
        fill(&keyspace);
        merge(&database);
        let reads = reads_of_absent_keys(&database, &keyspace);
        // The last key of all is beyond the table's last one, so no filter is asked.
        assert_eq!(reads.filter_queries, u64::from(KEYS) - 1);
        let false_positives = reads.filter_queries - reads.filter_denials;
        assert!(false_positives * 50 < u64::from(KEYS), "{false_positives} of {KEYS}");
        // The database has the next key, so one block shows that a key is not there.
        assert_eq!(reads.data_blocks, false_positives);
    }

    #[test]
    fn without_filters_each_absent_key_costs_a_block() {
        let folder = tempfile::tempdir().unwrap();
        let (database, keyspace) = open(&options().filter_bits(0), folder.path());
        fill(&keyspace);
        for write in [Database::flush, Database::compact] {
            write(&database).unwrap();
            let reads = reads_of_absent_keys(&database, &keyspace);
            assert_eq!((reads.filter_queries, reads.filter_denials), (0, 0));
            assert_eq!(reads.data_blocks, u64::from(KEYS) - 1);
        }
    }

    #[test]
    fn a_cache_of_0_bytes_keeps_no_block() {
        let folder = tempfile::tempdir().unwrap();
        let (database, keyspace) = open(&options().cache_bytes(0), folder.path());
        fill(&keyspace);
        merge(&database);
        for _ in 0..2 {
            assert!(keyspace.get(key(0)).unwrap().is_some());
        }
        let reads = database.reads();
        assert_eq!((reads.data_blocks, reads.cached_data_blocks), (2, 0));
    }

    #[test]
    fn a_cache_keeps_the_blocks_that_fit() {
        let folder = tempfile::tempdir().unwrap();
        let (database, keyspace) = open(&options().cache_bytes(64 << 20), folder.path());
        fill(&keyspace);
        merge(&database);
        assert_all_are_there(&keyspace);
        let first = database.reads();
        assert_all_are_there(&keyspace);
        let second = database.reads();
        let missed = |reads: Reads| reads.data_blocks - reads.cached_data_blocks;
        assert_eq!(missed(first), missed(second), "the second time all blocks are in the cache");
    }
}
