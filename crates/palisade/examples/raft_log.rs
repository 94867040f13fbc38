//! A Raft log on Palisade: entries and votes are records, and a truncation of the suffix replaces
//! the entries that another leader overrules.
//!
//! `cargo run -p palisade --example raft_log`

use palisade::{Error, ErrorKind, Lsn, Options, ReplayFrom, Result, Wal, framed_bytes};
use std::collections::BTreeMap;
use std::iter::once;
use std::path::Path;

/// A record with this tag is an entry: its index, its term, and its content.
const ENTRY: u16 = 0;
/// A record with this tag is the rest of the state: the index and the term of the last entry that
/// was purged, and the vote.
const STATE: u16 = 1;

/// The index and the term of an entry.
type Id = (u64, u64);
/// What a leader sends for an index: the term, and the content.
type Entry<'a> = (u64, &'a str);

fn encode((index, term): Id, text: &str) -> Vec<u8> {
    [&index.to_le_bytes(), &term.to_le_bytes(), text.as_bytes()].concat()
}

fn decode(record: &[u8]) -> (Id, String) {
    let (index, rest) = record.split_first_chunk().expect("`encode` wrote it");
    let (term, text) = rest.split_first_chunk().expect("`encode` wrote it");
    let id = (u64::from_le_bytes(*index), u64::from_le_bytes(*term));
    (id, String::from_utf8_lossy(text).into())
}

struct RaftLog {
    wal: Wal,
    purged: Id,
    vote: String,
    /// The term and the LSN of each entry, by its index.
    entries: BTreeMap<u64, (u64, Lsn)>,
}

impl RaftLog {
    fn open(folder: &Path) -> Result<RaftLog> {
        let recovery = Options::new().segment_bytes(1 << 20).recover(folder)?;
        let (mut state, mut entries) = (((0, 0), String::new()), BTreeMap::new());
        let mut records = recovery.records(ReplayFrom::Head)?;
        while let Some(record) = records.next()? {
            let (id, text) = decode(record.data());
            if record.tag() == ENTRY {
                entries.insert(id.0, (id.1, record.lsn()));
            } else {
                state = (id, text);
            }
        }
        let (purged, vote) = state;
        entries.retain(|index, _| *index > purged.0); // after a crash within `purge`
        Ok(RaftLog { wal: recovery.start(), purged, vote, entries })
    }

    /// The index and the term of the last entry.
    fn last(&self) -> Id {
        self.entries.last_key_value().map_or(self.purged, |(index, (term, _))| (*index, *term))
    }

    /// Encodes as many entries as one call takes that has `used` bytes already.
    fn fitting(&self, mut used: u64, first: u64, entries: &[Entry<'_>]) -> Vec<Vec<u8>> {
        let most = framed_bytes(self.wal.max_record_bytes());
        let mut records = Vec::new();
        for (index, (term, text)) in (first..).zip(entries) {
            let record = encode((index, *term), text);
            used += framed_bytes(record.len());
            if used > most && used > framed_bytes(record.len()) {
                break;
            }
            records.push(record);
        }
        records
    }

    fn note(&mut self, first: u64, entries: &[Entry<'_>], lsns: &[Lsn]) {
        let noted = (first..).zip(entries).zip(lsns);
        self.entries.extend(noted.map(|((index, (term, _)), lsn)| (index, (*term, *lsn))));
    }

    /// Appends entries. `first` is the index after the last one.
    fn append(&mut self, mut first: u64, mut entries: &[Entry<'_>]) -> Result<()> {
        if first != self.last().0 + 1 {
            let text = "the entries do not follow the last one";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        while !entries.is_empty() {
            let records = self.fitting(0, first, entries);
            let lsns = self.wal.append_many(&records)?.lsns().to_vec();
            self.note(first, entries, &lsns);
            (first, entries) = (first + records.len() as u64, &entries[records.len()..]);
        }
        self.wal.sync()
    }

    fn save_vote(&mut self, vote: &str) -> Result<()> {
        self.wal.commit_tagged(STATE, &encode(self.purged, vote))?;
        self.vote = vote.into();
        Ok(())
    }

    /// Puts `new` in the place of the entries from `first` on, which another leader overrules.
    fn replace(&mut self, first: u64, new: &[Entry<'_>]) -> Result<()> {
        let Some((_, at)) = self.entries.get(&first).copied() else {
            return self.append(first, new); // none is overruled
        };
        let state = encode(self.purged, &self.vote);
        let records = self.fitting(framed_bytes(state.len()), first, new);
        let entries = records.iter().map(|record| (ENTRY, record));
        let lsns = self.wal.replace_from_tagged(at, once((STATE, &state)).chain(entries))?;
        self.entries.retain(|index, _| *index < first);
        self.note(first, new, &lsns[1..]);
        self.append(first + records.len() as u64, &new[records.len()..])
    }

    /// Removes the entries up to `last`, which a snapshot has, of this node or of the leader.
    fn purge(&mut self, last: Id) -> Result<()> {
        let state = self.wal.commit_tagged(STATE, &encode(last, &self.vote))?;
        self.purged = last;
        self.entries.retain(|index, _| *index > last.0);
        self.wal.truncate_before(self.entries.values().next().map_or(state, |(_, lsn)| *lsn))
    }
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("wal");
    let mut log = RaftLog::open(&folder)?;
    log.append(1, &[(1, "one"), (1, "two"), (1, "three")])?;
    log.save_vote("term 2, node 3")?; // above the entries that go
    let (_, overruled) = log.entries[&3];
    log.replace(2, &[(2, "TWO")])?;
    assert_eq!(log.last(), (2, 2));

    // A reader that was at entry 3 continues above entry 1.
    assert_eq!(log.wal.records_from(overruled).unwrap_err().kind(), ErrorKind::Truncated);
    let left = log.wal.records_from(log.wal.resume_lsn(overruled)?)?.into_iter();
    assert_eq!(left.map(|record| record.unwrap().tag()).collect::<Vec<_>>(), [STATE, ENTRY]);

    log.purge((2, 2))?;
    drop(log);
    let mut log = RaftLog::open(&folder)?;
    assert_eq!((log.last(), log.vote.as_str()), ((2, 2), "term 2, node 3"));
    let long = "3".repeat(300_000); // one call takes one of them
    log.replace(3, &[(2, &long), (2, &long), (3, "FIVE")])?;
    log.replace(3, &[(3, &long), (3, &long)])?;
    let entry = log.wal.get(log.entries[&4].1)?;
    assert_eq!((log.last(), decode(entry.data())), ((4, 3), ((4, 3), long)));
    log.wal.close()
}

#[test]
fn the_log_keeps_votes_and_entries() {
    main().unwrap();
}
