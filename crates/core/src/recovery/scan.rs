//! The walk along the newest epoch, and the decision where the log ends.

use std::ops::Range;
use std::sync::Arc;

use super::decision::{Decision, EndCause, Ending, Standing, decide};
use super::ring::OldRing;
use super::survey::{Survey, corrupt, floor_of_segments, reader_of};
use crate::frame::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, padding};
use crate::reader::{EpochSpan, FrameReader};
use crate::store::ReadStore;
use crate::{Error, ErrorKind, Lsn, RecoveryPolicy, Result};

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What the last process run left in memory.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) ring: OldRing,
    /// The durable watermark of that run.
    pub(crate) durable: Lsn,
    /// Everything below was written to the segments. A killed thread's hole lies above.
    pub(crate) written: Lsn,
}

/// Where the newest epoch ends, and what was found on the way.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) floor: Lsn,
    /// Where the walk began: what lies below is not checked by it.
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) cause: EndCause,
    pub(crate) records: u64,
    pub(crate) records_from_ring: u64,
    pub(crate) bytes: u64,
    /// From the end to the end of the last valid frame behind it.
    pub(crate) torn_bytes: u64,
    pub(crate) torn_reason: Option<String>,
    /// Ranges to be padded, ascending.
    pub(crate) holes: Vec<(Lsn, Lsn)>,
    /// The last frame boundary at or below the floor that the walk came to.
    pub(crate) moves_from: Lsn,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Segment,
    Ring,
}

/// Walks the newest epoch of a surveyed log. Changes nothing.
#[derive(Debug)]
pub(crate) struct Scanner {
    survey: Arc<Survey>,
    policy: RecoveryPolicy,
    newest: EpochSpan,
    pub(crate) reader: FrameReader,
    pub(crate) leftover: Option<Leftover>,
    // All below was durable in the segments: what is damaged there is corruption, even where the
    // ring still has it.
    ring_floor: Lsn,
    /// The greatest evidence that `run` has found, also where it refuses the log.
    pub(crate) floor: Lsn,
    // The segment of the newest epoch that was asked for last.
    held: Range<Lsn>,
    /// Whether a record that was found did not validate when it was copied.
    pub(crate) has_changed: bool,
    place: String,
}

impl Scanner {
    /// A scanner, if there is an epoch to scan.
    pub(crate) fn new(
        store: &Arc<dyn ReadStore>,
        survey: &Arc<Survey>,
        leftover: Option<Leftover>,
        policy: RecoveryPolicy,
        read_ahead_bytes: usize,
    ) -> Option<Scanner> {
        Some(Scanner {
            survey: Arc::clone(survey),
            policy,
            newest: survey.newest()?,
            reader: reader_of(store, survey, read_ahead_bytes),
            leftover,
            ring_floor: Lsn::ZERO,
            floor: survey.floor(),
            held: Lsn::ZERO..Lsn::ZERO,
            has_changed: false,
            place: store.place(),
        })
    }

    /// Bytes of the old buffer's ring, 0 without one.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.leftover.as_ref().map_or(0, |leftover| leftover.ring.ring_bytes())
    }

    /// Finds the end of the log.
    ///
    /// # Errors
    /// `Corrupt` if the log ends below what was durable once; `Unclean` if the policy wants a clean
    /// end.
    pub(crate) fn run(&mut self) -> Result<Scan> {
        let line = self.leftover.as_ref().map(|leftover| leftover.durable);
        let floor = self.survey.floor().max(line.unwrap_or(Lsn::ZERO));
        let floor = floor_of_segments(&self.survey, &mut self.reader, floor)?;
        (self.ring_floor, self.floor) = (floor, floor);
        let start = self.start(floor);
        let base = self.newest.base.max(self.survey.state.head);
        self.survey.check_present(base, start, &self.place)?;
        let mut scan = Scan {
            floor,
            start,
            end: start,
            cause: EndCause::default(),
            records: 0,
            records_from_ring: 0,
            bytes: 0,
            torn_bytes: 0,
            torn_reason: None,
            holes: Vec::new(),
            moves_from: start,
        };
        loop {
            self.walk(&mut scan)?;
            if !self.bridge(&mut scan)? {
                break;
            }
        }
        // Beside a running writer: it may have gone on since the end of its segment was read.
        self.reader.forget();
        self.walk(&mut scan)?;
        scan.bytes = scan.end.bytes_since(start);
        self.look_beyond(&mut scan)?;
        self.refuse_damaged_headers(start, scan.end)?;
        Ok(scan)
    }

    /// A segment's header is durable before its name: one that holds recovered bytes and does not
    /// validate is damaged, never torn, and nothing can be written behind it.
    fn refuse_damaged_headers(&self, start: Lsn, end: Lsn) -> Result<()> {
        let segment_bytes = self.survey.state.segment_bytes;
        let numbers = start.segment(segment_bytes)..end.as_u64().div_ceil(segment_bytes);
        match self.survey.damaged.range(numbers).next() {
            Some((number, text)) if start < end => {
                let text = format!("the header of a segment does not validate: {text}");
                Err(corrupt(text, &self.place).at_segment(*number))
            }
            _ => Ok(()),
        }
    }

    /// The base of the floor's segment: the one that holds or begins at it, else the one that
    /// ends there; or the head, where that lies above.
    fn start(&self, floor: Lsn) -> Lsn {
        let segment_bytes = self.survey.state.segment_bytes;
        let within = floor.as_u64() % segment_bytes;
        let own = Lsn::new(floor.as_u64() - within);
        let is_absent = within == 0 && !self.survey.holds(own);
        let start = if is_absent && own > self.newest.base {
            Lsn::new(own.as_u64() - segment_bytes)
        } else {
            own
        };
        start.max(self.survey.state.head).max(self.newest.base)
    }

    /// Goes on from `scan.end` over whole frames.
    fn walk(&mut self, scan: &mut Scan) -> Result<()> {
        while let Some((header, source)) = self.probe(scan.end)? {
            let records = self.count_records(scan.end, &header, source);
            scan.records += records;
            scan.records_from_ring += if source == Source::Ring { records } else { 0 };
            scan.end = scan.end.plus(header.frame_bytes);
            if scan.end <= scan.floor {
                scan.moves_from = scan.end;
            }
        }
        Ok(())
    }

    /// The whole frame at `at`: the segment's bytes are tried first, the ring's second.
    pub(crate) fn probe(&mut self, at: Lsn) -> Result<Option<(Header, Source)>> {
        if self.holds(at)
            && let Some(header) = self.reader.frame(at, self.newest.seed)?
        {
            return Ok(Some((header, Source::Segment)));
        }
        let Some(leftover) = self.leftover.as_mut().filter(|_| at >= self.ring_floor) else {
            return Ok(None);
        };
        Ok(leftover.ring.frame(at, self.newest.seed).map(|header| (header, Source::Ring)))
    }

    /// As the survey's, which is not asked for each record of a segment.
    fn holds(&mut self, at: Lsn) -> bool {
        if self.held.contains(&at) {
            return true;
        }
        let holds = self.survey.holds(at);
        if holds {
            let segment_bytes = self.survey.state.segment_bytes;
            let base = at.segment_start(segment_bytes);
            self.held = base..base.plus(segment_bytes);
        }
        holds
    }

    /// Turns the range of a thread that died between reserving and publishing into one to be
    /// padded.
    ///
    /// Such a hole lies above *written*. What is missing below was written to the segments and lost
    /// with the page cache: the file system was mounted again, or this is an image of it.
    fn bridge(&mut self, scan: &mut Scan) -> Result<bool> {
        let hole = scan.end;
        let Some(leftover) = self.leftover.as_mut().filter(|leftover| hole >= leftover.written)
        else {
            return Ok(false);
        };
        let Some((next, _)) = leftover.ring.find_after(hole, self.newest.seed) else {
            return Ok(false);
        };
        scan.holes.push((hole, next));
        scan.end = next;
        Ok(true)
    }

    /// Looks for evidence behind the end, decides, and describes what is cut off.
    fn look_beyond(&mut self, scan: &mut Scan) -> Result<()> {
        let broken = if self.survey.holds(scan.end) {
            self.reader.header(scan.end, self.newest.seed)?
        } else {
            None
        };
        let mut last_valid = broken.map_or(scan.end, |header| scan.end.plus(header.frame_bytes));
        let mut followers = 0_u64;
        let segment_bytes = self.survey.state.segment_bytes;
        let strays = self.survey.strays.keys().copied();
        for number in self.survey.newest_segments().into_iter().chain(strays) {
            let base = Lsn::new(number * segment_bytes);
            let end = base.plus(segment_bytes);
            // What a torn record holds is its own: no other begins in it.
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
        let is_below_floor = scan.end < scan.floor;
        let ending = Ending {
            standing: if is_below_floor { Standing::BelowFloor } else { Standing::AboveFloor },
            has_broken_frame: broken.is_some(),
            has_followers: followers > 0,
        };
        self.floor = scan.floor;
        match decide(self.policy, ending) {
            Decision::End(cause) => {
                scan.cause = cause;
                scan.torn_bytes = last_valid.bytes_since(scan.end);
                scan.torn_reason = reason(cause, scan.end, followers);
                Ok(())
            }
            Decision::RefuseUnclean => Err(self.unclean(scan.end)),
            Decision::Refuse => Err(self.refuse(scan.end, scan.floor)),
        }
    }

    fn unclean(&self, end: Lsn) -> Error {
        let text = format!("the log was not closed cleanly; its records end at LSN {end}");
        Error::new(ErrorKind::Unclean, text).at_path(&self.place).at_lsn(end)
    }

    fn count_records(&mut self, at: Lsn, header: &Header, source: Source) -> u64 {
        if header.kind != Kind::Batch || source == Source::Segment {
            return self.reader.records_in(at, header, self.newest.seed).unwrap_or_default();
        }
        let (mut member, end) = (at.plus(HEADER_BYTES as u64), at.plus(header.frame_bytes));
        let mut count = 0;
        while member < end {
            let seed = self.newest.seed;
            let leftover = self.leftover.as_mut();
            let header = leftover.and_then(|leftover| leftover.ring.frame(member, seed));
            let Some(header) = header else { break };
            count += 1;
            member = member.plus(header.frame_bytes);
        }
        count
    }

    /// Appends the bytes of `[from, to)`, as the scan found them, to `out`; holes as padding.
    /// Stops at `until`, at the end of the log or after about [`PIECE_BYTES`], whichever comes
    /// first; returns where the copy ended. `until` is a segment end or lies above the log's.
    pub(crate) fn copy(
        &mut self,
        scan: &Scan,
        from: Lsn,
        until: Lsn,
        out: &mut Vec<u8>,
    ) -> Result<Lsn> {
        let (mut at, until) = (from, until.min(scan.end));
        while at < until && out.len() < PIECE_BYTES {
            // A hole may have begun below `from`, in the segment before.
            let below = scan.holes.partition_point(|(hole, _)| *hole <= at);
            let hole = below.checked_sub(1).map(|index| scan.holes[index]);
            if let Some((_, to)) = hole.filter(|(_, to)| at < *to) {
                let to = until.min(to);
                self.copy_hole(at, to, out);
                at = to;
                continue;
            }
            let Some((header, source)) = self.probe(at)? else {
                self.has_changed = true;
                let text = "a record that was read a moment ago does not validate";
                return Err(Error::new(ErrorKind::Io, text).at_path(&self.place).at_lsn(at));
            };
            let len = header.frame_bytes as usize;
            let padded = out.len() + len;
            match (source, &mut self.leftover) {
                (Source::Ring, Some(leftover)) => {
                    out.extend_from_slice(leftover.ring.bytes(at, len));
                }
                _ => out.extend_from_slice(self.reader.raw(at, len)?),
            }
            out.resize(padded, 0);
            at = at.plus(header.frame_bytes);
        }
        Ok(at)
    }

    fn copy_hole(&self, from: Lsn, to: Lsn, out: &mut Vec<u8>) {
        let segment_bytes = self.survey.state.segment_bytes;
        let mut at = from;
        while at < to {
            let segment_end = Lsn::new((at.segment(segment_bytes) + 1) * segment_bytes);
            let piece = to.min(segment_end).bytes_since(at);
            let lag = crate::frame::LAG_UNKNOWN;
            let (head, used) = padding(self.newest.seed, at, piece, lag);
            let padded = out.len() + piece as usize;
            out.extend_from_slice(&head[..used]);
            out.resize(padded, 0);
            at = at.plus(piece);
        }
    }

    fn refuse(&self, at: Lsn, floor: Lsn) -> Error {
        let text = format!(
            "acknowledged data is damaged: no valid record here, though all below LSN {floor} \
             was durable"
        );
        let segment = at.segment(self.survey.state.segment_bytes);
        Error::new(ErrorKind::Corrupt, text).at_path(&self.place).at_segment(segment).at_lsn(at)
    }
}

fn reason(cause: EndCause, end: Lsn, followers: u64) -> Option<String> {
    match cause {
        EndCause::TornRecord => Some(format!("the record at LSN {end} is incomplete")),
        EndCause::Gap => {
            Some(format!("no valid record at LSN {end}, {followers} valid ones behind it"))
        }
        EndCause::CleanClose | EndCause::NothingFollows | EndCause::Damage => None,
    }
}
