//! Records for codecs: the same ones in each run, and no two alike.

use std::fmt::Write as _;

use crate::random::Random;

/// Records that are made; a longer log has them in turn.
const RECORDS: usize = 1000;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Keys and values are made of these.
const WORDS: &str = "account amount balance channel client country created currency customer \
                     device discount email invoice language limit merchant network note order \
                     origin partner payment price product region session shipping status supplier \
                     total vendor warehouse";
const WORD_COUNT: usize = 32;
/// A row of an order takes at most so many bytes.
const ROW_BYTES: usize = 80;

/// What records hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A JSON object with fields of all kinds, and an array of objects with the same keys.
    Json,
    /// Bytes that no codec makes smaller.
    Random,
}

impl Payload {
    /// Returns records of `bytes` bytes each. JSON that does not fit is cut off.
    #[must_use]
    pub fn records(self, bytes: usize) -> Vec<Vec<u8>> {
        let mut random = Random::new(SEED);
        let record = |_| match self {
            Payload::Json => json(&mut random, bytes),
            Payload::Random => (0..bytes).map(|_| (random.next_u64() >> 32) as u8).collect(),
        };
        (0..RECORDS).map(record).collect()
    }
}

fn json(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut text = format!(r#"{{"id":"{:016x}""#, random.next_u64());
    // Writing to a string cannot fail.
    let mut field = 0;
    while text.len() < bytes / 2 {
        // Keys differ within an object: no two fields have the same number.
        let _ = write!(text, r#","{}_{field}":"#, word(random));
        let _ = match random.next_u64() % 4 {
            0 => write!(text, "{}", random.next_u64() % 10_000_000),
            1 => write!(text, "{}.{:02}", random.next_u64() % 10_000, random.next_u64() % 100),
            2 => write!(text, r#""2026-{:02}-{:02}""#, 1 + random.next_u64() % 12, 1 + field % 28),
            _ => write!(text, r#""{} {}""#, word(random), word(random)),
        };
        field += 1;
    }
    text.push_str(r#","rows":["#);
    let mut comma = "";
    while text.len() + 2 * ROW_BYTES < bytes {
        let (item, count) = (random.next_u64() % 1_000_000, 1 + random.next_u64() % 20);
        let (price, word) = (random.next_u64() % 100_000, word(random));
        let _ = write!(text, r#"{comma}{{"item":{item},"name":"{word}","#);
        let _ = write!(text, r#""count":{count},"price":{price}}}"#);
        comma = ",";
    }
    text.push(']');
    text.push_str(r#","text":""#);
    while text.len() + 2 < bytes {
        text.push_str(word(random));
        text.push(' ');
    }
    text.truncate(bytes.saturating_sub(2));
    text.push_str(r#""}"#);
    text.truncate(bytes);
    text.into_bytes()
}

fn word(random: &mut Random) -> &'static str {
    let place = (random.next_u64() >> 32) as usize % WORD_COUNT;
    WORDS.split(' ').nth(place).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_differ_have_the_requested_size_and_are_repeatable() {
        for payload in [Payload::Json, Payload::Random] {
            for bytes in [1, 20, 300, 1024] {
                let records = payload.records(bytes);
                assert!(records.iter().all(|record| record.len() == bytes), "{payload:?}");
                assert_eq!(records, payload.records(bytes));
            }
            let mut records = payload.records(1024);
            records.sort();
            records.dedup();
            assert_eq!(records.len(), RECORDS, "{payload:?}");
        }
    }

    #[test]
    fn each_word_can_be_drawn() {
        assert_eq!(WORDS.split(' ').count(), WORD_COUNT);
    }

    #[test]
    fn json_is_an_object_of_many_fields() {
        for record in Payload::Json.records(1024) {
            let object: serde_json::Value = serde_json::from_slice(&record).unwrap();
            assert!(object.as_object().unwrap().len() > 10, "{object}");
        }
    }
}
