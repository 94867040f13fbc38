//! Random calls, right and wrong ones, against the model, without crashes. proptest makes a
//! sequence that fails shorter.

use palisade::ErrorKind::{AlreadyExists, NotFound, OutOfRange, TooLarge, Truncated};
use palisade::{ErrorKind, MemStore};
use palisade_streams::{Entry, Options, Stream, Streams};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::{self, Change, KEYS, Model, apply, read, summary};

const SEGMENT_BYTES: u64 = 20 << 10;
const NAMES: [&[u8]; 3] = [b"a", b"b", b"\0"];
/// More than the values of a stream may take.
const TOO_LONG: usize = 70_000;

/// A number of an entry, counted from two below the first one on.
#[derive(Clone, Copy, Debug)]
enum Index {
    Near(u64),
    Max,
}

#[derive(Clone, Debug)]
enum Call {
    CreateMany(Vec<usize>),
    Delete(usize),
    /// Takes a handle of the stream that has the name now. Calls use the one taken last.
    Handle(usize),
    Append(usize, usize),
    Batch(Vec<(usize, Option<usize>)>),
    Before(usize, Index),
    After(usize, Index),
    From(usize, Index),
    Get(usize, Vec<Index>),
    Range(usize, Index, Index),
    Put(usize, usize, usize),
    Remove(usize, usize),
    Maintain,
    Reopen(bool),
}

fn call() -> impl Strategy<Value = Call> {
    let name = || 0..NAMES.len();
    let index = || prop_oneof![20 => (0..20_u64).prop_map(Index::Near), 1 => Just(Index::Max)];
    let len = || prop_oneof![Just(0), 1..40_usize, 500..3000_usize];
    // Three of them are shorter than the longest record.
    let short = || 0..900_usize;
    let value = prop_oneof![8 => 0..60_usize, 1 => Just(TOO_LONG)];
    prop_oneof![
        2 => vec(name(), 1..3).prop_map(Call::CreateMany),
        1 => name().prop_map(Call::Delete),
        2 => name().prop_map(Call::Handle),
        12 => (name(), len()).prop_map(|(name, len)| Call::Append(name, len)),
        3 => vec((name(), proptest::option::of(short())), 1..4).prop_map(Call::Batch),
        2 => (name(), index()).prop_map(|(name, first)| Call::Before(name, first)),
        1 => (name(), index()).prop_map(|(name, last)| Call::After(name, last)),
        1 => (name(), index()).prop_map(|(name, next)| Call::From(name, next)),
        2 => (name(), vec(index(), 0..4)).prop_map(|(name, of)| Call::Get(name, of)),
        2 => (name(), index(), index()).prop_map(|(name, from, to)| Call::Range(name, from, to)),
        2 => (name(), 0..KEYS.len(), value).prop_map(|(name, key, len)| Call::Put(name, key, len)),
        1 => (name(), 0..KEYS.len()).prop_map(|(name, key)| Call::Remove(name, key)),
        4 => Just(Call::Maintain),
        1 => any::<bool>().prop_map(Call::Reopen),
    ]
}

/// A handle, and which of the streams of its name it belongs to.
type Handle = (Stream, u64);

struct Run {
    store: MemStore,
    streams: Streams,
    handles: [Option<Handle>; NAMES.len()],
    model: Model,
    /// How many streams of each name there have been.
    made: [u64; NAMES.len()],
    bytes: u8,
}

fn open(store: &MemStore) -> Streams {
    let log = palisade::Options::new().segment_bytes(SEGMENT_BYTES).buffer_bytes(16 << 10);
    Options::new().log(log).background(false).with_store(store.clone()).expect("it opens")
}

impl Run {
    fn new() -> Run {
        let store = MemStore::new(SEGMENT_BYTES);
        let streams = open(&store);
        let (handles, model) = (Default::default(), Model::new());
        Run { store, streams, handles, model, made: [0; NAMES.len()], bytes: 0 }
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        self.bytes = self.bytes.wrapping_add(1);
        vec![self.bytes; len]
    }

    fn change(&mut self, name: usize, change: &Change) {
        apply(&mut self.model, NAMES[name], change);
    }

    /// The stream of a handle, if it is the one that has the name now.
    fn live(&self, name: usize) -> Option<&model::Stream> {
        let (_, number) = self.handles[name].as_ref()?;
        self.model.get(NAMES[name]).filter(|_| *number == self.made[name])
    }

    fn index(&self, name: usize, index: Index) -> u64 {
        let first = self.model.get(NAMES[name]).map_or(0, |stream| stream.first);
        match index {
            Index::Near(offset) => (first + offset).saturating_sub(2),
            Index::Max => u64::MAX,
        }
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::CreateMany(names) => self.create_many(&names),
            Call::Delete(name) => {
                let there = self.model.contains_key(NAMES[name]);
                let deleted = self.streams.delete(NAMES[name]).map(drop);
                check(deleted, if there { Ok(()) } else { Err(NotFound) });
                self.change(name, &Change::Delete);
            }
            Call::Handle(name) => {
                let there = self.model.contains_key(NAMES[name]);
                match self.streams.stream(NAMES[name]) {
                    Ok(stream) if there => self.handles[name] = Some((stream, self.made[name])),
                    found => check(found.map(drop), Err(NotFound)),
                }
            }
            Call::Maintain => while self.streams.maintain().expect("nothing fails") {},
            Call::Reopen(closes) => self.reopen(closes),
            Call::Batch(changes) => self.batch(&changes),
            Call::Append(name, _)
            | Call::Before(name, _)
            | Call::After(name, _)
            | Call::From(name, _)
            | Call::Get(name, _)
            | Call::Range(name, ..)
            | Call::Put(name, ..)
            | Call::Remove(name, _) => {
                if let Some((stream, _)) = self.handles[name].clone() {
                    self.call_one(name, &stream, call);
                }
            }
        }
    }

    fn create_many(&mut self, names: &[usize]) {
        let made = self.streams.create_many(names.iter().map(|&name| NAMES[name]));
        let mut handles = made.as_ref().ok().cloned().unwrap_or_default().into_iter();
        for &name in names {
            if self.model.contains_key(NAMES[name]) {
                return check(made.map(drop), Err(AlreadyExists));
            }
            self.made[name] += 1;
            self.change(name, &Change::Create);
            // Without it the handle stays the one of an earlier stream.
            if let Some(handle) = handles.next() {
                self.handles[name] = Some((handle, self.made[name]));
            }
        }
        check(made.map(drop), Ok(()));
    }

    fn reopen(&mut self, closes: bool) {
        self.handles = Default::default();
        if closes {
            self.streams.close().expect("nothing fails");
        } else {
            self.streams.sync().expect("nothing fails");
        }
        // The log belongs to one `Streams` at a time.
        self.streams = open(&MemStore::new(SEGMENT_BYTES));
        self.streams = open(&self.store);
    }

    fn batch(&mut self, changes: &[(usize, Option<usize>)]) {
        let lens = changes.iter().map(|(name, len)| (*name, len.map(|len| self.data(len))));
        let changes: Vec<_> = lens.collect();
        let mut handles = Vec::new();
        for (name, _) in &changes {
            let Some((stream, _)) = self.handles[*name].clone() else { return };
            handles.push(stream);
        }
        let mut batch = self.streams.batch();
        for ((_, data), stream) in changes.iter().zip(&handles) {
            batch = match data {
                Some(data) => batch.append(stream, data),
                None => batch.remove_value(stream, KEYS[0]),
            };
        }
        let applied = batch.apply().map(|ticket| ticket.indexes().to_vec());
        if changes.iter().any(|(name, _)| self.live(*name).is_none()) {
            return check(applied, Err(NotFound));
        }
        let mut indexes = Vec::new();
        for (name, data) in changes {
            let next = self.model[NAMES[name]].next;
            indexes.extend(data.as_ref().map(|_| next));
            let change = data.map_or(Change::Put(KEYS[0].to_vec(), None), Change::Append);
            apply(&mut self.model, NAMES[name], &change);
        }
        check(applied, Ok(indexes));
    }

    fn call_one(&mut self, name: usize, stream: &Stream, call: Call) {
        let live = self.live(name).cloned();
        let known = live.as_ref().ok_or(NotFound);
        match call {
            Call::Append(_, len) => {
                let data = self.data(len);
                check(stream.append(&data).map(|ticket| ticket.index()), known.map(|of| of.next));
                self.change_if(name, known.map(|_| Change::Append(data)));
            }
            Call::Before(_, first) => {
                let first = self.index(name, first);
                let expected = known.and_then(|of| match first <= of.next {
                    true => Ok(first.max(of.first)),
                    false => Err(OutOfRange),
                });
                check(stream.truncate_before(first).map(|_| ()), expected.map(drop));
                self.change_if(name, expected.map(Change::Before));
            }
            Call::After(_, last) => {
                let last = self.index(name, last);
                let next = last.checked_add(1);
                let expected = known.and_then(|of| of.cut(next.unwrap_or(u64::MAX)));
                check(stream.truncate_after(last).map(|_| ()), expected.map(drop));
                self.change_if(name, expected.map(Change::From));
            }
            Call::From(_, next) => {
                let next = self.index(name, next);
                let expected = known.and_then(|of| of.cut(next));
                check(stream.truncate_from(next).map(|_| ()), expected.map(drop));
                self.change_if(name, expected.map(Change::From));
            }
            Call::Get(_, indexes) => {
                let indexes: Vec<_> = indexes.iter().map(|&at| self.index(name, at)).collect();
                let expected = known.and_then(|of| indexes.iter().map(|&at| of.get(at)).collect());
                check(stream.get_batch(&indexes).map(pairs), expected);
            }
            Call::Range(_, from, to) => {
                let (from, to) = (self.index(name, from), self.index(name, to));
                let all = known.map(|of| {
                    let within = of.entries.iter().filter(|(at, _)| (from..to).contains(*at));
                    within.map(|(at, data)| (*at, data.clone())).collect::<Vec<_>>()
                });
                let read = |range: palisade::Result<palisade_streams::Range>| {
                    range.and_then(|range| range.collect::<palisade::Result<_>>()).map(pairs)
                };
                let mut back = read(stream.range_rev(from..to));
                back.iter_mut().for_each(|found| found.reverse());
                check(back, all.clone());
                check(read(stream.range(from..to)), all);
            }
            Call::Put(_, key, len) => {
                let value = vec![7; len];
                let expected =
                    known.map(drop).and(if len < TOO_LONG { Ok(()) } else { Err(TooLarge) });
                check(stream.put(KEYS[key], &value).map(drop), expected);
                self.change_if(
                    name,
                    expected.map(|()| Change::Put(KEYS[key].to_vec(), Some(value))),
                );
            }
            Call::Remove(_, key) => {
                check(stream.remove_value(KEYS[key]).map(drop), known.map(drop));
                self.change_if(name, known.map(|_| Change::Put(KEYS[key].to_vec(), None)));
            }
            other => unreachable!("{other:?} is not one of a stream"),
        }
    }

    fn change_if(&mut self, name: usize, change: Result<Change, ErrorKind>) {
        if let Ok(change) = change {
            self.change(name, &change);
        }
    }

    fn check_all(&self) {
        let found = read(&self.streams).expect("nothing fails");
        assert!(found == self.model, "{}\n{}", summary(&found), summary(&self.model));
    }
}

impl model::Stream {
    fn get(&self, index: u64) -> Result<(u64, Vec<u8>), ErrorKind> {
        let missing = if index < self.first { Truncated } else { OutOfRange };
        self.entries.get(&index).map(|data| (index, data.clone())).ok_or(missing)
    }

    /// Where the entries end after a truncation of the suffix.
    fn cut(&self, next: u64) -> Result<u64, ErrorKind> {
        match next {
            next if next > self.next => Err(OutOfRange),
            next if next < self.first => Err(Truncated),
            next => Ok(next),
        }
    }
}

fn pairs(entries: Vec<Entry>) -> Vec<(u64, Vec<u8>)> {
    entries.into_iter().map(|entry| (entry.index(), entry.into_data())).collect()
}

fn check<T: PartialEq + std::fmt::Debug>(
    found: palisade::Result<T>,
    expected: Result<T, ErrorKind>,
) {
    match (found, expected) {
        (Err(error), Err(kind)) => assert_eq!(error.kind(), kind, "{error}"),
        (Ok(found), Ok(expected)) => assert_eq!(found, expected),
        (found, expected) => panic!("{found:?} in the place of {expected:?}"),
    }
}

proptest! {
    #[test]
    fn calls_do_what_the_model_says(calls in vec(call(), 1..80)) {
        let mut run = Run::new();
        for call in calls {
            run.call(call);
        }
        run.check_all();
        run.reopen(false);
        run.check_all();
    }
}
