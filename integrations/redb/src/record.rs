//! The records of the log.
//!
//! A change is what one sync makes durable. It is one record with the tag `LAST`, or several: all
//! but the last one have the tag `PART`. Integers are little-endian.
//!
//! | bytes | content of `PART` and `LAST` |
//! |---|---|
//! | 4 | number of the record among those of its change, from 0 on |
//! | 8 | length of the storage after the change |
//! | 8 | the least length that the storage had since the change before |
//! | 8 + 2 + n, repeated | number of a page, n, its first n bytes. The others are zero |
//!
//! A crash can leave a `PART` without its `LAST`: the next change begins with number 0 again.
//!
//! A record with the tag `CHECKPOINT` has the length of the storage (8 bytes), and its first page
//! without the trailing zeros. If it is the first record of the log, the base file has all changes
//! before it. Else the checkpoint did not end, and the record only says that it may have begun.

use palisade::{Error, ErrorKind, Lsn, Record, Records, Result, Wal};

use crate::state::{Change, PAGE_BYTES, State};

const PART: u16 = 1;
const LAST: u16 = 2;
const CHECKPOINT: u16 = 3;

const PAGE_HEAD_BYTES: usize = 8 + 2;
/// The least limit of a record with which a log is opened.
pub(crate) const LEAST_LONGEST: usize = 16 << 10;

/// Appends `change`. It is durable with the next sync of the log.
pub(crate) fn append(wal: &Wal, change: &Change) -> Result<()> {
    // A codec that encrypts makes a record longer.
    let longest = wal.max_record_bytes() / 8 * 7;
    let mut part = 0;
    let mut record = head(part, change);
    for (number, page) in &change.pages {
        let used = &page[..used_bytes(page)];
        if record.len() + PAGE_HEAD_BYTES + used.len() > longest {
            drop(wal.append_tagged(PART, &record)?);
            part += 1;
            record = head(part, change);
        }
        record.extend(number.to_le_bytes());
        record.extend((used.len() as u16).to_le_bytes());
        record.extend(used);
    }
    wal.append_tagged(LAST, &record).map(drop)
}

/// Returns how much of the log a change of `pages` pages takes at most. A record does not cross
/// the end of a segment, where the log pads as much as the record takes: less than a half.
pub(crate) fn most_bytes(pages: usize) -> u64 {
    2 * (pages * (PAGE_HEAD_BYTES + PAGE_BYTES)) as u64
}

/// Appends the record of a checkpoint, and waits until it is durable, with all records before it.
///
/// A log at its limit takes no record. But a new epoch may pass the limit, so the record then
/// begins one. The truncation that follows frees at least as much, unless a cursor keeps the log.
pub(crate) fn commit_checkpoint(wal: &Wal, len: u64, first: &[u8; PAGE_BYTES]) -> Result<Lsn> {
    let mut record = len.to_le_bytes().to_vec();
    record.extend(&first[..used_bytes(first)]);
    match wal.commit_tagged(CHECKPOINT, &record) {
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            let lsns = wal.replace_from_tagged(wal.reserved_lsn(), [(CHECKPOINT, &record)])?;
            lsns.first().copied().ok_or(error)
        }
        committed => committed,
    }
}

fn head(part: u32, change: &Change) -> Vec<u8> {
    let mut record = part.to_le_bytes().to_vec();
    record.extend(change.len.to_le_bytes());
    record.extend(change.cut.to_le_bytes());
    record
}

fn used_bytes(page: &[u8; PAGE_BYTES]) -> usize {
    const STEP: usize = 64;
    let Some(last) = page.chunks_exact(STEP).rposition(|chunk| *chunk != [0; STEP]) else {
        return 0;
    };
    let zeros = page[..(last + 1) * STEP].iter().rev().take_while(|&&byte| byte == 0).count();
    (last + 1) * STEP - zeros
}

/// Takes the records of a log, one after the other, and applies the changes that are whole.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    state: State,
    /// How many records there were.
    pub(crate) records: u64,
    /// The first page that the base file has, if no checkpoint after the first record has begun to
    /// write another one.
    pub(crate) first_page: Option<Box<[u8; PAGE_BYTES]>>,
    /// The last record, if it says that a checkpoint has begun, and no crash has let that one end.
    pub(crate) begun: Option<Lsn>,
    change: Change,
    /// The number that the next record of the change has.
    next_part: u32,
}

impl Replay {
    pub(crate) fn take_all(&mut self, mut records: Records) -> Result<()> {
        while let Some(record) = records.next()? {
            self.take(&record)?;
        }
        Ok(())
    }

    fn take(&mut self, record: &Record<'_>) -> Result<()> {
        let taken = match record.tag() {
            CHECKPOINT => self.checkpoint(record.data()),
            PART => self.pages(record.data()),
            LAST => self.pages(record.data()).map(|()| {
                self.state.apply(std::mem::take(&mut self.change));
                self.next_part = 0;
            }),
            _ => None,
        };
        let is_checkpoint = record.tag() == CHECKPOINT;
        self.state.has_log |= self.records > 0 || !is_checkpoint;
        self.begun = (self.records > 0 && is_checkpoint).then(|| record.lsn());
        self.records += 1;
        taken.ok_or_else(|| {
            let tag = record.tag();
            let text =
                format!("a record with the tag {tag} is none that palisade-redb has written");
            Error::new(ErrorKind::Corrupt, text).at_lsn(record.lsn())
        })
    }

    /// Returns the storage that the log has, on top of the base file.
    pub(crate) fn into_state(mut self) -> State {
        self.state.set_unchanged();
        self.state
    }

    fn checkpoint(&mut self, mut data: &[u8]) -> Option<()> {
        let len = u64::from_le_bytes(*take(&mut data)?);
        let mut page = Box::new([0; PAGE_BYTES]);
        page.get_mut(..data.len())?.copy_from_slice(data);
        if self.records == 0 {
            self.state = State::in_base(len);
            // The record of a page of zeros has no bytes of it.
            self.first_page = (!data.is_empty()).then_some(page);
        } else {
            self.first_page = None;
        }
        Some(())
    }

    fn pages(&mut self, mut data: &[u8]) -> Option<()> {
        let part = u32::from_le_bytes(*take(&mut data)?);
        let len = u64::from_le_bytes(*take(&mut data)?);
        let cut = u64::from_le_bytes(*take(&mut data)?);
        if part == 0 {
            (self.change, self.next_part) = (Change::default(), 0);
        }
        if part != self.next_part || cut > len {
            return None;
        }
        (self.change.len, self.change.cut, self.next_part) = (len, cut, part + 1);
        while !data.is_empty() {
            let number = u64::from_le_bytes(*take(&mut data)?);
            let used = usize::from(u16::from_le_bytes(*take(&mut data)?));
            let (bytes, rest) = data.split_at_checked(used)?;
            let mut page = Box::new([0; PAGE_BYTES]);
            page.get_mut(..used)?.copy_from_slice(bytes);
            self.change.pages.insert(number, page);
            data = rest;
        }
        Some(())
    }
}

fn take<'d, const N: usize>(data: &mut &'d [u8]) -> Option<&'d [u8; N]> {
    let (taken, rest) = data.split_first_chunk()?;
    *data = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use palisade::{MemStore, Options};

    use super::*;
    use crate::state::Pages;

    fn replay(wal: &Wal) -> Result<State> {
        let mut replay = Replay::default();
        replay.take_all(wal.records()?)?;
        Ok(replay.into_state())
    }

    fn log() -> Wal {
        let options = Options::new().buffer_bytes(64 << 10);
        Wal::with_store(MemStore::new(64 << 10), options).unwrap()
    }

    fn change(pages: u64, fill: u8) -> Change {
        let pages: Pages =
            (0..pages).map(|number| (number, Box::new([fill; PAGE_BYTES]))).collect();
        let len = pages.len() as u64 * PAGE_BYTES as u64;
        Change { pages, len, cut: 0 }
    }

    #[test]
    fn used_bytes_ends_behind_the_last_byte_that_is_not_zero() {
        let mut page = [0; PAGE_BYTES];
        assert_eq!(used_bytes(&page), 0);
        for at in [0, 1, 63, 64, 100, 4031, 4095] {
            page[at] = 1;
            assert_eq!(used_bytes(&page), at + 1);
        }
    }

    #[test]
    fn a_long_change_is_replayed_whole_or_not_at_all() {
        let wal = log();
        append(&wal, &change(40, 1)).unwrap();
        append(&wal, &change(40, 2)).unwrap();
        let last = wal.records().unwrap().into_iter().last().unwrap().unwrap();
        assert!(wal.records().unwrap().into_iter().count() >= 10);
        wal.truncate_from(last.lsn()).unwrap();
        append(&wal, &change(1, 3)).unwrap();

        let state = replay(&wal).unwrap();
        let fills: Vec<u8> = state.synced.values().map(|page| page[7]).collect();
        assert_eq!(fills, [3], "its least length was 0, so nothing else stays");

        wal.truncate_from(wal.records().unwrap().into_iter().last().unwrap().unwrap().lsn())
            .unwrap();
        let state = replay(&wal).unwrap();
        assert!(state.synced.values().all(|page| page[7] == 1));
        assert_eq!(state.synced.len(), 40);
    }

    #[test]
    fn the_first_page_is_known_until_a_later_checkpoint_begins() {
        let first_page = |wal: &Wal| {
            let mut replay = Replay::default();
            replay.take_all(wal.records().unwrap()).unwrap();
            replay.first_page.map(|page| *page)
        };
        let mut page = [0; PAGE_BYTES];
        page[9..100].fill(7);
        let wal = log();
        commit_checkpoint(&wal, 8192, &page).unwrap();
        append(&wal, &change(1, 1)).unwrap();
        assert_eq!(first_page(&wal), Some(page));
        commit_checkpoint(&wal, 4096, &[1; PAGE_BYTES]).unwrap();
        assert_eq!(first_page(&wal), None);

        let wal = log();
        wal.append_tagged(CHECKPOINT, &8192_u64.to_le_bytes()).unwrap();
        assert_eq!(first_page(&wal), None, "a page of zeros");
        assert_eq!(replay(&wal).unwrap().base_len, 8192);
    }

    #[test]
    fn foreign_records_are_refused() {
        let whole = {
            let wal = log();
            append(&wal, &change(1, 1)).unwrap();
            wal.records().unwrap().next().unwrap().unwrap().data().to_vec()
        };
        let long = [&whole[..], &[0; 3]].concat();
        let short = &whole[..whole.len() - 1];
        let other_part = [&[1, 0, 0, 0], &whole[4..]].concat();
        for (tag, data) in [(0, &whole[..]), (9, &whole), (CHECKPOINT, &whole), (LAST, &long)]
            .into_iter()
            .chain([(LAST, short), (PART, short), (LAST, &other_part), (PART, &[])])
        {
            let wal = log();
            let lsn = wal.append_tagged(tag, data).unwrap().lsn();
            let error = replay(&wal).map(drop).unwrap_err();
            assert_eq!((error.kind(), error.lsn()), (ErrorKind::Corrupt, Some(lsn)));
        }
    }
}
