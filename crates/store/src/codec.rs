//! Codecs of records.

use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// Longest name of a codec, in bytes of UTF-8.
pub const MAX_CODEC_NAME_BYTES: usize = 32;
/// Bytes of a key identifier.
pub const KEY_ID_BYTES: usize = 16;

const OPEN_WITH_ITS_CODEC: &str = "nothing was changed; open with Options::codec and the codec and \
     key that the log was created with; a log never changes its codec: copy the records into a new \
     log to use another one";

/// Turns the bytes of records into those that the log stores, and back: a compression or an
/// encryption.
///
/// A log keeps its first codec. The threads that append and read call it, several at once, while
/// the log holds no lock. A codec may call no method of the log. The example `encrypted_log` of the
/// crate `palisade` encrypts and authenticates each record, and explains its nonces.
pub trait Codec: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the format, which the log keeps: 1 to 32 bytes of UTF-8, without zeros.
    /// A codec with another format has another name.
    fn name(&self) -> &str;

    /// Returns what identifies the key without disclosing it, such as the start of a hash. The log
    /// keeps it. Default: zeros, for no key.
    fn key_id(&self) -> [u8; KEY_ID_BYTES] {
        [0; KEY_ID_BYTES]
    }

    /// Returns the length below which records are stored as they are, like those that do not become
    /// shorter.
    ///
    /// With `None`, the default, every record is encoded, as an encryption needs, and a reader
    /// refuses any other.
    fn threshold(&self) -> Option<usize> {
        None
    }

    /// Appends the encoded `data` to `into`, which is empty and keeps its capacity between calls.
    /// The log stores the record's `tag` as it is.
    ///
    /// # Errors
    /// Any: the append returns it, and the log is unchanged.
    fn encode(&self, tag: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()>;

    /// Decodes `stored` into `into`, which has the record's length and holds any bytes, and returns
    /// that length. `stored` can be any bytes, too: the checksum shows only that they were stored.
    ///
    /// # Errors
    /// Any, if `stored` is not the encoded form of a record with this tag, or the record is longer
    /// than `into`. The reader returns it as `Corrupt`, with the record's LSN.
    fn decode(&self, tag: u16, stored: &[u8], into: &mut [u8]) -> Result<usize>;
}

impl<C: Codec + ?Sized> Codec for Arc<C> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn key_id(&self) -> [u8; KEY_ID_BYTES] {
        (**self).key_id()
    }

    fn threshold(&self) -> Option<usize> {
        (**self).threshold()
    }

    fn encode(&self, tag: u16, data: &[u8], into: &mut Vec<u8>) -> Result<()> {
        (**self).encode(tag, data, into)
    }

    fn decode(&self, tag: u16, stored: &[u8], into: &mut [u8]) -> Result<usize> {
        (**self).decode(tag, stored, into)
    }
}

/// What a log keeps of its codec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodecId {
    // UTF-8, then zeros.
    name: [u8; MAX_CODEC_NAME_BYTES],
    key: [u8; KEY_ID_BYTES],
}

impl CodecId {
    /// Returns what a log keeps of `codec`.
    ///
    /// # Errors
    /// `InvalidArgument`: the name is not as [`Codec::name`] requires.
    pub fn of(codec: &dyn Codec) -> Result<CodecId> {
        let name = codec.name();
        let mut padded = [0; MAX_CODEC_NAME_BYTES];
        if name.len() <= padded.len() {
            padded[..name.len()].copy_from_slice(name.as_bytes());
        }
        let id = CodecId::from_bytes(padded, codec.key_id());
        id.filter(|id| id.name() == name).ok_or_else(|| {
            let text = format!(
                "the codec's name is {name:?}; it must have 1 to {MAX_CODEC_NAME_BYTES} bytes, \
                 none of which is zero"
            );
            Error::new(ErrorKind::InvalidArgument, text)
        })
    }

    /// Returns the identity with these fields, or `None` if the name is empty or not UTF-8.
    #[doc(hidden)]
    #[must_use]
    pub fn from_bytes(
        name: [u8; MAX_CODEC_NAME_BYTES],
        key: [u8; KEY_ID_BYTES],
    ) -> Option<CodecId> {
        let text = std::str::from_utf8(&name).ok()?.trim_end_matches('\0');
        let is_name = !text.is_empty() && !text.contains('\0');
        is_name.then_some(CodecId { name, key })
    }

    /// Returns the name of the codec.
    #[must_use]
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default().trim_end_matches('\0')
    }

    #[doc(hidden)]
    #[must_use]
    pub fn name_bytes(&self) -> &[u8; MAX_CODEC_NAME_BYTES] {
        &self.name
    }

    /// Returns the key identifier; zeros for no key.
    #[must_use]
    pub fn key_id(&self) -> &[u8; KEY_ID_BYTES] {
        &self.key
    }
}

/// The name, and the key identifier in hexadecimal.
impl fmt::Display for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name())?;
        if self.key == [0; KEY_ID_BYTES] {
            return Ok(());
        }
        f.write_str(" with the key identifier ")?;
        self.key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Refuses a log with the codec `found` that is opened with `given`.
///
/// # Errors
/// `Mismatch`.
pub fn check_codec(found: Option<&CodecId>, given: Option<&CodecId>) -> Result<()> {
    if found == given {
        return Ok(());
    }
    let name = |id: Option<&CodecId>| id.map_or_else(|| "no codec".into(), CodecId::to_string);
    let text = format!("the log has {}; it was opened with {}", name(found), name(given));
    Err(Error::new(ErrorKind::Mismatch, text).with_advice(OPEN_WITH_ITS_CODEC))
}
