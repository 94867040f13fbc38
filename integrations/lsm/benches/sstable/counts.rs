//! What of tables is a count and no time: bytes of a table, false positives of filters, hits of the
//! cache, and write amplification. The counts need no quiet machine.
//!
//!     cargo bench -p palisade-lsm --features metrics --bench sstable-counts
//!
//! Entries and tables are those of `sstable`.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod entries;

use std::fs;

use palisade::{Codec, Zstd};
use palisade_lsm::{Compression, Options};

use self::entries::{
    ENTRIES, ENTRY_BYTES, Table, blocks, key, mix, one_table, picks_80_20, sorted_keys,
};

fn main() {
    sizes();
    filters();
    caches();
    writes();
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}

fn times(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Returns the size of the files of tables, with indexes and filters.
fn file_bytes(table: &Table) -> u64 {
    let files = fs::read_dir(table.folder.path().join("tables/1/tables")).expect("a folder");
    files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len()).sum()
}

fn sizes() {
    let raw = ENTRIES * ENTRY_BYTES;
    println!("{ENTRIES} entries of {ENTRY_BYTES} bytes: {raw} bytes");
    for (name, compression) in [("raw", Compression::None), ("lz4", Compression::Lz4)] {
        let table = Table::of(&one_table().compression(compression), ENTRIES);
        let bytes = file_bytes(&table);
        println!("{name:>20}: {bytes:>10} bytes, {:.2}", times(bytes, raw));
    }
    let mut encoded = Vec::new();
    let bytes = blocks(ENTRIES).iter().fold(0, |bytes, block| {
        encoded.clear();
        Zstd::new().encode(0, block, &mut encoded).expect("a block");
        bytes + encoded.len() as u64
    });
    println!("{:>20}: {bytes:>10} bytes, {:.2}", "zstd of the blocks", times(bytes, raw));
}

fn filters() {
    println!("\nfilters: reads of {ENTRIES} keys that are not there");
    for bits in [0, 1, 5, 10, 15, 20, 32] {
        let table = Table::of(&one_table().filter_bits(bits), ENTRIES);
        let bytes = file_bytes(&table);
        for number in ENTRIES..2 * ENTRIES {
            assert_eq!(table.keyspace.get(key(number)).expect("a read"), None);
        }
        // A key that passes costs the read of one block.
        let passed = table.database.reads().data_blocks;
        println!("{bits:>5} bits: {:.3} % pass, file of {bytes} bytes", percent(passed, ENTRIES));
    }
}

fn caches() {
    println!("\ncaches: 80 of 100 reads go to 20 of 100 keys");
    let picks = picks_80_20(&sorted_keys(ENTRIES), ENTRIES);
    let mut table = Table::of(&one_table(), ENTRIES);
    for mib in [0, 1, 4, 16] {
        table = table.with(&one_table().cache_bytes(mib << 20));
        let get = |key| assert!(table.keyspace.get(key).expect("a read").is_some());
        picks.iter().for_each(get);
        let before = table.database.reads();
        picks.iter().for_each(get);
        let reads = table.database.reads().since(before);
        let hits = percent(reads.cached_data_blocks, reads.data_blocks);
        println!("{mib:>5} MiB: {hits:.1} % of the data blocks are in the cache");
    }
}

fn writes() {
    const WRITES: u64 = 1_000_000;
    println!("\nwrites: {WRITES} entries, {} bytes", WRITES * ENTRY_BYTES);
    println!("bytes of the log and of data blocks for each byte of an entry; bytes of data blocks");
    println!("at the end for each byte of a live entry. A compaction that still runs is not there");
    type Number = fn(u64) -> u64;
    let picked: Number = |number| {
        let range = if mix(number) % 100 < 80 { 0..ENTRIES / 5 } else { ENTRIES / 5..ENTRIES };
        range.start + mix(!number) % (range.end - range.start)
    };
    let forms: [(&str, u64, Number); 3] = [
        ("new keys", WRITES, |number| number),
        ("100 000 keys", ENTRIES, |number| mix(number) % ENTRIES),
        ("80/20 of 100 000 keys", ENTRIES, picked),
    ];
    for mib in [4, 16] {
        let options = Options::new().compression(Compression::None);
        let options = options.memtable_bytes(mib << 20).table_bytes(mib << 20);
        for (name, live, number) in forms {
            let table = Table::empty(&options);
            let log = table.database.log().stats().appended_bytes;
            table.append((0..WRITES).map(number));
            table.database.flush().expect("a flush");
            let log = table.database.log().stats().appended_bytes - log;
            let stats = table.database.stats();
            let part = |bytes| times(bytes, WRITES * ENTRY_BYTES);
            let (flushes, compactions) = (part(stats.flushed_bytes), part(stats.compacted_bytes));
            let space = times(stats.table_bytes, live * ENTRY_BYTES);
            print!("{mib:>5} MiB, {name:>21}: log {:.2}, flushes {flushes:.2}, ", part(log));
            println!("compactions {compactions:.2}; space {space:.2}");
        }
    }
}
