//! The file `tables/flushed`: up to which LSN the tables have all changes.
//!
//! Each truncation of the log drops records that only the tables have from then on. Without this
//! file, tables from before the truncation would look sound beside the log: the changes between
//! them would be gone without an error.
//!
//! The file is one line of text: the LSN, then the number of the list of tables of each keyspace,
//! in the order of the keyspaces, then a checksum of what is before (XXH3, 64 bits, hexadecimal).
//! `lsm-tree` gives each list a greater number than the list before.
//!
//! A flush writes the tables, then this file, then truncates the log. Each step is durable before
//! the next one. So at each crash the head of the log is at or below the LSN, and no list of tables
//! has a smaller number. Only a backup of an empty log (`Wal::backup_to`) begins higher, with no
//! record in between. An open refuses the rest:
//!
//! | found | cause |
//! |---|---|
//! | records above the LSN were truncated | all tables are older than the log |
//! | a keyspace has a smaller number | the tables of this keyspace are older than the others |
//! | no file, and the log was truncated | a part is lost |
//!
//! The first open makes the file. If a crash comes before, the next open finds no file and a log
//! that was never truncated, and makes the file.

use std::path::Path;
use std::sync::Arc;

use lsm_tree::AbstractTree;
use palisade::{ErrorKind, Lsn, Wal};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Tables;
use crate::open::{read_text, write_file};
use crate::{Error, Result};

const NAME: &str = "flushed";

/// Notes, durably, that the tables of `keyspaces` have all changes below `end`.
pub(crate) fn write(folder: &Path, end: Lsn, keyspaces: &[Arc<Tables>]) -> Result<()> {
    let lists = keyspaces.iter().map(|tables| tables.tree.current_version().id());
    let numbers = std::iter::once(end.as_u64()).chain(lists);
    let words: Vec<_> = numbers.map(|number| number.to_string()).collect();
    let line = words.join(" ");
    write_file(folder, NAME, &format!("{line} {:016x}", xxh3_64(line.as_bytes())))
}

/// Returns the LSN and the numbers of lists in a line that is as `write` wrote it.
fn parse(line: &str) -> Option<(u64, Vec<u64>)> {
    let (words, checksum) = line.rsplit_once(' ')?;
    if checksum != format!("{:016x}", xxh3_64(words.as_bytes())) {
        return None;
    }
    let mut numbers = words.split(' ').map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.collect::<Option<_>>()?))
}

/// Refuses tables that lack changes which were truncated from the log.
pub(crate) fn check(folder: &Path, wal: &Wal, keyspaces: &[Arc<Tables>]) -> Result<()> {
    let (path, head) = (folder.join(NAME), wal.head_lsn());
    let Some(text) = read_text(&path)? else {
        // A new log has its head at its second segment.
        let is_truncated = head.as_u64() != wal.segment_bytes();
        return if is_truncated {
            let path = path.display();
            let what = format!("the log was truncated, and the tables have no file {path}");
            Err(Error::Mismatch(what))
        } else {
            Ok(())
        };
    };
    let Some((end, lists)) = parse(&text) else {
        return Err(Error::Mismatch(format!("{} is damaged", path.display())));
    };
    for (number, list) in lists.iter().enumerate() {
        let found = keyspaces.get(number).map(|tables| tables.tree.current_version().id());
        if found < Some(*list) {
            return Err(Error::Mismatch(format!(
                "the tables of keyspace {number} are older than {}",
                path.display()
            )));
        }
    }
    let end = Lsn::new(end);
    if head <= end {
        return Ok(());
    }
    // A copy of an empty log begins above it. Then nothing is missing, and the old end still is a
    // position of the copy. It is none of a copy of the copy, so write the new one.
    match wal.records_from(end) {
        Ok(_) => write(folder, head, keyspaces),
        Err(error) if error.kind() == ErrorKind::Truncated => Err(Error::Mismatch(format!(
            "the tables have all changes below LSN {end}, and the log begins at {head}"
        ))),
        Err(error) => Err(error.into()),
    }
}
