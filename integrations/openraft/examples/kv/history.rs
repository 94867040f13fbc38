//! What the clients know, to judge each read: one task writes a key, with the values 1, 2, 3 and so
//! on, and any task reads it.
//!
//! A read is linearizable if it returns no value below one that was acknowledged, or returned by
//! another read, before it began, and none that nobody has begun to write.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is known of a key.
#[derive(Debug, Default)]
struct Known {
    begun: AtomicU64,
    /// The greatest value that was acknowledged or returned.
    least: AtomicU64,
}

/// All keys, which have numbers.
#[derive(Debug)]
pub(crate) struct History {
    keys: Vec<Known>,
    acknowledged: AtomicU64,
}

/// A read that has begun.
#[derive(Debug)]
#[must_use = "the read is judged when it has ended"]
pub(crate) struct Read {
    key: usize,
    least: u64,
}

pub(crate) fn name(key: usize) -> String {
    format!("key {key}")
}

impl History {
    pub(crate) fn new(keys: usize) -> History {
        let keys = (0..keys).map(|_| Known::default()).collect();
        History { keys, acknowledged: AtomicU64::new(0) }
    }

    /// Returns the next value of the key. The caller is the only one who writes it.
    pub(crate) fn begin_write(&self, key: usize) -> u64 {
        // Release, here and below: who reads the value from a node or from `least` sees that it was
        // begun. Pairs with the loads of `end_read` and `begin_read`.
        self.keys[key].begun.fetch_add(1, Ordering::Release) + 1
    }

    /// Notes that the last write of the key was acknowledged. Returns how many were in all.
    pub(crate) fn end_write(&self, key: usize, value: u64) -> u64 {
        self.keys[key].least.fetch_max(value, Ordering::Release);
        // Relaxed: only the number counts.
        self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn begin_read(&self, key: usize) -> Read {
        Read { key, least: self.keys[key].least.load(Ordering::Acquire) }
    }

    /// Judges what the read has returned.
    pub(crate) fn end_read(&self, read: &Read, found: Option<u64>) -> Result<(), String> {
        let Read { key, least } = *read;
        let (found, known) = (found.unwrap_or(0), &self.keys[key]);
        let begun = known.begun.load(Ordering::Acquire);
        if found < least {
            return Err(format!("{} is {found}, and was {least} before", name(key)));
        }
        if found > begun {
            return Err(format!("{} is {found}, and only {begun} was written", name(key)));
        }
        known.least.fetch_max(found, Ordering::Release);
        Ok(())
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Judges all that a node has, when no write is under way.
    pub(crate) fn judge(&self, found: &BTreeMap<String, u64>) -> Result<(), String> {
        for (key, known) in self.keys.iter().enumerate() {
            let (has, written) = (found.get(&name(key)), known.begun.load(Ordering::Acquire));
            if has.copied().unwrap_or(0) != written {
                return Err(format!("{} is {has:?}, and {written} was written", name(key)));
            }
        }
        let unknown = found.keys().find(|key| (0..self.keys.len()).all(|of| name(of) != **key));
        unknown.map_or(Ok(()), |key| Err(format!("nobody has written {key}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_an_older_or_unknown_value_is_found() {
        let history = History::new(2);
        assert_eq!(history.begin_write(0), 1);
        // A write that is under way can be seen or not, but no more once a read has returned it.
        let (first, second) = (history.begin_read(0), history.begin_read(0));
        history.end_read(&first, Some(1)).unwrap();
        history.end_read(&second, None).unwrap();
        let third = history.begin_read(0);
        assert_eq!(history.end_read(&third, None).unwrap_err(), "key 0 is 0, and was 1 before");
        assert_eq!(history.end_write(0, 1), 1);
        assert_eq!(history.begin_write(0), 2);
        let during = history.begin_read(0);
        assert_eq!(history.end_write(0, 2), 2);
        history.end_read(&during, Some(1)).unwrap();
        let after = history.begin_read(0);
        assert!(history.end_read(&after, Some(1)).is_err());
        assert!(history.end_read(&after, Some(3)).is_err(), "nobody has begun to write it");
        history.end_read(&after, Some(2)).unwrap();
    }

    #[test]
    fn a_lost_write_of_a_node_is_found() {
        let history = History::new(2);
        let map = |pairs: &[(&str, u64)]| {
            pairs.iter().map(|&(key, value)| (key.to_string(), value)).collect()
        };
        for _ in 0..2 {
            let value = history.begin_write(1);
            history.end_write(1, value);
        }
        history.judge(&map(&[("key 1", 2)])).unwrap();
        for wrong in [&[][..], &[("key 1", 1)], &[("key 0", 1), ("key 1", 2)]] {
            assert!(history.judge(&map(wrong)).is_err(), "{wrong:?}");
        }
        assert!(history.judge(&map(&[("key 1", 2), ("key 2", 1)])).is_err());
    }
}
