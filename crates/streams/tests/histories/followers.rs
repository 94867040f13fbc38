//! What another process reads beside the writer: readers, and followers of streams.

use std::collections::BTreeMap;

use palisade::sim::SimDisk;
use palisade::{ErrorKind, Result};
use palisade_streams::{Follow, Followed, Reader};

use crate::model::{Change, KEYS, Model, Stream};

/// The most followers at a time.
const MOST: usize = 3;

#[derive(Debug)]
struct Follower {
    name: Vec<u8>,
    follow: Follow,
    /// What it has returned, less what it has said to be removed.
    seen: BTreeMap<u64, Vec<u8>>,
    /// Whether the stream was deleted since.
    is_deleted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Followers(Vec<Follower>);

impl Followers {
    /// Begins to follow the stream from an entry that is there on, or from the end. Everything that
    /// the model has was written.
    pub(crate) fn begin(&mut self, reader: Reader, name: &[u8], from: u64) -> Result<()> {
        let follow = reader.follow(name, Some(from))?;
        assert_eq!(follow.position(), from);
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        let (name, seen) = (name.to_vec(), BTreeMap::new());
        self.0.push(Follower { name, follow, seen, is_deleted: false });
        Ok(())
    }

    pub(crate) fn end_all(&mut self) {
        self.0.clear();
    }

    /// Notes a change that is in the log.
    pub(crate) fn note(&mut self, name: &[u8], change: &Change) {
        for one in self.0.iter_mut().filter(|one| one.name == name) {
            one.is_deleted |= matches!(change, Change::Delete);
        }
    }

    /// Reads on with each follower, `most` times at most. Returns how many entries were read.
    pub(crate) fn read_on(&mut self, most: usize) -> Result<u64> {
        let mut entries = 0;
        let mut ended = Vec::new();
        for (at, one) in self.0.iter_mut().enumerate() {
            for _ in 0..most {
                match one.step() {
                    Ok(true) => entries += 1,
                    Ok(false) => break,
                    Err(error) if error.kind() == ErrorKind::NotFound && one.is_deleted => {
                        ended.push(at);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        ended.into_iter().rev().for_each(|at| drop(self.0.remove(at)));
        Ok(entries)
    }

    /// Checks that each follower has returned what its stream holds: the model was written, and all
    /// of it was read.
    pub(crate) fn check(&mut self, model: &Model) {
        // After a deletion a follower may have taken the next stream of the name for its own.
        self.0.retain(|one| !one.is_deleted);
        for Follower { name, follow, seen, .. } in &mut self.0 {
            let stream = &model[name];
            let shown = name.escape_ascii();
            assert_eq!(follow.position(), stream.next, "{shown}");
            *seen = seen.split_off(&stream.first);
            let mut entries = stream.entries.clone();
            // It did not begin at the first entry.
            let from = seen.first_key_value().map_or(stream.next, |(&first, _)| first);
            entries = entries.split_off(&from);
            assert!(*seen == entries, "{shown} has {}, not {}", short(&entries), short(seen));
        }
    }
}

impl Follower {
    /// Reads on. Returns false if there is nothing yet.
    fn step(&mut self) -> Result<bool> {
        let before = self.follow.position();
        match self.follow.next()? {
            None => return Ok(false),
            Some(Followed::Entry(entry)) => {
                assert_eq!(entry.index(), before);
                self.seen.insert(before, entry.into_data());
            }
            Some(Followed::Truncated { from, to }) => {
                assert!(from == before && to > from, "from {from} to {to} at {before}");
            }
            Some(Followed::Replaced { from, to }) => {
                assert!(to == before && from < to, "from {from} to {to} at {before}");
                self.seen.split_off(&from);
            }
            Some(other) => panic!("{other:?}"),
        }
        Ok(true)
    }
}

/// The index, the length and the first byte of each entry.
fn short(entries: &BTreeMap<u64, Vec<u8>>) -> String {
    let one =
        |(index, data): (&u64, &Vec<u8>)| format!("{index}: {}*{:?}", data.len(), data.first());
    entries.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Opens a reader in another process.
pub(crate) fn open(disk: &SimDisk) -> Result<Reader> {
    Reader::open_on(disk.as_disk(), "/log")
}

/// Reads all that the streams hold, as `model::read` does in the process that writes.
pub(crate) fn read(reader: &mut Reader) -> Result<Model> {
    let mut model = Model::new();
    for status in reader.streams() {
        let name = status.name;
        let entries = reader.entries(&name, ..)?;
        let entries = entries.map(|entry| entry.map(|one| (one.index(), one.into_data())));
        let entries = entries.collect::<Result<BTreeMap<_, _>>>()?;
        let values: BTreeMap<_, _> = reader.values(&name)?.into_iter().collect();
        assert!(values.keys().all(|key| KEYS.contains(&&key[..])), "{values:?}");
        let consumers = reader.consumers(&name)?.into_iter();
        let consumers = consumers.map(|one| (one.name, (one.acked, one.is_truncated))).collect();
        let (first, next) = (status.first, status.next);
        model.insert(name, Stream { first, next, entries, values, consumers });
    }
    Ok(model)
}
