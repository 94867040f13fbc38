//! A run of random calls against the model, over several process runs.
//!
//! The log is totally ordered, so what an open finds is what the model was after some change: after
//! the last one that was durable, or a later one. The session keeps the model after each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use palisade::sim::SimDisk;
use palisade::{Cursor, ErrorKind, Lsn, Result};
use palisade_streams::{Options, Streams};

use crate::archive::Archive;
use crate::dice::Dice;
use crate::followers::{self, Followers};
use crate::model::{Change, KEYS, Model, apply, read, summary};
use crate::tails::{Tails, Way};

const SEGMENT_BYTES: u64 = 20 << 10;
/// Segments that a full log keeps for truncations and moves.
const KEPT_SEGMENTS: u64 = 3;
/// Bytes in the file of a segment before its first record.
const SEGMENT_HEADER_BYTES: u64 = 4096;
const NAMES: [&[u8]; 5] = [b"a", b"stream", b"\xff\x00", b"slow", b"idle"];

/// How much of what it checks a history has met, by name.
pub(crate) type Figures = BTreeMap<&'static str, u64>;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) disk: SimDisk,
    pub(crate) dice: Dice,
    /// The model after each change since the last one that is durable, that one first.
    states: Vec<Model>,
    /// How many states were forgotten: the number of the first one.
    forgotten: u64,
    tails: Tails,
    followers: Followers,
    move_percent: u32,
    pub(crate) archive: Arc<Archive>,
    /// Keeps what the streams have released, in some histories: so readers, and opens without
    /// footers, find what a restore from an archive would.
    cursor: Option<Cursor>,
    has_cursor: bool,
    /// Where the log began when it was opened.
    opened_head: Lsn,
    /// Ends without a close since the log was made.
    pub(crate) kills: u64,
    /// The most segments of the log.
    pub(crate) limit: Option<u64>,
    pub(crate) figures: Figures,
}

/// Whether the disk ended a call.
pub(crate) type Ended = std::result::Result<(), palisade::Error>;

impl Session {
    pub(crate) fn new(seed: u64) -> Session {
        let mut dice = Dice::new(seed);
        let move_percent = dice.pick(&[0, 10, 25, 50]);
        let limit = dice.pick(&[None, None, Some(6), Some(8), Some(14)]);
        let has_cursor = limit.is_none() && dice.once_in(2);
        let (disk, states) = (SimDisk::new(seed), vec![Model::new()]);
        Session {
            disk,
            dice,
            states,
            forgotten: 0,
            tails: Tails::default(),
            followers: Followers::default(),
            move_percent,
            archive: Arc::default(),
            cursor: None,
            has_cursor,
            opened_head: Lsn::ZERO,
            kills: 0,
            limit,
            figures: Figures::new(),
        }
    }

    pub(crate) fn open(&mut self) -> Result<Streams> {
        let log = palisade::Options::new().segment_bytes(SEGMENT_BYTES).buffer_bytes(16 << 10);
        let log = log.on_release(Arc::clone(&self.archive));
        let log = match self.limit {
            Some(segments) => log.max_bytes(segments * (SEGMENT_BYTES + SEGMENT_HEADER_BYTES)),
            None => log,
        };
        let options = Options::new().log(log).move_percent(self.move_percent).background(false);
        let streams = options.with_store(&self.disk)?;
        if self.has_cursor {
            self.cursor = Some(match streams.log().cursor("kept") {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    streams.log().create_cursor("kept", None, u64::MAX)?
                }
                found => found?,
            });
        }
        self.opened_head = streams.log().head_lsn();
        let report = streams.open_report();
        self.count("opens", 1);
        self.count("footers read", report.footers);
        self.count("opens without a footer", u64::from(report.footers == 0));
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

    pub(crate) fn count(&mut self, what: &'static str, by: u64) {
        *self.figures.entry(what).or_default() += by;
    }

    pub(crate) fn model(&self) -> &Model {
        self.states.last().expect("there is always one")
    }

    /// Makes changes by `call`, together. Returns `None` if the log is full.
    pub(crate) fn changing<T>(
        &mut self,
        streams: &Streams,
        changes: &[(Vec<u8>, Change)],
        call: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let mut model = self.model().clone();
        changes.iter().for_each(|(name, change)| apply(&mut model, name, change));
        // A crash within the call may leave the changes in the log.
        self.states.push(model);
        let done = match call() {
            Err(error) if self.is_full(&error) => {
                if error.appended_lsn().is_none() {
                    self.states.pop();
                    self.check_refused(streams, changes);
                    return Ok(None);
                }
                None
            }
            done => Some(done?),
        };
        let [.., before, _] = &self.states[..] else { unreachable!("one was pushed") };
        let (mut model, state) = (before.clone(), self.forgotten + self.states.len() as u64 - 1);
        for (name, change) in changes {
            self.tails.note(&model, state, name, change);
            self.followers.note(name, change);
            apply(&mut model, name, change);
        }
        Ok(done)
    }

    /// Checks that the log has no room for the changes that it refused.
    fn check_refused(&self, streams: &Streams, changes: &[(Vec<u8>, Change)]) {
        let removes = |(_, change): &(_, Change)| {
            matches!(change, Change::Before(_) | Change::From(_) | Change::Delete)
        };
        let space = streams.log().space().expect("it is open");
        let is_truncation = changes.iter().all(removes);
        assert!(!is_truncation || self.kills > 0, "no room for {changes:?}, {space:?}");
        // The last segment may have no file yet.
        let used = space.segments + 1;
        assert!(Some(used + KEPT_SEGMENTS) >= self.limit, "{changes:?}, {space:?}");
    }

    /// Whether the log's limit refused a call.
    fn is_full(&mut self, error: &palisade::Error) -> bool {
        let is_full = self.limit.is_some() && error.kind() == ErrorKind::NoSpace;
        self.count("calls refused for space", u64::from(is_full));
        is_full
    }

    /// Returns what a call returned, or `None` if the log's limit refused it. Reads, too, write the
    /// log's buffer first.
    pub(crate) fn unless_full<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if self.is_full(&error) => {
                assert!(self.kills > 0, "only kills can make the log full: {error}");
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Notes that all is durable, if a wait for it says so: a full log may have no room for it.
    pub(crate) fn note_waited(&mut self, waited: Result<()>) -> Ended {
        if self.unless_full(waited)?.is_some() {
            self.note_durable();
        }
        Ok(())
    }

    /// All that was noted is durable.
    pub(crate) fn note_durable(&mut self) {
        self.forget_before(self.states.len() - 1);
    }

    /// State `at` is durable.
    fn forget_before(&mut self, at: usize) {
        self.states.drain(..at);
        self.forgotten += at as u64;
    }

    /// Does a step of the keeper. Returns whether there may be more to do.
    pub(crate) fn maintain(&mut self, streams: &Streams) -> Result<bool> {
        let more = match streams.maintain() {
            Err(error) if error.to_string().contains(Archive::AWAY) => {
                self.count("steps without the archive", 1);
                if !self.archive.is_away() {
                    // It was away in an earlier step of the round.
                    return self.maintain(streams);
                }
                None
            }
            done => self.unless_full(done)?,
        };
        if more.is_none() {
            // An entry that was moved may not be durable where it is now.
            self.states.push(self.model().clone());
        }
        Ok(more.unwrap_or(false))
    }

    pub(crate) fn data(&mut self) -> Vec<u8> {
        let len = self.dice.pick(&[0, 0, 1, 40, 300, 300, 900, 3000]) as usize;
        let tag = self.dice.next();
        (0..len).map(|at| (tag as usize + at) as u8).collect()
    }

    pub(crate) fn existing(&mut self) -> Option<Vec<u8>> {
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
            1 => self.note_waited(streams.sync())?,
            2..=6 => drop(self.maintain(streams)?),
            7 => {
                let is_away = self.dice.once_in(3);
                self.archive.set_away(is_away);
            }
            8 => while self.maintain(streams)? {},
            9..12 => self.batch(streams)?,
            12 => self.read_some(streams)?,
            13..16 => self.consume(streams)?,
            16 => self.remove_consumer(streams)?,
            17 => self.begin_tail(streams)?,
            18..22 => self.read_tails()?,
            22..26 => self.read_beside(streams)?,
            26 => self.move_cursor()?,
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
        let made =
            self.changing(streams, &[(name.to_vec(), Change::Create)], || streams.create(name))?;
        if made.is_some() {
            self.note_durable();
        }
        Ok(true)
    }

    fn change_one(&mut self, streams: &Streams, name: &[u8]) -> Ended {
        let change = self.change(name);
        let next = self.model()[name].next;
        let stream = streams.stream(name)?;
        let ticket =
            self.changing(streams, &[(name.to_vec(), change.clone())], || match &change {
                Change::Append(data) => stream.append(data),
                Change::Before(first) => stream.truncate_before(*first),
                Change::From(next) => stream.truncate_from(*next),
                Change::Put(key, Some(value)) => stream.put(key, value),
                Change::Put(key, None) => stream.remove_value(key),
                Change::Delete => streams.delete(name),
                Change::Create | Change::Consumer(..) | Change::RemoveConsumer(_) => {
                    unreachable!("`change` makes none")
                }
            })?;
        let Some(ticket) = ticket else { return Ok(()) };
        if let Change::Append(_) = change {
            assert_eq!(ticket.index(), next);
        }
        if self.dice.once_in(4) {
            self.note_waited(ticket.wait().map(drop))?;
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
        let Some(ticket) = self.changing(streams, &changes, || batch.apply())? else {
            return Ok(());
        };
        if self.dice.once_in(3) {
            self.note_waited(ticket.wait().map(drop))?;
        }
        Ok(())
    }

    /// Begins a tail of a stream, or begins or ends the one of all streams.
    fn begin_tail(&mut self, streams: &Streams) -> Ended {
        if self.dice.once_in(4) {
            return self.tails.toggle_all(streams);
        }
        let Some(name) = self.existing() else { return Ok(()) };
        let (first, next) = (self.model()[&name].first, self.model()[&name].next);
        let from = first + self.dice.below(next - first + 1);
        self.tails.begin(streams, &name, from)
    }

    /// Lets the log release a part of what its cursor has kept.
    fn move_cursor(&mut self) -> Ended {
        let most = self.dice.below(100);
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        for _ in 0..most {
            if cursor.next(Duration::ZERO)?.is_none() {
                break;
            }
            cursor.confirm();
        }
        cursor.save()
    }

    /// Reads some entries by a tail. What a tail returns is durable.
    fn read_tails(&mut self) -> Ended {
        let (which, way) = (self.dice.next(), self.dice.pick(&[Way::Thread, Way::Task]));
        for _ in 0..self.dice.below(8) {
            let is_durable = self.states.len() == 1;
            let model = self.states.last().expect("there is always one");
            let read = self.tails.read_one(which, way, model, is_durable);
            let Some((name, index)) = self.unless_full(read)?.flatten() else { break };
            let has = |state: &Model| {
                state.get(&name).is_some_and(|stream| {
                    index < stream.first || stream.entries.contains_key(&index)
                })
            };
            let without = self.states.iter().rposition(|state| !has(state));
            self.forget_before(without.map_or(0, |at| at + 1));
            self.count("entries of tails", 1);
        }
        for _ in 0..self.dice.below(8) {
            let read = self.tails.read_all(way, self.states.len() == 1);
            let Some(state) = self.unless_full(read)?.flatten() else { break };
            self.forget_before(state.saturating_sub(self.forgotten) as usize);
            self.count("entries of tails", 1);
        }
        Ok(())
    }

    pub(crate) fn end_tails(&mut self) {
        self.tails.end_all();
        self.followers.end_all();
        self.cursor = None;
    }

    /// Reads the log as another process does: everything, or with the followers. Some entries are
    /// not written yet, if nobody makes them durable.
    fn read_beside(&mut self, streams: &Streams) -> Ended {
        if self.dice.once_in(2) {
            let most = self.dice.below(6) as usize;
            let read = self.followers.read_on(most)?;
            self.count("entries of followers", read);
            return Ok(());
        }
        if self.unless_full(streams.sync())?.is_none() {
            return Ok(());
        }
        self.note_durable();
        let read = self.followers.read_on(usize::MAX)?;
        self.count("entries of followers", read);
        let model = self.states.last().expect("there is always one");
        self.followers.check(model);
        let mut reader = followers::open(&self.disk)?;
        let found = followers::read(&mut reader)?;
        assert!(found == *model, "{}\n{}", summary(&found), summary(model));
        let Some(name) = self.existing() else { return Ok(()) };
        let (first, next) = (self.model()[&name].first, self.model()[&name].next);
        let from = first + self.dice.below(next - first + 1);
        self.followers.begin(reader, &name, from)
    }

    /// Reads an entry, one that was truncated, and one that is not there yet.
    fn read_some(&mut self, streams: &Streams) -> Ended {
        let Some(name) = self.existing() else { return Ok(()) };
        let (stream, model) = (streams.stream(&name)?, self.model()[&name].clone());
        if let Some((index, data)) = model.entries.iter().next_back()
            && let Some(entry) = self.unless_full(stream.get(*index))?
        {
            assert_eq!(entry.data(), data);
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
        self.count("bytes released", stats.released_bytes);
        self.count("bytes moved", stats.moved_bytes);
        // Not `released_bytes`: the cursor may have kept that, and segments count from the head on.
        let passed = streams.log().head_lsn().bytes_since(self.opened_head);
        // A move that was planned too low ends early, and has released nothing yet.
        let released = passed + stats.segments * SEGMENT_BYTES;
        let most = released / 100 * u64::from(self.move_percent) + SEGMENT_BYTES;
        assert!(stats.moved_bytes <= most, "{stats:?}, {} percent", self.move_percent);
    }
}
