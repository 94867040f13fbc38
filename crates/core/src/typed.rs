//! Typed records: values that serde writes into records, in the format of postcard.
//!
//! A value is written into a buffer of its thread, which the next value uses again, and then
//! appended as any record. The buffer never grows beyond the largest record.

use std::any::type_name;
use std::cell::Cell;

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Lsn, Record, RecordBuf, Result, Ticket, Wal};

/// A buffer that one large value has made longer is not kept.
const KEPT_BYTES: usize = 1 << 20;

thread_local! {
    // Empty while a value is written: its `Serialize` may append, too.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes at most so many bytes.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl Flavor for Bounded {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > self.most - self.bytes.len() {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.bytes)
    }
}

impl Wal {
    /// Appends `value` as a record with `tag`, in the format of [postcard]. [`Record::decode`]
    /// reads it back. Feature `serde`.
    ///
    /// Writes the value into a buffer that the thread keeps, and the record from there, so after
    /// the first calls nothing is allocated. The format does not name types or fields: give each
    /// type a tag of its own, add variants at the end of an enum, and make a new type rather than
    /// change the fields of one that is in a log.
    ///
    /// [postcard]: https://postcard.jamesmunns.com/wire-format
    /// [`Record::decode`]: crate::Record::decode
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Put<'a> {
    ///     key: u64,
    ///     value: &'a str,
    /// }
    ///
    /// # fn show(wal: &palisade::Wal) -> palisade::Result<()> {
    /// const PUT: u16 = 1;
    /// let put = Put { key: 7, value: "seven" };
    /// let lsn = wal.append_typed(PUT, &put)?.wait()?;
    /// assert_eq!(wal.get(lsn)?.decode::<Put>()?, put);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: the value cannot be written, for example a sequence of unknown length.
    /// `TooLarge`: it takes more than [`max_record_bytes`](Wal::max_record_bytes). In both cases
    /// nothing is reserved. Else as [`append`](Wal::append).
    pub fn append_typed<T: Serialize + ?Sized>(&self, tag: u16, value: &T) -> Result<Ticket<'_>> {
        self.with_bytes(value, |bytes| self.append_tagged(tag, bytes))
    }

    /// Appends `value` as [`append_typed`](Wal::append_typed) does, and waits until it survives
    /// power loss.
    ///
    /// # Errors
    /// As [`append_typed`](Wal::append_typed) and [`commit`](Wal::commit).
    pub fn commit_typed<T: Serialize + ?Sized>(&self, tag: u16, value: &T) -> Result<Lsn> {
        self.with_bytes(value, |bytes| self.commit_tagged(tag, bytes))
    }

    fn with_bytes<T: Serialize + ?Sized, R>(
        &self,
        value: &T,
        append: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        // A thread that is ending has no place for buffers.
        let mut bytes = BUFFER.try_with(Cell::take).unwrap_or_default();
        bytes.clear();
        let most = self.max_record_bytes();
        let written = postcard::serialize_with_flavor(value, Bounded { bytes, most });
        let bytes = written.map_err(|error| match error {
            postcard::Error::SerializeBufferFull => {
                let text = format!("a value of {} takes more than {most} bytes", type_name::<T>());
                Error::new(ErrorKind::TooLarge, text)
            }
            error => {
                let text = format!("a value of {} has no record: {error}", type_name::<T>());
                Error::new(ErrorKind::InvalidArgument, text)
            }
        })?;
        let appended = append(&bytes);
        if bytes.capacity() <= KEPT_BYTES {
            let _ = BUFFER.try_with(|kept| kept.set(bytes));
        }
        appended
    }
}

impl<'a> Record<'a> {
    /// Returns the value that `append_typed` wrote. It may borrow from the record: a field `&str`
    /// is not copied.
    ///
    /// # Errors
    /// `InvalidArgument`: the bytes are no value of `T`, or one with further bytes after it. Use
    /// tags to tell types apart: postcard's format does not name them, so bytes of one type can be
    /// a value of another.
    pub fn decode<T: Deserialize<'a>>(&self) -> Result<T> {
        decode(self.lsn(), self.data())
    }
}

impl RecordBuf {
    /// Decodes the record as [`Record::decode`] does.
    ///
    /// # Errors
    /// As [`Record::decode`].
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        decode(self.lsn(), self.data())
    }
}

fn decode<'a, T: Deserialize<'a>>(lsn: Lsn, data: &'a [u8]) -> Result<T> {
    let refuse = |text: String| {
        let text = format!("the record is no value of {}: {text}", type_name::<T>());
        Error::new(ErrorKind::InvalidArgument, text).at_lsn(lsn)
    };
    match postcard::take_from_bytes(data) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(refuse(format!("{} bytes are left", rest.len()))),
        Err(error) => Err(refuse(error.to_string())),
    }
}
