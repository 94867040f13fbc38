//! Named checkpoints over all shards.
//!
//! 1. Each shard appends *chunks* to its reserved stream: the name and the next index of each
//!    stream, many to an entry. A sync makes them durable, with all changes that they cover.
//! 2. Then shard 0 commits an entry to its stream of checkpoints: the name, and which chunks of
//!    each shard belong to it. So a checkpoint is there with all of its chunks, or not at all.
//!
//! A removal goes the other way: shard 0 truncates the entries, durably, and then each shard its
//! chunks. A crash in between leaves chunks without an entry below the first checkpoint's or above
//! the last one's. The next checkpoint or removal truncates them.
//!
//! Each attempt to make a checkpoint draws 64 random bits, its *mark*. Each of its chunks begins
//! with the mark, and the entry has it. Chunks of a failed attempt are truncated, and those of the
//! next one get their indexes. A shard that was restored from a backup can still have the older
//! ones: the marks differ.
//!
//! An entry is the length of the name and the name, the mark, the number of streams, the number of
//! shards, and for each shard the indexes of the first chunk and of the one above the last. A chunk
//! is the mark, and for each stream the length of the name, the name and the next index. Numbers
//! are varints.

use std::fmt;
use std::ops::Range;

use palisade::{Error, ErrorKind, Result};

use super::membership::is_reserved;
use super::{Set, Sharded};
use crate::directory::STRIPES;
use crate::record::{Decoder, Encode, MAX_ENTRY_HEADER_BYTES};
use crate::streams::Streams;
use crate::write::{MAX_NAME_BYTES, quoted};

/// A chunk is at most so long: a read of one takes little memory.
const MAX_CHUNK_BYTES: usize = 64 << 10;
/// The most bytes of the two numbers of a stream in a chunk.
const MAX_NUMBERS_BYTES: usize = MAX_ENTRY_HEADER_BYTES;

/// What is known of a checkpoint without a read of what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// Counts the checkpoints of the set, from 0 on. No two of them have the same number.
    pub number: u64,
    /// The checkpoint's name.
    pub name: Vec<u8>,
    /// How many streams it holds.
    pub streams: u64,
    /// What each of its chunks begins with.
    mark: u64,
    /// For each shard: the indexes of its chunks in the reserved stream.
    chunks: Vec<Range<u64>>,
}

impl CheckpointInfo {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.bytes(&self.name);
        bytes.number(self.mark);
        bytes.number(self.streams);
        bytes.number(self.chunks.len() as u64);
        for chunks in &self.chunks {
            bytes.number(chunks.start);
            bytes.number(chunks.end);
        }
        bytes
    }

    fn decode(number: u64, bytes: &[u8], shards: usize) -> Option<CheckpointInfo> {
        let mut from = Decoder(bytes);
        let (name, mark) = (from.bytes()?.to_vec(), from.number()?);
        let (streams, count) = (from.number()?, from.number()?);
        let chunks = (0..count).map(|_| Some(from.index()?..from.index()?));
        let chunks = chunks.collect::<Option<Vec<_>>>()?;
        let is_whole = from.0.is_empty() && chunks.len() == shards;
        is_whole.then_some(CheckpointInfo { number, name, streams, mark, chunks })
    }

    /// Returns what a chunk has behind the mark; `None` if it is a chunk of another attempt.
    fn open_chunk<'c>(&self, chunk: &'c [u8]) -> Option<&'c [u8]> {
        let mut from = Decoder(chunk);
        let is_own = from.number()? == self.mark;
        is_own.then_some(from.0)
    }
}

/// A checkpoint: where each stream of a set was. Made by [`Sharded::checkpoint`] and read by
/// [`Sharded::load`].
///
/// Takes memory for each stream: its name and about 12 bytes.
#[derive(Clone)]
pub struct Checkpoint {
    info: CheckpointInfo,
    /// What all chunks have behind their marks, one after the other.
    bytes: Vec<u8>,
    /// Where each stream begins in `bytes`, ascending by name.
    places: Vec<usize>,
}

impl Checkpoint {
    /// Returns the checkpoint's number and name, and how many streams it holds.
    #[must_use]
    pub fn info(&self) -> &CheckpointInfo {
        &self.info
    }

    /// Returns the index that the next entry of this stream got at the checkpoint: the entries
    /// below it belong to the checkpoint. `None` if there was no such stream.
    ///
    /// A stream can have been deleted since. If another of the same name was made, its indexes
    /// begin anew.
    #[must_use]
    pub fn next_index(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        let found = self.places.binary_search_by(|&at| self.at(at).0.cmp(name.as_ref()));
        found.ok().map(|found| self.at(self.places[found]).1)
    }

    /// Returns the name of each stream and its next index at the checkpoint, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.places.iter().map(|&at| self.at(at))
    }

    /// Adds a chunk. Returns `None` if it does not make sense, or is one of another attempt.
    fn push(&mut self, chunk: &[u8]) -> Option<()> {
        let chunk = self.info.open_chunk(chunk)?;
        let mut from = Decoder(chunk);
        while !from.0.is_empty() {
            self.places.push(self.bytes.len() + chunk.len() - from.0.len());
            from.bytes()?;
            from.index()?;
        }
        self.bytes.extend_from_slice(chunk);
        Some(())
    }

    fn at(&self, place: usize) -> (&[u8], u64) {
        let mut from = Decoder(&self.bytes[place..]);
        // `push` has decoded them before.
        (from.bytes().unwrap_or_default(), from.index().unwrap_or_default())
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Sharded {
    /// Makes a checkpoint: notes the next index of each stream of all shards under a name of 1 to
    /// 1024 bytes. It holds each change whose call returned before this one began, and none whose
    /// call begins after this one has returned. A change of another thread meanwhile is in it or
    /// not, each by itself, so a part of a batch can be in it: if that matters, let no thread apply
    /// batches meanwhile. Values are not in it, and the positions of consumers are values: after a
    /// return to a checkpoint, [`seek`](crate::Consumer::seek) each consumer to where the engine
    /// knows it was.
    ///
    /// Blocks for two or three device syncs in a row. One checkpoint is made at a time, and changes
    /// of streams go on meanwhile. Takes memory for a chunk of 64 KiB a shard and the streams
    /// behind one lock, a 1024th of all. Reads the entries of all other checkpoints, so
    /// [`prune`](Sharded::prune) from time to time.
    ///
    /// ```
    /// # use palisade_streams::{Options, Sharded};
    /// # fn main() -> palisade::Result<()> {
    /// # let disk: std::sync::Arc<dyn palisade::disk::Disk> =
    /// #     std::sync::Arc::new(palisade::disk::MemDisk::new());
    /// # let folders = ["/0", "/1"].map(|folder| (disk.clone(), folder));
    /// # let sharded = Sharded::open_on(folders, &Options::new())?;
    /// // Returns all streams to the last checkpoint, as an engine may do after a crash, and
    /// // deletes those that are younger. A stream that was deleted since is not brought back; if
    /// // one of the same name was made anew, only the engine can know.
    /// fn go_back(sharded: &Sharded) -> palisade::Result<()> {
    ///     let Some(last) = sharded.latest()? else { return Ok(()) };
    ///     for name in sharded.list() {
    ///         let Some(next) = last.next_index(&name) else {
    ///             sharded.delete(&name)?;
    ///             continue;
    ///         };
    ///         let stream = sharded.stream(&name)?;
    ///         // Not below the first entry, and not above the end, if it was truncated since.
    ///         let next = next.max(stream.first_index()?).min(stream.next_index()?);
    ///         stream.truncate_from(next)?;
    ///     }
    ///     sharded.sync()
    /// }
    ///
    /// let orders = sharded.create("orders")?;
    /// orders.append("two apples")?;
    /// sharded.checkpoint("monday")?;
    /// orders.append("one pear")?;
    /// sharded.create("returns")?;
    /// go_back(&sharded)?;
    /// assert_eq!((orders.next_index()?, sharded.list().len()), (1, 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Durability
    /// The checkpoint and all changes that it holds survive power loss. A crash before the call has
    /// returned leaves all of the checkpoint, or none.
    ///
    /// # Errors
    /// `InvalidArgument`: the name is empty or too long. `AlreadyExists`: there is a checkpoint of
    /// this name. `Corrupt`: chunks of other checkpoints are missing in a shard, or are those of an
    /// attempt that failed, for example in a shard that was restored. Else as
    /// [`Stream::append`](crate::Stream::append) and [`Ticket::wait`], for one of the shards. If
    /// only the last wait failed, the checkpoint is there and not durable yet:
    /// [`checkpoints`](Sharded::checkpoints) names it.
    ///
    /// [`Ticket::wait`]: crate::Ticket::wait
    pub fn checkpoint(&self, name: impl AsRef<[u8]>) -> Result<CheckpointInfo> {
        let name = name.as_ref();
        check_name(name)?;
        let set = &self.set;
        let _turn = set.turn.lock();
        let known = set.infos()?;
        if known.iter().any(|info| info.name == name) {
            let text = format!("there is a checkpoint {} already", quoted(name));
            let advice = "use another name; Sharded::prune removes the oldest checkpoints";
            return Err(Error::new(ErrorKind::AlreadyExists, text).with_advice(advice));
        }
        set.check_chunks(&known)?;
        set.truncate_leftovers(&known)?;
        let mark = set.draw_mark()?;
        let written = self.for_each(move |set, number| set.write_chunks(number, mark))?;
        let streams = written.iter().map(|(_, streams)| streams).sum();
        let chunks = written.into_iter().map(|(chunks, _)| chunks).collect();
        let mut info = CheckpointInfo { number: 0, name: name.to_vec(), streams, mark, chunks };
        info.number = set.checkpoints.commit(info.encode()).map_err(set.at(0))?;
        Ok(info)
    }

    /// Returns all checkpoints, the oldest first. Reads the entry of each.
    ///
    /// A checkpoint can be there whose call has not returned yet.
    ///
    /// # Errors
    /// As [`Stream::get`](crate::Stream::get).
    pub fn checkpoints(&self) -> Result<Vec<CheckpointInfo>> {
        self.set.infos()
    }

    /// Returns the checkpoint of this name, with the indexes of all of its streams. Reads all of
    /// its chunks into memory: see [`Checkpoint`].
    ///
    /// # Errors
    /// `NotFound`: there is none, or [`prune`](Sharded::prune) removes it meanwhile. `Corrupt`: it
    /// cannot be read. Else as [`Stream::get`](crate::Stream::get).
    pub fn load(&self, name: impl AsRef<[u8]>) -> Result<Checkpoint> {
        let name = name.as_ref();
        let found = self.set.infos()?.into_iter().find(|info| info.name == name);
        let checkpoint = found.map(|info| self.set.read(info)).transpose()?.flatten();
        checkpoint.ok_or_else(|| {
            let text = format!("there is no checkpoint {}", quoted(name));
            let advice = "Sharded::checkpoints names those that there are";
            Error::new(ErrorKind::NotFound, text).with_advice(advice)
        })
    }

    /// Returns the newest checkpoint, if there is one.
    ///
    /// # Errors
    /// As [`load`](Sharded::load), except `NotFound`.
    pub fn latest(&self) -> Result<Option<Checkpoint>> {
        // If a prune beside this call removed the newest one, it may have left a newer one.
        while let Some(info) = self.set.infos()?.pop() {
            if let Some(checkpoint) = self.set.read(info)? {
                return Ok(Some(checkpoint));
            }
        }
        Ok(None)
    }

    /// Removes all checkpoints but the newest `keep`. Returns how many it has removed. Also frees
    /// what crashes and failed calls have left. With 0 it reads no checkpoint, and so removes those
    /// that are damaged, too.
    ///
    /// Blocks for about one device sync, and while a checkpoint is made.
    ///
    /// # Durability
    /// The removal survives power loss. The keepers free the space later.
    ///
    /// # Errors
    /// `Corrupt`: chunks of the checkpoints that stay are missing in a shard; nothing was removed.
    /// Else as [`Stream::truncate_before`](crate::Stream::truncate_before) and [`Streams::sync`],
    /// for one of the shards. The checkpoints can be gone then: a crash may bring them back, whole.
    pub fn prune(&self, keep: usize) -> Result<usize> {
        let set = &self.set;
        let _turn = set.turn.lock();
        let count = usize::try_from(set.checkpoints.len()?).unwrap_or(usize::MAX);
        let known = if keep == 0 { Vec::new() } else { set.infos()? };
        let kept = &known[known.len().saturating_sub(keep)..];
        set.check_chunks(kept)?;
        let first = match kept.first() {
            Some(info) => info.number,
            None => set.checkpoints.next_index()?,
        };
        set.checkpoints.truncate_before(first).map_err(set.at(0))?;
        set.truncate_leftovers(kept)?;
        Ok(count.saturating_sub(kept.len()))
    }
}

impl Set {
    /// Returns all checkpoints, the oldest first.
    fn infos(&self) -> Result<Vec<CheckpointInfo>> {
        let mut infos = Vec::new();
        for entry in self.checkpoints.range(..).map_err(self.at(0))? {
            let entry = match entry {
                Ok(entry) => entry,
                // A prune beside this call has removed it.
                Err(error) if error.kind() == ErrorKind::Truncated => continue,
                Err(error) => return Err(self.at(0)(error)),
            };
            let info = CheckpointInfo::decode(entry.index(), entry.data(), self.shards.len());
            infos.push(info.ok_or_else(|| self.at(0)(corrupt()))?);
        }
        Ok(infos)
    }

    /// Checks that each shard has the chunks of the checkpoints in `kept`. A shard that was
    /// restored from an older backup lacks some.
    fn check_chunks(&self, kept: &[CheckpointInfo]) -> Result<()> {
        let (Some(first), Some(last)) = (kept.first(), kept.last()) else { return Ok(()) };
        for (number, chunks) in self.chunks.iter().enumerate() {
            let (begin, end) = self.shards[number].shared().bounds(chunks.id())?;
            if first.chunks[number].start < begin || last.chunks[number].end > end {
                return Err(self.at(number)(corrupt()));
            }
            self.check_last_chunk(number, kept).map_err(self.at(number))?;
        }
        Ok(())
    }

    /// Checks that the last chunk of shard `number` is one of a checkpoint in `kept`. The chunks of
    /// a failed attempt lie above those of all checkpoints. So if a restored shard has any of them
    /// in the place of later chunks, it has one there.
    fn check_last_chunk(&self, number: usize, kept: &[CheckpointInfo]) -> Result<()> {
        let mut with_chunks = kept.iter().rev().filter(|info| !info.chunks[number].is_empty());
        let Some(last) = with_chunks.next() else { return Ok(()) };
        let chunk = self.chunks[number].get(last.chunks[number].end - 1)?;
        last.open_chunk(chunk.data()).map(drop).ok_or_else(corrupt)
    }

    /// Truncates the chunks that belong to none of the checkpoints in `kept`, which are all.
    fn truncate_leftovers(&self, kept: &[CheckpointInfo]) -> Result<()> {
        // The truncation of the entries must be durable first: else a crash brings back an entry
        // whose chunks are gone.
        self.shards[0].sync().map_err(self.at(0))?;
        for (number, chunks) in self.chunks.iter().enumerate() {
            let next = chunks.next_index()?;
            let start = kept.first().map_or(next, |info| info.chunks[number].start);
            let end = kept.last().map_or(next, |info| info.chunks[number].end);
            chunks.truncate_before(start).map_err(self.at(number))?;
            chunks.truncate_from(end).map_err(self.at(number))?;
        }
        Ok(())
    }

    /// Returns the mark of a new attempt.
    fn draw_mark(&self) -> Result<u64> {
        let failed = |error| self.at(0)(Error::io("draw the mark of a checkpoint", error));
        self.disk.host().random().map_err(failed)
    }

    /// Appends the chunks of shard `number`, and makes them durable with all that they hold.
    /// Returns their indexes, and how many streams there are.
    fn write_chunks(&self, number: usize, mark: u64) -> Result<(Range<u64>, u64)> {
        let (shard, chunks) = (&self.shards[number], &self.chunks[number]);
        let longest = shard.log().max_record_bytes() - MAX_ENTRY_HEADER_BYTES;
        let most = MAX_CHUNK_BYTES.min(longest);
        let first = chunks.next_index()?;
        let (mut chunk, mut streams) = (Vec::new(), 0);
        chunk.number(mark);
        let mark_bytes = chunk.len();
        for stripe in 0..STRIPES {
            for (name, next) in positions(shard, stripe) {
                if chunk.len() + name.len() + MAX_NUMBERS_BYTES > most {
                    chunks.append(&chunk)?;
                    chunk.truncate(mark_bytes);
                }
                chunk.bytes(&name);
                chunk.number(next);
                streams += 1;
            }
        }
        if chunk.len() > mark_bytes {
            chunks.append(&chunk)?;
        }
        shard.sync()?;
        Ok((first..chunks.next_index()?, streams))
    }

    /// Reads a checkpoint; `None` if a prune beside this call has removed it.
    fn read(&self, info: CheckpointInfo) -> Result<Option<Checkpoint>> {
        let ranges = info.chunks.clone();
        let mut all = Checkpoint { info, bytes: Vec::new(), places: Vec::new() };
        for (number, range) in ranges.into_iter().enumerate() {
            let count = range.end.saturating_sub(range.start);
            let mut found = 0;
            for chunk in self.chunks[number].range(range).map_err(self.at(number))? {
                let pushed = match chunk {
                    Ok(chunk) => all.push(chunk.data()).ok_or_else(corrupt),
                    Err(error) if error.kind() == ErrorKind::Truncated => break,
                    Err(error) => Err(error),
                };
                pushed.map_err(self.at(number))?;
                found += 1;
            }
            if found < count {
                let is_there = self.infos()?.iter().any(|info| info.number == all.info.number);
                return if is_there { Err(self.at(number)(corrupt())) } else { Ok(None) };
            }
        }
        if all.places.len() as u64 != all.info.streams {
            return Err(corrupt());
        }
        let mut places = std::mem::take(&mut all.places);
        places.sort_unstable_by(|&one, &other| all.at(one).0.cmp(all.at(other).0));
        all.places = places;
        all.bytes.shrink_to_fit();
        all.places.shrink_to_fit();
        Ok(Some(all))
    }
}

/// Returns the name and the next index of each stream in a stripe.
fn positions(shard: &Streams, stripe: u32) -> Vec<(Vec<u8>, u64)> {
    let stripe = shard.shared().directory.lock(stripe);
    let named = stripe.slots().filter(|(_, slot)| slot.is_named());
    let all = named.map(|(id, slot)| (stripe.name_of(id), slot.next()));
    let others = all.filter(|(name, _)| !is_reserved(name));
    others.map(|(name, next)| (name.to_vec(), next)).collect()
}

fn check_name(name: &[u8]) -> Result<()> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let text = format!("a checkpoint's name has 1 to {MAX_NAME_BYTES} bytes, not {}", name.len());
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

fn corrupt() -> Error {
    let error =
        Error::new(ErrorKind::Corrupt, "a part of a checkpoint is missing or cannot be read");
    let advice = "restore all shards from backups of one time, or remove the checkpoints with \
                  Sharded::prune(0)";
    error.with_advice(advice)
}
