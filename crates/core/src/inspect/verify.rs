//! Verification of a log.

use std::collections::BTreeSet;
use std::sync::Arc;

use palisade_store::{BadHeader, State};

use super::{ATTEMPTS, BadPlace, Inspector, READ_AHEAD_BYTES, RESTARTS};
use crate::copy::{self, WholeFrames};
use crate::reader::{EpochSpan, truncated_meanwhile};
use crate::recovery::layout::Layout;
use crate::recovery::listing::Listing;
use crate::recovery::verify::{self, Effort};
use crate::recovery::{EndCause, Scanner};
use crate::{Error, ErrorKind, Lsn, Result};

const TO_FIRST_BAD: Effort =
    Effort { read_ahead_bytes: READ_AHEAD_BYTES, threads: 1, ends_at_first: true };

/// The result of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every record validates up to a clean end.
    Clean,
    /// Every record validates, but the log was not closed. An open recovers it.
    Unclean,
    /// All that was certainly durable validates. Above the end, incomplete records follow; above a
    /// clean end, records or a damaged header. An open recovers the log.
    TornTail,
    /// As `Unclean` or `TornTail`, but a writer is running.
    Unfinished,
    /// Acknowledged data is damaged or missing.
    Corrupt,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The result.
    pub outcome: Outcome,
    /// Segments at or above the head.
    pub segments: u64,
    /// Records that validate. In a corrupt log, `verify` counts those below the first bad place, or
    /// below `end` if a segment is missing there or its header is damaged; `verify_deep` all that
    /// `salvage` returns.
    pub records: u64,
    /// Bytes that validate, headers and padding included. In a corrupt log, at most those below the
    /// first bad place of each segment, or below `end` as above.
    pub bytes: u64,
    /// Where the log begins.
    pub head: Lsn,
    /// Where the valid part ends. In a corrupt log, the highest LSN that `Repair::plan` accepts:
    /// usually the first bad place. If only the header of a segment is damaged, it is above that,
    /// or below if the header alone said which records were truncated.
    pub end: Lsn,
    /// Everything below was certainly durable.
    pub floor: Lsn,
    /// Bytes from the end to that of the last valid frame above.
    pub torn_bytes: u64,
    /// Why it ends there.
    pub end_cause: EndCause,
    /// The first bad place of each damaged segment, ascending; of `verify`, only the first.
    pub bad_places: Vec<BadPlace>,
    /// Numbers of stray files ([`RecoveryReport::strays`](crate::RecoveryReport::strays)). In a
    /// corrupt log a file within reach of the log is a bad place instead.
    pub strays: Vec<u64>,
    /// Why it ends there, as text.
    pub why: Option<String>,
}

impl Inspector {
    /// Finds the log's end as recovery would, and checks every record below. Damage is an outcome,
    /// not an error. A log without its meta file is [`Corrupt`](Outcome::Corrupt), and so is one
    /// that fails [`check_synced`](Inspector::check_synced).
    ///
    /// # Errors
    /// As [`state`](Inspector::state), [`segments`](Inspector::segments) and
    /// [`has_writer`](Inspector::has_writer). `Unsupported`. `Truncated`: the writer truncates too
    /// often; call again.
    pub fn verify(&self) -> Result<Verdict> {
        self.judge(None)
    }

    /// Verifies with `threads` threads (0: one for each core), and continues above damage: the
    /// verdict names the first bad place of each damaged segment, and the first of several missing
    /// ones. If the log is corrupt, pass [`Verdict::end`] to [`Repair::plan`](crate::Repair::plan):
    ///
    /// ```rust,no_run
    /// use palisade::inspect::Inspector;
    /// use palisade::{Repair, Result};
    ///
    /// # fn main() -> Result<()> {
    /// // Loses no record that can be kept.
    /// let from = Inspector::open("wal")?.verify_deep(0)?.end;
    /// let repair = Repair::plan("wal", from, &mut |_| {})?;
    /// println!("{:?}", repair.report()); // for a person to decide
    /// repair.write("wal.repaired", &mut |_| {})?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`verify`](Inspector::verify).
    pub fn verify_deep(&self, threads: usize) -> Result<Verdict> {
        let threads = threads.min(crate::MAX_VERIFY_THREADS);
        self.judge(Some(Effort { threads, ends_at_first: false, ..TO_FIRST_BAD }))
    }

    fn judge(&self, deep: Option<Effort>) -> Result<Verdict> {
        let had_writer = self.has_writer()?;
        let mut verdict = self.verify_with(deep)?;
        let is_open = matches!(verdict.outcome, Outcome::Unclean | Outcome::TornTail);
        if is_open && (had_writer || self.has_writer()?) {
            verdict.outcome = Outcome::Unfinished;
        }
        if let Err(error) = self.check_synced() {
            if error.kind() != ErrorKind::Foreign {
                return Err(error);
            }
            verdict.why = Some(error.finding());
            verdict.outcome = Outcome::Corrupt;
        } else if self.has_rebuilt_state() {
            let what = match verdict.outcome {
                Outcome::Corrupt => "and there is more damage",
                _ => "and no other damage was found",
            };
            let why = verdict.why.take().map_or(String::new(), |why| format!("; {why}"));
            let text = "the log's state is lost: the file `meta` is missing or damaged";
            verdict.why = Some(format!("{text}, {what}{why}"));
            verdict.outcome = Outcome::Corrupt;
        }
        Ok(verdict)
    }

    fn verify_with(&self, deep: Option<Effort>) -> Result<Verdict> {
        let mut attempts = 0;
        let mut restarts = 0;
        loop {
            let before = self.store.state()?;
            let mut verdict = self.verify_once(deep)?;
            if verdict.outcome != Outcome::Corrupt {
                return Ok(verdict);
            }
            // A writer may have recycled the bytes, or written them only after they were read. So a
            // finding counts only if the head and the epoch did not move meanwhile.
            if self.store.state()? != before && restarts < RESTARTS {
                restarts += 1;
                continue;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                self.set_repair_place(&mut verdict)?;
                if deep.is_some() {
                    verdict.records = self.count_above(verdict.head, |_| {})?;
                }
                return Ok(verdict);
            }
        }
    }

    fn set_repair_place(&self, verdict: &mut Verdict) -> Result<()> {
        let mut listing = match Listing::read(self.store.as_ref()) {
            // The state is damaged: a repair refuses the log.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            listing => listing?,
        };
        let WholeFrames { to: at, records, bytes } = copy::whole_frames(&self.store, &listing)?;
        verdict.end = at;
        if verdict.segments == 0 {
            // The headers contradict each other, so nothing is counted yet.
            (verdict.records, verdict.bytes) = (records, bytes);
            listing.take_strays();
            verdict.segments = listing.live().count() as u64;
        }
        Ok(())
    }

    fn verify_once(&self, deep: Option<Effort>) -> Result<Verdict> {
        for _ in 0..RESTARTS {
            // Before the segments: what a writer notes has reached them.
            let noted = self.store.noted_durable();
            let layout = match Layout::read(self.store.as_ref()) {
                Ok(layout) => Arc::new(layout),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    return self.verdict_on_headers(deep, &error);
                }
                Err(error) => return Err(error),
            };
            let mut verdict = self.find_end(&layout, noted)?;
            // A truncation of the suffix frees the segment in which the end is looked for.
            if self.store.state()?.epoch == layout.state.epoch {
                self.check_all(&layout, deep, &mut verdict)?;
                return Ok(verdict);
            }
        }
        Err(truncated_meanwhile())
    }

    fn verdict_on_headers(&self, deep: Option<Effort>, error: &Error) -> Result<Verdict> {
        let state = self.store.state()?;
        let mut verdict = Verdict::of_state(&state).corrupt(&state, error);
        if deep.is_some() {
            self.add_bad_places_above(verdict.head, &mut verdict.bad_places)?;
        }
        Ok(verdict)
    }

    /// Checks what is below the end, without `deep` up to the first bad place.
    fn check_all(
        &self,
        layout: &Layout,
        deep: Option<Effort>,
        verdict: &mut Verdict,
    ) -> Result<()> {
        let effort = deep.unwrap_or(TO_FIRST_BAD);
        let Layout { state, spans, .. } = layout;
        let checked = verify::check(&self.store, state, spans, verdict.end, effort, &mut |_| {})?;
        (verdict.records, verdict.bytes) = (checked.records, checked.bytes);
        let tail = verdict.bad_places.first().copied();
        if let Some(first) = checked.bad.first() {
            let is_around = |span: &&EpochSpan| span.base <= first.lsn && first.lsn < span.end;
            let next = layout.spans.partition_point(|span| span.base <= first.lsn);
            let text = layout.spans.iter().find(is_around);
            let text = text.map(|span| span.without_record(layout.spans.get(next)));
            let reader = self.reader(layout.state.segment_bytes);
            let unreadable = checked.unreadable.first().filter(|(lsn, _)| *lsn == first.lsn);
            let error = match unreadable {
                Some((lsn, error)) => error.clone().at_lsn(*lsn),
                None => reader.damaged(first.lsn, text.unwrap_or_default()),
            };
            let torn_bytes = verdict.torn_bytes;
            *verdict = verdict.clone().corrupt(&layout.state, &error);
            verdict.torn_bytes = torn_bytes;
            verdict.bad_places = checked.bad;
            verdict.bad_places.extend(tail.filter(|_| deep.is_some()));
        }
        if let Some(tail) = tail.filter(|_| deep.is_some()) {
            self.add_bad_places_above(tail.lsn, &mut verdict.bad_places)?;
        }
        Ok(())
    }

    /// Adds the first bad place at or above `from` of each segment without one.
    fn add_bad_places_above(&self, from: Lsn, bad: &mut Vec<BadPlace>) -> Result<()> {
        let segment_bytes = self.store.state()?.segment_bytes;
        let mut known: BTreeSet<u64> = bad.iter().map(|bad| bad.segment).collect();
        self.count_above(from, |lsn| {
            let segment = lsn.segment(segment_bytes);
            if known.insert(segment) {
                bad.push(BadPlace { lsn, segment });
            }
        })?;
        bad.sort_unstable_by_key(|bad| bad.lsn);
        Ok(())
    }

    fn count_above(&self, from: Lsn, on_bad: impl FnMut(Lsn)) -> Result<u64> {
        match self.salvage(Some(from)).and_then(|salvage| salvage.count(on_bad)) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(0),
            counted => counted,
        }
    }

    /// Decides the end as recovery does, without the log buffer. `noted` is the durable LSN in its
    /// mark.
    fn find_end(&self, layout: &Arc<Layout>, noted: Option<(u64, Lsn)>) -> Result<Verdict> {
        let state = &layout.state;
        let mut verdict = Verdict {
            segments: layout.present(),
            floor: layout.floor(),
            strays: layout.files_of_others(),
            ..Verdict::of_state(state)
        };
        let Some(mut scanner) = Scanner::new(&self.store, layout, None, READ_AHEAD_BYTES) else {
            return Ok(verdict);
        };
        if let Some((_, durable)) = noted.filter(|(epoch, _)| *epoch == scanner.newest.epoch) {
            scanner.noted_durable = durable;
        }
        let scan = match scanner.run() {
            // A place that cannot be read is not one that a crash has torn.
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                let header = error.segment().and_then(|number| layout.damaged.get(&number));
                let mut verdict = verdict.corrupt(state, &error);
                if let Some(bad @ BadHeader::Unreadable(_)) = header {
                    verdict.why = Some(bad.to_string());
                }
                if error.kind() == ErrorKind::Io {
                    // A place above the end is not one where a record must begin.
                    verdict.end = verdict.end.min(scanner.end);
                }
                return Ok(Verdict { floor: scanner.floor, ..verdict });
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
        let is_unreadable = |bad: &BadHeader| matches!(bad, BadHeader::Unreadable(_));
        if let Some((number, bad)) = layout.damaged.iter().find(|(_, bad)| is_unreadable(bad)) {
            let error = Error::new(bad.kind(), bad.to_string()).at_segment(*number);
            let verdict = verdict.corrupt(state, &error);
            return Ok(Verdict { end: scan.end.min(verdict.end), ..verdict });
        }
        if let Some((number, text)) = layout.damaged.iter().next() {
            verdict.outcome = Outcome::TornTail;
            verdict.why = Some(format!("segment {number}, above the clean end: {text}"));
        }
        if state.clean && scan.end != state.clean_end {
            verdict.outcome = Outcome::TornTail;
            verdict.end_cause = scan.cause;
            verdict.why = Some(format!("records follow the clean end {}", state.clean_end));
        }
        Ok(verdict)
    }
}

impl Verdict {
    fn of_state(state: &State) -> Verdict {
        Verdict {
            outcome: if state.clean { Outcome::Clean } else { Outcome::Unclean },
            segments: 0,
            records: 0,
            bytes: 0,
            head: state.head,
            end: state.head,
            floor: state.floor(),
            torn_bytes: 0,
            end_cause: EndCause::NothingFollows,
            bad_places: Vec::new(),
            strays: Vec::new(),
            why: None,
        }
    }

    fn corrupt(self, state: &State, error: &Error) -> Verdict {
        let base = error.segment().map(|number| number.saturating_mul(state.segment_bytes));
        let place = error.lsn().or(base.map(Lsn::new)).map(|lsn| lsn.max(state.head));
        let bad = |lsn: Lsn| BadPlace { lsn, segment: lsn.segment(state.segment_bytes) };
        Verdict {
            outcome: Outcome::Corrupt,
            end: place.unwrap_or(state.head),
            torn_bytes: 0,
            end_cause: EndCause::Damage,
            bad_places: place.map(bad).into_iter().collect(),
            why: Some(error.finding()),
            ..self
        }
    }
}
