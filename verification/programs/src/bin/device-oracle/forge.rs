//! Forged header fields under a valid checksum.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

const BLOCK_BYTES: usize = 4096;
const CHECKSUM_AT: usize = 8;
const FIELDS_AT: usize = 12;

/// Writes `value` at `at` into the first block of the file `path`, and its checksum.
///
/// # Errors
/// The file is no longer than a block, or the operating system failed; `at` lies outside.
pub(crate) fn forge(path: &Path, at: u64, value: u64) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let mut block = [0; BLOCK_BYTES];
    file.read_exact(&mut block)?;
    let at = usize::try_from(at).unwrap_or(BLOCK_BYTES);
    let field = block.get_mut(at..at.saturating_add(8)).ok_or(io::ErrorKind::InvalidInput)?;
    field.copy_from_slice(&value.to_le_bytes());
    let checksum = crc32c(&block[FIELDS_AT..]).to_le_bytes();
    block[CHECKSUM_AT..FIELDS_AT].copy_from_slice(&checksum);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&block)
}

/// Computes CRC-32C bit by bit, independently of the log's implementation.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_forged_block_has_the_value_and_a_whole_checksum() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("block");
        std::fs::write(&path, [7; 5000]).unwrap();
        forge(&path, 40, 1 << 60).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[40..48], (1_u64 << 60).to_le_bytes());
        assert_eq!(bytes[8..12], crc32c(&bytes[12..4096]).to_le_bytes());
        assert_eq!((bytes[39], bytes[48], bytes.len()), (7, 7, 5000));
        assert!(forge(&path, 4090, 1).is_err());
    }
}
