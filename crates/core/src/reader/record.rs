//! A record, borrowed from a read buffer or with bytes of its own.

use std::fmt;

use crate::Lsn;

/// A record, borrowed from the iterator that read it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    lsn: Lsn,
    next_lsn: Lsn,
    tag: u16,
    is_encoded: bool,
    data: &'a [u8],
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) fn new(
        lsn: Lsn,
        next_lsn: Lsn,
        tag: u16,
        is_encoded: bool,
        data: &'a [u8],
    ) -> Record<'a> {
        Record { lsn, next_lsn, tag, is_encoded, data }
    }

    pub(crate) fn decoded(self, data: &'a [u8]) -> Record<'a> {
        Record { data, is_encoded: false, ..self }
    }

    /// Returns the LSN that `append` returned for it.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns where the record ends: reading can continue from here.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Returns the appended bytes.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Returns the tag that was given to `append_tagged`, 0 otherwise.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// Returns whether [`data`](Record::data) are stored bytes, which the log's codec has encoded.
    /// Only readers without the codec return such a record: those of an `Inspector`, a salvage and
    /// an archive. The last 4 of the bytes are the length of the record that was appended.
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.is_encoded
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("lsn", &self.lsn)
            .field("tag", &self.tag)
            .field("bytes", &self.data.len())
            .finish()
    }
}

/// A record that owns its bytes, returned by `Wal::get`. Else as [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordBuf {
    lsn: Lsn,
    next_lsn: Lsn,
    tag: u16,
    is_encoded: bool,
    data: Vec<u8>,
}

impl RecordBuf {
    /// As [`Record::lsn`].
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// As [`Record::next_lsn`].
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// As [`Record::data`].
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// As [`Record::tag`].
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// As [`Record::is_encoded`].
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.is_encoded
    }

    pub(crate) fn as_record(&self) -> Record<'_> {
        let RecordBuf { lsn, next_lsn, tag, is_encoded, .. } = *self;
        Record { lsn, next_lsn, tag, is_encoded, data: &self.data }
    }

    /// Returns the bytes without a copy.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }
}

impl From<Record<'_>> for RecordBuf {
    fn from(record: Record<'_>) -> RecordBuf {
        RecordBuf {
            lsn: record.lsn,
            next_lsn: record.next_lsn,
            tag: record.tag,
            is_encoded: record.is_encoded,
            data: record.data.to_vec(),
        }
    }
}
