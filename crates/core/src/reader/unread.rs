//! Segment headers that a clean open has taken to say what they must.
//!
//! A reader asks here before it reads the first bytes of a segment: what was swapped, copied from
//! another log or damaged is refused then, by name, instead of at the open. A header that was found
//! right once is not looked at again.
//!
//! The lock is never held over a call of the store: two readers may look at the same header.

use std::collections::BTreeMap;

use crate::store::{ReadStore, SegmentHeader};
use crate::sync::Mutex;
use crate::{Error, ErrorKind, Lsn, Result};

/// The headers that nobody has looked at yet.
#[derive(Debug)]
pub(crate) struct Unread {
    segment_bytes: u64,
    // What each must say, by segment number.
    expected: Mutex<BTreeMap<u64, SegmentHeader>>,
}

impl Unread {
    pub(crate) fn new(headers: &[SegmentHeader], segment_bytes: u64) -> Unread {
        let expected = headers.iter().map(|header| (header.number, *header)).collect();
        Unread { segment_bytes, expected: Mutex::new(expected) }
    }

    /// Refuses the segment that holds `at` if its header is not what it must be.
    pub(crate) fn check(&self, store: &dyn ReadStore, at: Lsn) -> Result<()> {
        let number = at.segment(self.segment_bytes);
        let expected = self.expected.lock().get(&number).copied();
        let Some(expected) = expected else { return Ok(()) };
        let text = match store.segment(number)?.map(|segment| segment.header) {
            Some(Ok(header)) if header == expected => {
                self.expected.lock().remove(&number);
                return Ok(());
            }
            Some(Ok(header)) => {
                let SegmentHeader { epoch, .. } = header;
                format!("the header of a segment is of epoch {epoch}: {}", wanted(&expected))
            }
            Some(Err(text)) => format!("the header of a segment does not validate: {text}"),
            None => "a segment is missing that was there when the log was opened".into(),
        };
        Err(Error::new(ErrorKind::Corrupt, text)
            .at_path(store.place())
            .at_segment(number)
            .at_lsn(at))
    }

    /// Checks the segments that lie wholly below `to`, which are about to be archived. Those that are
    /// gone need no check. Says how far it came, and why not further.
    pub(crate) fn check_below(&self, store: &dyn ReadStore, to: Lsn) -> (Lsn, Result<()>) {
        let numbers = 0..to.segment(self.segment_bytes);
        let bases: Vec<Lsn> =
            self.expected.lock().range(numbers).map(|(_, header)| header.base).collect();
        for base in bases {
            let checked = store
                .segment(base.segment(self.segment_bytes))
                .and_then(|found| found.map_or(Ok(()), |_| self.check(store, base)));
            if let Err(error) = checked {
                return (base, Err(error));
            }
        }
        (to, Ok(()))
    }

    /// The segments that lie wholly in `[from, to)` are freed, or cut off: nobody reads them.
    pub(crate) fn forget(&self, from: Lsn, to: Lsn) {
        let first = from.segment_start_at_or_above(self.segment_bytes);
        let numbers = first.segment(self.segment_bytes)..to.segment(self.segment_bytes);
        self.expected.lock().retain(|number, _| !numbers.contains(number));
    }
}

fn wanted(expected: &SegmentHeader) -> String {
    match expected.predecessor {
        None => format!("expected one of epoch {}, and not its first", expected.epoch),
        Some(_) => format!("expected the first one of epoch {}", expected.epoch),
    }
}
