//! Random calls of a set over several process runs, with deaths and losses of power, against a
//! model of maps.
//!
//! Each shard is totally ordered, so what an open finds in it is what its model was after some
//! change: the last one that was durable, or a later one. An acknowledged checkpoint is found as
//! it was made, and one of a call that failed is whole or absent.

use std::collections::BTreeMap;

use palisade::{ErrorKind, Result};
use palisade_streams::Sharded;

use crate::dice::Dice;
use crate::disks::Disks;
use crate::model::{Change, KEYS, Model, apply, read, summary};
use crate::seeds::{Seeded, sweep};

const SEEDS: u64 = 100;
const SHARDS: u64 = 3;
const PROCESS_RUNS: u64 = 4;
const CHECKPOINTS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

#[derive(Debug)]
struct Noted {
    name: Vec<u8>,
    positions: BTreeMap<Vec<u8>, u64>,
}

#[derive(Debug)]
struct Session {
    disks: Disks,
    dice: Dice,
    /// For each shard: the model after each change since the last one that is durable.
    shards: Vec<Vec<Model>>,
    /// The checkpoints, the oldest first.
    checkpoints: Vec<Noted>,
    /// So many of the first ones may be gone.
    may_be_gone: usize,
    /// Whether the last one may be absent.
    may_be_absent: bool,
    crashes: u64,
    loaded: u64,
}

impl Session {
    fn read(sharded: &Sharded) -> Result<Vec<Model>> {
        let read_one = |shard| {
            let mut model = read(shard)?;
            model.retain(|name, _| !name.starts_with(b"\0palisade"));
            Ok(model)
        };
        sharded.shards().iter().map(read_one).collect()
    }

    /// Checks what an open found, and goes on from there.
    fn check_opened(&mut self, sharded: &Sharded) -> Result<()> {
        for (states, found) in self.shards.iter_mut().zip(Session::read(sharded)?) {
            let Some(at) = states.iter().rposition(|state| *state == found) else {
                let states: Vec<_> = states.iter().map(summary).collect();
                panic!("found {}\nwhich is none of\n{}", summary(&found), states.join("\n"));
            };
            *states = vec![states.swap_remove(at)];
        }
        let found: Vec<_> = sharded.checkpoints()?.into_iter().map(|info| info.name).collect();
        let known = self.checkpoints.iter().map(|noted| noted.name.clone()).collect::<Vec<_>>();
        let last = known.len() - usize::from(self.may_be_absent);
        let is_it =
            |gone: &usize| found == known[*gone..] || *gone <= last && found == known[*gone..last];
        let gone = [0, self.may_be_gone].into_iter().find(is_it);
        let gone = gone.unwrap_or_else(|| panic!("{found:?} of {known:?}, {self:?}"));
        self.checkpoints.drain(..gone);
        self.checkpoints.truncate(found.len());
        (self.may_be_gone, self.may_be_absent) = (0, false);
        (0..found.len()).try_for_each(|at| self.load(sharded, at))
    }

    fn load(&mut self, sharded: &Sharded, at: usize) -> Result<()> {
        let noted = &self.checkpoints[at];
        let loaded = sharded.load(&noted.name)?;
        let found: BTreeMap<_, _> =
            loaded.iter().map(|(name, next)| (name.to_vec(), next)).collect();
        assert_eq!(found, noted.positions);
        self.loaded += 1;
        Ok(())
    }

    fn model(&self, shard: usize) -> &Model {
        self.shards[shard].last().expect("there is always one")
    }

    fn note(&mut self, shard: usize, name: &[u8], change: &Change) {
        let mut next = self.model(shard).clone();
        apply(&mut next, name, change);
        self.shards[shard].push(next);
    }

    fn note_durable(&mut self, shard: usize) {
        let states = &mut self.shards[shard];
        states.drain(..states.len() - 1);
    }

    fn note_all_durable(&mut self) {
        (0..SHARDS as usize).for_each(|shard| self.note_durable(shard));
    }

    /// Does one random thing. An error of a disk ends the process run.
    fn step(&mut self, sharded: &Sharded) -> Result<()> {
        match self.dice.below(40) {
            0 => {
                sharded.sync()?;
                self.note_all_durable();
            }
            1..4 => drop(sharded.maintain()?),
            4 | 5 => self.checkpoint(sharded)?,
            6 => self.prune(sharded)?,
            7 if !self.checkpoints.is_empty() => {
                let at = self.dice.below(self.checkpoints.len() as u64) as usize;
                self.load(sharded, at)?;
            }
            8..11 => self.batch(sharded)?,
            _ => self.change(sharded)?,
        }
        Ok(())
    }

    fn checkpoint(&mut self, sharded: &Sharded) -> Result<()> {
        let name = self.dice.pick(&CHECKPOINTS);
        if self.checkpoints.iter().any(|noted| noted.name == name) {
            // It reads the entries, so the disk can die first.
            let refused = sharded.checkpoint(name).expect_err("there is one");
            return match refused.kind() {
                ErrorKind::AlreadyExists => Ok(()),
                _ => Err(refused),
            };
        }
        let all = (0..SHARDS as usize).flat_map(|shard| self.model(shard));
        let positions = all.map(|(name, stream)| (name.clone(), stream.next)).collect();
        self.checkpoints.push(Noted { name: name.to_vec(), positions });
        self.may_be_absent = true;
        sharded.checkpoint(name)?;
        self.may_be_absent = false;
        self.note_all_durable();
        Ok(())
    }

    fn prune(&mut self, sharded: &Sharded) -> Result<()> {
        let keep = self.dice.below(4) as usize;
        let gone = self.checkpoints.len().saturating_sub(keep);
        self.may_be_gone = gone;
        assert_eq!(sharded.prune(keep)?, gone);
        self.may_be_gone = 0;
        self.checkpoints.drain(..gone);
        Ok(())
    }

    /// Two entries for streams with the same key.
    fn batch(&mut self, sharded: &Sharded) -> Result<()> {
        let key = self.dice.below(4);
        let names = ["x", "y"].map(|part| format!("{{{key}}}{part}").into_bytes());
        let shard = sharded.shard_of(&names[0]);
        let is_there = |name: &Vec<u8>| self.model(shard).contains_key(name);
        if !names.iter().all(is_there) {
            return names.iter().try_for_each(|name| self.make(sharded, name));
        }
        let mut next = self.model(shard).clone();
        let data = vec![9; self.dice.below(400) as usize];
        names.iter().for_each(|name| apply(&mut next, name, &Change::Append(data.clone())));
        self.shards[shard].push(next);
        let streams = [sharded.stream(&names[0])?, sharded.stream(&names[1])?];
        let batch = sharded.batch(&names[0]).append(&streams[0], &data).append(&streams[1], &data);
        if self.dice.once_in(2) {
            batch.apply()?.wait()?;
            self.note_durable(shard);
        } else {
            batch.apply()?;
        }
        Ok(())
    }

    fn make(&mut self, sharded: &Sharded, name: &[u8]) -> Result<()> {
        let shard = sharded.shard_of(name);
        if self.model(shard).contains_key(name) {
            let refused = sharded.create(name).expect_err("there is one");
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            return Ok(());
        }
        self.note(shard, name, &Change::Create);
        sharded.create(name)?;
        self.note_durable(shard);
        Ok(())
    }

    fn change(&mut self, sharded: &Sharded) -> Result<()> {
        let name = format!("stream {}", self.dice.below(9)).into_bytes();
        let shard = sharded.shard_of(&name);
        let Some(known) = self.model(shard).get(&name).cloned() else {
            return self.make(sharded, &name);
        };
        let len = known.next - known.first;
        let change = match self.dice.below(16) {
            0 => Change::Delete,
            1 => Change::From(known.first + self.dice.below(len + 1)),
            2..6 => Change::Before(known.first + self.dice.below(len + 1)),
            6 => Change::Put(KEYS[0].to_vec(), Some(vec![7; self.dice.below(50) as usize])),
            _ => Change::Append(vec![self.dice.next() as u8; self.dice.below(1500) as usize]),
        };
        self.note(shard, &name, &change);
        let stream = sharded.stream(&name)?;
        let ticket = match &change {
            Change::Append(data) => stream.append(data)?,
            Change::Before(first) => stream.truncate_before(*first)?,
            Change::From(next) => stream.truncate_from(*next)?,
            Change::Put(key, value) => stream.put(key, value.as_deref().unwrap_or_default())?,
            Change::Delete => sharded.delete(&name)?,
            Change::Create | Change::Consumer(..) | Change::RemoveConsumer(_) => {
                unreachable!("`make` makes streams")
            }
        };
        if self.dice.once_in(4) {
            ticket.wait()?;
            self.note_durable(shard);
        }
        Ok(())
    }

    /// One run of a process. One of the disks may die before the others.
    fn run_process(&mut self) {
        if self.dice.once_in(2) {
            let disk = &self.disks.0[self.dice.below(SHARDS) as usize];
            disk.crash_at(disk.calls() + 1 + self.dice.below(60));
        }
        let steps = self.dice.below(150);
        let opened = self.disks.open();
        let ran = opened.as_ref().map_err(Clone::clone).and_then(|sharded| {
            self.check_opened(sharded)?;
            (0..steps).try_for_each(|_| self.step(sharded))?;
            while sharded.maintain()? {}
            for (shard, found) in Session::read(sharded)?.iter().enumerate() {
                let model = self.model(shard);
                assert!(found == model, "{}\n{}", summary(found), summary(model));
            }
            Ok(())
        });
        if ran.is_err() {
            let is_dead = self.disks.0.iter().any(palisade::sim::SimDisk::is_dead);
            assert!(is_dead, "no call fails before a disk dies: {ran:?}");
            self.crashes += 1;
        }
        let loses_power = self.dice.once_in(3);
        self.disks.end(opened, loses_power);
    }
}

impl Seeded for Session {
    fn new(seed: u64) -> Session {
        Session {
            disks: Disks::new(seed, SHARDS),
            dice: Dice::new(seed),
            shards: vec![vec![Model::new()]; SHARDS as usize],
            checkpoints: Vec::new(),
            may_be_gone: 0,
            may_be_absent: false,
            crashes: 0,
            loaded: 0,
        }
    }

    fn run(&mut self) {
        (0..PROCESS_RUNS).for_each(|_| self.run_process());
        let sharded = self.disks.open().expect("nothing fails any more");
        self.check_opened(&sharded).expect("nothing fails any more");
    }

    fn describe(&self) -> String {
        let traces = self.disks.0.iter().map(|disk| disk.trace().join("\n"));
        traces.collect::<Vec<_>>().join("\n\n")
    }
}

#[test]
fn sets_with_crashes_are_what_the_model_says() {
    let sums = std::sync::Mutex::new((0, 0));
    sweep("-p palisade-streams --test sharded random", SEEDS, |session: Session| {
        let mut sums = sums.lock().unwrap();
        *sums = (sums.0 + session.crashes, sums.1 + session.loaded);
    });
    let (crashes, loaded) = sums.into_inner().unwrap();
    println!("{crashes} crashes, {loaded} checkpoints loaded");
    assert!(crashes > 0 && loaded > 0, "the histories leave out what they check");
}
