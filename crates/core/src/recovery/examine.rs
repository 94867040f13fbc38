//! Reading and deciding: step 1 of an open. Nothing in here changes anything.

use std::sync::Arc;

use super::decision::EndCause;
use super::full::{self, Checked, Effort};
use super::may_go_on;
use super::report::RecoveryReport;
use super::ring::OldRing;
use super::scan::{Leftover, Scan, Scanner};
use super::survey::{Found, Survey, corrupt, reader_of};
use crate::store::{OldBuffer, ReadStore, Store};
use crate::{ErrorKind, Lsn, Options, Result, Verify};

/// What a log was found to be, and that it may be opened.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) survey: Arc<Survey>,
    /// The same epoch goes on where the last close ended it.
    pub(crate) is_clean: bool,
    cause: EndCause,
    /// The walk over the newest epoch, unless there is none or the end is clean.
    pub(crate) walked: Option<(Scanner, Scan)>,
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
            line: None,
            checked: None,
            buffer_note: None,
        }
    }

    /// The log ends where its last close ended it.
    fn at_clean_end(self) -> Examined {
        Examined { is_clean: true, cause: EndCause::CleanClose, ..self }
    }

    /// Whether a record that the walk had found did not validate when it was read again.
    pub(crate) fn has_changed(&self) -> bool {
        self.walked.as_ref().is_some_and(|(scanner, _)| scanner.has_changed)
    }

    /// Everything below was durable once.
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
        }
        report
    }
}

/// Examines the log in `store` and decides by the policy of `options` whether it may be opened.
///
/// # Errors
/// `Corrupt`, `Unclean`: what the policy refuses.
pub(crate) fn examine(store: &Arc<dyn Store>, options: &Options) -> Result<Examined> {
    let as_reader: Arc<dyn ReadStore> = Arc::clone(store) as Arc<dyn ReadStore>;
    if let Some(examined) = examine_closed(&as_reader, options)? {
        return Ok(examined);
    }
    let survey = Arc::new(Survey::take(store.as_ref())?);
    let mut examined = Examined::new(Arc::clone(&survey));
    let mut checked_to = survey.state.clean_end;
    if ended_cleanly(&as_reader, &survey, options)? {
        examined = examined.at_clean_end();
    } else {
        let leftover = leftover(store, &mut examined)?;
        let (policy, bytes) = (options.recovery, options.read_ahead_bytes);
        if let Some(mut scanner) = Scanner::new(&as_reader, &survey, leftover, policy, bytes) {
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

/// Examines a log by the list of epochs in its state. `None`: the list says nothing, or does not
/// fit what is there; then all headers are read, and they decide.
fn examine_closed(store: &Arc<dyn ReadStore>, options: &Options) -> Result<Option<Examined>> {
    if options.verify == Verify::Full {
        return Ok(None);
    }
    let Some(found) = Found::by_list(store.as_ref())? else { return Ok(None) };
    if !may_go_on(&found.state, options) {
        return Ok(None);
    }
    let examined = Survey::of(found, store.as_ref()).and_then(|survey| {
        let is_clean = ended_cleanly(store, &survey, options)?;
        Ok(is_clean.then(|| Examined::new(Arc::new(survey))))
    });
    match examined {
        Ok(examined) => Ok(examined.map(Examined::at_clean_end)),
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
