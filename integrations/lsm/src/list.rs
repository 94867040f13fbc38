//! The check of the list of tables of a keyspace.
//!
//! `lsm-tree` names the list in its file `current`, with the checksum of the list: its number
//! (`u64`), the checksum (XXH3, 128 bits), and a zero for the kind of checksum, little-endian. It
//! does not compare the checksum, so a damaged list could end the process: the open panics, or asks
//! for more memory than there is.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use lsm_tree::Checksum;
use xxhash_rust::xxh3::xxh3_128;

use crate::{Error, Result};

/// The file that makes a folder one of `lsm-tree`.
pub(crate) const CURRENT: &str = "current";

/// Refuses a list of tables that is not the one which was written. A new folder has none.
pub(crate) fn check(tables: &Path) -> Result<()> {
    let current = tables.join(CURRENT);
    let found = match fs::read(&current) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.map_err(Error::io(&current))?,
    };
    let (number, expected) = parse(&found).map_err(Error::tables(&current))?;
    let list = tables.join(format!("v{number}"));
    let read = fs::read(&list).map_err(lsm_tree::Error::from).map_err(Error::tables(&list))?;
    let got = Checksum::from_raw(xxh3_128(&read));
    if got == expected {
        return Ok(());
    }
    Err(Error::tables(&list)(lsm_tree::Error::ChecksumMismatch { got, expected }))
}

fn parse(current: &[u8]) -> lsm_tree::Result<(u64, Checksum)> {
    let split = |bytes| -> Option<(u64, u128, &[u8])> {
        let (number, rest) = <[u8]>::split_first_chunk(bytes)?;
        let (checksum, kind) = rest.split_first_chunk()?;
        Some((u64::from_le_bytes(*number), u128::from_le_bytes(*checksum), kind))
    };
    match split(current) {
        Some((number, checksum, [0])) => Ok((number, Checksum::from_raw(checksum))),
        Some((_, _, [kind])) => Err(lsm_tree::Error::InvalidTag(("ChecksumType", *kind))),
        _ => Err(lsm_tree::Error::Unrecoverable),
    }
}
