//! What must hold for a glance at a closed log, over random histories of lives.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::reader::Unread;
use crate::recovery::survey::Survey;
use crate::store::{Predecessor, State};
use crate::sync::Mutex;
use crate::{ErrorKind, Uuid};

const SEGMENT_BYTES: u64 = 4096;

/// Headers, and how many were looked at.
#[derive(Debug)]
struct Headers {
    state: State,
    headers: BTreeMap<u64, std::result::Result<SegmentHeader, String>>,
    looks: Mutex<usize>,
}

impl ReadStore for Headers {
    fn state(&self) -> crate::Result<State> {
        Ok(self.state.clone())
    }

    fn segments(&self) -> crate::Result<Vec<Segment>> {
        let all = self.headers.iter();
        Ok(all.map(|(&number, header)| Segment { number, header: header.clone() }).collect())
    }

    fn segment_numbers(&self) -> crate::Result<Option<Vec<u64>>> {
        Ok(Some(self.headers.keys().copied().collect()))
    }

    fn segment(&self, number: u64) -> crate::Result<Option<Segment>> {
        *self.looks.lock() += 1;
        let header = self.headers.get(&number);
        Ok(header.map(|header| Segment { number, header: header.clone() }))
    }

    fn read(&self, _at: Lsn, _into: &mut [u8]) -> crate::Result<usize> {
        Ok(0)
    }

    fn place(&self) -> String {
        "headers".into()
    }
}

/// What happens to a log. Shares are 256ths of the log between head and tail.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The tail moves on.
    Append {
        bytes: u64,
    },
    /// Segments are made ahead of the tail.
    Prepare {
        segments: u64,
    },
    /// The process dies; the next one finds the end `lost` bytes below the tail.
    Crash {
        lost: u64,
        ring: u64,
        frees: bool,
    },
    Cut {
        share: u64,
        frees: bool,
    },
    Release {
        share: u64,
        frees: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (8_u64..60_000).prop_map(|bytes| Step::Append { bytes: bytes / 8 * 8 }),
        1 => (1_u64..4).prop_map(|segments| Step::Prepare { segments }),
        2 => (0_u64..9000, 0_u64..9000, any::<bool>())
            .prop_map(|(lost, ring, frees)| Step::Crash { lost: lost / 8 * 8, ring, frees }),
        1 => (0_u64..256, any::<bool>()).prop_map(|(share, frees)| Step::Cut { share, frees }),
        1 => (0_u64..256, any::<bool>()).prop_map(|(share, frees)| Step::Release { share, frees }),
    ];
    prop::collection::vec(step, 0..40)
}

/// One epoch that has a place in the log.
#[derive(Clone, Copy, Debug)]
struct Life {
    epoch: u64,
    base: u64,
    end: u64,
    predecessor: Predecessor,
}

/// A log as far as headers tell of it. What a life made is not always freed by the next.
#[derive(Debug)]
struct Log {
    headers: BTreeMap<u64, SegmentHeader>,
    /// Ascending; the running one is last.
    lives: Vec<Life>,
    epoch: u64,
    tail: u64,
    head: u64,
}

impl Log {
    fn new() -> Log {
        let mut log =
            Log { headers: BTreeMap::new(), lives: Vec::new(), epoch: 0, tail: 0, head: 0 };
        log.begin(0, Predecessor::default());
        log
    }

    fn make(&mut self, number: u64, predecessor: Option<Predecessor>) {
        let (epoch, base) = (self.epoch, Lsn::new(number * SEGMENT_BYTES));
        let header = SegmentHeader { number, base, epoch, salt: epoch * 7, predecessor };
        self.headers.insert(number, header);
    }

    /// The end of all that was made.
    fn prepared(&self) -> u64 {
        self.headers.keys().next_back().map_or(0, |last| (last + 1) * SEGMENT_BYTES)
    }

    fn begin(&mut self, base: u64, predecessor: Predecessor) {
        self.epoch += 1;
        self.tail = base;
        self.make(base / SEGMENT_BYTES, Some(predecessor));
        self.lives.push(Life { epoch: self.epoch, base, end: u64::MAX, predecessor });
    }

    fn prepare(&mut self, to: u64) {
        while self.prepared() < to {
            self.make(self.prepared() / SEGMENT_BYTES, None);
        }
    }

    /// The log ends at `end`, and another epoch begins at or above `least`. One that is empty leaves
    /// no trace.
    fn end_at(&mut self, end: u64, least: u64, frees: bool) {
        let running = *self.lives.last().unwrap();
        self.lives.retain(|life| life.base < end);
        let predecessor = match self.lives.last_mut() {
            Some(last) if last.epoch == running.epoch || end <= last.end => {
                last.end = end;
                Predecessor { epoch: last.epoch, end: Lsn::new(end) }
            }
            _ => running.predecessor,
        };
        let base = least.max(self.prepared()).next_multiple_of(SEGMENT_BYTES);
        self.begin(base, predecessor);
        if frees {
            self.free(predecessor.end.as_u64(), base);
        }
    }

    fn free(&mut self, from: u64, to: u64) {
        let lies_within =
            |number: &u64| from <= number * SEGMENT_BYTES && (number + 1) * SEGMENT_BYTES <= to;
        self.headers.retain(|number, _| !lies_within(number));
    }

    /// A place that a record has, at or above the head.
    fn place(&self, share: u64) -> u64 {
        let at = self.head + (self.tail - self.head) * share / 256 / 8 * 8;
        let alive = self.lives.iter().find(|life| at < life.end);
        alive.map_or(self.tail, |life| at.max(life.base)).min(self.tail)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append { bytes } => {
                self.tail += bytes;
                self.prepare(self.tail);
            }
            Step::Prepare { segments } => {
                self.prepare(self.prepared() + segments * SEGMENT_BYTES);
            }
            Step::Crash { lost, ring, frees } => {
                let base = self.lives.last().map_or(0, |life| life.base);
                let end = self.tail.saturating_sub(lost).max(base).max(self.head);
                self.end_at(end, self.tail + ring, frees);
            }
            Step::Cut { share, frees } => {
                let cut = self.place(share) + 8;
                let keeps_a_record = |life: &Life| life.base < cut && cut <= life.end;
                if cut < self.tail && self.lives.iter().any(keeps_a_record) {
                    self.end_at(cut, self.tail, frees);
                }
            }
            Step::Release { share, frees } => {
                self.head = self.place(share);
                if frees {
                    self.free(0, self.head);
                }
            }
        }
    }

    fn closed(self) -> Headers {
        let Life { epoch, base, .. } = *self.lives.last().unwrap();
        let state = State {
            uuid: Uuid([5; 16]),
            segment_bytes: SEGMENT_BYTES,
            buffer_bytes: 0,
            epoch,
            epoch_base: Lsn::new(base),
            epoch_salt: epoch * 7,
            head: Lsn::new(self.head),
            checkpoint: Lsn::ZERO,
            clean_end: Lsn::new(self.tail),
            clean: true,
        };
        let headers = self.headers.into_iter().map(|(number, header)| (number, Ok(header)));
        Headers { state, headers: headers.collect(), looks: Mutex::new(0) }
    }
}

fn history(steps: &[Step]) -> Headers {
    let mut log = Log::new();
    steps.iter().for_each(|step| log.step(*step));
    log.closed()
}

/// What a survey says of a log.
fn told(survey: &Survey) -> impl PartialEq + std::fmt::Debug + use<> {
    let Survey { segments, damaged, spans, predecessor, salt, largest_epoch, highest_end, .. } =
        survey;
    let whole = (segments.clone(), damaged.clone(), spans.clone());
    (whole, *predecessor, *salt, *largest_epoch, *highest_end)
}

/// `log2(n)`, rounded up, and one more.
fn depth(count: usize) -> usize {
    (usize::BITS - count.leading_zeros()) as usize + 1
}

proptest! {
    #[test]
    fn a_glance_tells_what_all_headers_tell(steps in steps()) {
        let store = history(&steps);
        let all = Survey::take(&store).unwrap();
        let glance = Glance::take(&store).unwrap().expect("nothing is wrong");
        let unread = glance.unread.len();
        let seen = Survey::of(glance.found, &store, None).unwrap();
        prop_assert_eq!(told(&seen), told(&all));
        let looks = *store.looks.lock();
        prop_assert_eq!(looks + unread, store.headers.len(), "each is looked at once, or not");
        let epochs: std::collections::BTreeSet<u64> =
            store.headers.values().flatten().map(|header| header.epoch).collect();
        let end = store.state.clean_end.segment(SEGMENT_BYTES);
        let behind = store.headers.keys().filter(|number| **number >= end).count();
        prop_assert!(looks <= 4 + behind + 2 * epochs.len() * depth(store.headers.len()));
    }

    /// Whatever a single header says: the glance does not come off, or tells the same, or the first
    /// reader of the segment is refused.
    #[test]
    fn a_header_that_is_wrong_is_met_at_the_open_or_by_its_first_reader(
        steps in steps(),
        which in any::<prop::sample::Index>(),
        damage in 0..5_u8,
    ) {
        let mut store = history(&steps);
        let numbers: Vec<u64> = store.headers.keys().copied().collect();
        let number = *which.get(&numbers);
        let all = told(&Survey::take(&store).unwrap());
        let header = store.headers.get_mut(&number).unwrap();
        match (damage, header) {
            (0, header) => *header = Err("it is damaged".into()),
            (1, Ok(header)) => header.epoch += 1,
            (2, Ok(header)) => header.salt += 1,
            (3, Ok(header)) => {
                let before = Predecessor { epoch: header.epoch - 1, end: header.base };
                header.predecessor = Some(before);
            }
            (_, Ok(header)) => header.epoch -= u64::from(header.epoch > 1),
            (_, Err(_)) => unreachable!("a history damages nothing"),
        }
        let Some(Glance { found, unread }) = Glance::take(&store).unwrap() else { return Ok(()) };
        let is_unread = unread.iter().any(|header| header.number == number);
        let Ok(survey) = Survey::of(found, &store, None) else { return Ok(()) };
        if is_unread {
            prop_assert_eq!(told(&survey), all, "as if nothing had happened");
            let unread = Unread::new(&unread, SEGMENT_BYTES);
            let refused = unread.check(&store, Lsn::new(number * SEGMENT_BYTES));
            let is_same = store.headers[&number].as_ref().is_ok_and(|header| {
                // The first epoch has none below it.
                damage == 4 && header.epoch == 1
            });
            match refused {
                Ok(()) => prop_assert!(is_same),
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
                    prop_assert_eq!(error.segment(), Some(number));
                }
            }
        } else {
            // It was looked at, and the whole look judges it alike.
            prop_assert_eq!(told(&survey), told(&Survey::take(&store).unwrap()));
        }
    }
}

#[test]
fn a_long_epoch_costs_no_more_looks_than_a_short_one() {
    let looks = |bytes: u64| {
        let store = history(&[Step::Append { bytes }, Step::Prepare { segments: 1 }]);
        Glance::take(&store).unwrap().expect("nothing is wrong");
        *store.looks.lock()
    };
    assert_eq!(looks(20 * SEGMENT_BYTES), looks(2000 * SEGMENT_BYTES));
    assert!(looks(2000 * SEGMENT_BYTES) <= 4);
}
