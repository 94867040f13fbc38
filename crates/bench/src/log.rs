//! A log, as the workloads see it.

use anyhow::{Result, bail};
use palisade::{Lsn, Wal};
use palisade_streams::Streams;

use crate::{Plan, Tally};

/// A log of a contender. Calls come from several threads at a time. `stream` is the number of the
/// stream that the call is for. In a workload without streams it is the number of the thread; a log
/// without streams ignores it. A floor implements only what its workloads call.
pub trait Log: Send + Sync {
    /// Appends `record` without a sync.
    ///
    /// # Errors
    /// If the contender refuses a record, or has no append without a sync.
    fn append(&self, _stream: usize, _record: &[u8]) -> Result<()> {
        bail!("it has no append without a sync")
    }

    /// Appends `record` `count` times, each by a call of its own, without a sync.
    ///
    /// # Errors
    /// As [`append`](Log::append).
    fn appends(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        (0..count).try_for_each(|_| self.append(stream, record))
    }

    /// Appends `record` and returns when it is durable.
    ///
    /// # Errors
    /// If it may not be durable.
    fn commit(&self, stream: usize, record: &[u8]) -> Result<()> {
        self.appends(stream, record, 1)?;
        self.sync()
    }

    /// Appends `record` `count` times, at least once, and makes all of them durable, by one call if
    /// the contender has one.
    ///
    /// # Errors
    /// If a record may not be durable.
    fn batch(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        self.appends(stream, record, count - 1)?;
        self.commit(stream, record)
    }

    /// Appends `record` `count` times as one batch, which a crash leaves whole or not at all, and
    /// returns when it is durable. A contender whose [`batch`](Log::batch) is none such lacks the
    /// workload.
    ///
    /// # Errors
    /// If it may not be durable.
    fn atomic(&self, stream: usize, record: &[u8], count: u32) -> Result<()> {
        self.batch(stream, record, count)
    }

    /// Appends `record` `count` times by one call, without a sync.
    ///
    /// # Errors
    /// If the contender refuses a record, or has no such call.
    fn append_batch(&self, _stream: usize, _record: &[u8], _count: u32) -> Result<()> {
        bail!("it has no batch without a sync")
    }

    /// Makes a checkpoint. It and all records that were appended before are durable then.
    ///
    /// # Errors
    /// If they may not be durable, or the contender has no checkpoints.
    fn checkpoint(&self, _name: &str) -> Result<()> {
        bail!("it has no checkpoints")
    }

    /// Loads a checkpoint. Returns how many records were appended before it.
    ///
    /// # Errors
    /// If it cannot be read, or the contender has no checkpoints.
    fn load_checkpoint(&self, _name: &str) -> Result<u64> {
        bail!("it has no checkpoints")
    }

    /// Removes all checkpoints but the newest one. Not timed.
    ///
    /// # Errors
    /// If they cannot be removed, or the contender has no checkpoints.
    fn prune_checkpoints(&self) -> Result<()> {
        bail!("it has no checkpoints")
    }

    /// Makes all appended records durable.
    ///
    /// # Errors
    /// If they may not be durable, or the contender has no such call.
    fn sync(&self) -> Result<()> {
        bail!("it has no sync of its own")
    }

    /// Appends `record` `synced` times to the first `streams` streams in turn, makes these records
    /// durable if the contender is one that can, and appends it `unsynced` times more.
    ///
    /// # Errors
    /// If the contender refuses a record.
    fn fill(&self, streams: usize, record: &[u8], synced: u64, unsynced: u64) -> Result<()> {
        let mut turns = (0..streams).cycle();
        let append = |stream| self.append(stream, record);
        let commit = |stream| self.commit(stream, record);
        turns.by_ref().take(synced.saturating_sub(1) as usize).try_for_each(append)?;
        turns.by_ref().take(synced.min(1) as usize).try_for_each(commit)?;
        turns.take(unsynced as usize).try_for_each(append)
    }

    /// Releases all records, so that the disk does not fill up. A floor keeps no records.
    ///
    /// # Errors
    /// If they cannot be released.
    fn trim(&mut self) -> Result<()> {
        Ok(())
    }

    /// Removes all entries of a stream, without a sync. A later commit makes that durable, too.
    ///
    /// # Errors
    /// If they cannot be removed, or the contender has no such call.
    fn truncate(&self, _stream: usize) -> Result<()> {
        bail!("it cannot truncate a stream")
    }

    /// Returns Palisade's log itself, for what only Palisade has, such as futures and LSNs.
    ///
    /// # Errors
    /// If it is another contender's log.
    fn wal(&self) -> Result<&Wal> {
        bail!("only Palisade has such a call")
    }

    /// Returns Palisade's log of streams itself, for what only Palisade has, such as what its
    /// keeper has moved.
    ///
    /// # Errors
    /// If it is another log.
    fn streams(&self) -> Result<&Streams> {
        bail!("only a log of streams of Palisade has such a call")
    }

    /// Returns the number of device syncs so far; `None` if the contender does not count them.
    fn syncs(&self) -> Option<u64> {
        self.wal().ok().map(|wal| wal.stats().syncs)
    }

    /// Returns the bytes that the log takes, framing included, and how many segments its open has
    /// found; `None` for other contenders than Palisade.
    fn size(&self) -> Option<(u64, u64)> {
        let wal = self.wal().ok()?;
        let bytes = wal.reserved_lsn().bytes_since(wal.head_lsn());
        Some((bytes, wal.recovery_report().segments))
    }

    /// Gives all records since the last [`trim`](Log::trim) to the tally, their checksums verified.
    ///
    /// # Errors
    /// If one cannot be read, or the contender has no scan.
    fn scan(&self, _tally: &mut Tally<'_>) -> Result<()> {
        bail!("it has no scan")
    }

    /// Gives all records of a stream to the tally, their checksums verified. A log without streams
    /// gives all that it has.
    ///
    /// # Errors
    /// As [`scan`](Log::scan).
    fn scan_stream(&self, _stream: usize, tally: &mut Tally<'_>) -> Result<()> {
        self.scan(tally)
    }

    /// Finds out where each record is, for [`get`](Log::get). Not timed.
    ///
    /// # Errors
    /// If a record cannot be read.
    fn index(&mut self) -> Result<()> {
        Ok(())
    }

    /// Gives one record to the tally, the first one being number 0, its checksum verified.
    ///
    /// # Errors
    /// If it cannot be read, or the contender has no such call.
    fn get(&self, _number: u64, _tally: &mut Tally<'_>) -> Result<()> {
        bail!("it reads records in their order only")
    }

    /// Ends the log of the plan. Returns the call that opens what is left, if it is not the
    /// contender's open of the plan.
    ///
    /// # Errors
    /// If it cannot be ended like this.
    fn end(self: Box<Self>, _plan: &Plan, _end: End) -> Result<Option<Opening>> {
        Ok(None)
    }
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As well as the contender can.
    Closed,
    /// Without a clean close.
    Dropped,
    /// As a killed process leaves it, with the garbage that the plan's form asks for behind the
    /// last record.
    Killed,
}

/// Opens a log that has ended.
pub type Opening = Box<dyn FnOnce() -> Result<Box<dyn Log>>>;

/// Returns the LSN of each record of the log.
pub(crate) fn lsns(wal: &Wal) -> Result<Vec<Lsn>> {
    let mut lsns = Vec::new();
    let mut records = wal.records()?;
    while let Some(record) = records.next()? {
        lsns.push(record.lsn());
    }
    Ok(lsns)
}
