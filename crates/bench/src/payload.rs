//! Records for codecs: the same ones in each run, and no two alike.

use crate::Random;

/// Records that are made; a longer log has them in turn.
const RECORDS: usize = 1000;
/// Keys and values are made of these.
const WORDS: &str = "account amount balance channel client country created currency customer \
                     device discount email invoice language limit merchant network note order \
                     origin partner payment price product region session shipping status supplier \
                     total vendor warehouse";
const WORD_COUNT: usize = 32;
/// The last field takes more than so many bytes.
const MARGIN_BYTES: usize = 20;

/// What records hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The same bytes in each record.
    Plain,
    /// A JSON object with fields of all kinds, and arrays of objects with the same keys.
    Json,
    /// Bytes that no codec makes smaller.
    Random,
}

impl Payload {
    /// Returns records of `bytes` bytes each; one record if all are the same. JSON that does not
    /// fit is cut off.
    pub fn records(self, bytes: usize) -> Vec<Vec<u8>> {
        let mut random = Random::new(Random::SEED);
        let record = |_| match self {
            // Not all bytes are equal, and none is 0.
            Payload::Plain => (0..bytes).map(|i| (i * 7) as u8 | 1).collect(),
            Payload::Json => json(&mut random, bytes),
            Payload::Random => (0..bytes).map(|_| (random.next_u64() >> 32) as u8).collect(),
        };
        let count = if self == Payload::Plain { 1 } else { RECORDS };
        (0..count).map(record).collect()
    }
}

fn json(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut text = format!(r#"{{"id":"{:016x}""#, random.next_u64());
    // Keys differ within an object: no two fields have the same number.
    for field in 0.. {
        let key = format!("{}_{field}", word(random));
        let value = match random.below(5) {
            0 => random.below(10_000_000).to_string(),
            1 => format!("{}.{:02}", random.below(10_000), random.below(100)),
            2 => format!(r#""2026-{:02}-{:02}""#, 1 + random.below(12), 1 + random.below(28)),
            3 => format!(r#""{} {}""#, word(random), word(random)),
            _ => format!("[{},{}]", row(random), row(random)),
        };
        if text.len() + key.len() + value.len() + MARGIN_BYTES > bytes {
            break;
        }
        text += &format!(r#","{key}":{value}"#);
    }
    text += r#","text":""#;
    while text.len() + 2 < bytes {
        text += word(random);
        text.push(' ');
    }
    text.truncate(bytes.saturating_sub(2));
    text += r#""}"#;
    text.truncate(bytes);
    text.into_bytes()
}

fn row(random: &mut Random) -> String {
    let (item, count, price) = (random.below(1_000_000), random.below(20), random.below(100_000));
    format!(r#"{{"item":{item},"name":"{}","count":{count},"price":{price}}}"#, word(random))
}

fn word(random: &mut Random) -> &'static str {
    WORDS.split(' ').nth(random.below(WORD_COUNT)).unwrap_or_default()
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
