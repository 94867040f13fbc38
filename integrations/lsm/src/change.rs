//! The record of the log: one atomic batch of changes. The write path and the replay decode it with
//! the same function, and give it to the memtables with its LSN as the seqno.
//!
//! Each change is: keyspace (`u32`), length of the key (`u16`), length of the value (`u32`, or
//! [`DELETED`]), key, value. All numbers are little-endian. The log checks the bytes.

use crate::{Error, Result};

/// The tag of the records that this version writes.
pub(crate) const TAG: u16 = 1;
/// The longest key, in bytes: `lsm-tree` counts them in 16 bits, too.
pub(crate) const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// The length of a value in a change that deletes the key.
const DELETED: u32 = u32::MAX;

/// A new value of a key, or none.
#[derive(Debug, PartialEq)]
pub(crate) struct Change<'a> {
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
}

impl Change<'_> {
    /// Adds the change to the end of a record.
    pub(crate) fn encode(&self, record: &mut Vec<u8>) -> Result<()> {
        let key_len = u16::try_from(self.key.len()).ok().filter(|len| *len > 0);
        let key_len = key_len.ok_or(Error::InvalidArgument("a key has 1 to 65535 bytes"))?;
        let value_len = self.value.map_or(Ok(DELETED), |value| u32::try_from(value.len()));
        let value_len = value_len.map_err(|_| Error::InvalidArgument("a value is too long"))?;
        let value = self.value.unwrap_or_default();
        record.reserve(10 + self.key.len() + value.len());
        record.extend(self.keyspace.to_le_bytes());
        record.extend(key_len.to_le_bytes());
        record.extend(value_len.to_le_bytes());
        record.extend(self.key);
        record.extend(value);
        Ok(())
    }
}

/// Returns the changes of a record. If the rest of the record is none, the last item is `None`.
pub(crate) fn decode(mut record: &[u8]) -> impl Iterator<Item = Option<Change<'_>>> {
    std::iter::from_fn(move || {
        if record.is_empty() {
            return None;
        }
        let first = split_first(record);
        record = first.as_ref().map_or(&[], |(_, rest)| *rest);
        Some(first.map(|(change, _)| change))
    })
}

fn split_first(record: &[u8]) -> Option<(Change<'_>, &[u8])> {
    let (keyspace, rest) = record.split_first_chunk()?;
    let (key_len, rest) = rest.split_first_chunk()?;
    let (value_len, rest) = rest.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*key_len).into())?;
    let keyspace = u32::from_le_bytes(*keyspace);
    let value_len = u32::from_le_bytes(*value_len);
    if value_len == DELETED {
        return Some((Change { keyspace, key, value: None }, rest));
    }
    let (value, rest) = rest.split_at_checked(value_len as usize)?;
    Some((Change { keyspace, key, value: Some(value) }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_its_changes_in_order() {
        let changes = [
            Change { keyspace: 1, key: b"key", value: Some(b"value") },
            Change { keyspace: 7, key: b"removed", value: None },
            Change { keyspace: 1, key: b"key", value: Some(b"") },
        ];
        let mut record = Vec::new();
        changes.iter().for_each(|change| change.encode(&mut record).unwrap());
        assert_eq!(decode(&record).map(Option::unwrap).collect::<Vec<_>>(), changes);
    }

    #[test]
    fn a_record_with_a_rest_ends_with_none() {
        let mut record = Vec::new();
        Change { keyspace: 1, key: b"key", value: Some(b"value") }.encode(&mut record).unwrap();
        for len in 1..record.len() {
            assert_eq!(decode(&record[..len]).collect::<Vec<_>>(), [None], "{len} bytes");
        }
    }

    #[test]
    fn a_key_has_1_to_65535_bytes() {
        for len in [0, 1 << 16] {
            let change = Change { keyspace: 1, key: &vec![0; len], value: None };
            let refused = change.encode(&mut Vec::new());
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{len} bytes");
        }
    }
}
