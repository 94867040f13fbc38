//! A record that was read.

use crate::Lsn;

/// A record of the log: its LSN, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    lsn: Lsn,
    data: Vec<u8>,
}

impl Record {
    pub(crate) fn new(lsn: Lsn, data: Vec<u8>) -> Record {
        Record { lsn, data }
    }

    /// Returns the LSN that [`append`](crate::Wal::append) returned for the record.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns the bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Returns whether the record has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns the bytes without a copy.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Reads the value that [`append_typed`](crate::Wal::append_typed) has written.
    ///
    /// # Errors
    /// [`Encoding`](crate::WalError::Encoding): the bytes are no value of this type.
    #[cfg(feature = "pack-io")]
    pub fn decode<T: pack_io::Deserialize>(&self) -> crate::Result<T> {
        let decoded = pack_io::decode(&self.data);
        decoded.map_err(|error| crate::WalError::Encoding { detail: error.to_string() })
    }
}
