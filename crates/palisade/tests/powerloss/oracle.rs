//! The reference model: a list of what was appended, how much of it was promised, and the checks
//! of G1 to G5 against what a recovery found.
//!
//! The list holds what *may* be there. What comes back has to be a prefix of it, with whole
//! batches, that has everything that was promised. Then the list is shortened to it: what is gone
//! has to stay gone, and what was reported is promised from then on.
//!
//! # Words
//! *Evident*: below the end that an open has reported, a truncation or a checkpoint: something on
//! the medium proves that it was durable, so damage to it has to be found and may not be passed
//! over. *Truncated*: removed by a truncation of the suffix that returned, or by a repair.

use std::collections::BTreeSet;

use palisade::{Error, Lsn, Wal, framed_bytes};

use crate::codecs::Chosen;
use crate::numbered::data;

/// A record that may be in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lsn: Lsn,
    /// End of the record, or of its batch: entries with one end are there together or not at all.
    pub(crate) end: Lsn,
    pub(crate) data: Vec<u8>,
    /// The payload of its frame.
    pub(crate) stored: Vec<u8>,
}

/// What a crash leaves standing of what was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process died; the operating system lives on.
    Kill,
    /// The machine lost power.
    PowerLoss,
}

/// A `replace_from` that has not returned: the log is as it was, or ends with all of this.
#[derive(Clone, Debug)]
struct Replacement {
    /// The end of what stays.
    end: Lsn,
    datas: Vec<Vec<u8>>,
}

/// What was appended and promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    codec: Chosen,
    entries: Vec<Entry>,
    /// Below the head: in the log's files, or in the released segments that were kept.
    pub(crate) gone: Vec<Entry>,
    pub(crate) durable: Lsn,
    survives_kill: Lsn,
    /// Whether the log buffer has all that was appended and not synced, whatever the pages have.
    is_all_in_ring: bool,
    pub(crate) head: Lsn,
    head_may_be: Lsn,
    new_end_may_be: Option<Lsn>,
    replacement: Option<Replacement>,
    pub(crate) highest: Lsn,
    checkpoint: Lsn,
    checkpoint_may_be: Lsn,
    pub(crate) evident: Lsn,
    /// The records that are truncated, by their LSNs, and how often records were.
    pub(crate) truncated_lsns: BTreeSet<Lsn>,
    pub(crate) truncations: u64,
    appended: u64,
}

impl Oracle {
    /// Of a log that begins at `begin`.
    pub(crate) fn beginning_at(begin: Lsn, codec: Chosen) -> Oracle {
        let (head, checkpoint, checkpoint_may_be) = (begin, begin, begin);
        Oracle { codec, head, checkpoint, checkpoint_may_be, ..Oracle::default() }
    }

    /// The bytes of the frames of `datas`.
    pub(crate) fn framed(&self, datas: &[Vec<u8>]) -> u64 {
        datas.iter().map(|data| self.codec.framed(0, data)).sum()
    }

    /// Bytes that no other record has: they begin with a count, as far as there is room.
    pub(crate) fn data(&mut self, len: usize) -> Vec<u8> {
        self.appended += 1;
        data(self.appended, len)
    }

    /// Records from `lsn` on, one behind the other as in a batch, that end at `end`.
    pub(crate) fn append(&mut self, lsn: Lsn, end: Lsn, datas: Vec<Vec<u8>>) {
        let mut at = lsn;
        for data in datas {
            let stored = self.codec.stored(0, &data);
            at = self.add(Entry { lsn: at, end, data, stored });
        }
        assert!(end >= self.highest, "a ticket's end lies below its records");
        self.highest = end;
    }

    /// A record that was written in place, and not encoded.
    pub(crate) fn append_in_place(&mut self, lsn: Lsn, data: Vec<u8>) {
        let end = lsn.plus(framed_bytes(data.len()));
        self.add(Entry { lsn, end, stored: data.clone(), data });
    }

    /// Gives the end of the entry itself.
    fn add(&mut self, entry: Entry) -> Lsn {
        assert!(entry.lsn >= self.highest, "G2: LSN {} was given out before", entry.lsn);
        let end = entry.lsn.plus(framed_bytes(entry.stored.len()));
        self.entries.push(entry);
        self.highest = end;
        end
    }

    /// Everything that was appended survives the death of the process.
    pub(crate) fn promise_kill(&mut self, to: Lsn) {
        self.survives_kill = self.survives_kill.max(to);
    }

    /// Everything below `to` survives loss of power.
    pub(crate) fn promise(&mut self, to: Lsn) {
        self.durable = self.durable.max(to);
        self.promise_kill(to);
    }

    /// `truncate_before(lsn)` was called: the head may lie up to there.
    pub(crate) fn may_truncate(&mut self, lsn: Lsn) {
        self.head_may_be = self.head_may_be.max(lsn);
    }

    /// `truncate_before(lsn)` returned: the head lies there.
    pub(crate) fn truncated(&mut self, lsn: Lsn) {
        self.head = self.head.max(lsn);
        self.gone.extend(self.entries.iter().filter(|entry| entry.lsn < lsn).cloned());
        self.entries.retain(|entry| entry.lsn >= lsn);
    }

    /// `truncate_after` was called with the record that ends at `end`: until it returns, the log
    /// may end there or be as it was.
    pub(crate) fn may_truncate_above(&mut self, end: Lsn) {
        self.new_end_may_be = Some(end);
        self.checkpoint = self.checkpoint.min(end);
        self.evident = self.evident.min(end);
    }

    /// `replace_from` was called for what lies above `end`.
    pub(crate) fn may_replace(&mut self, end: Lsn, datas: Vec<Vec<u8>>) {
        self.replacement = Some(Replacement { end, datas });
        self.checkpoint = self.checkpoint.min(end);
        self.evident = self.evident.min(end);
    }

    /// `replace_from` changed nothing.
    pub(crate) fn not_replaced(&mut self) {
        self.replacement = None;
    }

    /// `replace_from` returned, or an open found that it was done.
    pub(crate) fn replaced(&mut self, lsns: &[Lsn]) {
        let Some(Replacement { end, datas }) = self.replacement.take() else { return };
        assert_eq!(lsns.len(), datas.len());
        self.truncated_after(end);
        for (&lsn, data) in lsns.iter().zip(datas) {
            let end = lsn.plus(self.codec.framed(0, &data));
            self.append(lsn, end, vec![data]);
            self.promise(end);
        }
    }

    /// Tells from what an open found whether a `replace_from` was done. One that was has all of its
    /// records, and at LSNs that no record had: its bytes may equal those that it replaced.
    fn settle_replacement(&mut self, found: &[(Lsn, Vec<u8>)]) {
        let Some(Replacement { end, .. }) = &self.replacement else { return };
        let kept = self.entries.iter().take_while(|entry| entry.end <= *end).count();
        let is_known = |lsn: Lsn| self.entries.iter().any(|entry| entry.lsn == lsn);
        if found.get(kept).is_some_and(|(lsn, _)| !is_known(*lsn)) {
            let lsns: Vec<Lsn> = found[kept..].iter().map(|(lsn, _)| *lsn).collect();
            self.replaced(&lsns);
        }
        self.replacement = None;
    }

    /// `checkpoint(lsn)` was called: the checkpoint may lie up to there.
    pub(crate) fn may_checkpoint(&mut self, lsn: Lsn) {
        self.checkpoint_may_be = self.checkpoint_may_be.max(lsn);
    }

    /// `checkpoint(lsn)` returned.
    pub(crate) fn checkpointed(&mut self, lsn: Lsn) {
        self.checkpoint = self.checkpoint.max(lsn);
        self.evident = self.evident.max(lsn);
    }

    /// `truncate_after` changed nothing.
    pub(crate) fn not_truncated(&mut self) {
        self.new_end_may_be = None;
    }

    /// `truncate_after` returned: what was truncated must not come back.
    pub(crate) fn truncated_after(&mut self, end: Lsn) {
        self.new_end_may_be = None;
        if self.remove_above(end) {
            // The next epoch's header says so.
            self.evident = end;
        }
        self.durable = self.durable.min(end);
        self.survives_kill = self.survives_kill.min(end);
        self.promise(end);
    }

    /// Whether there was anything to truncate.
    fn remove_above(&mut self, end: Lsn) -> bool {
        let before = self.entries.len();
        let is_truncated = |entry: &&Entry| entry.end > end;
        self.truncated_lsns.extend(self.entries.iter().filter(is_truncated).map(|entry| entry.lsn));
        self.entries.retain(|entry| entry.end <= end);
        self.truncations += 1;
        self.entries.len() < before
    }

    /// The entry at `index` was damaged: what a crash leaves without evidence may end there.
    pub(crate) fn damaged(&mut self, index: usize) {
        self.doubted(self.end_before(index));
    }

    /// Nothing shows that what lies from `end` on was durable.
    pub(crate) fn doubted(&mut self, end: Lsn) {
        (self.durable, self.survives_kill) = (self.durable.min(end), self.survives_kill.min(end));
    }

    /// Everything from `named` on is to be given up: if that dies on the way it may be so, or not.
    /// A checkpoint that lies there is lowered to the end of what stays.
    pub(crate) fn may_lose(&mut self, named: Lsn, segment_bytes: u64) {
        let last = self.entries.iter().rfind(|entry| entry.end <= named);
        let segment_start = Lsn::new(self.head.as_u64() / segment_bytes * segment_bytes);
        let end = last.map_or(segment_start, |last| last.end);
        self.checkpoint = self.checkpoint.min(end);
    }

    /// Everything from `named` on was given up: all that lies below was durable and stays.
    pub(crate) fn lost(&mut self, named: Lsn, wal: &Wal, segment_bytes: u64) {
        self.new_end_may_be = None;
        self.checkpoint_may_be = self.checkpoint_may_be.max(self.checkpoint).min(named);
        self.remove_above(named);
        let end = self.entries.last().map_or(self.head, |last| last.end);
        (self.durable, self.survives_kill) = (end, end);
        // A head between two epochs moves up; a log of which nothing is left begins anew, above.
        let head = wal.head_lsn();
        self.head_may_be = self.head_may_be.max(head);
        // The copy begins with the head's segment: what lies below it stays in the damaged log.
        let start = head.as_u64() / segment_bytes * segment_bytes;
        self.gone.retain(|entry| entry.lsn.as_u64() >= start);
        match self.entries.first() {
            Some(first) => assert!(head <= first.lsn, "the head passed a record"),
            None => self.gone.clear(),
        }
    }

    /// Where the entries before that at `index`, and before its batch, end.
    pub(crate) fn end_before(&self, index: usize) -> Lsn {
        let end = self.entries[index].end;
        let before = self.entries[..index].iter().rfind(|entry| entry.end < end);
        before.map_or(self.head, |before| before.end)
    }

    /// Whether all of the entry at `index` was acknowledged and certainly lies above the head, with
    /// all of its batch, and below any truncation; and whether it is evident, too.
    pub(crate) fn is_durable(&self, index: usize) -> bool {
        let is_certain = !self.is_in_doubt() && self.head_may_be <= self.head;
        let entry = &self.entries[index];
        is_certain && !self.is_split(entry) && entry.end <= self.durable
    }

    /// Whether the head may lie within the entry's batch: its members count one by one then.
    pub(crate) fn is_split(&self, entry: &Entry) -> bool {
        let members = self.gone.last().into_iter().chain(&self.entries);
        let has_head = self.entries[0].lsn == self.head && self.entries[0].end == entry.end;
        has_head && members.filter(|member| member.end == entry.end).count() > 1
    }

    pub(crate) fn is_evident(&self, index: usize) -> bool {
        self.entries[index].end <= self.evident
    }

    /// Whether a `truncate_after` has failed, and only the next open can tell whether it did.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.new_end_may_be.is_some() || self.replacement.is_some()
    }

    pub(crate) fn is_truncated(&self, lsn: Lsn) -> bool {
        self.truncated_lsns.contains(&lsn)
    }

    /// The first record at or above `lsn`, for a reader that keeps what the head has passed.
    pub(crate) fn next_from(&self, lsn: Lsn) -> Option<&Entry> {
        self.gone.iter().chain(&self.entries).find(|entry| entry.lsn >= lsn)
    }

    /// Returns the bytes of the frames of the records at or above `lsn`.
    pub(crate) fn bytes_from(&self, lsn: Lsn) -> u64 {
        let above = self.entries.iter().filter(|entry| entry.lsn >= lsn);
        above.map(|entry| framed_bytes(entry.stored.len())).sum()
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The log, which nobody interrupted, has exactly what was appended.
    pub(crate) fn check_all(&self, wal: &Wal) {
        let found = contents(wal);
        assert_same(&found, &self.entries);
        assert_eq!(found.len(), self.entries.len(), "a record that was appended is missing");
    }

    /// G1 to G5 after `crash`; then what is there is the truth.
    pub(crate) fn check_recovered(&mut self, wal: &Wal, crash: Crash) {
        let found = contents(wal);
        self.settle_replacement(&found);
        let head = wal.head_lsn();
        assert!(
            self.head <= head && head <= self.head_may_be.max(self.head),
            "the head is {head}, was {} and may be {}",
            self.head,
            self.head_may_be,
        );
        self.gone.extend(self.entries.iter().filter(|entry| entry.lsn < head).cloned());
        self.entries.retain(|entry| entry.lsn >= head);
        (self.head, self.head_may_be) = (head, head);
        let checkpoint = wal.checkpoint_lsn();
        let highest = self.checkpoint_may_be.max(self.checkpoint);
        // At the base of an epoch of which nothing is left it may be lowered to the end of the one
        // before: there is no record between the two.
        let was = self.checkpoint;
        let says_the_same =
            self.entries.iter().all(|entry| entry.end <= checkpoint || entry.lsn >= was);
        assert!(
            (was <= checkpoint || says_the_same) && checkpoint <= highest,
            "the checkpoint is {checkpoint}, was {was} and may be {highest}",
        );
        (self.checkpoint, self.checkpoint_may_be) = (checkpoint, checkpoint);
        assert_same(&found, &self.entries);
        self.check_promised(found.len(), crash);
        self.settle(found.len(), wal.reserved_lsn());
    }

    /// An open returned that found everything up to `end`, and died before it could be read.
    pub(crate) fn reported(&mut self, end: Lsn, crash: Crash) {
        let count = self.entries.iter().take_while(|entry| entry.end <= end).count();
        self.check_promised(count, crash);
        self.keep(count);
    }

    /// Power was lost in a recovery: what only a kill would have left is gone.
    pub(crate) fn forget_kill_promise(&mut self) {
        self.survives_kill = self.durable;
    }

    pub(crate) fn ring_has_all(&mut self, has_all: bool) {
        self.is_all_in_ring = has_all;
    }

    /// Pages that no sync had covered may be gone.
    pub(crate) fn forget_what_the_ring_lacks(&mut self) {
        if !self.is_all_in_ring {
            self.survives_kill = self.durable;
        }
    }

    fn check_promised(&self, count: usize, crash: Crash) {
        let promised = match crash {
            Crash::Kill => self.survives_kill,
            Crash::PowerLoss => self.durable,
        };
        let end = count.checked_sub(1).map_or(self.head, |last| self.entries[last].end);
        if let Some(missing) = self.entries.get(count)
            && self.new_end_may_be != Some(end)
        {
            assert!(
                missing.end > promised,
                "G1: the record at {} is missing, everything below {promised} was promised",
                missing.lsn,
            );
            let split = count > 0 && self.entries[count - 1].end == missing.end;
            assert!(!split, "G4: the batch that ends at {} is there in part", missing.end);
        }
    }

    /// What was found is the log now, and promised.
    fn keep(&mut self, count: usize) {
        self.entries.truncate(count);
        let end = self.entries.last().map_or(self.head, |last| last.end);
        (self.durable, self.survives_kill) = (end, end);
        // The new epoch's header, or the clean end, says so.
        self.evident = end;
        // It may have been done.
        self.truncations += u64::from(self.new_end_may_be.take().is_some());
    }

    fn settle(&mut self, count: usize, tail: Lsn) {
        self.keep(count);
        assert!(self.highest <= tail, "G2: the tail {tail} lies below an LSN that was given out");
    }
}

/// The log from head to end.
pub(crate) fn contents(wal: &Wal) -> Vec<(Lsn, Vec<u8>)> {
    let (found, error) = contents_until(wal);
    assert!(error.is_none(), "an open log can be read: {error:?}");
    found
}

/// The log from head to end, or to the first error.
pub(crate) fn contents_until(wal: &Wal) -> (Vec<(Lsn, Vec<u8>)>, Option<Error>) {
    let mut found = Vec::new();
    let mut records = match wal.records() {
        Ok(records) => records,
        Err(error) => return (found, Some(error)),
    };
    loop {
        match records.next() {
            Ok(Some(record)) => found.push((record.lsn(), record.data().to_vec())),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// What was found is a prefix of what may be there: no stranger, nothing twice, in order.
pub(crate) fn assert_same(found: &[(Lsn, Vec<u8>)], may_be: &[Entry]) {
    for (index, (lsn, data)) in found.iter().enumerate() {
        let expected = may_be.get(index);
        let is_it = expected.is_some_and(|entry| entry.lsn == *lsn && entry.data == *data);
        assert!(
            is_it,
            "G2, G3: record {index} is {} bytes at {lsn}, expected {:?}",
            data.len(),
            expected.map(|entry| (entry.lsn, entry.data.len())),
        );
    }
}
