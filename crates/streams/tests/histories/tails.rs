//! The tails of a process run, and what the model says that each of them returns next.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use palisade::{ErrorKind, Result};
use palisade_streams::{Entry, Streams, Tail, TailAll};

use crate::model::{Change, Model};

/// The most tails of single streams at a time.
const MOST: usize = 4;

/// The name of a stream, and the index of an entry.
type Place = (Vec<u8>, u64);

/// How a tail is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Thread,
    Task,
}

#[derive(Debug)]
struct One {
    name: Vec<u8>,
    tail: Tail,
    next: u64,
    /// The error that all further calls return.
    ended: Option<ErrorKind>,
}

#[derive(Debug)]
struct All {
    tail: TailAll,
    /// The entries that were appended since it began, in the order of the log, without those of
    /// deleted streams; each with the number of the first state that has it.
    expected: VecDeque<(u64, Place, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Tails {
    ones: Vec<One>,
    all: Option<All>,
}

impl Tails {
    /// Begins a tail of `name` from an entry that is there on, or from the end.
    pub(crate) fn begin(&mut self, streams: &Streams, name: &[u8], from: u64) -> Result<()> {
        let tail = streams.stream(name)?.tail(from)?;
        assert_eq!(tail.position(), from);
        if self.ones.len() == MOST {
            self.ones.remove(0);
        }
        self.ones.push(One { name: name.to_vec(), tail, next: from, ended: None });
        Ok(())
    }

    /// Begins a tail of all streams, or ends it.
    pub(crate) fn toggle_all(&mut self, streams: &Streams) -> Result<()> {
        self.all = match self.all.take() {
            Some(_) => None,
            None => Some(All { tail: streams.tail_all()?, expected: VecDeque::new() }),
        };
        Ok(())
    }

    pub(crate) fn end_all(&mut self) {
        *self = Tails::default();
    }

    /// Notes a change that is in the log. `before` is the model before it, `state` the number of
    /// the state after it.
    pub(crate) fn note(&mut self, before: &Model, state: u64, name: &[u8], change: &Change) {
        for one in self.ones.iter_mut().filter(|one| one.name == name) {
            match change {
                Change::Delete => one.ended = Some(ErrorKind::NotFound),
                Change::From(next) if *next < one.next => {
                    one.ended.get_or_insert(ErrorKind::Truncated);
                }
                _ => {}
            }
        }
        let Some(all) = &mut self.all else { return };
        match change {
            Change::Append(data) => {
                let place = (name.to_vec(), before[name].next);
                all.expected.push_back((state, place, data.clone()));
            }
            Change::Delete => all.expected.retain(|(_, (of, _), _)| of != name),
            _ => {}
        }
    }

    /// Reads the next entry of tail `at`, modulo their number, and checks it. `is_durable`: all
    /// that the model has is. Returns which entry it was.
    pub(crate) fn read_one(
        &mut self,
        at: u64,
        way: Way,
        model: &Model,
        is_durable: bool,
    ) -> Result<Option<Place>> {
        if self.ones.is_empty() {
            return Ok(None);
        }
        let at = at as usize % self.ones.len();
        let One { name, tail, next, ended } = &mut self.ones[at];
        let stream = model.get(name);
        let is_passed = stream.is_some_and(|stream| *next < stream.first);
        let expected = ended.or(is_passed.then_some(ErrorKind::Truncated));
        let found = match way {
            Way::Thread => tail.next(Duration::ZERO),
            Way::Task => match tail.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(entry) => entry.map(Some),
                Poll::Pending => Ok(None),
            },
        };
        if let Some(kind) = expected {
            check_error(found, kind)?;
            self.ones.remove(at);
            return Ok(None);
        }
        let stream = stream.expect("a tail of a deleted stream has ended");
        let Some(entry) = found? else {
            let waits = *next == stream.next || !is_durable;
            assert!(waits, "entry {next} of {} is durable", name.escape_ascii());
            return Ok(None);
        };
        let index = entry.index();
        assert_eq!(index, *next, "{}", name.escape_ascii());
        assert_eq!(stream.entries.get(next), Some(&entry.into_data()), "entry {next}");
        *next += 1;
        assert_eq!(tail.position(), *next);
        Ok(Some((name.clone(), index)))
    }

    /// Reads the next entry of the tail of all streams, and checks it. Returns the number of the
    /// first state that has it.
    pub(crate) fn read_all(&mut self, way: Way, is_durable: bool) -> Result<Option<u64>> {
        let Some(All { tail, expected }) = &mut self.all else { return Ok(None) };
        let found = match way {
            Way::Thread => tail.next(Duration::ZERO)?,
            Way::Task => match tail.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(found) => Some(found?.expect("the tail goes on")),
                Poll::Pending => None,
            },
        };
        let Some((name, entry)) = found else {
            assert!(expected.is_empty() || !is_durable, "the tail leaves out {:?}", expected[0]);
            return Ok(None);
        };
        let (state, place, data) = expected.pop_front().expect("nothing else was appended");
        assert_eq!(((name, entry.index()), entry.into_data()), (place, data));
        Ok(Some(state))
    }
}

/// Checks that a tail which has ended says why. Another error is one of the disk.
fn check_error(found: Result<Option<Entry>>, kind: ErrorKind) -> Result<()> {
    match found {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(error),
        Ok(found) => panic!("{found:?} in the place of {kind:?}"),
    }
}
