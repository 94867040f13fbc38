//! A codec of your own: each record is encrypted and authenticated (XChaCha20-Poly1305).
//!
//! `cargo run -p palisade --example encrypted_log`
//!
//! # The nonce
//! A key must never encrypt two records with one nonce. The nonce of each record is 24 random bytes
//! of the operating system, stored in front of the encrypted bytes. No state is needed:
//! - A counter would have to survive each crash, and a copy of the log (a backup, a clone of the
//!   disk) would count on from the same number with the same key.
//! - An LSN cannot be the nonce. It is not known before the reservation, records are encrypted
//!   before it, and two copies of a log that go on give the same LSN to different records.
//! - With 24 random bytes, 2^80 records have two equal nonces with a probability of 2^-33. The 12
//!   bytes of the shorter ChaCha20-Poly1305 and of AES-GCM are too few: they allow 2^32 records.
//!
//! # What it protects
//! Without the key nobody reads a record. A reader refuses a record that was made, changed, or
//! given another tag without the key. The LSNs, the tags and the lengths of records are not
//! secret. An attacker who can write to the files can remove records, put old ones back, or copy
//! them to another place: if that matters, number the records in their data. Give each log its own
//! key.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::fmt;

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::aead::{AeadInOut, Generate, KeyInit};
use chacha20poly1305::{Key, Tag, XChaCha20Poly1305, XNonce};
use palisade::inspect::{Inspector, Outcome};
use palisade::{Codec, Error, ErrorKind, Options, Result};

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// The encryption of a log with one key.
struct Encrypted {
    cipher: XChaCha20Poly1305,
    key_id: [u8; 16],
}

impl Encrypted {
    fn new(key: &[u8; 32]) -> Encrypted {
        let cipher = XChaCha20Poly1305::new(&Key::from(*key));
        // The authenticator of nothing under a nonce that no record has: the same for the same key,
        // and it says nothing about the key or about records.
        let text = b"identifier of the key";
        let identifier =
            cipher.encrypt_inout_detached(&XNonce::default(), text, InOutBuf::from(&mut [][..]));
        let key_id = identifier.expect("an empty message is not too long").into();
        Encrypted { cipher, key_id }
    }
}

/// Shows no key.
impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypted").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Codec for Encrypted {
    fn name(&self) -> &str {
        "xchacha20poly1305/random-nonce"
    }

    fn key_id(&self) -> [u8; 16] {
        self.key_id
    }

    // `threshold` is `None`, the default: no record is stored as it is, and a reader takes none.

    /// Appends nonce, encrypted bytes and authenticator.
    fn encode(&self, tag: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
        let failed = |text| Error::new(ErrorKind::Io, text);
        let nonce = XNonce::try_generate().map_err(|_| failed("the system has no random bytes"))?;
        into.extend_from_slice(&nonce);
        into.resize(NONCE_BYTES + data.len(), 0);
        let buffer = InOutBuf::new(data, &mut into[NONCE_BYTES..]).expect("both have one length");
        let sealed = self.cipher.encrypt_inout_detached(&nonce, &tag.to_le_bytes(), buffer);
        into.extend_from_slice(&sealed.map_err(|_| failed("the record is too long"))?);
        Ok(())
    }

    fn decode(&self, tag: u16, stored: &[u8], into: &mut [u8]) -> Result<usize> {
        let refused = |text| Error::new(ErrorKind::Corrupt, text);
        let parts = stored.split_first_chunk::<NONCE_BYTES>().and_then(|(nonce, rest)| {
            let (data, seal) = rest.split_last_chunk::<TAG_BYTES>()?;
            Some((XNonce::from(*nonce), data, Tag::from(*seal)))
        });
        let (nonce, data, seal) = parts.ok_or_else(|| refused("it is too short"))?;
        let buffer = InOutBuf::new(data, into).map_err(|_| refused("it has another length"))?;
        let opened = self.cipher.decrypt_inout_detached(&nonce, &tag.to_le_bytes(), buffer, &seal);
        opened.map(|()| data.len()).map_err(|_| refused("it was not made with this key"))
    }
}

fn main() -> Result<()> {
    // In an engine the key comes from a key management service or from the user.
    let (key, other_key) = ([7; 32], [8; 32]);
    let folder = std::env::temp_dir().join(format!("palisade-encrypted-{}", std::process::id()));
    let wal = Options::new().segment_bytes(1 << 20).codec(Encrypted::new(&key)).open(&folder)?;
    let lsn = wal.commit_tagged(1, b"a secret")?;
    assert_eq!(wal.get(lsn)?.data(), b"a secret");
    wal.close()?;

    let refused = Options::new().codec(Encrypted::new(&other_key)).open(&folder).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    println!("with another key: {refused}");
    let refused = Options::new().open(&folder).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    println!("without the key: {refused}");

    let tools = Inspector::open(&folder)?;
    assert_eq!(tools.verify()?.outcome, Outcome::Clean);
    let stored = tools.records(None)?.into_iter().next().expect("it was committed")?;
    assert!(stored.is_encoded() && !stored.data().windows(6).any(|bytes| bytes == b"secret"));
    println!("verified without the key; stored are {} bytes", stored.data().len());
    std::fs::remove_dir_all(&folder).map_err(|error| Error::io("remove the log", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_runs() {
        main().unwrap();
    }

    #[test]
    fn what_anybody_changed_is_refused() {
        let codec = Encrypted::new(&[7; 32]);
        let mut stored = Vec::new();
        codec.encode(3, b"a secret", &mut stored).unwrap();
        let mut data = [0; 8];
        let mut decode = |codec: &Encrypted, tag, stored: &[u8]| {
            codec.decode(tag, stored, &mut data).map(|_| data.to_vec())
        };
        assert_eq!(decode(&codec, 3, &stored).unwrap(), b"a secret");
        assert!(decode(&codec, 4, &stored).is_err(), "another tag");
        assert!(decode(&Encrypted::new(&[8; 32]), 3, &stored).is_err(), "another key");
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&codec, 3, &flipped).is_err(), "bit {bit}");
        }
        for len in 0..stored.len() {
            assert!(decode(&codec, 3, &stored[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn one_record_is_never_stored_twice_in_the_same_way() {
        let codec = Encrypted::new(&[7; 32]);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        codec.encode(0, b"record", &mut first).unwrap();
        codec.encode(0, b"record", &mut second).unwrap();
        assert_ne!(first[..NONCE_BYTES], second[..NONCE_BYTES]);
        assert_ne!(first[NONCE_BYTES..], second[NONCE_BYTES..]);
    }
}
