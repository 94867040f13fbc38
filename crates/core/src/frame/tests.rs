use proptest::prelude::*;

use super::*;

const UUID: Uuid = Uuid([7; 16]);
const ROOM: u64 = 4096;

fn seed(epoch: u64, salt: u64) -> EpochSeed {
    EpochSeed::new(UUID, epoch, salt)
}

fn sample() -> Header {
    let checksum = crc32c_append(0, b"hello");
    Header { durable_lag: 88, ..Header::new(Kind::Data, 9, 5, checksum) }
}

#[test]
fn a_header_decodes_to_what_was_encoded() {
    let bytes = sample().encode(seed(1, 2), Lsn::new(800));
    let header = Header::decode(&bytes, seed(1, 2), Lsn::new(800), ROOM).unwrap();
    assert_eq!(header, sample());
    assert!(header.matches(b"hello") && !header.matches(b"hellp"));
    assert_eq!(header.durable(Lsn::new(800)), Some(Lsn::new(712)));
    assert_eq!(header.frame_bytes, 32);
}

#[test]
fn a_frame_longer_than_its_room_is_none() {
    let bytes = sample().encode(seed(1, 2), Lsn::new(800));
    assert_eq!(Header::decode(&bytes, seed(1, 2), Lsn::new(800), 31), None);
    assert!(Header::decode(&bytes, seed(1, 2), Lsn::new(800), 32).is_some());
}

#[test]
fn zero_is_never_a_header() {
    assert_eq!(Header::decode(&[0; 64], seed(1, 2), Lsn::ZERO, ROOM), None);
}

#[test]
fn padding_fits_every_rest() {
    for bytes in (8..200).step_by(8) {
        let (head, used) = padding(seed(1, 2), Lsn::new(64), bytes, 5);
        assert!(used as u64 <= bytes);
        let header = Header::decode(&head[..used], seed(1, 2), Lsn::new(64), ROOM).unwrap();
        assert_eq!((header.kind, header.frame_bytes), (Kind::Padding, bytes));
    }
}

proptest! {
    #[test]
    fn another_log_epoch_or_place_never_validates(
        epoch in 1u64..1000, salt: u64, at in (0u64..1 << 40).prop_map(|n| n * 8),
        other_epoch in 1u64..1000, other_salt: u64, other_at in (0u64..1 << 40).prop_map(|n| n * 8),
    ) {
        let bytes = sample().encode(seed(epoch, salt), Lsn::new(at));
        let own = Header::decode(&bytes, seed(epoch, salt), Lsn::new(at), ROOM);
        prop_assert_eq!(own, Some(sample()));
        if (epoch, salt, at) != (other_epoch, other_salt, other_at) {
            let seed = seed(other_epoch, other_salt);
            let other = Header::decode(&bytes, seed, Lsn::new(other_at), ROOM);
            prop_assert_eq!(other, None);
        }
    }

    #[test]
    fn every_flipped_header_bit_is_found(bit in 0usize..HEADER_BYTES * 8) {
        let mut bytes = sample().encode(seed(3, 4), Lsn::new(16));
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(Header::decode(&bytes, seed(3, 4), Lsn::new(16), ROOM), None);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        kind in 0u8..8,
    ) {
        let mut bytes = bytes;
        prop_assert_eq!(Header::decode(&bytes, seed(1, 1), Lsn::new(8), ROOM), None);
        if let Some(at) = bytes.get_mut(4) {
            *at = kind;
        }
        prop_assert_eq!(Header::decode(&bytes, seed(1, 1), Lsn::new(8), ROOM), None);
    }
}
