//! Opens of a set.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade::disk::{Disk, OsDisk};
use palisade::{Error, ErrorKind, OpenMode, Result};

use super::at_once::at_once;
use super::membership::{Holding, Membership, judge};
use super::{MAX_SHARDS, Set, Sharded};
use crate::options::Options;
use crate::streams::Streams;

/// The folders of a set, in the order of the shards.
#[derive(Debug)]
struct Folders {
    all: Vec<(Arc<dyn Disk>, PathBuf)>,
    options: Options,
}

impl Sharded {
    /// Opens the set of shards in the folders `paths`, or makes it. Each shard is a log of streams
    /// in a folder of its own, so the folders can lie on several disks.
    ///
    /// `options` hold for each shard: for example, `max_bytes` limits each log by itself. An
    /// [`Archive`](palisade::Archive) serves one log, so a set cannot have one.
    ///
    /// The number and the order of the folders are fixed when the set is made. Opens all logs at
    /// the same time. If a crash ends the first open, the next one continues it.
    ///
    /// ```no_run
    /// use palisade_streams::{Options, Sharded};
    ///
    /// # fn main() -> palisade::Result<()> {
    /// let folders = ["/mnt/disk0/log", "/mnt/disk1/log", "/mnt/disk2/log"];
    /// let sharded = Sharded::open(folders, &Options::new())?;
    /// let orders = sharded.stream_or_create("orders")?;
    /// orders.commit("two apples")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Durability
    /// As [`Options::open`], for each shard. A new set survives power loss.
    ///
    /// # Errors
    /// An error of a shard names the shard and its folder.
    /// - `InvalidArgument`: no folder, more than [`MAX_SHARDS`], or the same path twice; else as
    ///   [`Options::open`].
    /// - `Mismatch`: the set was made with another number or another order of folders. Name them as
    ///   they were. The number cannot change.
    /// - `Foreign`: a folder has a shard of another set, or streams that belong to no set.
    /// - `NotFound`: a folder has no shard, and the set is complete: mount its disk, or restore it.
    ///   Or the open mode requires a set, and there is none.
    /// - `AlreadyExists`: the open mode requires that there is no set.
    /// - `Unsupported`: a newer version made the set.
    ///
    /// These errors change no stream. In the logs that exist, recovery and the keeper may have
    /// written.
    /// Else as [`Options::open`], for a shard.
    pub fn open<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &Options,
    ) -> Result<Sharded> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let on_files = |path| (Arc::clone(&disk), path);
        Sharded::open_on(paths.into_iter().map(on_files), options)
    }

    /// Opens the set of shards in folders of several disks, as [`open`](Sharded::open) does.
    ///
    /// # Errors
    /// As [`open`](Sharded::open).
    pub fn open_on<P: AsRef<Path>>(
        folders: impl IntoIterator<Item = (Arc<dyn Disk>, P)>,
        options: &Options,
    ) -> Result<Sharded> {
        let all = folders.into_iter().map(|(disk, path)| (disk, path.as_ref().to_path_buf()));
        let folders = Arc::new(Folders { all: all.collect(), options: options.clone() });
        let count = folders.all.len();
        if !(1..=MAX_SHARDS).contains(&count) {
            let text = format!("a set has 1 to {MAX_SHARDS} shards, and not {count}");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        folders.check_paths()?;
        let found = folders.for_each(|folders, number| folders.find(number))?;
        let is_complete = folders.judge(&found)?;
        let logs: Vec<_> = found.into_iter().map(|(streams, _)| streams).collect();
        let shards = match is_complete {
            true => logs.into_iter().flatten().collect(),
            false => folders.make(logs)?,
        };
        let paths = folders.all.iter().map(|(_, path)| path.clone()).collect();
        let disk = Arc::clone(&folders.all[0].0);
        Set::new(shards, paths, disk).map(|set| Sharded { set: Arc::new(set) })
    }
}

impl Folders {
    fn for_each<T: Send + 'static>(
        self: &Arc<Folders>,
        work: impl Fn(&Folders, usize) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        let folders = Arc::clone(self);
        let results = at_once(self.all.len(), move |number| {
            work(&folders, number).map_err(|error| at_shard(error, number, &folders.all[number].1))
        });
        results.into_iter().collect()
    }

    /// Refuses a path that is there twice, on one disk.
    fn check_paths(&self) -> Result<()> {
        for (number, (disk, path)) in self.all.iter().enumerate() {
            let is_same =
                |(of, other): &(Arc<dyn Disk>, PathBuf)| other == path && Arc::ptr_eq(of, disk);
            if self.all[..number].iter().any(is_same) {
                let text = format!("shard {number} has the folder {} of another", path.display());
                let advice = "name a folder of its own for each shard";
                return Err(Error::new(ErrorKind::InvalidArgument, text).with_advice(advice));
            }
        }
        Ok(())
    }

    fn open(&self, number: usize, mode: OpenMode) -> Result<Streams> {
        let (disk, path) = &self.all[number];
        self.options.clone().with_open_mode(mode).open_on(Arc::clone(disk), path)
    }

    /// Opens the log of a shard if there is one. Makes nothing.
    fn find(&self, number: usize) -> Result<(Option<Streams>, Holding)> {
        match self.open(number, OpenMode::MustExist) {
            Ok(streams) => {
                let holding = Holding::of(&streams)?;
                Ok((Some(streams), holding))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((None, Holding::Nothing)),
            Err(error) => Err(error),
        }
    }

    /// Decides whether what the folders have is a complete set.
    fn judge(&self, found: &[(Option<Streams>, Holding)]) -> Result<bool> {
        let holdings: Vec<_> = found.iter().map(|(_, holding)| *holding).collect();
        let first = found[0].0.as_ref().map(|streams| streams.log().uuid());
        let is_complete = judge(&holdings, first)
            .map_err(|(number, error)| at_shard(error, number, &self.all[number].1))?;
        check_mode(self.options.open_mode(), is_complete).map(|()| is_complete)
    }

    /// Makes the set, or what a crash has left to make. The steps are those of `membership`.
    fn make(self: &Arc<Folders>, logs: Vec<Option<Streams>>) -> Result<Vec<Streams>> {
        let count = logs.len();
        let found = self.for_each(move |folders, number| {
            let streams = match &logs[number] {
                Some(streams) => streams.clone(),
                None => folders.open(number, OpenMode::CreateIfMissing)?,
            };
            let holding = Holding::of(&streams)?;
            Ok((Some(streams), holding))
        })?;
        // Another process may have made a log, or the set, since the first look.
        let is_complete = self.judge(&found)?;
        let shards: Vec<_> = found.into_iter().filter_map(|(streams, _)| streams).collect();
        if is_complete {
            return Ok(shards);
        }
        let set = shards[0].log().uuid();
        let write = move |shards: &[Streams], number| {
            Membership { set, count, number }.write(&shards[number])
        };
        let all = shards.clone();
        self.for_each(move |_, number| if number > 0 { write(&all, number) } else { Ok(()) })?;
        write(&shards, 0).map_err(|error| at_shard(error, 0, &self.all[0].1))?;
        Ok(shards)
    }
}

fn check_mode(mode: OpenMode, is_complete: bool) -> Result<()> {
    let (kind, text) = match (mode, is_complete) {
        (OpenMode::CreateNew, true) => (ErrorKind::AlreadyExists, "there is a set of shards"),
        (OpenMode::MustExist, false) => (ErrorKind::NotFound, "there is no set of shards"),
        _ => return Ok(()),
    };
    Err(Error::new(kind, text))
}

/// Adds to an error which shard it is about.
pub(crate) fn at_shard(error: Error, number: usize, folder: &Path) -> Error {
    let error = error.within(&format!("shard {number}"));
    if error.path().is_some() { error } else { error.at_path(folder) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use palisade::disk::MemDisk;

    use super::*;

    fn folders() -> Arc<Folders> {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let on_disk = |path: &str| (Arc::clone(&disk), PathBuf::from(path));
        let options = Options::new().background(false);
        Arc::new(Folders { all: ["/0", "/1"].map(on_disk).into(), options })
    }

    /// Checks that an open refuses the log that another process makes in a folder after the open
    /// has looked at the folder.
    #[test]
    fn a_log_that_appears_after_the_first_look_is_judged() {
        let folders = folders();
        let other = folders.open(1, OpenMode::CreateNew).unwrap();
        other.create("mine").unwrap();
        drop(other);
        let refused = folders.make(vec![None, None]).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Foreign);
        assert!(refused.to_string().starts_with("shard 1: "), "{refused}");
        assert_eq!(folders.open(1, OpenMode::MustExist).unwrap().list(), [b"mine"]);
    }

    #[test]
    fn a_set_that_appears_after_the_first_look_is_opened() {
        let folders = folders();
        let uuid = |shards: Vec<Streams>| shards.iter().map(|s| s.log().uuid()).collect::<Vec<_>>();
        let made = uuid(folders.make(vec![None, None]).unwrap());
        assert_eq!(uuid(folders.make(vec![None, None]).unwrap()), made);
        let disk = Arc::clone(&folders.all[0].0);
        let options = folders.options.clone().with_open_mode(OpenMode::CreateNew);
        let all = ["/0", "/1"].map(|path| (Arc::clone(&disk), PathBuf::from(path))).into();
        let refused =
            Arc::new(Folders { all, options }).make(vec![None, None]).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    }
}
