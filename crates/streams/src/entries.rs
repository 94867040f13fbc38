//! Where the entries of one stream are: four bytes an entry, and a run for each piece of the stream
//! that lies in one segment.
//!
//! Indexes are dense, so the offsets of all entries stand in one list, by index. The runs say in
//! which segment they count. Entries that were moved lie in a later segment than those behind
//! them, so runs ascend by index, and not by segment.
//!
//! A stream with few entries in one segment has them in place, without an allocation of its own.

use smallvec::{Array, SmallVec};

/// The unit of an offset: records in the log begin at multiples of it.
pub(crate) const OFFSET_UNIT: u64 = 8;
/// In place of the offset of an entry that is not known.
const UNKNOWN: u32 = u32::MAX;
/// The longest segment whose offsets can be stored.
pub(crate) const MAX_SEGMENT_BYTES: u64 = UNKNOWN as u64 * OFFSET_UNIT;

/// Where an entry is: its segment, and the units from the segment's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

/// Entries from `first` on, up to the next run's first, are in `segment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    segment: u32,
}

/// Entries that were removed from a segment: the segment, and how many.
pub(crate) type Removed = (u32, u64);

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    first: u64,
    /// Offsets at the begin of `offsets` that belong to entries which were removed.
    stale: u32,
    offsets: SmallVec<[u32; 4]>,
    runs: SmallVec<[Run; 1]>,
}

impl Entries {
    /// Makes a list without entries; the next one has index `next`.
    pub(crate) fn new(next: u64) -> Entries {
        Entries { first: next, ..Entries::default() }
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn next(&self) -> u64 {
        self.first + self.known().len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known().is_empty()
    }

    fn known(&self) -> &[u32] {
        &self.offsets[self.stale as usize..]
    }

    /// Returns where entry `index` is; `None` if there is no such entry, or it is not known.
    pub(crate) fn get(&self, index: u64) -> Option<Place> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        let offset = *self.known().get(at)?;
        (offset != UNKNOWN)
            .then(|| Place { segment: self.runs[self.run_of(index)].segment, offset })
    }

    /// Returns the offset of the last entry, or 0.
    pub(crate) fn last_offset(&self) -> u32 {
        self.offsets.last().copied().unwrap_or_default()
    }

    /// Appends the next entry.
    pub(crate) fn push(&mut self, place: Place) {
        if self.runs.last().is_none_or(|run| run.segment != place.segment) {
            let run = Run { first: self.next(), segment: place.segment };
            push(&mut self.runs, run);
        }
        push(&mut self.offsets, place.offset);
    }

    /// Says that entry `index` is at `place`. Entries between it and those that are known become
    /// unknown ones. Returns the place where it was.
    pub(crate) fn put(&mut self, index: u64, place: Place) -> Option<Place> {
        if self.is_empty() {
            self.first = index;
        }
        self.extend_down_to(index, place.segment);
        self.pad_to(index, place.segment);
        if index == self.next() {
            self.push(place);
            return None;
        }
        let old = self.get(index);
        self.set_segment(index, place.segment);
        let at = self.stale as usize + (index - self.first) as usize;
        self.offsets[at] = place.offset;
        old
    }

    /// Prepends unknown entries, down to index `first`.
    pub(crate) fn extend_down_to(&mut self, first: u64, segment: u32) {
        if first >= self.first {
            return;
        }
        let count = (self.first - first) as usize;
        self.offsets.drain(..self.stale as usize);
        self.stale = 0;
        self.offsets.insert_many(0, std::iter::repeat_n(UNKNOWN, count));
        self.first = first;
        // Unknown entries need no run of their own.
        match self.runs.first_mut() {
            Some(run) => run.first = first,
            None => self.runs.push(Run { first, segment }),
        }
    }

    /// Appends unknown entries, until `next` would follow.
    pub(crate) fn pad_to(&mut self, next: u64, segment: u32) {
        while self.next() < next {
            let segment = self.runs.last().map_or(segment, |run| run.segment);
            self.push(Place { segment, offset: UNKNOWN });
        }
    }

    /// Removes the entries below `first`. If there is none from there on, the next one has index
    /// `first`.
    pub(crate) fn truncate_before(&mut self, first: u64, mut removed: impl FnMut(Removed)) {
        if first <= self.first {
            return;
        }
        let end = first.min(self.next());
        self.count(self.first, end, &mut removed);
        let stale = self.stale as usize + (end - self.first) as usize;
        // The rest moves down only if it is shorter than what it moves over.
        if stale * 2 >= self.offsets.len() {
            self.offsets.drain(..stale);
            self.stale = 0;
        } else {
            self.stale = stale as u32;
        }
        let gone = self.runs.partition_point(|run| run.first <= first);
        // The run that holds `first` stays, unless nothing does.
        let gone = if self.known().is_empty() { self.runs.len() } else { gone - 1 };
        self.runs.drain(..gone);
        self.first = first;
        if let Some(run) = self.runs.first_mut() {
            run.first = first;
        }
        self.shrink();
    }

    /// Removes the entries from `next` on.
    pub(crate) fn truncate_from(&mut self, next: u64, mut removed: impl FnMut(Removed)) {
        if next >= self.next() {
            return;
        }
        let next = next.max(self.first);
        self.count(next, self.next(), &mut removed);
        self.offsets.truncate(self.stale as usize + (next - self.first) as usize);
        let stay = self.runs.partition_point(|run| run.first < next);
        self.runs.truncate(stay);
        self.shrink();
    }

    /// Calls `each` for each known entry, with its index and its place.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u64, Place)) {
        for (at, run) in self.runs.iter().enumerate() {
            let end = self.runs.get(at + 1).map_or(self.next(), |next| next.first);
            let from = (run.first - self.first) as usize;
            let offsets = &self.known()[from..(end - self.first) as usize];
            for (index, &offset) in (run.first..).zip(offsets) {
                if offset != UNKNOWN {
                    each(index, Place { segment: run.segment, offset });
                }
            }
        }
    }

    /// Returns the indexes of up to `most` known entries at or above `from` that are in a segment
    /// which `is_wanted`, with their places.
    pub(crate) fn in_segments(
        &self,
        from: u64,
        most: usize,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Vec<(u64, Place)> {
        let mut found = Vec::new();
        for (at, run) in self.runs.iter().enumerate() {
            let end = self.runs.get(at + 1).map_or(self.next(), |next| next.first);
            if end <= from || !is_wanted(run.segment) {
                continue;
            }
            let known =
                (run.first.max(from)..end).filter_map(|index| Some((index, self.get(index)?)));
            found.extend(known.take(most - found.len()));
            if found.len() == most {
                break;
            }
        }
        found
    }

    /// Returns how many entries are not known.
    pub(crate) fn unknown(&self) -> usize {
        self.known().iter().filter(|&&offset| offset == UNKNOWN).count()
    }

    /// Calls `each` with the known entries in `[from, end)`, counted by segment.
    fn count(&self, from: u64, end: u64, each: &mut impl FnMut(Removed)) {
        let mut at = from;
        while at < end {
            let run = self.run_of(at);
            let run_end = self.runs.get(run + 1).map_or(end, |next| next.first.min(end));
            let range = (at - self.first) as usize..(run_end - self.first) as usize;
            let known = self.known()[range].iter().filter(|&&offset| offset != UNKNOWN).count();
            each((self.runs[run].segment, known as u64));
            at = run_end;
        }
    }

    fn run_of(&self, index: u64) -> usize {
        self.runs.partition_point(|run| run.first <= index) - 1
    }

    /// Says that the existing entry `index` is in `segment`.
    fn set_segment(&mut self, index: u64, segment: u32) {
        let at = self.run_of(index);
        let Run { first, segment: old } = self.runs[at];
        if old == segment {
            return;
        }
        let end = self.runs.get(at + 1).map_or(self.next(), |next| next.first);
        let joins_left = first == index && at > 0 && self.runs[at - 1].segment == segment;
        let has_rest = index + 1 < end;
        // In front of the entry, the entry, and behind it.
        let mut pieces = Vec::with_capacity(3);
        if first < index {
            pieces.push(Run { first, segment: old });
        }
        if !joins_left {
            pieces.push(Run { first: index, segment });
        }
        if has_rest {
            pieces.push(Run { first: index + 1, segment: old });
        }
        self.runs.remove(at);
        for piece in pieces.into_iter().rev() {
            self.runs.insert(at, piece);
        }
        let right = at + usize::from(first < index) + usize::from(!joins_left);
        if !has_rest && self.runs.get(right).is_some_and(|next| next.segment == segment) {
            self.runs.remove(right);
        }
    }

    /// Gives memory back if most of it is not used.
    fn shrink(&mut self) {
        if self.offsets.capacity() > 16 + 4 * self.offsets.len() {
            self.offsets.shrink_to_fit();
            self.runs.shrink_to_fit();
        }
    }
}

/// Appends. Takes memory for an eighth more: doubling would waste half of it.
fn push<A: Array>(list: &mut SmallVec<A>, item: A::Item) {
    if list.len() == list.capacity() {
        list.reserve_exact(2 + list.len() / 8);
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What a map says that the entries are.
    #[derive(Default)]
    struct Model {
        first: u64,
        next: u64,
        known: BTreeMap<u64, Place>,
    }

    impl Model {
        fn remove(&mut self, range: std::ops::Range<u64>) -> BTreeMap<u32, u64> {
            let mut removed = BTreeMap::new();
            self.known.retain(|index, place| {
                let stays = !range.contains(index);
                *removed.entry(place.segment).or_default() += u64::from(!stays);
                stays
            });
            removed.retain(|_, count| *count > 0);
            removed
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Put(u64, u32),
        Before(u64),
        From(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..4_u32).prop_map(Step::Push),
            4 => (0..40_u64, 0..6_u32).prop_map(|(index, segment)| Step::Put(index, segment)),
            1 => (0..40_u64).prop_map(Step::Before),
            1 => (0..40_u64).prop_map(Step::From),
        ]
    }

    fn check(entries: &Entries, model: &Model) {
        assert_eq!((entries.first(), entries.next()), (model.first, model.next));
        for index in 0..60 {
            assert_eq!(entries.get(index), model.known.get(&index).copied(), "{index}");
        }
        let mut all = BTreeMap::new();
        entries.for_each(|index, place| assert_eq!(all.insert(index, place), None));
        assert_eq!(all, model.known);
        let unknown = (model.next - model.first) as usize - model.known.len();
        assert_eq!(entries.unknown(), unknown);
        for segment in 0..6 {
            let of = |(index, place): (&u64, &Place)| (*index, *place);
            let in_segment =
                model.known.iter().map(of).filter(|(_, place)| place.segment == segment);
            let in_segment: Vec<_> = in_segment.filter(|(index, _)| *index >= 9).collect();
            assert_eq!(entries.in_segments(9, 99, |one| one == segment), in_segment);
        }
        let runs = entries.runs.iter().map(|run| run.first);
        assert!(runs.is_sorted_by(|a, b| a < b), "{entries:?}");
        assert!(entries.runs.iter().zip(entries.runs.iter().skip(1)).all(|(a, b)| a != b));
    }

    proptest! {
        #[test]
        fn entries_are_what_a_map_says(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut entries, mut model) = (Entries::default(), Model::default());
            for (offset, step) in (0..).zip(steps) {
                let mut removed = BTreeMap::new();
                let mut note = |(segment, count): Removed| {
                    *removed.entry(segment).or_insert(0) += count;
                };
                let mut gone = BTreeMap::new();
                match step {
                    Step::Push(segment) => {
                        entries.push(Place { segment, offset });
                        model.known.insert(model.next, Place { segment, offset });
                        model.next += 1;
                    }
                    Step::Put(index, segment) => {
                        let old = entries.put(index, Place { segment, offset });
                        assert_eq!(old, model.known.insert(index, Place { segment, offset }));
                        let is_empty = model.first == model.next;
                        model.first = if is_empty { index } else { model.first.min(index) };
                        model.next = if is_empty { index + 1 } else { model.next.max(index + 1) };
                    }
                    Step::Before(first) => {
                        entries.truncate_before(first, &mut note);
                        gone = model.remove(0..first);
                        model.first = model.first.max(first);
                        model.next = model.next.max(model.first);
                    }
                    Step::From(next) => {
                        entries.truncate_from(next, &mut note);
                        gone = model.remove(next..u64::MAX);
                        model.next = model.next.min(next.max(model.first));
                    }
                }
                removed.retain(|_, count| *count > 0);
                assert_eq!(removed, gone);
                check(&entries, &model);
            }
        }
    }
}
