//! Checks a log of streams: each footer against the records, and that no entry is missing.
//!
//! A footer may know of changes above its segment, so its bytes alone say little. What counts is
//! what an open makes of all footers and of the records above them: it must be what all records
//! say. In addition each footer must have the counts of its segment, and a generation that is not
//! smaller than what records up to that segment say.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use palisade::disk::{Disk, OsDisk};
use palisade::inspect::{Inspector, Outcome, Salvaged, State, Verdict};
use palisade::{Error, ErrorKind, Lsn, Record as LogRecord, Result, framed_bytes};

use crate::entries::OFFSET_UNIT;
use crate::footer::{self, End, Stream};
use crate::record::{self, MAX_ENTRY_HEADER_BYTES, Record, StreamId};
use crate::replay::{At, Known, Replay, owned};

/// How often the check begins anew because the writer released what was to be read.
const RESTARTS: usize = 100;

/// What [`verify()`] found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamsVerdict {
    /// What [`Inspector::verify`] found in the log below.
    pub log: Verdict,
    /// Streams that there are.
    pub streams: u64,
    /// Entries of all streams that were found.
    pub entries: u64,
    /// Records that were read.
    pub records: u64,
    /// Footers that an open can use.
    pub footers: u64,
    /// Footers that are missing, damaged, or do not say what the records say.
    pub bad_footers: Vec<BadFooter>,
    /// Entries that a stream should have and of which no record was found.
    pub missing: Vec<MissingEntries>,
    /// The ids of streams of which only the anchor is missing, which has their name.
    pub without_anchor: Vec<u64>,
    /// The names of streams of which an open by footers finds something else than the records say.
    pub different: Vec<Vec<u8>>,
}

impl StreamsVerdict {
    /// Returns whether nothing is damaged, missing or different. The log may end in a torn tail.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.log.outcome != Outcome::Corrupt
            && self.bad_footers.is_empty()
            && self.missing.is_empty()
            && self.without_anchor.is_empty()
            && self.different.is_empty()
    }
}

/// A footer that an open cannot use, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadFooter {
    /// The number of the segment.
    pub segment: u64,
    /// Where the end of the footer is, if it was found.
    pub lsn: Option<Lsn>,
    /// What is wrong.
    pub why: String,
}

/// Entries that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingEntries {
    /// The name of the stream.
    pub name: Vec<u8>,
    /// The first index.
    pub first: u64,
    /// The last index.
    pub last: u64,
}

/// Checks the log of streams in the folder `path`: its records, whether each stream has all its
/// entries, and each footer.
///
/// Changes nothing; works beside a running writer. Reads the log twice. If the log is corrupt,
/// reads on behind the damage, and does not compare what the footers say. As
/// [`Inspector::verify`] does, tries the log's lock and frees it at once.
///
/// # Errors
/// As [`Reader::open`](crate::Reader::open), and as [`Inspector::verify`]. Damage is a verdict, not
/// an error.
pub fn verify(path: impl AsRef<Path>) -> Result<StreamsVerdict> {
    verify_on(Arc::new(OsDisk), path)
}

/// Checks the log of streams in the folder `path` of `disk`, as [`verify`] does.
///
/// # Errors
/// As [`verify`].
pub fn verify_on(disk: Arc<dyn Disk>, path: impl AsRef<Path>) -> Result<StreamsVerdict> {
    let log = Inspector::open_on(disk, path)?;
    for _ in 0..RESTARTS {
        let verdict = log.verify()?;
        let state = log.state()?;
        let survey = Survey::read(&log, &state, verdict.outcome == Outcome::Corrupt);
        let survey = match survey {
            Err(error) if error.kind() == ErrorKind::Truncated => continue,
            survey => survey?,
        };
        let after = log.state()?;
        // Else records were released unread, or a recovery has removed some.
        if after.head == state.head && after.epoch == state.epoch {
            return Ok(survey.judge(verdict, &state));
        }
    }
    let text = "the writer releases records faster than they can be checked";
    Err(Error::new(ErrorKind::Io, text).with_advice("try again when the log is less busy"))
}

/// What the records of one segment take.
#[derive(Debug)]
struct Taken {
    first: Lsn,
    records: u64,
    bytes: u64,
    /// The greatest generation that its records, and those below it, say.
    generation: u32,
}

/// All that was read of a log.
#[derive(Debug, Default)]
struct Survey {
    replay: Replay,
    /// The records above the checkpoint, if there are footers: LSN, tag and payload.
    above: Vec<(Lsn, u16, Vec<u8>)>,
    taken: BTreeMap<u64, Taken>,
    ends: BTreeMap<Lsn, End>,
    parts: HashMap<Lsn, Vec<u8>>,
}

impl Survey {
    fn read(log: &Inspector, state: &State, is_damaged: bool) -> Result<Survey> {
        let mut survey = Survey::default();
        if is_damaged {
            let mut salvage = log.salvage(None)?;
            while let Some(next) = salvage.next()? {
                if let Salvaged::Record(record) = next {
                    survey.add(&record, state)?;
                }
            }
            return Ok(survey);
        }
        let mut records = log.records(None)?;
        while let Some(record) = records.next()? {
            survey.add(&record, state)?;
        }
        Ok(survey)
    }

    fn add(&mut self, record: &LogRecord<'_>, state: &State) -> Result<()> {
        self.replay.apply(record)?;
        let (lsn, tag) = (record.lsn(), record.tag());
        let below = self.taken.last_key_value().map_or(0, |(_, taken)| taken.generation);
        let taken = self.taken.entry(lsn.as_u64() / state.segment_bytes);
        let taken = taken.or_insert(Taken { first: lsn, records: 0, bytes: 0, generation: below });
        taken.records += 1;
        taken.bytes += framed_bytes(record.data().len());
        taken.generation = taken.generation.max(generation_in(record));
        match tag {
            record::FOOTER_PART => drop(self.parts.insert(lsn, record.data().to_vec())),
            record::FOOTER_END => {
                self.ends.extend(End::decode(record.data()).map(|end| (lsn, end)))
            }
            _ if lsn >= state.checkpoint && state.checkpoint > state.head => {
                // The data of entries is not compared.
                let is_entry = matches!(tag, record::ENTRY | record::MOVED);
                let most = if is_entry { MAX_ENTRY_HEADER_BYTES } else { usize::MAX };
                let data = &record.data()[..record.data().len().min(most)];
                self.above.push((lsn, tag, data.to_vec()));
            }
            _ => {}
        }
        Ok(())
    }

    fn judge(self, log: Verdict, state: &State) -> StreamsVerdict {
        let mut verdict = StreamsVerdict {
            streams: 0,
            entries: 0,
            records: self.replay.counts.records,
            footers: 0,
            bad_footers: Vec::new(),
            missing: Vec::new(),
            without_anchor: self.replay.without_anchor(),
            different: Vec::new(),
            log,
        };
        for (_, known) in self.replay.streams() {
            verdict.streams += 1;
            verdict.entries += known.entries.len() as u64;
            let missing = known.missing().into_iter().map(|(first, last)| {
                let name = known.name.clone();
                MissingEntries { name, first, last }
            });
            verdict.missing.extend(missing);
        }
        // Without a checkpoint an open reads all records.
        if state.checkpoint > state.head {
            self.judge_footers(&mut verdict, state);
        }
        verdict
    }

    /// Checks the footers that an open would use.
    fn judge_footers(&self, verdict: &mut StreamsVerdict, state: &State) {
        let (chain, is_whole) = self.chain(state);
        let sealed = state.checkpoint.as_u64() / state.segment_bytes;
        let has_footer: HashSet<u64> = chain.iter().map(|(_, end)| end.segment).collect();
        // What was released without a footer can be there: a cursor of the log keeps it.
        let lowest =
            chain.last().filter(|_| is_whole).map_or(0, |(_, end)| end.segment.min(sealed));
        for segment in self.taken.range(lowest..sealed).map(|(segment, _)| *segment) {
            if !has_footer.contains(&segment) {
                let why = "no footer was found, or a later footer does not lead to it".to_owned();
                verdict.bad_footers.push(BadFooter { segment, lsn: None, why });
            }
        }
        let mut replay = Replay::default();
        for (lsn, end) in chain.iter().rev() {
            match self.check_footer(end, &mut replay, state) {
                Ok(()) => verdict.footers += 1,
                Err(why) => {
                    let (segment, lsn) = (end.segment, Some(*lsn));
                    verdict.bad_footers.push(BadFooter { segment, lsn, why });
                }
            }
        }
        verdict.bad_footers.sort_by_key(|bad| bad.segment);
        if verdict.bad_footers.is_empty() && verdict.log.outcome != Outcome::Corrupt {
            self.compare(verdict, replay);
        }
    }

    /// Returns the ends of the footers that an open follows, the highest segment first, and whether
    /// it finds all of them.
    fn chain(&self, state: &State) -> (Vec<(Lsn, &End)>, bool) {
        let head_segment = state.head.as_u64() / state.segment_bytes;
        let mut ends = self.ends.range(state.checkpoint..);
        let last = ends.rfind(|(_, end)| end.above == state.checkpoint);
        let mut chain: Vec<_> = last.map(|(lsn, end)| (*lsn, end)).into_iter().collect();
        while let Some((_, End { segment, previous: Some(previous), .. })) = chain.last() {
            if *segment <= head_segment || *previous < state.head {
                break;
            }
            let leads_here = |end: &&End| end.above.as_u64() / state.segment_bytes == *segment;
            match self.ends.get(previous).filter(leads_here) {
                Some(end) => chain.push((*previous, end)),
                None => return (chain, false),
            }
        }
        (chain, true)
    }

    /// Applies a footer, and checks its counts and its generation. Returns what is wrong, if
    /// anything is.
    fn check_footer(
        &self,
        end: &End,
        replay: &mut Replay,
        state: &State,
    ) -> std::result::Result<(), String> {
        let start = end.segment.saturating_mul(state.segment_bytes);
        let (mut parts, mut next) = (Vec::new(), Some(end.part));
        while let Some(lsn) = next {
            let part = self.parts.get(&lsn).ok_or(format!("its part at LSN {lsn} is missing"))?;
            parts.push((lsn, part));
            next = footer::part_before(part);
            if next.is_some_and(|before| before >= lsn) {
                return Err(format!("its part at LSN {lsn} names a later one"));
            }
        }
        for (lsn, part) in parts.into_iter().rev() {
            footer::decode_part(part, |id, stream| {
                apply_item(replay, id, stream, Lsn::new(start));
            })
            .ok_or(format!("its part at LSN {lsn} cannot be decoded"))?;
        }
        let known = self.taken.range(..=end.segment).next_back();
        if let Some((_, taken)) = known.filter(|(_, taken)| taken.generation > end.generation) {
            let (its, said) = (end.generation, taken.generation);
            return Err(format!("its generation is {its}, and a record below it says {said}"));
        }
        if (start..state.head.as_u64()).contains(&end.first.as_u64()) {
            // A cursor of the log keeps a part of the segment.
            return Ok(());
        }
        let Some(taken) = self.taken.get(&end.segment) else {
            return Err("its segment has no record".to_owned());
        };
        let found = (taken.first, taken.records, taken.bytes);
        let said = (end.first, end.records, end.bytes);
        if found == said {
            return Ok(());
        }
        let of =
            |(first, records, bytes)| format!("{records} records of {bytes} bytes from {first}");
        Err(format!("it says {}, and the segment has {}", of(said), of(found)))
    }

    /// Compares what an open makes of the footers with what all records say.
    fn compare(&self, verdict: &mut StreamsVerdict, mut by_footers: Replay) {
        for (lsn, tag, data) in &self.above {
            by_footers.apply_bytes(*lsn, *tag, data);
        }
        let is_same = |a: &Known, b: &Known| {
            let lsns = |known: &Known| -> Vec<_> {
                known.entries.iter().map(|(index, at)| (*index, at.lsn)).collect()
            };
            (a.first, a.next, &a.values) == (b.first, b.next, &b.values) && lsns(a) == lsns(b)
        };
        let differs = |one: &Replay, other: &Replay| -> Vec<Vec<u8>> {
            let streams = one.streams().filter(|(id, known)| {
                let same = other.find(&known.name);
                !same.is_some_and(|(of, same)| of == *id && is_same(known, same))
            });
            streams.map(|(_, known)| known.name.clone()).collect()
        };
        verdict.different = differs(&self.replay, &by_footers);
        verdict.different.extend(differs(&by_footers, &self.replay));
        verdict.different.sort();
        verdict.different.dedup();
    }
}

/// Returns the greatest generation of all slots, if the record says it; else 0.
fn generation_in(record: &LogRecord<'_>) -> u32 {
    match record.tag() {
        record::FOOTER_END => End::decode(record.data()).map_or(0, |end| end.generation),
        tag @ (record::DELETE | record::GENERATIONS) => match Record::decode(tag, record.data()) {
            Some(Record::Delete { generation, .. } | Record::Generations(generation)) => generation,
            _ => 0,
        },
        _ => 0,
    }
}

/// Applies what the footer of the segment that begins at `start` says of a stream.
fn apply_item(replay: &mut Replay, id: StreamId, stream: Stream<'_>, start: Lsn) {
    let Stream::Live { first, next, name, values, entries } = stream else {
        return replay.delete(id);
    };
    let Some(known) = replay.known(id) else { return };
    if let Some(values) = values {
        known.values = owned(&values);
    }
    for (index, offset) in entries {
        let lsn = start.plus(u64::from(offset) * OFFSET_UNIT);
        // A footer does not say how long an entry is.
        known.entries.insert(index, At::new(lsn, b""));
    }
    known.bound(first, next);
    if let Some(name) = name {
        replay.name(id, name);
    }
}
