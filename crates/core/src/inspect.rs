//! Looking at a log without touching it, also beside a running writer.
//!
//! Nothing here takes a lock, reads the log buffer, or writes. A writer may recycle what is
//! being read: what fails to validate is read again, and what has sunk below the head meanwhile
//! is gone, not corrupt.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::reader::{EpochSpan, FrameReader, Records};
pub use crate::recovery::full::BadPlace;
use crate::recovery::full::{self, Effort};
pub use crate::recovery::salvage::{Gap, Salvage, Salvaged};
use crate::recovery::survey::{Found, Survey};
use crate::recovery::{EndCause, Scanner};
use crate::store::{ReadStore, Segment, State};
use crate::{Error, ErrorKind, Lsn, RecoveryPolicy, Result};

const READ_AHEAD_BYTES: usize = 1 << 20;
/// Of a salvage: a read that fails costs the records that it would have brought.
pub(crate) const SALVAGE_READ_BYTES: usize = 64 << 10;
/// How often damage must be found again, in a log that stands still, to be believed.
const ATTEMPTS: usize = 5;
/// How often a log whose state changes while it is read is begun again.
const RESTARTS: usize = 1000;

/// A read-only view of a log.
#[derive(Clone, Debug)]
pub struct Inspector {
    store: Arc<dyn ReadStore>,
}

/// What a verification came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every record validates up to a clean end.
    Clean,
    /// Every record validates, and nothing is torn, but the log was not closed. Opening the log
    /// recovers it.
    Unclean,
    /// Every record validates up to where a crash left the log; what follows there is incomplete.
    /// Nothing that was certainly durable is missing. Opening the log recovers it.
    TornTail,
    /// As `Unclean` or `TornTail`, but a writer is at work: a store that can see it says so.
    Unfinished,
    /// Acknowledged data is damaged or missing.
    Corrupt,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// What it came to.
    pub outcome: Outcome,
    /// Segments at or above the head.
    pub segments: u64,
    /// Records that were read and validate: `verify` reads up to the first bad place, `verify_deep`
    /// each segment up to its own.
    pub records: u64,
    /// Bytes that were read and validate, headers and padding included.
    pub bytes: u64,
    /// Where the log begins.
    pub head: Lsn,
    /// Where the valid part ends; in a corrupt log, the bad place.
    pub end: Lsn,
    /// Everything below was certainly durable.
    pub floor: Lsn,
    /// Bytes of recognisable frames behind the end.
    pub torn_bytes: u64,
    /// Why the valid part ends there.
    pub end_cause: EndCause,
    /// The first bad place of each damaged segment, ascending: of all of them after
    /// [`verify_deep`](Inspector::verify_deep), of the first one after `verify`.
    pub bad_places: Vec<BadPlace>,
    /// Numbers of files with a segment's name that are no part of the log: without a header of it,
    /// and far above all that it can have made.
    pub strays: Vec<u64>,
    /// Why the log ends there, if there is more to say than that nothing follows.
    pub why: Option<String>,
}

impl Inspector {
    /// A view of the log in `store`.
    #[must_use]
    pub fn new(store: impl ReadStore) -> Inspector {
        Inspector { store: Arc::new(store) }
    }

    /// The log's state as it was last saved.
    ///
    /// # Errors
    /// As [`ReadStore::state`].
    pub fn state(&self) -> Result<State> {
        self.store.state()
    }

    /// All segments that are present.
    ///
    /// # Errors
    /// As [`ReadStore::segments`].
    pub fn segments(&self) -> Result<Vec<Segment>> {
        self.store.segments()
    }

    /// The records from `from`, or from the head on; ends silently where nothing valid follows.
    ///
    /// # Errors
    /// `Corrupt` if headers contradict each other, `Io` if the store cannot be read.
    pub fn records(&self, from: Option<Lsn>) -> Result<Records> {
        let survey = self.survey()?;
        let head = survey.state.head;
        let reader = self.reader(&survey);
        let from = from.unwrap_or(head).max(head);
        Ok(Records::new(reader, survey.spans, from).tolerant())
    }

    /// Everything that still validates from `from`, or from the head on: skips damage, and says
    /// what it skipped. Changes nothing and takes no lock.
    ///
    /// A `from` that is no multiple of 8 counts as the next one. One that lies within a record
    /// shows as a gap up to the next record.
    ///
    /// # Errors
    /// `Corrupt` if the log's state cannot be read; `Io` if its segments cannot be listed.
    pub fn salvage(&self, from: Option<Lsn>) -> Result<Salvage> {
        Salvage::new(&self.store, from, SALVAGE_READ_BYTES)
    }

    /// The records from `from`, or from the head on, to `end`, where one of them ends.
    ///
    /// Segments may be missing: what lies behind them can be read from there.
    ///
    /// # Errors
    /// `Corrupt` if headers contradict each other, `Io` if the store cannot be read. The iterator
    /// gives `Corrupt` where no valid record is below `end`, and where an epoch ends and nothing
    /// says that the next one follows on it.
    pub fn records_until(&self, from: Option<Lsn>, end: Lsn) -> Result<Records> {
        let found = Found::list(self.store.as_ref())?;
        let mut spans = found.lives(&self.store.place())?;
        if let Some(newest) = spans.last_mut() {
            newest.end = end.max(newest.base);
        }
        let State { head, segment_bytes, .. } = found.state;
        let store = Arc::clone(&self.store);
        let reader = FrameReader::new(store, segment_bytes, READ_AHEAD_BYTES);
        Ok(Records::new(reader, spans, from.unwrap_or(head).max(head)))
    }

    /// Reads every record and checks it, then the end as recovery would.
    ///
    /// Damage is a [`Verdict`], not an error.
    ///
    /// # Errors
    /// `Io` if the store cannot be read; `Foreign`, `Unsupported` if it is no log of this format.
    pub fn verify(&self) -> Result<Verdict> {
        self.verify_with(None)
    }

    /// As `verify`, by `threads` threads (0: one for each core), and going on behind damage: the
    /// verdict names a bad place of each damaged segment. It is what an open with
    /// [`Verify::Full`](crate::Verify::Full) checks.
    ///
    /// # Errors
    /// As `verify`.
    pub fn verify_deep(&self, threads: usize) -> Result<Verdict> {
        let threads = threads.min(crate::MAX_VERIFY_THREADS);
        self.verify_with(Some(Effort { read_ahead_bytes: READ_AHEAD_BYTES, threads }))
    }

    fn verify_with(&self, deep: Option<Effort>) -> Result<Verdict> {
        let mut attempts = 0;
        let mut restarts = 0;
        loop {
            let before = self.store.state()?;
            let verdict = self.verify_once(deep)?;
            if verdict.outcome != Outcome::Corrupt {
                return Ok(verdict);
            }
            // A writer may have recycled what was read, or have written it a moment later: while
            // its head or epoch moves, what was found says nothing.
            if self.store.state()? != before && restarts < RESTARTS {
                restarts += 1;
                continue;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                return Ok(verdict);
            }
        }
    }

    fn verify_once(&self, deep: Option<Effort>) -> Result<Verdict> {
        let survey = match Survey::take(self.store.as_ref()) {
            Ok(survey) => Arc::new(survey),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let mut verdict = corrupt(&self.store.state()?, &error);
                if deep.is_some() {
                    let behind = self.look_behind(verdict.head, &mut verdict.bad_places);
                    verdict.records = match behind {
                        // The state is what is damaged: nothing can be found by it.
                        Err(error) if error.kind() == ErrorKind::Corrupt => 0,
                        found => found?,
                    };
                }
                return Ok(verdict);
            }
            Err(error) => return Err(error),
        };
        let mut verdict = self.end_of(&survey)?;
        match deep {
            Some(effort) => self.check_all(&survey, effort, &mut verdict)?,
            None => self.read_all(&survey, &mut verdict)?,
        }
        Ok(verdict)
    }

    /// Checks all segments below the verdict's end, and names what is bad in them.
    fn check_all(&self, survey: &Survey, effort: Effort, verdict: &mut Verdict) -> Result<()> {
        let checked = full::check(&self.store, survey, verdict.end, effort)?;
        (verdict.records, verdict.bytes) = (checked.records, checked.bytes);
        verdict.segments = survey.present();
        let mut bad = checked.bad;
        if let Some(tail) = verdict.bad_places.first().copied() {
            bad.push(tail);
            self.look_behind(tail.lsn, &mut bad)?;
        }
        if let Some(first) = bad.first().filter(|_| verdict.outcome != Outcome::Corrupt) {
            let text = "no valid record here, though one must begin";
            let error = Error::new(ErrorKind::Corrupt, text).at_path(self.store.place());
            verdict.why = Some(error.at_segment(first.segment).at_lsn(first.lsn).finding());
            (verdict.outcome, verdict.end_cause) = (Outcome::Corrupt, EndCause::Damage);
        }
        verdict.end = bad.first().map_or(verdict.end, |first| first.lsn.min(verdict.end));
        verdict.bad_places = bad;
        Ok(())
    }

    /// Adds the first bad place of each segment behind `from` that has none yet; says how many
    /// records validate there.
    fn look_behind(&self, from: Lsn, bad: &mut Vec<BadPlace>) -> Result<u64> {
        let segment_bytes = self.store.state()?.segment_bytes;
        let mut known: BTreeSet<u64> = bad.iter().map(|bad| bad.segment).collect();
        let (records, _) = self.salvage(Some(from))?.count(|gap| {
            let segment = gap.from.segment(segment_bytes);
            if known.insert(segment) {
                bad.push(BadPlace { lsn: gap.from, segment });
            }
        })?;
        bad.sort_unstable_by_key(|bad| bad.lsn);
        Ok(records)
    }

    /// The end of the newest epoch, decided as recovery does, without the log buffer.
    fn end_of(&self, survey: &Arc<Survey>) -> Result<Verdict> {
        let state = &survey.state;
        let mut verdict = Verdict {
            outcome: if state.clean { Outcome::Clean } else { Outcome::Unclean },
            segments: survey.present(),
            records: 0,
            bytes: 0,
            head: state.head,
            end: state.head,
            floor: survey.floor(),
            torn_bytes: 0,
            end_cause: EndCause::NothingFollows,
            bad_places: Vec::new(),
            strays: survey.strays.keys().copied().collect(),
            why: None,
        };
        let (store, policy) = (&self.store, RecoveryPolicy::Strict);
        let Some(mut scanner) = Scanner::new(store, survey, None, policy, READ_AHEAD_BYTES) else {
            return Ok(verdict);
        };
        let scan = match scanner.run() {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let Verdict { segments, .. } = verdict;
                let floor = scanner.floor;
                return Ok(Verdict { segments, floor, ..corrupt(state, &error) });
            }
            scan => scan?,
        };
        verdict.end = scan.end;
        verdict.floor = scan.floor;
        verdict.torn_bytes = scan.torn_bytes;
        verdict.why = scan.torn_reason;
        verdict.end_cause = match verdict.outcome {
            Outcome::Clean => EndCause::CleanClose,
            _ => scan.cause,
        };
        if !state.clean && scan.torn_bytes > 0 {
            verdict.outcome = Outcome::TornTail;
        }
        if let Some((number, text)) = survey.damaged.iter().next() {
            verdict.outcome = Outcome::TornTail;
            verdict.why = Some(format!("segment {number}, which holds no record yet: {text}"));
        }
        if state.clean && scan.end != state.clean_end {
            verdict.outcome = Outcome::TornTail;
            verdict.end_cause = scan.cause;
            verdict.why = Some(format!("records follow the clean end {}", state.clean_end));
        }
        Ok(verdict)
    }

    /// Walks all records below the verdict's end and counts them.
    fn read_all(&self, survey: &Survey, verdict: &mut Verdict) -> Result<()> {
        let mut spans: Vec<EpochSpan> = survey.spans.clone();
        for span in &mut spans {
            span.end = span.end.min(verdict.end.max(span.base));
        }
        let head = survey.state.head;
        let bytes_of =
            |span: &EpochSpan, end: Lsn| span.end.min(end).bytes_since(span.base.max(head));
        let bytes_to = |end| survey.spans.iter().map(|span| bytes_of(span, end)).sum::<u64>();
        verdict.bytes = bytes_to(verdict.end);
        let mut records = Records::new(self.reader(survey), spans, survey.state.head);
        loop {
            match records.next() {
                Ok(Some(_)) => verdict.records += 1,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let found = corrupt(&survey.state, &error);
                    let (segments, records) = (verdict.segments, verdict.records);
                    let (bytes, strays) = (bytes_to(found.end), verdict.strays.split_off(0));
                    let floor = verdict.floor;
                    *verdict = Verdict { segments, records, bytes, strays, floor, ..found };
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn survey(&self) -> Result<Survey> {
        let mut survey = Survey::take(self.store.as_ref());
        for _ in 1..ATTEMPTS {
            if survey.is_ok() {
                break;
            }
            survey = Survey::take(self.store.as_ref());
        }
        survey
    }

    fn reader(&self, survey: &Survey) -> FrameReader {
        let store = Arc::clone(&self.store);
        FrameReader::new(store, survey.state.segment_bytes, READ_AHEAD_BYTES)
    }
}

fn corrupt(state: &State, error: &Error) -> Verdict {
    let base = error.segment().map(|number| Lsn::new(number.saturating_mul(state.segment_bytes)));
    let place = error.lsn().or(base).map(|lsn| lsn.max(state.head));
    let bad = |lsn: Lsn| BadPlace { lsn, segment: lsn.segment(state.segment_bytes) };
    Verdict {
        outcome: Outcome::Corrupt,
        segments: 0,
        records: 0,
        bytes: 0,
        head: state.head,
        end: place.unwrap_or(state.head),
        floor: state.head.max(state.checkpoint).max(state.clean_end).max(state.epoch_base),
        torn_bytes: 0,
        end_cause: EndCause::Damage,
        bad_places: place.map(bad).into_iter().collect(),
        strays: Vec::new(),
        why: Some(error.finding()),
    }
}
