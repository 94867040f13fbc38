//! A run of random calls against the model, over several process runs.
//!
//! The log is totally ordered, so what an open finds is what the model was after some change: after
//! the last one that was durable, or a later one. The session keeps the model after each of them.

use std::time::Duration;

use palisade::sim::SimDisk;
use palisade::{ErrorKind, Result};
use palisade_streams::{Consumer, Options, Streams};

use crate::dice::Dice;
use crate::model::{CONSUMERS, Change, KEYS, Model, apply, read, summary};
use crate::seeds::Seeded;

const SEGMENT_BYTES: u64 = 20 << 10;
const NAMES: [&[u8]; 5] = [b"a", b"stream", b"\xff\x00", b"slow", b"idle"];
const PROCESS_RUNS: u64 = 6;

/// How much of what it checks a history has met.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) opens: u64,
    pub(crate) footers: u64,
    pub(crate) released: u64,
    pub(crate) moved: u64,
    pub(crate) scans: u64,
    pub(crate) acked: u64,
    pub(crate) sought: u64,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) disk: SimDisk,
    dice: Dice,
    /// The model after each change since the last one that is durable, that one first.
    states: Vec<Model>,
    move_percent: u32,
    pub(crate) figures: Figures,
}

/// Whether the disk ended a call.
type Ended = std::result::Result<(), palisade::Error>;

impl Session {
    pub(crate) fn new(seed: u64) -> Session {
        let mut dice = Dice::new(seed);
        let move_percent = dice.pick(&[0, 10, 25, 50]);
        let (disk, states) = (SimDisk::new(seed), vec![Model::new()]);
        Session { disk, dice, states, move_percent, figures: Figures::default() }
    }

    pub(crate) fn open(&mut self) -> Result<Streams> {
        let log = palisade::Options::new().segment_bytes(SEGMENT_BYTES).buffer_bytes(16 << 10);
        let options = Options::new().log(log).move_percent(self.move_percent).background(false);
        let streams = options.with_store(&self.disk)?;
        let report = streams.open_report();
        self.figures.opens += 1;
        self.figures.footers += report.footers;
        self.figures.scans += u64::from(report.footers == 0);
        Ok(streams)
    }

    /// Checks what an open found, and goes on from there.
    pub(crate) fn check_opened(&mut self, streams: &Streams) -> Ended {
        let found = read(streams)?;
        let is_it = |state: &Model| *state == found;
        let Some(at) = self.states.iter().rposition(is_it) else {
            let states: Vec<_> = self.states.iter().map(summary).collect();
            panic!("found {}\nwhich is none of\n{}", summary(&found), states.join("\n"));
        };
        let found = self.states.swap_remove(at);
        self.states = vec![found];
        Ok(())
    }

    fn model(&self) -> &Model {
        self.states.last().expect("there is always one")
    }

    /// Notes changes that are in the log together, or may be.
    fn note(&mut self, changes: &[(Vec<u8>, Change)]) {
        let mut next = self.model().clone();
        changes.iter().for_each(|(name, change)| apply(&mut next, name, change));
        self.states.push(next);
    }

    /// All that was noted is durable.
    fn note_durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    fn data(&mut self) -> Vec<u8> {
        let len = self.dice.pick(&[0, 0, 1, 40, 300, 300, 900, 3000]) as usize;
        let tag = self.dice.next();
        (0..len).map(|at| (tag as usize + at) as u8).collect()
    }

    fn existing(&mut self) -> Option<Vec<u8>> {
        let names: Vec<_> = self.model().keys().cloned().collect();
        (!names.is_empty()).then(|| names[self.dice.below(names.len() as u64) as usize].clone())
    }

    /// A change of a stream that is there. Most streams are truncated, so that the log shrinks.
    fn change(&mut self, name: &[u8]) -> Change {
        let stream = self.model()[name].clone();
        let len = stream.next - stream.first;
        match self.dice.below(20) {
            0 => Change::From(stream.first + self.dice.below(len + 1)),
            1 | 2 if name != b"slow" || self.dice.once_in(20) => {
                Change::Before(stream.first + self.dice.below(len + 1))
            }
            3 if name != b"slow" => Change::Before(stream.next),
            4 | 6 => {
                let value = self.dice.below(5).saturating_sub(2) as u8;
                let value = (value > 0).then(|| vec![value; 1 + value as usize * 20]);
                Change::Put(self.dice.pick(&KEYS).to_vec(), value)
            }
            5 if self.dice.once_in(5) => Change::Delete,
            _ => Change::Append(self.data()),
        }
    }

    /// Does one random thing. An error of the disk ends the process run.
    pub(crate) fn step(&mut self, streams: &Streams) -> Ended {
        match self.dice.below(40) {
            0 => {
                let made = self.make(streams)?;
                assert!(made, "the model knows which streams there are");
            }
            1 => {
                streams.sync()?;
                self.note_durable();
            }
            2..6 => drop(streams.maintain()?),
            8 => while streams.maintain()? {},
            9..12 => self.batch(streams)?,
            12 => self.read_some(streams)?,
            13..16 => self.consume(streams)?,
            16 => self.remove_consumer(streams)?,
            _ => match self.existing() {
                Some(name) => self.change_one(streams, &name)?,
                None => drop(self.make(streams)?),
            },
        }
        Ok(())
    }

    fn make(&mut self, streams: &Streams) -> std::result::Result<bool, palisade::Error> {
        let name = self.dice.pick(&NAMES);
        if self.model().contains_key(name) {
            let refused = streams.create(name).expect_err("there is one");
            return Ok(refused.kind() == ErrorKind::AlreadyExists);
        }
        self.note(&[(name.to_vec(), Change::Create)]);
        streams.create(name)?;
        self.note_durable();
        Ok(true)
    }

    fn change_one(&mut self, streams: &Streams, name: &[u8]) -> Ended {
        let change = self.change(name);
        let next = self.model()[name].next;
        self.note(&[(name.to_vec(), change.clone())]);
        let stream = streams.stream(name)?;
        let ticket = match &change {
            Change::Append(data) => stream.append(data)?,
            Change::Before(first) => stream.truncate_before(*first)?,
            Change::From(next) => stream.truncate_from(*next)?,
            Change::Put(key, Some(value)) => stream.put(key, value)?,
            Change::Put(key, None) => stream.remove_value(key)?,
            Change::Delete => streams.delete(name)?,
            Change::Create | Change::Consumer(..) | Change::RemoveConsumer(_) => {
                unreachable!("`change` makes none")
            }
        };
        if let Change::Append(_) = change {
            assert_eq!(ticket.index(), next);
        }
        if self.dice.once_in(4) {
            ticket.wait()?;
            self.note_durable();
        }
        Ok(())
    }

    fn batch(&mut self, streams: &Streams) -> Ended {
        let count = 1 + self.dice.below(4);
        let mut changes = Vec::new();
        for _ in 0..count {
            let Some(name) = self.existing() else { return Ok(()) };
            let change = match self.dice.once_in(3) {
                true => Change::Put(KEYS[0].to_vec(), Some(vec![7; self.dice.below(50) as usize])),
                false => Change::Append(vec![9; self.dice.below(400) as usize]),
            };
            changes.push((name, change));
        }
        self.note(&changes);
        let handles = changes.iter().map(|(name, _)| streams.stream(name));
        let handles = handles.collect::<Result<Vec<_>>>()?;
        let mut batch = streams.batch();
        for (stream, (_, change)) in handles.iter().zip(&changes) {
            batch = match change {
                Change::Append(data) => batch.append(stream, data),
                Change::Put(key, value) => batch.put(stream, key, value.as_deref().unwrap_or(b"")),
                _ => unreachable!("a batch has no other changes"),
            };
        }
        let ticket = batch.apply()?;
        if self.dice.once_in(3) {
            ticket.wait()?;
            self.note_durable();
        }
        Ok(())
    }

    /// Opens a consumer, reads, and acknowledges: alone, or in a batch with what it appends.
    fn consume(&mut self, streams: &Streams) -> Ended {
        let (Some(name), Some(output)) = (self.existing(), self.existing()) else { return Ok(()) };
        let (stream, output_to) = (streams.stream(&name)?, streams.stream(&output)?);
        let called = self.dice.pick(&CONSUMERS).to_vec();
        let at = |index| (name.clone(), Change::Consumer(called.clone(), index));
        let is_new = !self.model()[&name].consumers.contains_key(&called);
        if is_new {
            self.note(&[at(self.model()[&name].first)]);
        }
        let mut consumer = stream.consumer(&called)?;
        if is_new {
            self.note_durable();
        }
        self.seek_if_truncated(&mut consumer, &name)?;
        let model = self.model()[&name].clone();
        let mut acked = model.consumers[&called].0;
        for _ in 0..self.dice.below(6) {
            let Some(entry) = consumer.next(Duration::ZERO)? else { break };
            assert_eq!(entry.index(), acked, "it begins at the first that was not acknowledged");
            assert_eq!(entry.data(), model.entries[&acked]);
            acked += 1;
        }
        let Some(last) = acked.checked_sub(1).filter(|_| acked > model.consumers[&called].0) else {
            return Ok(());
        };
        self.figures.acked += 1;
        match self.dice.below(4) {
            0 => {}
            1 => {
                self.note(&[at(acked)]);
                drop(consumer.ack(last)?);
            }
            _ => {
                let data = self.data();
                self.note(&[at(acked), (output, Change::Append(data.clone()))]);
                drop(streams.batch().ack(&consumer, last).append(&output_to, &data).apply()?);
            }
        }
        if self.dice.once_in(4) {
            streams.sync()?;
            self.note_durable();
        }
        Ok(())
    }

    /// Checks that a consumer whose entries were truncated says so, and moves it.
    fn seek_if_truncated(&mut self, consumer: &mut Consumer, name: &[u8]) -> Ended {
        let stream = &self.model()[name];
        let (acked, is_truncated) = stream.consumers[consumer.name()];
        if !is_truncated {
            return Ok(());
        }
        let to = acked.max(stream.first);
        match consumer.next(Duration::ZERO) {
            Err(error) if error.kind() == ErrorKind::Truncated => {}
            other => panic!("{other:?} in the place of Truncated"),
        }
        self.figures.sought += 1;
        self.note(&[(name.to_vec(), Change::Consumer(consumer.name().to_vec(), to))]);
        consumer.seek(to).map(drop)
    }

    fn remove_consumer(&mut self, streams: &Streams) -> Ended {
        let Some(name) = self.existing() else { return Ok(()) };
        let Some(called) = self.model()[&name].consumers.keys().next().cloned() else {
            return Ok(());
        };
        self.note(&[(name.clone(), Change::RemoveConsumer(called.clone()))]);
        streams.stream(&name)?.remove_consumer(called).map(drop)
    }

    /// Reads an entry, one that was truncated, and one that is not there yet.
    fn read_some(&mut self, streams: &Streams) -> Ended {
        let Some(name) = self.existing() else { return Ok(()) };
        let (stream, model) = (streams.stream(&name)?, self.model()[&name].clone());
        if let Some((index, data)) = model.entries.iter().next_back() {
            assert_eq!(stream.get(*index)?.data(), data);
        }
        let ahead = stream.get(model.next).expect_err("it is not there yet");
        assert_eq!(ahead.kind(), ErrorKind::OutOfRange);
        if let Some(below) = model.first.checked_sub(1) {
            assert_eq!(stream.get(below).expect_err("it is gone").kind(), ErrorKind::Truncated);
        }
        Ok(())
    }

    pub(crate) fn note_figures(&mut self, streams: &Streams) {
        let stats = streams.stats();
        self.figures.released += stats.released_bytes;
        self.figures.moved += stats.moved_bytes;
        // A move that was planned too low ends early, and has released nothing yet.
        let released = stats.released_bytes + stats.segments * SEGMENT_BYTES;
        let most = released / 100 * u64::from(self.move_percent) + SEGMENT_BYTES;
        assert!(stats.moved_bytes <= most, "{stats:?}, {} percent", self.move_percent);
    }

    /// One run of a process, which ends in one of several ways.
    fn run_process(&mut self) {
        if self.dice.once_in(2) {
            self.disk.crash_at(self.disk.calls() + 1 + self.dice.below(120));
        }
        let steps = self.dice.below(250);
        let opened = self.open().and_then(|streams| {
            self.check_opened(&streams)?;
            (0..steps).try_for_each(|_| self.step(&streams))?;
            while streams.maintain()? {}
            let found = read(&streams)?;
            assert!(found == *self.model(), "{}\n{}", summary(&found), summary(self.model()));
            Ok(streams)
        });
        if !self.disk.is_dead() {
            let streams = opened.expect("no call fails before the process dies");
            self.note_figures(&streams);
            if self.dice.once_in(4) && streams.close().is_ok() {
                self.note_durable();
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) session: Session,
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        History { session: Session::new(seed) }
    }

    fn run(&mut self) {
        let session = &mut self.session;
        for _ in 0..PROCESS_RUNS {
            session.run_process();
            match session.dice.below(3) {
                0 => session.disk.lose_power(),
                // What was appended is in the log's buffer, which outlives the process.
                _ => session.disk.kill(),
            }
            session.disk.restart();
        }
        let streams = session.open().expect("nothing fails any more");
        session.check_opened(&streams).expect("nothing fails any more");
    }

    fn describe(&self) -> String {
        self.session.disk.trace().join("\n")
    }
}
