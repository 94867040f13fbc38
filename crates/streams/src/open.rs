//! Opens: from the footers and the records above the checkpoint, or from all records.

use std::collections::BTreeMap;

use palisade::{Error, ErrorKind, Lsn, RecordBuf, Result, Wal, framed_bytes};

use crate::directory::{Directory, STRIPES, Stripe};
use crate::entries::Place;
use crate::footer::{self, End, is_missing};
use crate::pending::Pending;
use crate::record::{self, Record, StreamId};
use crate::segments::{Counted, Live, Segments};
use crate::slot::Slot;
use crate::write::{VALUE_OVERHEAD, quoted};

/// What an open found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// Streams that there are.
    pub streams: u64,
    /// Entries of all streams.
    pub entries: u64,
    /// Footers that were read in place of their segments.
    pub footers: u64,
    /// Records that were read besides.
    pub records: u64,
    /// Why not all footers were used, if they were not. Then the open has read all records.
    pub footer_note: Option<String>,
    /// The names of streams of which an entry is missing. Their other entries can be read.
    pub damaged: Vec<Vec<u8>>,
}

/// What an open has built.
pub(crate) struct Opened {
    pub(crate) directory: Directory,
    pub(crate) segments: Segments,
    pub(crate) last_footer: Option<Lsn>,
    pub(crate) report: OpenReport,
}

/// Builds the index of all streams of `wal`.
pub(crate) fn load(wal: &Wal) -> Result<Opened> {
    let (head, checkpoint) = (wal.head_lsn(), wal.checkpoint_lsn());
    let mut note = None;
    if checkpoint > head {
        let mut loader = Loader::new(wal);
        match loader.apply_footers(checkpoint)? {
            Ok(()) => {
                loader.apply_records(Some(checkpoint))?;
                return loader.finish();
            }
            Err(why) => note = Some(why.to_owned()),
        }
    }
    let mut loader = Loader::new(wal);
    loader.report.footer_note = note;
    loader.apply_records(None)?;
    loader.finish()
}

struct Loader<'w> {
    wal: &'w Wal,
    directory: Directory,
    segments: Segments,
    last_footer: Option<Lsn>,
    report: OpenReport,
    pending: Pending,
}

impl Loader<'_> {
    fn new(wal: &Wal) -> Loader<'_> {
        Loader {
            wal,
            directory: Directory::new(),
            segments: Segments::new(wal.head_lsn(), wal.segment_bytes()),
            last_footer: None,
            report: OpenReport::default(),
            pending: Pending::default(),
        }
    }

    /// Applies all footers of segments below `checkpoint`. Returns why it could not, if the footers
    /// are not whole. Then the loader is of no use.
    fn apply_footers(&mut self, checkpoint: Lsn) -> Result<std::result::Result<(), &'static str>> {
        let Some((lsn, end)) = self.find_end(checkpoint)? else {
            return Ok(Err("the records above the checkpoint have no end of a footer"));
        };
        let head_segment = self.wal.head_lsn().as_u64() / self.segments.bytes();
        let mut chain = vec![(lsn, end)];
        while let Some((_, End { segment, previous: Some(previous), .. })) = chain.last() {
            // A footer lies above its segment. So if the one before was released, its segment was.
            if *segment <= head_segment || *previous < self.wal.head_lsn() {
                break;
            }
            match End::read(self.wal, *previous)? {
                // What was released between them had no footer.
                Some(end) if end.above.as_u64() / self.segments.bytes() == *segment => {
                    chain.push((*previous, end));
                }
                _ => return Ok(Err("a footer is missing or damaged")),
            }
        }
        for (_, end) in chain.iter().rev() {
            if !self.apply_footer(end)? {
                return Ok(Err("a part of a footer is missing or damaged"));
            }
        }
        self.last_footer = Some(lsn);
        Ok(Ok(()))
    }

    /// Finds the end of the footer below `checkpoint`.
    fn find_end(&self, checkpoint: Lsn) -> Result<Option<(Lsn, End)>> {
        let mut records = self.wal.records_from(checkpoint)?;
        let mut found = None;
        while let Some(record) = records.next()? {
            if record.tag() == record::FOOTER_END
                && let Some(end) = End::decode(record.data())
                && end.above == checkpoint
            {
                // The last one: an older one may belong to footers that were found damaged.
                found = Some((record.lsn(), end));
            }
        }
        Ok(found)
    }

    /// Applies one footer. Returns false if it is not whole.
    fn apply_footer(&mut self, end: &End) -> Result<bool> {
        let start = Lsn::new(end.segment.saturating_mul(self.segments.bytes()));
        let segment = self.segments.of(start);
        let (first, above) = (end.first, end.above);
        let is_in = first >= start && first.bytes_since(start) < self.segments.bytes();
        let Some(parts) = self.parts(end)?.filter(|_| is_in && above > first) else {
            return Ok(false);
        };
        let mut streams = Vec::new();
        for found in parts.iter().rev() {
            let decoded = footer::decode_part(found.data(), |id, stream| {
                streams.push(id);
                self.apply_item(id, stream, segment);
            });
            if decoded.is_none() {
                return Ok(false);
            }
        }
        let End { records, bytes, .. } = *end;
        self.segments.add(Counted {
            segment,
            start,
            first,
            live: Live::default(),
            records,
            bytes,
            streams,
            before: 0,
        });
        self.segments.with(|all| {
            if let Some(of) = all.get_mut(&segment) {
                of.has_footer = true;
            }
        });
        self.report.footers += 1;
        Ok(true)
    }

    /// Reads the parts of a footer, the last one first; `None` if they are not whole.
    fn parts(&self, end: &End) -> Result<Option<Vec<RecordBuf>>> {
        let (mut parts, mut next) = (Vec::new(), Some(end.part));
        while let Some(part) = next {
            let found = match self.wal.get(part) {
                Ok(found) if found.tag() == record::FOOTER_PART => found,
                Ok(_) => return Ok(None),
                Err(error) if is_missing(error.kind()) => return Ok(None),
                Err(error) => return Err(error),
            };
            next = footer::part_before(found.data());
            if next.is_some_and(|before| before >= part) {
                return Ok(None);
            }
            parts.push(found);
        }
        Ok(Some(parts))
    }

    /// Applies what a footer of `segment` says of a stream.
    fn apply_item(&mut self, id: StreamId, stream: footer::Stream<'_>, segment: u32) {
        let mut stripe = self.directory.lock_of(id);
        let footer::Stream::Live { first, next, name, values, entries } = stream else {
            delete(&mut stripe, &mut self.pending, id);
            return;
        };
        let Some(slot) = stripe.slot_for(id) else { return };
        if name.is_some() {
            slot.home = segment;
        }
        if let Some(values) = values {
            slot.set_values(&values, segment);
        }
        for (index, offset) in entries {
            if (first..next).contains(&index) {
                self.pending.put(id, slot, index, Place { segment, offset });
            }
        }
        self.pending.bound(id, slot, first, next);
        if let Some(name) = name {
            stripe.name(id, name);
        }
    }

    /// Applies all records from `from` on, or from the head on.
    fn apply_records(&mut self, from: Option<Lsn>) -> Result<()> {
        let mut records = match from {
            Some(lsn) => self.wal.records_from(lsn)?,
            None => self.wal.records()?,
        };
        while let Some(record) = records.next()? {
            let (lsn, bytes) = (record.lsn(), framed_bytes(record.data().len()));
            self.report.records += 1;
            let id = self.apply(lsn, &Record::of(&record)?);
            let mut counted = Counted::new(&self.segments, lsn);
            (counted.records, counted.bytes) = (1, bytes);
            match id {
                Some(id) => {
                    let mut stripe = self.directory.lock_of(id);
                    stripe.count(&self.segments, lsn, bytes);
                    stripe.note_stream(id);
                }
                None => self.segments.add(counted),
            }
        }
        self.directory.flush(&self.segments);
        Ok(())
    }

    /// Applies one record. Returns the stream that it concerns.
    fn apply(&mut self, lsn: Lsn, record: &Record<'_>) -> Option<StreamId> {
        let place = self.segments.place(lsn);
        let generation = match record {
            Record::Delete { generation, .. } => *generation,
            Record::FooterEnd(bytes) => End::decode(bytes).map_or(0, |end| end.generation),
            Record::Generations(generation) => *generation,
            _ => 0,
        };
        if generation > 0 {
            self.segments.note_generation(generation, place.segment);
        }
        let (Record::Entry { id, .. }
        | Record::Moved { id, .. }
        | Record::Anchor { id, .. }
        | Record::TruncateBefore { id, .. }
        | Record::TruncateFrom { id, .. }
        | Record::Delete { id, .. }
        | Record::Value { id, .. }) = record
        else {
            return None;
        };
        let id = *id;
        let mut stripe = self.directory.lock_of(id);
        if let Record::Delete { .. } = record {
            delete(&mut stripe, &mut self.pending, id);
            return Some(id);
        }
        // What an older stream of the slot left counts for nothing.
        let Some(slot) = stripe.slot_for(id) else { return Some(id) };
        let pending = &mut self.pending;
        match record {
            Record::Entry { index, .. } => {
                pending.truncate_from(id, slot, *index);
                pending.put(id, slot, *index, place);
            }
            Record::Moved { index, .. } => pending.put(id, slot, *index, place),
            Record::Anchor { anchor, .. } => {
                slot.home = place.segment;
                slot.set_values(&anchor.values, place.segment);
                pending.bound(id, slot, anchor.first, anchor.next);
                stripe.name(id, anchor.name);
            }
            Record::TruncateBefore { first, .. } => pending.truncate_before(id, slot, *first),
            Record::TruncateFrom { next, .. } => pending.truncate_from(id, slot, *next),
            Record::Value { key, value, .. } => slot.set_value(key, *value, place.segment),
            Record::Delete { .. }
            | Record::FooterPart(_)
            | Record::FooterEnd(_)
            | Record::Generations(_) => {}
        }
        Some(id)
    }

    /// Refuses a stream whose values are too long for a record since this open: the keeper could
    /// not move its anchor, and write no footer.
    fn check_anchor(&self, name: &[u8], slot: &Slot) -> Result<()> {
        let of_value =
            |(key, value): &(Box<[u8]>, Box<[u8]>)| VALUE_OVERHEAD + key.len() + value.len();
        let bytes = slot.values().iter().map(of_value).sum::<usize>() + name.len() + VALUE_OVERHEAD;
        // A part of a footer has other streams, too.
        let most = self.wal.max_record_bytes() / 2;
        if bytes <= most {
            return Ok(());
        }
        let text = format!(
            "the values of stream {} take {bytes} bytes; with this log buffer {most} are the most",
            quoted(name)
        );
        let advice = "open the log with the buffer_bytes that it had";
        Err(Error::new(ErrorKind::InvalidArgument, text).with_advice(advice))
    }

    /// Counts what is live, and checks that each stream has its anchor and all entries.
    fn finish(mut self) -> Result<Opened> {
        let mut live = BTreeMap::<u32, Live>::new();
        let most_entries = self.wal.live_bytes() / framed_bytes(0) + 1;
        for id in self.pending.streams() {
            let mut stripe = self.directory.lock_of(id);
            let Ok(slot) = stripe.live(id) else { continue };
            if !self.pending.settle(id, slot, most_entries) {
                let text = format!("the log has not all entries of stream {}", id.0);
                let advice = "restore the log from a backup";
                return Err(Error::new(ErrorKind::Corrupt, text).with_advice(advice));
            }
        }
        for number in 0..STRIPES {
            let mut stripe = self.directory.lock(number);
            // The least that it can be, if records that say it are damaged.
            let generation = stripe.slots().map(|(_, slot)| slot.generation).max();
            self.segments.note_generation(generation.unwrap_or(0), 0);
            for (id, slot) in stripe.slots() {
                if !slot.is_named() {
                    let has_entries = slot.entries().is_some_and(|entries| !entries.is_empty());
                    if has_entries || !slot.values().is_empty() {
                        let text = format!("records of stream {} are there, and no anchor", id.0);
                        let advice = "restore the log from a backup";
                        return Err(Error::new(ErrorKind::Corrupt, text).with_advice(advice));
                    }
                    continue;
                }
                self.check_anchor(stripe.name_of(id), slot)?;
                self.report.streams += 1;
                live.entry(slot.home).or_default().add(Live::ANCHOR);
                let Some(entries) = slot.entries() else { continue };
                entries.for_each(|_, at| live.entry(at.segment).or_default().add(Live::ENTRY));
                self.report.entries += entries.next() - entries.first();
                if entries.unknown() > 0 {
                    self.report.damaged.push(stripe.name_of(id).to_vec());
                }
            }
            stripe.slots_mut().for_each(Slot::shrink);
        }
        let (generation, _) = self.segments.newest();
        (0..STRIPES).for_each(|number| self.directory.lock(number).find_free(generation));
        self.segments.with(|all| {
            for (segment, count) in live {
                all.entry(segment).or_default().live.add(count);
            }
        });
        let Loader { directory, segments, last_footer, report, .. } = self;
        Ok(Opened { directory, segments, last_footer, report })
    }
}

fn delete(stripe: &mut Stripe, pending: &mut Pending, id: StreamId) {
    pending.remove(id);
    if stripe.slot_for(id).is_some() {
        stripe.remove(id);
    }
}
