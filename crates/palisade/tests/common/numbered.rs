//! Records that can be told apart.

/// `len` bytes that no other record has, `number` being its own: they begin with the number, as far
/// as there is room.
pub(crate) fn data(number: u64, len: usize) -> Vec<u8> {
    let mut data = vec![number as u8; len];
    let own = number.to_le_bytes();
    let n = len.min(own.len());
    data[..n].copy_from_slice(&own[..n]);
    data
}
