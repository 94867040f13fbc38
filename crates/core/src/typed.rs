//! Typed records.

use std::any::type_name;
use std::cell::Cell;

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Lsn, Record, RecordBuf, Result, Ticket, Wal};

const KEPT_BYTES: usize = 1 << 20;

thread_local! {
    // Empty while a value is written: its `Serialize` may append, too.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

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
    /// After the first calls nothing is allocated. The format does not name types or fields: give
    /// each type a tag of its own (rules in `docs/guide.md`, "Typed and encoded records").
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
    /// As [`append`](Wal::append). `InvalidArgument`: the value cannot be written, for example a
    /// sequence of unknown length; nothing is reserved.
    pub fn append_typed<T: Serialize + ?Sized>(&self, tag: u16, value: &T) -> Result<Ticket<'_>> {
        self.with_bytes(value, |bytes| self.append_tagged(tag, bytes))
    }

    /// Appends as [`append_typed`](Wal::append_typed) and waits as [`commit`](Wal::commit).
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
    /// Returns the value that `append_typed` wrote. A field `&str` borrows from the record.
    ///
    /// # Errors
    /// `InvalidArgument`: the bytes are no value of `T`, or more than one. Bytes of another type
    /// can be a value of `T`: use tags.
    pub fn decode<T: Deserialize<'a>>(&self) -> Result<T> {
        decode(self.lsn(), self.data())
    }
}

impl RecordBuf {
    /// As [`Record::decode`].
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
