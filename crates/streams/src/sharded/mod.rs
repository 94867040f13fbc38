//! A set of logs of streams on several folders or disks: *shards*.
//!
//! One log has one tail, and one sync at a time. A set has a log for each shard, and a hash of the
//! name chooses the shard of a stream: `route`. `open` makes and opens a set, and `membership` is
//! what each shard knows of it. Checkpoints over all shards are in `checkpoint`, and `at_once` has
//! the threads.

mod at_once;
mod checkpoint;
mod membership;
mod open;
mod route;

use std::path::PathBuf;
use std::sync::Arc;

use palisade::disk::Disk;
use palisade::{Error, ErrorKind, Result};
use palisade_store::sync::Mutex;

pub use self::checkpoint::{Checkpoint, CheckpointInfo};
use self::membership::{CHECKPOINTS, SHARD, is_reserved};
use self::open::at_shard;
use crate::batch::Batch;
use crate::stats::{Pinned, Stats};
use crate::streams::{Stream, Streams};
use crate::ticket::Ticket;

/// The most shards of a set.
pub const MAX_SHARDS: usize = 256;

/// A set of logs of streams: each stream lies in one of them, its *shard*. A handle is cheap to
/// clone, and each clone is the same set.
///
/// A stable hash of the name chooses the shard: see [`shard_of`](Sharded::shard_of). A stream of a
/// set is a [`Stream`], and its calls are those of a stream in one log. A wait for a ticket makes
/// all earlier changes of its shard durable, and no others. A crash leaves a prefix of the changes
/// of each shard; [`checkpoint`](Sharded::checkpoint) notes where all streams are.
///
/// Names that begin with a zero byte and `palisade` are *reserved* for the set.
///
/// ```
/// # fn main() -> palisade::Result<()> {
/// use palisade::disk::{Disk, MemDisk};
/// use palisade_streams::{Options, Sharded};
/// use std::sync::Arc;
///
/// let disk: Arc<dyn Disk> = Arc::new(MemDisk::new()); // or one for each shard
/// let folders = ["/log 0", "/log 1"].map(|folder| (Arc::clone(&disk), folder));
/// let sharded = Sharded::open_on(folders, &Options::new())?;
/// let orders = sharded.stream_or_create("orders")?;
/// orders.append("two apples")?;
/// sharded.checkpoint("monday")?; // survives power loss, with all that it names
///
/// let monday = sharded.load("monday")?;
/// assert_eq!(monday.next_index("orders"), Some(1));
/// # drop(orders);
/// sharded.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sharded {
    set: Arc<Set>,
}

/// What all handles of an open set share.
#[derive(Debug)]
struct Set {
    shards: Vec<Streams>,
    folders: Vec<PathBuf>,
    /// The disk of shard 0, which draws the marks of checkpoints.
    disk: Arc<dyn Disk>,
    /// The reserved stream of each shard, whose entries are chunks of checkpoints.
    chunks: Vec<Stream>,
    /// The reserved stream of shard 0 that has an entry for each checkpoint.
    checkpoints: Stream,
    /// Held while a checkpoint is made, or checkpoints are removed.
    turn: Mutex<()>,
}

impl Set {
    fn new(shards: Vec<Streams>, folders: Vec<PathBuf>, disk: Arc<dyn Disk>) -> Result<Set> {
        let chunks = shards.iter().map(|shard| shard.stream(SHARD)).collect::<Result<_>>()?;
        let checkpoints = shards[0].stream(CHECKPOINTS)?;
        Ok(Set { shards, folders, disk, chunks, checkpoints, turn: Mutex::new(()) })
    }

    /// Adds to an error which shard it is about.
    fn at(&self, number: usize) -> impl FnOnce(Error) -> Error {
        move |error| at_shard(error, number, &self.folders[number])
    }
}

impl Sharded {
    /// Returns the shards, in the order of the folders: for calls of one log, such as
    /// [`Streams::open_report`], [`Streams::tail_all`] or [`Streams::log`].
    ///
    /// Do not create or delete streams with them: the set does not find a stream in another shard
    /// than that of its name. Do not change the streams with reserved names.
    #[must_use]
    pub fn shards(&self) -> &[Streams] {
        &self.set.shards
    }

    /// Returns the number of the shard that has, or would have, the stream of this name.
    ///
    /// The shard depends on the *key* only: the name, or if the name has a `{` and later a `}`, the
    /// bytes between the first `{` and the next `}`, unless there are none. So `{tenant 7}orders`
    /// and `{tenant 7}invoices` lie in one shard, and a batch can change both.
    ///
    /// The hash is the same in all versions: FNV-1a over the bytes of the key, with 64 bits; then
    /// `h = (h ^ h >> 32) * 0xd6e8feb86659fd93`, modulo 2^64, and `h = h ^ h >> 32`. The shard is
    /// `((h >> 32) * shards) >> 32`. For example, the hash of `orders` is `0xcba2f20281643578`: of
    /// three shards, number 2 has this stream.
    #[must_use]
    pub fn shard_of(&self, name: impl AsRef<[u8]>) -> usize {
        route::shard_of(name.as_ref(), self.set.shards.len())
    }

    /// Makes a stream in the shard of its name, as [`Streams::create`] does.
    ///
    /// # Errors
    /// `InvalidArgument`: also if the name is reserved. Else as [`Streams::create`].
    pub fn create(&self, name: impl AsRef<[u8]>) -> Result<Stream> {
        self.with_shard_of(name.as_ref(), |shard| shard.create(name.as_ref()))
    }

    /// Makes streams, and waits once for the streams of each shard.
    ///
    /// # Errors
    /// As [`create`](Sharded::create). The streams before the one that failed exist then, but the
    /// call has not waited for them: call [`sync`](Sharded::sync).
    pub fn create_many<N: AsRef<[u8]>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Stream>> {
        let make = |name: N| {
            self.with_shard_of(name.as_ref(), |shard| shard.create_unsynced(name.as_ref()))
        };
        let made = names.into_iter().map(make).collect::<Result<_>>()?;
        self.sync()?;
        Ok(made)
    }

    /// Returns the stream of this name.
    ///
    /// # Errors
    /// `NotFound`: there is none. `InvalidArgument`: the name is reserved.
    pub fn stream(&self, name: impl AsRef<[u8]>) -> Result<Stream> {
        self.with_shard_of(name.as_ref(), |shard| shard.stream(name.as_ref()))
    }

    /// Returns the stream of this name, and makes it if there is none, as
    /// [`Streams::stream_or_create`] does.
    ///
    /// # Errors
    /// As [`create`](Sharded::create).
    pub fn stream_or_create(&self, name: impl AsRef<[u8]>) -> Result<Stream> {
        self.with_shard_of(name.as_ref(), |shard| shard.stream_or_create(name.as_ref()))
    }

    /// Returns the names of all streams, in no order, as [`Streams::list`] does.
    #[must_use]
    pub fn list(&self) -> Vec<Vec<u8>> {
        let names = self.set.shards.iter().flat_map(Streams::list);
        names.filter(|name| !is_reserved(name)).collect()
    }

    /// Deletes the stream of this name, as [`Streams::delete`] does.
    ///
    /// # Errors
    /// `InvalidArgument`: the name is reserved. Else as [`Streams::delete`].
    pub fn delete(&self, name: impl AsRef<[u8]>) -> Result<Ticket<'_>> {
        self.with_shard_of(name.as_ref(), |shard| shard.delete(name.as_ref()))
    }

    /// Begins a batch in the shard of this name. A batch is atomic within one shard: all of its
    /// streams must lie there, as names with the same key do ([`shard_of`](Sharded::shard_of)).
    /// For a stream of another shard, [`Batch::apply`] returns `InvalidArgument`.
    ///
    /// ```
    /// # use palisade_streams::{Options, Sharded};
    /// # fn main() -> palisade::Result<()> {
    /// # let disk: std::sync::Arc<dyn palisade::disk::Disk> =
    /// #     std::sync::Arc::new(palisade::disk::MemDisk::new());
    /// # let folders = ["/0", "/1"].map(|folder| (disk.clone(), folder));
    /// # let sharded = Sharded::open_on(folders, &Options::new())?;
    /// let orders = sharded.create("{tenant 7}orders")?;
    /// let invoices = sharded.create("{tenant 7}invoices")?;
    /// let batch = sharded.batch("{tenant 7}");
    /// batch.append(&orders, b"two apples").append(&invoices, b"1.20").apply()?.wait()?;
    /// # Ok(()) }
    /// ```
    pub fn batch(&self, name: impl AsRef<[u8]>) -> Batch<'_> {
        self.set.shards[self.shard_of(name)].batch()
    }

    /// Waits until everything that was changed before the call survives power loss, in all shards.
    /// Syncs the shards at the same time.
    ///
    /// # Errors
    /// As [`Streams::sync`], for one of the shards. The others are synced.
    pub fn sync(&self) -> Result<()> {
        self.for_each(|set, number| set.shards[number].sync()).map(drop)
    }

    /// Returns what keeps the log of each shard from being released, with the number of the shard:
    /// see [`Streams::pinned`]. A reserved name is that of a stream of the set, whose
    /// entries are those of checkpoints: [`prune`](Sharded::prune) them.
    #[must_use]
    pub fn pinned(&self) -> Vec<(usize, Pinned)> {
        let shards = self.set.shards.iter().enumerate();
        shards.flat_map(|(n, shard)| shard.pinned().into_iter().map(move |one| (n, one))).collect()
    }

    /// Returns the sums of the numbers of all shards, without the set's own streams, and one of the
    /// keepers' errors. Blocks as [`Streams::stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut all = Stats::default();
        for shard in &self.set.shards {
            let Stats { streams, entries, segments, moved_bytes, released_bytes, keeper_error } =
                shard.stats();
            all.streams += streams;
            all.entries += entries;
            all.segments += segments;
            all.moved_bytes += moved_bytes;
            all.released_bytes += released_bytes;
            all.keeper_error = all.keeper_error.or(keeper_error);
        }
        let own = self.set.chunks.iter().chain([&self.set.checkpoints]);
        for stream in own {
            all.streams = all.streams.saturating_sub(1);
            all.entries = all.entries.saturating_sub(stream.len().unwrap_or_default());
        }
        all
    }

    /// Does one step of the keeper's work in each shard, one after the other: see
    /// [`Streams::maintain`]. Returns whether there may be more to do.
    ///
    /// # Errors
    /// As [`Streams::maintain`], for the first shard that fails. The others have done their steps.
    pub fn maintain(&self) -> Result<bool> {
        let shards = self.set.shards.iter().enumerate();
        let steps: Vec<_> =
            shards.map(|(n, shard)| shard.maintain().map_err(self.set.at(n))).collect();
        steps.into_iter().try_fold(false, |has_more, step| Ok(has_more | step?))
    }

    /// Closes all shards, at the same time, as [`Streams::close`] does.
    ///
    /// # Errors
    /// As [`Streams::close`], for one of the shards. The others are closed.
    pub fn close(&self) -> Result<()> {
        self.for_each(|set, number| set.shards[number].close()).map(drop)
    }

    fn with_shard_of<'s, T>(
        &'s self,
        name: &[u8],
        call: impl FnOnce(&'s Streams) -> Result<T>,
    ) -> Result<T> {
        if is_reserved(name) {
            let text = "names that begin with a zero byte and `palisade` are reserved for the set";
            let advice = "begin the name with other bytes";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_advice(advice));
        }
        let number = self.shard_of(name);
        call(&self.set.shards[number]).map_err(self.set.at(number))
    }

    /// Runs `work` for all shards at the same time. Returns an error after all have ended.
    fn for_each<T: Send + 'static>(
        &self,
        work: impl Fn(&Set, usize) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        let set = Arc::clone(&self.set);
        let results = at_once::at_once(set.shards.len(), move |number| {
            work(&set, number).map_err(set.at(number))
        });
        results.into_iter().collect()
    }
}
