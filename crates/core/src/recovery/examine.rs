//! Reading and deciding: step 1 of an open. Nothing in here changes anything.
//!
//! `examine` looks at a log as a whole, or at what lies below some place as if the log ended
//! there. Damage under the policy `PointInTime` is settled by examining again, below the damage,
//! until what is left is whole: the first bad place is the lowest one.

use std::sync::Arc;

use super::decision::{Decision, EndCause, Ending, Rule, decide};
use super::full::{self, Checked, Effort};
use super::may_go_on;
use super::report::{LostRange, RecoveryReport};
use super::ring::OldRing;
use super::salvage::lost_beyond;
use super::scan::{Leftover, Scan, Scanner};
use super::survey::{Found, Survey, corrupt, reader_of};
use crate::store::{OldBuffer, ReadStore, Store};
use crate::{Error, ErrorKind, Lsn, Options, RecoveryPolicy, Result, Verify};

/// What a log was found to be, and that it may be opened.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) survey: Arc<Survey>,
    /// The same epoch goes on where the last close ended it.
    pub(crate) is_clean: bool,
    cause: EndCause,
    /// The walk over the newest epoch, unless there is none or the end is clean.
    pub(crate) walked: Option<(Scanner, Scan)>,
    /// What the policy gives up.
    pub(crate) lost: Option<LostRange>,
    /// The durable watermark that the old buffer notes.
    pub(crate) line: Option<Lsn>,
    checked: Option<Checked>,
    buffer_note: Option<String>,
}

impl Examined {
    fn new(survey: Arc<Survey>) -> Examined {
        Examined {
            survey,
            is_clean: false,
            cause: EndCause::default(),
            walked: None,
            lost: None,
            line: None,
            checked: None,
            buffer_note: None,
        }
    }

    /// The log ends where its last close ended it.
    fn at_clean_end(self, rule: Rule) -> Examined {
        let cause = match decide(rule, Ending::CLEAN) {
            Decision::End(cause) => cause,
            _ => self.cause,
        };
        Examined { is_clean: true, cause, ..self }
    }

    /// Whether a record that the walk had found did not validate when it was read again.
    pub(crate) fn has_changed(&self) -> bool {
        self.walked.as_ref().is_some_and(|(scanner, _)| scanner.has_changed)
    }

    /// Everything below was durable once, whether it is to be kept or not.
    pub(crate) fn floor(&self) -> Lsn {
        let walked = self.walked.as_ref().map_or(Lsn::ZERO, |(_, scan)| scan.floor);
        self.survey.floor().max(walked).max(self.line.unwrap_or(Lsn::ZERO))
    }

    /// The report as far as reading can tell.
    pub(crate) fn report(&self) -> RecoveryReport {
        let survey = &self.survey;
        let checked = self.checked.as_ref();
        let mut report = RecoveryReport {
            clean: self.is_clean,
            verified: checked.is_some(),
            segments: survey.present(),
            records: checked.map_or(0, |checked| checked.records),
            bytes: checked.map_or(0, |checked| checked.bytes),
            end_cause: self.cause,
            lost: self.lost,
            buffer_note: self.buffer_note.clone(),
            ..RecoveryReport::default()
        };
        if self.is_clean {
            (report.floor, report.end) = (survey.state.clean_end, survey.state.clean_end);
        }
        if let Some((_, scan)) = &self.walked {
            report.records += scan.records;
            report.bytes += scan.bytes;
            report.end_cause = scan.cause;
            report.torn_bytes = scan.torn_bytes;
            report.torn_reason.clone_from(&scan.torn_reason);
            report.holes_padded = scan.holes.len() as u64;
            report.records_from_buffer = scan.records_from_ring;
            (report.floor, report.end) = (scan.floor, scan.end);
            if survey.is_empty_epoch(scan.end) {
                report.end = survey.predecessor.end;
            }
        } else if let Some(limit) = survey.limit {
            report.end = limit;
        }
        if let Some(lost) = &self.lost {
            report.end_cause = EndCause::Damage;
            report.torn_reason = Some(format!("damage; given up: {lost}"));
        }
        report
    }
}

/// Examines the log in `store` and decides by the policy of `options` whether it may be opened.
///
/// # Errors
/// `Corrupt`, `Unclean`, `WouldLose`: what the policy refuses. `NotARecord`, `Truncated`: no log
/// can end at the place that the policy names.
pub(crate) fn settle(store: &Arc<dyn Store>, options: &Options) -> Result<Examined> {
    let damage = match examine(store, options, None) {
        Err(error) if error.kind() == ErrorKind::Corrupt => error,
        other => return other,
    };
    match (decide(Rule::of(options.recovery), Ending::DAMAGE), options.recovery) {
        (Decision::AskForName, _) => {
            let (_, lost) = end_below(store, options, damage)?;
            Err(would_lose(store, lost, String::new()))
        }
        (Decision::Lose, RecoveryPolicy::PointInTime { lose_from: Some(named) }) => {
            let (examined, lost) = end_below(store, options, damage)?;
            lose_from(store, options, named, examined, lost)
        }
        _ => Err(damage),
    }
}

/// Gives up what lies from `named` on, if that is the first bad place or below it.
fn lose_from(
    store: &Arc<dyn Store>,
    options: &Options,
    named: Lsn,
    mut examined: Examined,
    lost: LostRange,
) -> Result<Examined> {
    let head = examined.survey.state.head;
    if named > lost.from {
        let text = format!(", which begins below the LSN {named} that lose_from names");
        return Err(would_lose(store, lost, text));
    }
    if named < head {
        let text = format!("lose_from lies below the head, LSN {head}");
        return Err(Error::new(ErrorKind::Truncated, text).at_path(store.place()).at_lsn(named));
    }
    if named == lost.from {
        examined.lost = Some(lost);
        return Ok(examined);
    }
    let floor = examined.floor().max(lost.to);
    let mut examined = examine(store, options, Some(named))?;
    let as_reader: Arc<dyn ReadStore> = Arc::clone(store) as Arc<dyn ReadStore>;
    examined.lost = Some(lost_beyond(&as_reader, named, floor, options.read_ahead_bytes)?);
    Ok(examined)
}

/// The log as it is below the first bad place, and what that place costs.
fn end_below(
    store: &Arc<dyn Store>,
    options: &Options,
    damage: Error,
) -> Result<(Examined, LostRange)> {
    let segment_bytes = store.state()?.segment_bytes;
    let head = store.state()?.head;
    let mut damage = damage;
    let mut last = Lsn::LIMIT;
    loop {
        let place = place_of(&damage, segment_bytes).map(|place| place.max(head));
        // Lower each time: this ends.
        let Some(place) = place.filter(|place| *place < last) else { return Err(damage) };
        last = place;
        match examine(store, options, Some(place)) {
            Err(error) if error.kind() == ErrorKind::Corrupt => damage = error,
            Err(error) => return Err(error),
            Ok(mut examined) => {
                let as_reader: Arc<dyn ReadStore> = Arc::clone(store) as Arc<dyn ReadStore>;
                // What the buffer alone holds is lost, too.
                let floor = examined.floor();
                let walked = examined.walked.as_mut();
                let in_ring = walked.and_then(|(scanner, _)| scanner.end_of_ring(floor));
                let floor = floor.max(in_ring.unwrap_or(floor));
                let lost = lost_beyond(&as_reader, place, floor, options.read_ahead_bytes)?;
                return Ok((examined, lost));
            }
        }
    }
}

fn place_of(error: &Error, segment_bytes: u64) -> Option<Lsn> {
    let base = error.segment().map(|number| Lsn::new(number.saturating_mul(segment_bytes)));
    error.lsn().or(base)
}

fn would_lose(store: &Arc<dyn Store>, lost: LostRange, more: String) -> Error {
    let text = format!("damage to acknowledged data would cost {lost}{more}");
    let error = Error::new(ErrorKind::WouldLose, text).at_path(store.place());
    error.at_lsn(lost.from).losing(lost)
}

/// Looks at the log, or at what lies below `below` as if it ended there.
fn examine(store: &Arc<dyn Store>, options: &Options, below: Option<Lsn>) -> Result<Examined> {
    let as_reader: Arc<dyn ReadStore> = Arc::clone(store) as Arc<dyn ReadStore>;
    if below.is_none()
        && let Some(examined) = examine_closed(&as_reader, options)?
    {
        return Ok(examined);
    }
    let survey = Arc::new(Survey::take_below(store.as_ref(), below)?);
    let mut examined = Examined::new(Arc::clone(&survey));
    let mut checked_to = survey.state.clean_end;
    let rule = Rule::of(options.recovery);
    if below.is_none() && ended_cleanly(&as_reader, &survey, options)? {
        examined = examined.at_clean_end(rule);
    } else {
        let leftover = leftover(store, &mut examined)?;
        let bytes = options.read_ahead_bytes;
        if let Some(mut scanner) = Scanner::new(&as_reader, &survey, leftover, rule, bytes) {
            let scan = scanner.run()?;
            checked_to = scan.start;
            examined.walked = Some((scanner, scan));
        }
    }
    if options.verify == Verify::Full {
        examined.checked = Some(check_up_to(&as_reader, &survey, options, checked_to)?);
    }
    Ok(examined)
}

/// Examines a log by the list of epochs in its state. `None`: the list says nothing, or does not fit
/// what is there; then all headers are read, and they decide.
fn examine_closed(store: &Arc<dyn ReadStore>, options: &Options) -> Result<Option<Examined>> {
    if options.verify == Verify::Full {
        return Ok(None);
    }
    let Some(found) = Found::by_list(store.as_ref())? else { return Ok(None) };
    if !may_go_on(&found.state, options) {
        return Ok(None);
    }
    let examined = Survey::of(found, store.as_ref(), None).and_then(|survey| {
        let is_clean = ended_cleanly(store, &survey, options)?;
        Ok(is_clean.then(|| Examined::new(Arc::new(survey))))
    });
    match examined {
        Ok(examined) => Ok(examined.map(|it| it.at_clean_end(Rule::of(options.recovery)))),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks every frame below `to` in the newest epoch and all of those before.
fn check_up_to(
    store: &Arc<dyn ReadStore>,
    survey: &Survey,
    options: &Options,
    to: Lsn,
) -> Result<Checked> {
    let effort =
        Effort { read_ahead_bytes: options.read_ahead_bytes, threads: options.verify_threads };
    let checked = full::check(store, survey, to, effort)?;
    let Some(bad) = checked.bad.first() else { return Ok(checked) };
    let text = match checked.bad.len() {
        1 => "no valid record here, though one must begin".into(),
        count => format!("no valid record here, though one must begin; {count} segments are bad"),
    };
    Err(corrupt(text, &store.place()).at_segment(bad.segment).at_lsn(bad.lsn))
}

/// Whether the log ends where its last clean close says, and nothing follows.
fn ended_cleanly(store: &Arc<dyn ReadStore>, survey: &Survey, options: &Options) -> Result<bool> {
    let state = &survey.state;
    let Some(newest) = survey.newest() else { return Ok(false) };
    if !state.clean || newest.epoch != state.epoch || survey.largest_epoch != state.epoch {
        return Ok(false);
    }
    let end = state.clean_end;
    survey.check_present(newest.base.max(state.head), end, &store.place())?;
    let mut reader = reader_of(store, survey, options.read_ahead_bytes.min(4096));
    if survey.holds(end) && reader.header(end, newest.seed)?.is_some() {
        return Ok(false);
    }
    // Appends would go on into what was prepared behind the end: all of it must be sound.
    let numbers = survey.newest_segments();
    let is_gapless = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let last_end = numbers.last().map(|last| Lsn::new((last + 1) * state.segment_bytes));
    let is_last = last_end.is_none_or(|last_end| last_end == survey.highest_end);
    if !survey.damaged.is_empty() || !is_gapless || !is_last {
        return Ok(false);
    }
    let end_number = end.segment(state.segment_bytes);
    for number in survey.newest_segments().into_iter().rev().take_while(|n| *n > end_number) {
        let base = Lsn::new(number * state.segment_bytes);
        if reader.header(base, newest.seed)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The old buffer, if it belongs to the newest epoch.
fn leftover(store: &Arc<dyn Store>, examined: &mut Examined) -> Result<Option<Leftover>> {
    let Some(newest) = examined.survey.newest() else { return Ok(None) };
    let segment_bytes = examined.survey.state.segment_bytes;
    match store.old_buffer()? {
        OldBuffer::Missing => examined.buffer_note = Some("there is no buffer file".into()),
        OldBuffer::Invalid(text) => examined.buffer_note = Some(text),
        OldBuffer::Found { epoch, durable, written, memory } => {
            if epoch == newest.epoch && durable < Lsn::LIMIT {
                let ring = OldRing::new(memory, segment_bytes);
                examined.line = Some(durable);
                return Ok(Some(Leftover { ring, durable, written }));
            }
            let text = format!("the buffer is of epoch {epoch}, the log of {}", newest.epoch);
            examined.buffer_note = Some(text);
        }
    }
    Ok(None)
}
