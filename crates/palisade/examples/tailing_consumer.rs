//! A consumer that tails a log, keeps its position, and survives a restart.
//!
//! `cargo run -p palisade --example tailing_consumer`
//!
//! - The consumer sums the amounts of each account. It saves the sums and its position in one
//!   file, in one step, so each event counts once, wherever the process dies.
//! - When it opens, it asks the log whether its position still holds (`Wal::resume_lsn`).
//! - It truncates the log below the position that it has saved. If a log has several consumers,
//!   the owner of the log truncates below the least of their positions.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use palisade::{ErrorKind, Lsn, Tail, Wal};

/// Events after which the consumer saves.
const SAVE_AFTER: usize = 100;

/// What the consumer has made of all events below `position`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Totals {
    position: Lsn,
    sums: BTreeMap<String, i64>,
}

impl Totals {
    fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.position);
        for (account, sum) in &self.sums {
            let _ = writeln!(text, "{account} {sum}");
        }
        text
    }

    fn from_text(text: &str) -> Option<Totals> {
        let mut lines = text.lines();
        let position = lines.next()?.parse().ok()?;
        Some(Totals { position, sums: lines.map(parse).collect::<Option<_>>()? })
    }
}

/// Parses an event or a sum, such as "alice -10".
fn parse(text: &str) -> Option<(String, i64)> {
    let (account, amount) = text.split_once(' ')?;
    Some((account.to_owned(), amount.parse().ok()?))
}

struct Consumer {
    file: PathBuf,
    totals: Totals,
}

impl Consumer {
    /// Loads the saved totals, and compares their position with the log.
    fn open(file: &Path, wal: &Wal) -> io::Result<Consumer> {
        let mut totals = match fs::read_to_string(file) {
            Ok(text) => Totals::from_text(&text).ok_or_else(|| invalid("damaged totals"))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Totals::default(),
            Err(error) => return Err(error),
        };
        if wal.resume_lsn(totals.position)? < totals.position {
            // The log was truncated below events that the totals contain: begin anew.
            totals = Totals::default();
        }
        if wal.resume_lsn(totals.position)? > totals.position {
            return Err(invalid("the log was truncated above the consumer's position"));
        }
        Ok(Consumer { file: file.to_owned(), totals })
    }

    /// Adds the next event to the totals. Returns false if there was none within `timeout`.
    fn take(&mut self, tail: &mut Tail, timeout: Duration) -> io::Result<bool> {
        let Some(event) = tail.next(timeout)? else { return Ok(false) };
        let text = str::from_utf8(event.data()).ok();
        let (account, amount) = text.and_then(parse).ok_or_else(|| invalid("not an event"))?;
        *self.totals.sums.entry(account).or_default() += amount;
        self.totals.position = event.next_lsn();
        Ok(true)
    }

    /// Makes the totals and the position durable, in one step.
    fn save(&self) -> io::Result<()> {
        let new = self.file.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(self.totals.to_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        File::open(self.file.parent().ok_or(io::ErrorKind::InvalidInput)?)?.sync_all()
    }

    /// Saves, and frees what no consumer needs any more. Called only after an event was taken: see
    /// "Change data capture" in the guide.
    fn save_and_truncate(&self, wal: &Wal) -> io::Result<()> {
        self.save()?;
        match wal.truncate_before(self.totals.position) {
            // The tail still returns the events that are left, and then the same error.
            Err(error) if error.kind() == ErrorKind::Closed => Ok(()),
            truncated => Ok(truncated?),
        }
    }

    /// Takes events until the log is closed. Saves now and then, and when there is no event.
    fn run(&mut self, wal: &Wal) -> io::Result<()> {
        let mut tail = wal.tail_from(self.totals.position)?;
        let mut unsaved = 0;
        loop {
            let is_idle = match self.take(&mut tail, Duration::from_millis(50)) {
                Ok(has_event) => !has_event,
                Err(error) if is_closed(&error) => return self.save(),
                Err(error) => return Err(error),
            };
            unsaved += usize::from(!is_idle);
            if unsaved == SAVE_AFTER || is_idle && unsaved > 0 {
                self.save_and_truncate(wal)?;
                unsaved = 0;
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<palisade::Error>());
    cause.is_some_and(|cause| cause.kind() == ErrorKind::Closed)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Four producers commit 250 events each, while the consumer follows them. Each run adds to the
/// totals of the last one.
fn main() -> io::Result<()> {
    let folder = std::env::temp_dir().join("palisade-tailing-consumer");
    fs::create_dir_all(&folder)?;
    let wal = Wal::open(folder.join("wal"))?;
    let mut consumer = Consumer::open(&folder.join("totals"), &wal)?;
    println!("continues at LSN {} with {:?}", consumer.totals.position, consumer.totals.sums);

    thread::scope(|scope| {
        let consumed = scope.spawn(|| consumer.run(&wal));
        let producers = ["alice", "bob", "carol", "dave"].map(|account| {
            let wal = &wal;
            scope.spawn(move || {
                (0..250).try_for_each(|_| wal.commit(format!("{account} 1").as_bytes()).map(drop))
            })
        });
        for producer in producers {
            producer.join().expect("no producer panics")?;
        }
        wal.close()?; // the consumer takes all events, and then gets `Closed`
        consumed.join().expect("the consumer does not panic")
    })?;
    println!("ends at LSN {} with {:?}", consumer.totals.position, consumer.totals.sums);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palisade::Options;
    use palisade::disk::MemDisk;

    use super::*;

    const EVENTS: [&str; 5] = ["alice 1", "bob 2", "alice 3", "bob -4", "carol 5"];

    fn open(disk: &MemDisk) -> Wal {
        let options = Options::new().segment_bytes(64 << 10).buffer_bytes(4 << 10);
        options.open_on(Arc::new(disk.clone()), "/log").unwrap()
    }

    /// The file of the totals, in a folder that goes with the first part.
    fn totals() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("totals");
        (folder, file)
    }

    /// A consumer that has taken all events.
    fn consumer_of_all(file: &Path, wal: &Wal) -> Consumer {
        let mut consumer = Consumer::open(file, wal).unwrap();
        let mut tail = wal.tail_from(consumer.totals.position).unwrap();
        while consumer.take(&mut tail, Duration::ZERO).unwrap() {}
        consumer
    }

    fn sums(consumer: &Consumer) -> Vec<(&str, i64)> {
        consumer.totals.sums.iter().map(|(account, sum)| (account.as_str(), *sum)).collect()
    }

    #[test]
    fn each_event_counts_once_wherever_the_process_dies() {
        for (saved, killed) in (0..=5).flat_map(|killed| (0..=killed).map(move |at| (at, killed))) {
            let disk = MemDisk::new();
            let (_folder, file) = totals();
            let wal = open(&disk);
            for event in EVENTS {
                wal.commit(event.as_bytes()).unwrap();
            }
            let mut consumer = Consumer::open(&file, &wal).unwrap();
            let mut tail = wal.tail_from(consumer.totals.position).unwrap();
            for taken in 0..=killed {
                if taken == saved {
                    consumer.save().unwrap();
                }
                if taken < killed {
                    assert!(consumer.take(&mut tail, Duration::ZERO).unwrap());
                }
            }
            drop((consumer, tail, wal));
            disk.lose_power();

            let wal = open(&disk);
            wal.commit(b"dave 6").unwrap();
            let consumer = consumer_of_all(&file, &wal);
            let expected = [("alice", 4), ("bob", -2), ("carol", 5), ("dave", 6)];
            assert_eq!(sums(&consumer), expected, "saved after {saved}, killed after {killed}");
        }
    }

    #[test]
    fn a_run_truncates_what_it_has_saved_and_ends_with_the_log() {
        let (_folder, file) = totals();
        let wal = open(&MemDisk::new());
        for _ in 0..SAVE_AFTER {
            wal.commit(b"alice 1").unwrap();
        }
        let mut consumer = Consumer::open(&file, &wal).unwrap();
        thread::scope(|scope| {
            let consumed = scope.spawn(|| consumer.run(&wal).unwrap());
            while !wal.is_empty().unwrap() {
                thread::yield_now();
            }
            wal.commit(b"bob 1").unwrap();
            wal.close().unwrap();
            consumed.join().unwrap();
        });
        assert_eq!(sums(&consumer), [("alice", SAVE_AFTER as i64), ("bob", 1)]);
        assert_eq!(Totals::from_text(&fs::read_to_string(file).unwrap()).unwrap(), consumer.totals);
    }

    #[test]
    fn events_that_a_truncation_removes_are_not_counted() {
        let (_folder, file) = totals();
        let wal = open(&MemDisk::new());
        wal.commit(b"alice 1").unwrap();
        let overruled = wal.commit(b"bob 2").unwrap();
        let consumer = consumer_of_all(&file, &wal);
        consumer.save().unwrap();

        wal.replace_from(overruled, ["bob 3"]).unwrap();
        let consumer = consumer_of_all(&file, &wal);
        assert_eq!(sums(&consumer), [("alice", 1), ("bob", 3)]);
    }

    #[test]
    fn a_log_without_events_that_are_needed_is_refused() {
        let (_folder, file) = totals();
        let wal = open(&MemDisk::new());
        wal.commit(b"alice 1").unwrap();
        let second = wal.commit(b"alice 2").unwrap();
        wal.truncate_before(second).unwrap();
        assert!(Consumer::open(&file, &wal).is_err());
    }

    #[test]
    fn a_consumer_that_has_everything_continues_after_crashes() {
        let disk = MemDisk::new();
        let (_folder, file) = totals();
        let wal = open(&disk);
        wal.commit(b"alice 1").unwrap();
        let consumer = consumer_of_all(&file, &wal);
        consumer.save_and_truncate(&wal).unwrap();
        assert!(wal.is_empty().unwrap());
        drop((consumer, wal));

        for _ in 0..3 {
            disk.lose_power();
            drop(Consumer::open(&file, &open(&disk)).unwrap());
        }
        let wal = open(&disk);
        wal.commit(b"alice 2").unwrap();
        let consumer = consumer_of_all(&file, &wal);
        assert_eq!(sums(&consumer), [("alice", 3)]);
    }
}
