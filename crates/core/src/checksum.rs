//! The one checksum of the log: CRC-32C (Castagnoli), as in iSCSI, ext4 and RocksDB.

/// CRC-32C of the bytes that gave `crc` followed by `data`; begin with 0.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, data)
}
