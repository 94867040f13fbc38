//! The reference model: a list of what was appended, how much of it was promised, and the checks
//! of G1 to G5 against what a recovery found.
//!
//! The list holds what *may* be there. What comes back has to be a prefix of it, with whole
//! batches, that has everything that was promised. Then the list is cut to it: what is gone has
//! to stay gone, and what was reported is promised from then on.

use palisade::{Lsn, Wal, framed_bytes};

/// A record that may be in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lsn: Lsn,
    /// End of the record, or of its batch: entries with one end are there together or not at all.
    pub(crate) end: Lsn,
    pub(crate) data: Vec<u8>,
}

/// What a crash leaves standing of what was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process died; the operating system lives on.
    Kill,
    /// The machine lost power.
    PowerLoss,
}

/// What was appended and promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    entries: Vec<Entry>,
    /// Below the head: in the archive, if there is one.
    pub(crate) gone: Vec<Entry>,
    durable: Lsn,
    survives_kill: Lsn,
    head: Lsn,
    head_may_be: Lsn,
    may_be_cut: Option<Lsn>,
    highest: Lsn,
    highest_durable: Lsn,
    checkpoint: Lsn,
    checkpoint_may_be: Lsn,
    appended: u64,
}

impl Oracle {
    /// Bytes that no other record has: they begin with a count, as far as there is room.
    pub(crate) fn data(&mut self, len: usize) -> Vec<u8> {
        self.appended += 1;
        let mut data = vec![self.appended as u8; len];
        let own = self.appended.to_le_bytes();
        let n = len.min(own.len());
        data[..n].copy_from_slice(&own[..n]);
        data
    }

    /// Records from `lsn` on, one behind the other as in a batch, that end at `end`.
    pub(crate) fn append(&mut self, lsn: Lsn, end: Lsn, datas: Vec<Vec<u8>>) {
        let mut at = lsn;
        for data in datas {
            assert!(at >= self.highest, "G2: LSN {at} was given out before");
            let next = at.plus(framed_bytes(data.len()));
            self.entries.push(Entry { lsn: at, end, data });
            self.highest = next;
            at = next;
        }
        assert!(end >= self.highest, "a ticket's end lies below its records");
        self.highest = end;
    }

    /// Everything that was appended survives the death of the process.
    pub(crate) fn promise_kill(&mut self, to: Lsn) {
        self.survives_kill = self.survives_kill.max(to);
    }

    /// Everything below `to` survives loss of power.
    pub(crate) fn promise(&mut self, to: Lsn) {
        self.durable = self.durable.max(to);
        self.highest_durable = self.highest_durable.max(to);
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
    /// may be cut there or be as it was.
    pub(crate) fn may_cut(&mut self, end: Lsn) {
        self.may_be_cut = Some(end);
        self.checkpoint = self.checkpoint.min(end);
    }

    /// `checkpoint(lsn)` was called: the checkpoint may lie up to there.
    pub(crate) fn may_checkpoint(&mut self, lsn: Lsn) {
        self.checkpoint_may_be = self.checkpoint_may_be.max(lsn);
    }

    /// `checkpoint(lsn)` returned.
    pub(crate) fn checkpointed(&mut self, lsn: Lsn) {
        self.checkpoint = self.checkpoint.max(lsn);
    }

    /// `truncate_after` changed nothing.
    pub(crate) fn not_cut(&mut self) {
        self.may_be_cut = None;
    }

    /// `truncate_after` returned: what was cut must not come back.
    pub(crate) fn cut(&mut self, end: Lsn) {
        self.may_be_cut = None;
        self.entries.retain(|entry| entry.end <= end);
        self.durable = self.durable.min(end);
        self.survives_kill = self.survives_kill.min(end);
        self.promise(end);
    }

    pub(crate) fn highest(&self) -> Lsn {
        self.highest
    }

    pub(crate) fn head(&self) -> Lsn {
        self.head
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
        assert!(
            self.checkpoint <= checkpoint && checkpoint <= highest,
            "the checkpoint is {checkpoint}, was {} and may be {highest}",
            self.checkpoint,
        );
        (self.checkpoint, self.checkpoint_may_be) = (checkpoint, checkpoint);
        let found = contents(wal);
        assert_same(&found, &self.entries);
        self.check_promised(found.len(), crash);
        self.settle(found.len(), crash, wal.reserved_lsn());
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

    fn check_promised(&self, count: usize, crash: Crash) {
        let promised = match crash {
            Crash::Kill => self.survives_kill,
            Crash::PowerLoss => self.durable,
        };
        let end = count.checked_sub(1).map_or(self.head, |last| self.entries[last].end);
        if let Some(missing) = self.entries.get(count)
            && self.may_be_cut != Some(end)
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
        self.may_be_cut = None;
    }

    fn settle(&mut self, count: usize, crash: Crash, tail: Lsn) {
        self.keep(count);
        if crash == Crash::PowerLoss {
            // Reservations of which no byte was left anywhere may be given out again.
            let durable = self.highest_durable;
            assert!(durable <= tail, "G2: the tail {tail} lies below {durable}, which was durable");
            self.highest = tail;
        }
        assert!(self.highest <= tail, "G2: the tail {tail} lies below an LSN that was given out");
    }
}

/// The log from head to end.
pub(crate) fn contents(wal: &Wal) -> Vec<(Lsn, Vec<u8>)> {
    let mut records = wal.iter().expect("an open log can be read");
    let mut found = Vec::new();
    while let Some(record) = records.next().expect("an open log can be read") {
        found.push((record.lsn(), record.data().to_vec()));
    }
    found
}

/// What was found is a prefix of what may be there: no stranger, nothing twice, in order.
fn assert_same(found: &[(Lsn, Vec<u8>)], may_be: &[Entry]) {
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
