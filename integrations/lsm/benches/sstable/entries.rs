//! The entries of these benches, and tables of them.

use std::path::Path;

use palisade_lsm::{Compression, Database, Keyspace, Options};
use tempfile::TempDir;

/// The entries of a table, where a bench does not say otherwise: 12 MB.
pub(crate) const ENTRIES: u64 = 100_000;
pub(crate) const KEY_BYTES: usize = 20;
pub(crate) const VALUE_BYTES: usize = 100;
pub(crate) const ENTRY_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;

pub(crate) type Key = [u8; KEY_BYTES];

/// Gives each number another one, in an order that looks random.
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns a key of its own for each number. The numbers are in no order of the keys.
pub(crate) fn key(number: u64) -> Key {
    let text = format!("key/{:016x}", mix(number));
    text.as_bytes().try_into().expect("16 digits after 4 bytes")
}

/// Returns a value whose first half is random, and whose second half is the same in all values.
pub(crate) fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'.'; VALUE_BYTES];
    for (word, bytes) in (0..).zip(value[..VALUE_BYTES / 2].chunks_mut(8)) {
        bytes.copy_from_slice(&mix(number * 8 + word).to_le_bytes()[..bytes.len()]);
    }
    value
}

/// Returns the keys with the numbers below `entries`, in order.
pub(crate) fn sorted_keys(entries: u64) -> Vec<Key> {
    let mut keys: Vec<_> = (0..entries).map(key).collect();
    keys.sort_unstable();
    keys
}

/// Returns the entries of a table, in order, in blocks of 4 KiB as `lsm-tree` cuts them.
pub(crate) fn blocks(entries: u64) -> Vec<Vec<u8>> {
    let mut numbers: Vec<_> = (0..entries).collect();
    numbers.sort_by_cached_key(|number| key(*number));
    let block = |numbers: &[u64]| {
        let entry = |number: &u64| [&key(*number)[..], &value(*number)[..]].concat();
        numbers.iter().flat_map(entry).collect()
    };
    numbers.chunks(4096_usize.div_ceil(ENTRY_BYTES as usize)).map(block).collect()
}

/// Returns a new folder below `target`.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// The options of a database that only the bench flushes and compacts, into one table at most.
pub(crate) fn one_table() -> Options {
    Options::new().background(false).table_bytes(4 << 30).compression(Compression::None)
}

/// A database with one keyspace. The folder goes last.
pub(crate) struct Table {
    pub(crate) keyspace: Keyspace,
    pub(crate) database: Database,
    pub(crate) folder: TempDir,
}

impl Table {
    /// Makes an empty database.
    pub(crate) fn empty(options: &Options) -> Table {
        let folder = folder();
        let (database, keyspace) = open(options, folder.path());
        Table { keyspace, database, folder }
    }

    /// Makes a database whose entries are all in one table of the last level.
    pub(crate) fn of(options: &Options, entries: u64) -> Table {
        let table = Table::empty(options);
        table.append(0..entries);
        table.database.flush().expect("a flush");
        table.database.compact().expect("a compaction");
        table
    }

    /// Appends the entries with these numbers.
    pub(crate) fn append(&self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            self.keyspace.append_put(key(number), value(number)).expect("a write");
        }
    }

    /// Closes the database and opens it with other options.
    pub(crate) fn with(self, options: &Options) -> Table {
        let Table { keyspace, database, folder } = self;
        drop(keyspace);
        database.close().expect("a close");
        let (database, keyspace) = open(options, folder.path());
        Table { keyspace, database, folder }
    }
}

fn open(options: &Options, path: &Path) -> (Database, Keyspace) {
    let database = options.open(path).expect("a database");
    let keyspace = database.keyspace_or_create("bench").expect("a keyspace");
    (database, keyspace)
}

/// Picks 80 of 100 keys out of the first fifth of `sorted`, and the others out of the rest.
pub(crate) fn picks_80_20(sorted: &[Key], count: u64) -> Vec<Key> {
    let (hot, rest) = sorted.split_at(sorted.len() / 5);
    let pick = |number: u64| {
        let from = if mix(number) % 100 < 80 { hot } else { rest };
        from[mix(!number) as usize % from.len()]
    };
    (0..count).map(pick).collect()
}
