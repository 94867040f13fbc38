//! The keys of values, and the positions of consumers.
//!
//! A position is a value of its stream. So anchors, footers, moves, readers and `verify` carry it
//! as they carry the values of the user. The first byte of a key says which of both it is, so no
//! key of the user is that of a consumer.

/// A value that the user has set.
const USER: u8 = 0;
/// The position of a consumer.
const CONSUMER: u8 = 1;

const POSITION_BYTES: usize = 9;

/// Returns the key of a value of the user.
pub(crate) fn user_key(key: &[u8]) -> Box<[u8]> {
    [&[USER], key].concat().into()
}

/// Returns the key of a consumer's position.
pub(crate) fn consumer_key(name: &[u8]) -> Box<[u8]> {
    [&[CONSUMER], name].concat().into()
}

/// Returns whether a record can have this key and value.
pub(crate) fn is_valid(key: &[u8], value: Option<&[u8]>) -> bool {
    match key.first() {
        Some(&USER) => true,
        Some(&CONSUMER) => value.is_none_or(|value| Position::decode(value).is_some()),
        _ => false,
    }
}

/// Returns those of `values` that the user has set, with their keys.
pub(crate) fn of_user<'v>(
    values: impl Iterator<Item = (&'v [u8], &'v [u8])>,
) -> impl Iterator<Item = (&'v [u8], &'v [u8])> {
    values.filter_map(|(key, value)| Some((key.strip_prefix(&[USER])?, value)))
}

/// Returns the consumers of a stream that has `values`, and entries from `first` to `next`.
pub(crate) fn consumers<'v>(
    values: impl Iterator<Item = (&'v [u8], &'v [u8])>,
    first: u64,
    next: u64,
) -> Vec<ConsumerStatus> {
    let status = |(key, value): (&[u8], &[u8])| {
        let name = key.strip_prefix(&[CONSUMER])?.to_vec();
        let Position { next: acked, is_cut } = Position::decode(value)?;
        let lag = next.saturating_sub(acked.max(first));
        Some(ConsumerStatus { name, acked, lag, is_truncated: is_cut || acked < first })
    };
    values.filter_map(status).collect()
}

/// Where a consumer stands, as [`Stream::consumers`](crate::Stream::consumers) and
/// [`Reader::consumers`](crate::Reader::consumers) return it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// The consumer's name.
    pub name: Vec<u8>,
    /// The index of the first entry that the consumer has not acknowledged.
    pub acked: u64,
    /// How many entries of the stream it has not acknowledged.
    pub lag: u64,
    /// Whether a truncation has removed entries that the consumer has not acknowledged, or of the
    /// suffix some that it has. A consumer that is opened then returns `Truncated` until a
    /// [`seek`](crate::Consumer::seek). One that was open is not concerned if it is above what was
    /// removed.
    pub is_truncated: bool,
}

/// Where a consumer continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The first entry that is not acknowledged.
    pub(crate) next: u64,
    /// Whether a truncation of the suffix has removed acknowledged entries, from `next` on.
    pub(crate) is_cut: bool,
}

impl Position {
    /// Encodes it. The length is always the same, so an acknowledgement never finds the values of
    /// the stream too long.
    pub(crate) fn encode(self) -> [u8; POSITION_BYTES] {
        let mut bytes = [0; POSITION_BYTES];
        bytes[..8].copy_from_slice(&self.next.to_le_bytes());
        bytes[8] = u8::from(self.is_cut);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Position> {
        let (next, is_cut) = bytes.split_first_chunk()?;
        let next = u64::from_le_bytes(*next);
        match is_cut {
            [0] => Some(Position { next, is_cut: false }),
            [1] => Some(Position { next, is_cut: true }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_decoded_and_other_bytes_are_refused() {
        for is_cut in [false, true] {
            let position = Position { next: 1 << 40, is_cut };
            let bytes = position.encode();
            assert_eq!(Position::decode(&bytes), Some(position));
            assert!(is_valid(&consumer_key(b"c"), Some(&bytes)));
            assert!(!is_valid(&consumer_key(b"c"), Some(&bytes[1..])));
        }
        assert_eq!(Position::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 2]), None);
        assert!(is_valid(&user_key(b""), Some(b"any")) && is_valid(&consumer_key(b""), None));
        assert!(!is_valid(b"", None) && !is_valid(&[2], None));
    }
}
