//! A run of random calls on some groups in one log, over several process runs.
//!
//! The log is totally ordered. So an open must find all groups as the model was after some call:
//! after the last one that was acknowledged, or a later one. An append of several entries counts as
//! several calls.

use std::marker::PhantomData;

use palisade::sim::SimDisk;
use palisade_streams::{Options, Streams};
use tokio::runtime::Runtime;

use crate::dice::Dice;
use crate::line::{Group, Line, Outcome};
use crate::reached::Reached;
use crate::seeds::Seeded;

const NAMES: [&str; 3] = ["accounts", "orders", "stock"];
const PROCESS_RUNS: u64 = 5;
const SEGMENT_BYTES: u64 = 64 << 10;

type Model = [Group; NAMES.len()];

/// What the seeds of a plain `cargo test` must come to.
const KINDS: [&str; 12] = [
    "opens",
    "acknowledgements",
    "calls found that were not acknowledged",
    "calls lost that were not acknowledged",
    "entries truncated",
    "purges beyond the end",
    "purges that would leave a hole",
    "bytes released",
    "groups opened again",
    "groups begun above 0",
    "groups begun at another index after they lost all entries",
    "starts found without an entry after a crash",
];

#[derive(Debug)]
pub(crate) struct History<L> {
    disk: SimDisk,
    dice: Dice,
    /// The model after each call since the last one that was acknowledged, that one first.
    states: Vec<Model>,
    pub(crate) reached: Reached,
    line: PhantomData<L>,
}

impl<L: Line> History<L> {
    fn model(&mut self, group: usize) -> Group {
        self.states.last().expect("there is always one")[group].clone()
    }

    fn note(&mut self, group: usize, state: Group) {
        let mut next = self.states.last().expect("there is always one").clone();
        next[group] = state;
        self.states.push(next);
    }

    fn note_acknowledged(&mut self) {
        self.reached.add(1, "acknowledgements");
        self.states.drain(..self.states.len() - 1);
    }

    fn open(&mut self) -> palisade::Result<(Streams, Vec<L>)> {
        let log = palisade::Options::new().segment_bytes(SEGMENT_BYTES).buffer_bytes(16 << 10);
        let streams = Options::new().log(log).background(false).with_store(&self.disk)?;
        let stores = NAMES.iter().map(|name| L::open(&streams, name));
        let stores = stores.collect::<palisade::Result<Vec<_>>>()?;
        self.reached.add(1, "opens");
        Ok((streams, stores))
    }

    async fn check_opened(&mut self, stores: &mut [L]) -> Outcome<()> {
        let mut found = Model::default();
        for (group, store) in found.iter_mut().zip(&mut *stores) {
            *group = store.read_all().await?;
            self.check_places(store, group).await?;
        }
        let Some(at) = self.states.iter().rposition(|state| *state == found) else {
            panic!("found {found:?}\nwhich is none of\n{:?}", self.states);
        };
        self.reached.add(at as u64, "calls found that were not acknowledged");
        self.reached
            .add((self.states.len() - 1 - at) as u64, "calls lost that were not acknowledged");
        // The first call that was lost can be an append of which the log kept the start.
        for (group, lost) in self.states.get(at + 1).into_iter().flatten().enumerate() {
            let begun = lost.entries.first().map(|((_, index), _)| *index);
            let is_lost = found[group].is_unplaced() && begun.is_some_and(|index| index > 0);
            self.reached.add(
                u64::from(is_lost && stores[group].start()? == begun),
                "starts found without an entry after a crash",
            );
        }
        self.states = vec![found];
        Ok(())
    }

    /// Checks that entries lie at their indexes: a read from one of them finds it and those above.
    async fn check_places(&mut self, store: &mut L, model: &Group) -> Outcome<()> {
        let from = model.first() + self.dice.below(model.entries.len() as u64 + 1);
        let ids = model.entries.iter().map(|(id, _)| *id).filter(|(_, index)| *index >= from);
        assert_eq!(store.read_limited(from).await?, ids.collect::<Vec<_>>());
        Ok(())
    }

    async fn append(&mut self, store: &mut L, group: usize) -> Outcome<()> {
        let mut model = self.model(group);
        let mut next = model.next();
        if model.is_unplaced() {
            next = self.begin(store)?;
        }
        let mut entries = Vec::new();
        for _ in 0..=self.dice.below(4) {
            let id = (model.vote.unwrap_or(0), next);
            next += 1;
            // A power loss often tears a long first entry, and keeps the start before it.
            let repeats: &[usize] = if model.is_unplaced() { &[60] } else { &[0, 1, 5, 60] };
            let data = self.dice.next().to_string().repeat(self.dice.pick(repeats));
            model.entries.push((id, data.clone()));
            entries.push((id, data));
            self.note(group, model.clone());
        }
        let waits = self.dice.once_in(4);
        store.add(&entries, waits).await?;
        if waits {
            self.note_acknowledged();
        }
        Ok(())
    }

    /// Returns the index of the first entry of a group that has none and purged none. Some
    /// processes die soon after, so that the log can lose this entry and keep the start.
    fn begin(&mut self, store: &L) -> palisade::Result<u64> {
        let index = if self.dice.once_in(3) { 0 } else { self.dice.below(9) };
        self.reached.add(u64::from(index > 0), "groups begun above 0");
        if self.dice.once_in(4) {
            self.disk.crash_at(self.disk.calls() + 1 + self.dice.below(4));
        }
        let set = store.start()?.expect("nothing was purged");
        self.reached.add(
            u64::from(set > 0 && set != index),
            "groups begun at another index after they lost all entries",
        );
        Ok(index)
    }

    /// Truncates some entries or all, also from below the first entry if nothing was purged.
    async fn truncate(&mut self, store: &mut L, group: usize) -> Outcome<()> {
        let mut model = self.model(group);
        let mut from = model.first() + self.dice.below(model.entries.len() as u64 + 1);
        if model.purged.is_none() && self.dice.once_in(2) {
            from = self.dice.below(model.first() + 1);
        }
        let before = model.entries.len();
        model.entries.retain(|((_, index), _)| *index < from);
        self.reached.add((before - model.entries.len()) as u64, "entries truncated");
        self.note(group, model);
        store.remove_from(from).await?;
        self.note_acknowledged();
        Ok(())
    }

    /// Purges some entries or all. Some purges go beyond the end, as after an installed snapshot.
    async fn purge(&mut self, store: &mut L, group: usize) -> Outcome<()> {
        let mut model = self.model(group);
        let most = model.entries.len() as u64 + if self.dice.once_in(4) { 9 } else { 0 };
        if most == 0 {
            return Ok(());
        }
        let first = model.first();
        let begins_above = model.purged.is_none() && !model.entries.is_empty() && first > 0;
        let to = match begins_above && self.dice.once_in(3) {
            true => self.dice.below(first),
            false => first + self.dice.below(most),
        };
        if to + 1 < first {
            store.remove_to((7, to)).await.expect_err("it would leave a hole");
            self.reached.add(1, "purges that would leave a hole");
            return Ok(());
        }
        self.reached.add(u64::from(to >= model.next()), "purges beyond the end");
        let at_index = |(id, _): &&((u64, u64), String)| id.1 == to;
        let term = model.entries.iter().find(at_index).map_or(7, |(id, _)| id.0);
        model.purged = Some((term, to));
        model.entries.retain(|((_, index), _)| *index > to);
        self.note(group, model);
        store.remove_to((term, to)).await
    }

    async fn step(&mut self, streams: &Streams, stores: &mut [L]) -> Outcome<()> {
        let group = self.dice.below(NAMES.len() as u64) as usize;
        let store = &mut stores[group];
        match self.dice.below(20) {
            0 => self.truncate(store, group).await,
            1 | 2 => self.purge(store, group).await,
            3 => {
                let term = self.model(group).vote.unwrap_or(0) + 1;
                let model = Group { vote: Some(term), ..self.model(group) };
                self.note(group, model);
                store.set_vote(term).await?;
                self.note_acknowledged();
                Ok(())
            }
            4 | 5 => {
                let Some(last) = self.model(group).last() else { return Ok(()) };
                let model = Group { committed: Some(last), ..self.model(group) };
                self.note(group, model);
                store.set_committed(last).await
            }
            6 | 7 => {
                streams.maintain()?;
                Ok(())
            }
            8 => {
                streams.sync()?;
                self.note_acknowledged();
                Ok(())
            }
            // A `Raft` that ended is started anew on the same log.
            9 => {
                *store = L::open(streams, NAMES[group])?;
                self.reached.add(1, "groups opened again");
                self.note_acknowledged();
                Ok(())
            }
            10 => self.append_purged(store, group).await,
            _ => self.append(store, group).await,
        }
    }

    /// Appends an entry that is purged: a snapshot has it. openraft takes its acknowledgement for
    /// that of the purge.
    async fn append_purged(&mut self, store: &mut L, group: usize) -> Outcome<()> {
        let Some(purged) = self.model(group).purged else { return Ok(()) };
        store.add(&[(purged, "purged".into())], true).await?;
        self.note_acknowledged();
        Ok(())
    }

    /// One run of a process, which ends in one of several ways.
    async fn run_process(&mut self) {
        if self.dice.once_in(2) {
            self.disk.crash_at(self.disk.calls() + 1 + self.dice.below(150));
        }
        let steps = self.dice.below(200);
        let ended = match self.open() {
            Err(error) => Err(error.into()),
            Ok((streams, mut stores)) => {
                let ended = self.run_steps(&streams, &mut stores, steps).await;
                self.reached.add(streams.stats().released_bytes, "bytes released");
                ended
            }
        };
        if !self.disk.is_dead() {
            ended.expect("no call fails before the process dies");
        }
    }

    async fn run_steps(&mut self, streams: &Streams, stores: &mut [L], steps: u64) -> Outcome<()> {
        self.check_opened(stores).await?;
        for _ in 0..steps {
            self.step(streams, stores).await?;
        }
        for (group, store) in stores.iter_mut().enumerate() {
            let model = self.model(group);
            assert_eq!(store.read_all().await?, model);
            self.check_places(store, &model).await?;
        }
        Ok(())
    }
}

impl<L: Line> Seeded for History<L> {
    fn new(seed: u64) -> History<L> {
        History {
            disk: SimDisk::new(seed),
            dice: Dice::new(seed),
            states: vec![Model::default()],
            reached: Reached::new(&KINDS),
            line: PhantomData,
        }
    }

    fn run(&mut self) {
        for _ in 0..PROCESS_RUNS {
            runtime().block_on(self.run_process());
            match self.dice.below(3) {
                // What was appended is in the log's buffer, which outlives the process. It is not
                // durable before an open returns: the next one may die, too, and power be lost.
                0 => self.disk.kill(),
                _ => self.disk.lose_power(),
            }
            self.disk.restart();
        }
        let (_streams, mut stores) = self.open().expect("nothing fails any more");
        runtime().block_on(self.check_opened(&mut stores)).expect("nothing fails any more");
    }

    fn describe(&self) -> String {
        self.disk.trace().join("\n")
    }
}

/// A runtime for one process run: its end drops the tasks that still wait.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("it needs no driver")
}
