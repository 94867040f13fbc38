//! The scan of the newest epoch: finds where the log ends.
//!
//! A frame that never reached the segments may be in the log buffer of the process run before.

use std::sync::Arc;

use palisade_store::{ReadStore, Segment, State};

use super::layout::{Layout, floor_of_segments, reader_of};
use super::listing::corrupt;
use crate::frame::in_memory;
use crate::frame::{ALIGN_BYTES, EpochSeed, Header};
use crate::reader::{CopiedFrames, EpochSpan, FrameReader, FrameSource};
use crate::{Error, ErrorKind, Lsn, Result};

/// The result of a scan: where the newest epoch ends, and what the scan found on the way.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) floor: Lsn,
    /// The LSN where the scan began. The scan checks nothing below it.
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) cause: EndCause,
    pub(crate) records: u64,
    pub(crate) records_from_buffer: u64,
    pub(crate) bytes: u64,
    /// Bytes from the end of the log to the end of the last valid frame above it.
    pub(crate) torn_bytes: u64,
    pub(crate) torn_reason: Option<String>,
    /// Ranges that become padding, ascending.
    pub(crate) holes: Vec<(Lsn, Lsn)>,
}

/// Scans the newest epoch of a log. Changes nothing.
#[derive(Debug)]
pub(crate) struct Scanner {
    pub(super) layout: Arc<Layout>,
    pub(crate) newest: EpochSpan,
    pub(crate) reader: FrameReader,
    pub(super) leftover: Option<OldLogBuffer>,
    /// The durable LSN in the mark of the old log buffer, or 0.
    pub(crate) noted_durable: Lsn,
    // Everything below this LSN was durable in the segments. A bad place there is corruption, even
    // if the old log buffer still has the bytes.
    buffer_floor: Lsn,
    /// The greatest evidence that `run` has found. It is set even if `run` refuses the log.
    pub(crate) floor: Lsn,
    /// Where the whole frames end that `run` has read. It is set even if `run` fails.
    pub(crate) end: Lsn,
    /// Whether a record that the scan found did not validate when redo copied it.
    pub(crate) has_changed: bool,
    pub(super) place: String,
}

impl Scanner {
    /// Creates a scanner, if there is an epoch to scan.
    pub(crate) fn new(
        store: &Arc<dyn ReadStore>,
        layout: &Arc<Layout>,
        leftover: Option<OldLogBuffer>,
        read_ahead_bytes: usize,
    ) -> Option<Scanner> {
        let newest = layout.newest()?;
        Some(Scanner {
            layout: Arc::clone(layout),
            newest,
            reader: reader_of(store, layout, read_ahead_bytes),
            noted_durable: leftover.as_ref().map_or(Lsn::ZERO, |leftover| leftover.durable),
            leftover,
            buffer_floor: Lsn::ZERO,
            floor: layout.floor(),
            end: newest.base.max(layout.state.head),
            has_changed: false,
            place: store.place(),
        })
    }

    /// Returns the size of the old log buffer, 0 without one.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.leftover.as_ref().map_or(0, |leftover| leftover.ring_bytes)
    }

    /// Finds the end of the log.
    ///
    /// # Errors
    /// `Corrupt`: the log ends below what was durable once.
    pub(crate) fn run(&mut self) -> Result<Scan> {
        let floor = self.layout.floor().max(self.noted_durable);
        let floor = floor_of_segments(&self.layout, &mut self.reader, floor)?;
        (self.buffer_floor, self.floor) = (floor, floor);
        let start = self.start(floor);
        let base = self.newest.base.max(self.layout.state.head);
        self.layout.check_present(base, start, &self.place)?;
        let mut scan = Scan { floor, start, end: start, ..Scan::default() };
        loop {
            self.walk(&mut scan)?;
            if !self.pad_hole(&mut scan)? {
                break;
            }
        }
        // A running writer may have appended since the end of its segment was read.
        self.reader.forget();
        self.walk(&mut scan)?;
        scan.bytes = scan.end.bytes_since(start);
        self.decide_end(&mut scan)?;
        Ok(scan)
    }

    /// Returns where the scan starts: at the base of the segment that holds the floor or begins at
    /// it. If that segment is absent, at the base of the segment that ends at the floor. The scan
    /// never starts below the head.
    fn start(&self, floor: Lsn) -> Lsn {
        let segment_bytes = self.layout.state.segment_bytes;
        let within = floor.as_u64() % segment_bytes;
        let own = Lsn::new(floor.as_u64() - within);
        let is_absent = within == 0 && !self.layout.holds(own);
        let start = if is_absent && own > self.newest.base {
            Lsn::new(own.as_u64() - segment_bytes)
        } else {
            own
        };
        start.max(self.layout.state.head).max(self.newest.base)
    }

    /// Advances `scan.end` over whole frames.
    fn walk(&mut self, scan: &mut Scan) -> Result<()> {
        self.end = scan.end;
        while let Some((header, source)) = self.frame_at(scan.end)? {
            let seed = self.newest.seed;
            let records = self.reader_of(source).records_in(scan.end, &header, seed)?;
            scan.records += records;
            scan.records_from_buffer += if source == FrameSource::LogBuffer { records } else { 0 };
            scan.end = scan.end.plus(header.frame_bytes);
            self.end = scan.end;
        }
        Ok(())
    }

    /// Skips a hole, the range of a thread that died between reserving and publishing. The hole
    /// becomes padding. Returns false if there is no hole at the end of the scan.
    ///
    /// Such a hole is above *written*. The bytes of a gap below *written* were written to the
    /// segments and lost with the page cache: the file system was mounted again, or this is a copy
    /// of the disk.
    fn pad_hole(&mut self, scan: &mut Scan) -> Result<bool> {
        let hole = scan.end;
        let Some(leftover) = self.leftover.as_mut().filter(|leftover| hole >= leftover.written)
        else {
            return Ok(false);
        };
        let Some(next) = leftover.find_after(hole, self.newest.seed)? else {
            return Ok(false);
        };
        scan.holes.push((hole, next));
        scan.end = next;
        Ok(true)
    }

    /// Looks for evidence above the end, decides, and describes what is truncated.
    fn decide_end(&mut self, scan: &mut Scan) -> Result<()> {
        let broken = if self.layout.holds(scan.end) {
            self.reader.header(scan.end, self.newest.seed)?
        } else {
            None
        };
        let mut last_valid = broken.map_or(scan.end, |header| scan.end.plus(header.frame_bytes));
        let mut followers = 0_u64;
        let segment_bytes = self.layout.state.segment_bytes;
        let strays = self.layout.strays.clone();
        for number in self.layout.newest_segments().into_iter().chain(strays) {
            let base = Lsn::new(number * segment_bytes);
            let end = base.plus(segment_bytes);
            // No record begins within a torn one.
            let mut at = base.max(last_valid).max(scan.end.plus(ALIGN_BYTES));
            while at < end
                && let Some((found, header)) = self.reader.find(at, end, &[self.newest.seed])?
            {
                scan.floor = scan.floor.max(header.durable(found).unwrap_or(Lsn::ZERO));
                at = found.plus(header.frame_bytes);
                last_valid = last_valid.max(at);
                followers += 1;
            }
        }
        self.floor = scan.floor;
        let is_below_floor = scan.end < scan.floor;
        let Some(cause) = decide(is_below_floor, broken.is_some(), followers > 0) else {
            return Err(self.refuse(scan.end, scan.floor));
        };
        scan.cause = cause;
        scan.torn_bytes = last_valid.bytes_since(scan.end);
        scan.torn_reason = reason(cause, scan.end, followers);
        Ok(())
    }

    fn refuse(&self, at: Lsn, floor: Lsn) -> Error {
        let text = format!(
            "acknowledged data is damaged: no valid record here, though all below LSN {floor} \
             was durable"
        );
        let segment = at.segment(self.layout.state.segment_bytes);
        corrupt(text, &self.place).at_segment(segment).at_lsn(at)
    }
}

impl CopiedFrames for Scanner {
    /// Tries the segment first, then the old log buffer.
    fn frame_at(&mut self, at: Lsn) -> Result<Option<(Header, FrameSource)>> {
        if self.layout.holds(at)
            && let Some(header) = self.reader.frame(at, self.newest.seed)?
        {
            return Ok(Some((header, FrameSource::Segment)));
        }
        let Some(leftover) = self.leftover.as_mut().filter(|_| at >= self.buffer_floor) else {
            return Ok(None);
        };
        let header = leftover.whole_frame(at, self.newest.seed)?;
        Ok(header.map(|header| (header, FrameSource::LogBuffer)))
    }

    fn reader_of(&mut self, source: FrameSource) -> &mut FrameReader {
        match (source, &mut self.leftover) {
            (FrameSource::LogBuffer, Some(leftover)) => &mut leftover.reader,
            _ => &mut self.reader,
        }
    }

    fn has_changed(&mut self, at: Lsn) -> Error {
        self.has_changed = true;
        let text = "a record that was read a moment ago does not validate";
        Error::new(ErrorKind::Io, text).at_path(&self.place).at_lsn(at)
    }
}

fn reason(cause: EndCause, end: Lsn, followers: u64) -> Option<String> {
    match cause {
        EndCause::TornRecord => Some(format!("the record at LSN {end} is incomplete")),
        EndCause::Gap => {
            Some(format!("no valid record at LSN {end}, {followers} valid ones above it"))
        }
        EndCause::CleanClose | EndCause::NothingFollows | EndCause::Damage => None,
    }
}

/// Why the log ends where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndCause {
    /// The log was closed there.
    CleanClose,
    /// No header validates there, and no record validates above.
    #[default]
    NothingFollows,
    /// A record begins there whose header validates and whose payload does not.
    TornRecord,
    /// No header validates there, but valid records follow above. A crash kept later bytes and lost
    /// earlier ones.
    Gap,
    /// The log is damaged there. Only a [`Verdict`](crate::inspect::Verdict) has this cause; an
    /// open is refused instead.
    Damage,
}

/// Returns why the log ends at the first place without a whole frame. Returns `None` if the place
/// is below the floor: acknowledged data is damaged, and nothing may be changed.
///
/// `has_broken_frame`: a header validates at the place, and its payload does not.
/// `has_followers`: there are whole frames of the same epoch above the place.
pub(crate) fn decide(
    is_below_floor: bool,
    has_broken_frame: bool,
    has_followers: bool,
) -> Option<EndCause> {
    match (is_below_floor, has_broken_frame, has_followers) {
        (true, _, _) => None,
        (false, true, _) => Some(EndCause::TornRecord),
        (false, false, true) => Some(EndCause::Gap),
        (false, false, false) => Some(EndCause::NothingFollows),
    }
}

/// The old log buffer of the newest epoch, a ring. A reader of frames reads it as it reads
/// segments.
#[derive(Debug)]
pub(crate) struct OldLogBuffer {
    pub(super) reader: FrameReader,
    pub(super) ring_bytes: u64,
    pub(super) segment_bytes: u64,
    /// The durable watermark of the process run that left the buffer.
    pub(super) durable: Lsn,
    /// Everything below this LSN was written to the segments. The hole of a killed thread is above.
    pub(super) written: Lsn,
}

/// The bytes of the ring, as a store of which only `read` is called.
#[derive(Debug)]
struct Ring(Vec<u8>);

impl ReadStore for Ring {
    fn state(&self) -> Result<State> {
        Err(Error::bare(ErrorKind::NotFound))
    }

    fn segments(&self) -> Result<Vec<Segment>> {
        Ok(Vec::new())
    }

    fn read(&self, at: Lsn, into: &mut [u8]) -> Result<usize> {
        let Some(from) = at.as_u64().checked_rem(self.0.len() as u64) else { return Ok(0) };
        let bytes = &self.0[in_memory(from)..];
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn place(&self) -> String {
        "the log buffer".into()
    }
}

impl OldLogBuffer {
    pub(super) fn new(
        ring: Vec<u8>,
        (durable, written): (Lsn, Lsn),
        segment_bytes: u64,
        read_ahead_bytes: usize,
    ) -> OldLogBuffer {
        let ring_bytes = ring.len() as u64;
        let reader = FrameReader::new(Arc::new(Ring(ring)), segment_bytes, read_ahead_bytes);
        OldLogBuffer { reader, ring_bytes, segment_bytes, durable, written }
    }

    /// Returns the header of a whole frame at `at`, if the ring still holds one.
    pub(super) fn whole_frame(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Header>> {
        let found = self.reader.frame(at, seed)?;
        Ok(found.filter(|header| header.frame_bytes <= self.ring_bytes))
    }

    /// Returns where the first whole frame above `at` begins that is not a member of a batch.
    ///
    /// The search ends one ring length above `at`, because the ring holds no frame above that.
    pub(super) fn find_after(&mut self, at: Lsn, seed: EpochSeed) -> Result<Option<Lsn>> {
        let end = at.plus(self.ring_bytes);
        let mut from = at.plus(ALIGN_BYTES);
        while from < end {
            let segment_end = from.segment_start(self.segment_bytes).plus(self.segment_bytes);
            from = match self.reader.find(from, segment_end.min(end), &[seed])? {
                Some((found, header)) if header.frame_bytes <= self.ring_bytes => {
                    return Ok(Some(found));
                }
                Some((found, header)) => found.plus(header.frame_bytes),
                None => segment_end,
            };
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks also that the end has the cause of the bad place.
    #[test]
    fn a_bad_place_is_refused_below_the_floor_and_is_the_end_above() {
        for (has_broken_frame, has_followers, cause) in [
            (true, true, EndCause::TornRecord),
            (true, false, EndCause::TornRecord),
            (false, true, EndCause::Gap),
            (false, false, EndCause::NothingFollows),
        ] {
            let case = format!("broken frame: {has_broken_frame}, followers: {has_followers}");
            assert_eq!(decide(false, has_broken_frame, has_followers), Some(cause), "{case}");
            assert_eq!(decide(true, has_broken_frame, has_followers), None, "{case}");
        }
    }
}
