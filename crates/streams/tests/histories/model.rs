//! What the streams must hold: maps.

use std::collections::BTreeMap;

use palisade::Result;
use palisade_streams::{ConsumerStatus, Streams};

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) entries: BTreeMap<u64, Vec<u8>>,
    pub(crate) values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first entry that each consumer has not acknowledged, and whether it must seek.
    pub(crate) consumers: BTreeMap<Vec<u8>, (u64, bool)>,
}

/// All streams, by name.
pub(crate) type Model = BTreeMap<Vec<u8>, Stream>;

/// A change of one stream.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Create,
    Delete,
    Append(Vec<u8>),
    Before(u64),
    From(u64),
    Put(Vec<u8>, Option<Vec<u8>>),
    /// Sets the first entry that a consumer has not acknowledged.
    Consumer(Vec<u8>, u64),
    RemoveConsumer(Vec<u8>),
}

pub(crate) fn apply(model: &mut Model, name: &[u8], change: &Change) {
    if let Change::Create = change {
        model.insert(name.to_vec(), Stream::default());
        return;
    }
    let Some(stream) = model.get_mut(name) else { return };
    match change {
        Change::Create => {}
        Change::Delete => drop(model.remove(name)),
        Change::Append(data) => {
            stream.entries.insert(stream.next, data.clone());
            stream.next += 1;
        }
        Change::Before(first) => {
            stream.first = stream.first.max(*first);
            stream.entries.retain(|index, _| index >= first);
            for (acked, is_truncated) in stream.consumers.values_mut() {
                *is_truncated |= *acked < stream.first;
            }
        }
        Change::From(next) => {
            stream.next = *next;
            stream.entries.retain(|index, _| index < next);
            for position in stream.consumers.values_mut().filter(|(acked, _)| acked > next) {
                *position = (*next, true);
            }
        }
        Change::Put(key, Some(value)) => drop(stream.values.insert(key.clone(), value.clone())),
        Change::Put(key, None) => drop(stream.values.remove(key)),
        Change::Consumer(name, acked) => {
            stream.consumers.insert(name.clone(), (*acked, false));
        }
        Change::RemoveConsumer(name) => drop(stream.consumers.remove(name)),
    }
}

/// What there is, on a line: bounds, entries that are missing, a sum over the data, and values.
pub(crate) fn summary(model: &Model) -> String {
    let of = |(name, stream): (&Vec<u8>, &Stream)| {
        let missing =
            (stream.first..stream.next).filter(|index| !stream.entries.contains_key(index));
        let missing: Vec<u64> = missing.collect();
        let data = stream.entries.iter().flat_map(|(index, data)| {
            data.iter().map(|byte| u64::from(*byte)).chain([*index, data.len() as u64])
        });
        let sum = data.fold(0_u64, |sum, one| sum.wrapping_mul(31).wrapping_add(one));
        let values: Vec<_> = stream.values.values().map(Vec::len).collect();
        let (name, bounds) = (name.escape_ascii(), stream.first..stream.next);
        let consumers: Vec<_> = stream.consumers.values().collect();
        format!(
            "{name} {bounds:?} without {missing:?} sum {sum:x} values {values:?} consumers \
             {consumers:?}"
        )
    };
    model.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The keys of which a stream may have a value.
pub(crate) const KEYS: [&[u8]; 3] = [b"vote", b"", b"position"];

/// The names that consumers may have. The first one looks like a key of a value.
pub(crate) const CONSUMERS: [&[u8]; 2] = [b"\0vote", b"consumer"];

/// Reads all that the streams hold.
pub(crate) fn read(streams: &Streams) -> Result<Model> {
    let report = streams.open_report();
    assert_eq!(report.damaged, Vec::<Vec<u8>>::new());
    let read_one = |name: Vec<u8>| {
        let stream = streams.stream(&name)?;
        let (first, next) = (stream.first_index()?, stream.next_index()?);
        let all = stream.range(..)?.map(|entry| entry.map(|one| (one.index(), one.into_data())));
        let entries = all.collect::<Result<BTreeMap<_, _>>>()?;
        let back = stream.range_rev(..)?.collect::<Result<Vec<_>>>()?;
        let back = back.into_iter().rev().map(|entry| (entry.index(), entry.into_data()));
        assert!(back.eq(entries.clone()), "the way back finds other entries");
        let mut values = BTreeMap::new();
        for key in KEYS {
            values.extend(stream.value(key)?.map(|value| (key.to_vec(), value)));
        }
        let status = |one: ConsumerStatus| (one.name, (one.acked, one.is_truncated));
        let consumers = stream.consumers()?.into_iter().map(status).collect();
        Ok((name, Stream { first, next, entries, values, consumers }))
    };
    streams.list().into_iter().map(read_one).collect()
}
