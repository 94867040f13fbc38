//! A codec that stands for an encryption: it encodes every record, and has a key.

use palisade::{Codec, Error, ErrorKind, Result};

/// Flips bits of each byte by a key, and notes the tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masked(pub(crate) u8);

/// What each record takes beside its own bytes: the tag, and the length that the log adds.
pub(crate) const OVERHEAD_BYTES: usize = 2 + 4;

impl Codec for Masked {
    fn name(&self) -> &str {
        "test-masked"
    }

    fn key_id(&self) -> [u8; 16] {
        [self.0; 16]
    }

    fn encode(&self, tag: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
        into.extend(tag.to_le_bytes());
        into.extend(data.iter().map(|byte| byte ^ self.0));
        Ok(())
    }

    fn decode(&self, tag: u16, stored: &[u8], into: &mut [u8]) -> Result<usize> {
        let refused = |text| Error::new(ErrorKind::Corrupt, text);
        let Some((found, data)) = stored.split_first_chunk() else {
            return Err(refused("the tag is missing"));
        };
        if u16::from_le_bytes(*found) != tag {
            return Err(refused("the record had another tag"));
        }
        let into = into.get_mut(..data.len()).ok_or_else(|| refused("it is too long"))?;
        into.iter_mut().zip(data).for_each(|(to, byte)| *to = byte ^ self.0);
        Ok(data.len())
    }
}
