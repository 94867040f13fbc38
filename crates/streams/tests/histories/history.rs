//! A history: several process runs, and how each of them ends.

use palisade_streams::Streams;

use crate::model::{read, summary};
use crate::seeds::Seeded;
use crate::session::Session;

const PROCESS_RUNS: u64 = 6;

impl Session {
    /// Checks that a log at its limit takes entries again when its streams are gone.
    fn check_room(&mut self, streams: Streams) {
        let Some(limit) = self.limit else { return };
        if self.delete_all(&streams) {
            return take_an_entry(&streams);
        }
        // The advice for a log that was killed so often that truncations have no room.
        assert!(self.kills > 0, "a log that was always closed has room for truncations");
        self.count("limits raised", 1);
        self.limit = Some(2 * limit);
        drop(streams);
        let streams = self.open().expect("nothing fails");
        assert!(self.delete_all(&streams), "a higher limit gives truncations room");
        streams.close().expect("nothing fails");
        self.limit = Some(limit);
        drop(streams);
        take_an_entry(&self.open().expect("nothing fails"));
    }

    /// Deletes all streams, and releases what they had. Returns false if the log has no room for it.
    fn delete_all(&mut self, streams: &Streams) -> bool {
        let names = streams.list();
        let deleted = names.iter().try_for_each(|name| streams.delete(name).map(drop));
        let deleted = deleted.and_then(|()| streams.sync());
        let is_done = self.unless_full(deleted).expect("nothing fails").is_some();
        while self.maintain(streams).expect("nothing fails") {}
        is_done
    }

    /// One run of a process, which ends in one of several ways.
    fn run_process(&mut self) {
        if self.dice.once_in(2) {
            self.disk.crash_at(self.disk.calls() + 1 + self.dice.below(120));
        }
        let steps = self.dice.below(250);
        let opened = self.open().and_then(|streams| {
            self.check_opened(&streams)?;
            (0..steps).try_for_each(|_| self.step(&streams))?;
            while self.maintain(&streams)? {}
            if let Some(found) = self.unless_full(read(&streams))? {
                assert!(found == *self.model(), "{}\n{}", summary(&found), summary(self.model()));
            }
            Ok(streams)
        });
        self.end_tails();
        self.kills += 1;
        if !self.disk.is_dead() {
            let streams = opened.expect("no call fails before the process dies");
            self.note_figures(&streams);
            if self.dice.once_in(2) && streams.close().is_ok() {
                self.note_durable();
                self.kills -= 1;
            }
        }
    }

    /// The last process run, which nothing ends.
    fn run_last_process(&mut self) {
        let streams = self.open().expect("nothing fails any more");
        self.check_opened(&streams).expect("nothing fails any more");
        for _ in 0..self.dice.below(250) {
            self.step(&streams).expect("nothing fails any more");
        }
        self.end_tails();
        self.check_room(streams);
    }
}

fn take_an_entry(streams: &Streams) {
    let stream = streams.create("room").expect("the log is empty");
    stream.commit([7; 3000]).expect("the log is empty");
}

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) session: Session,
}

impl Seeded for History {
    fn new(seed: u64) -> History {
        History { session: Session::new(seed) }
    }

    fn run(&mut self) {
        let session = &mut self.session;
        for _ in 0..PROCESS_RUNS {
            session.run_process();
            match session.dice.below(3) {
                0 => session.disk.lose_power(),
                // What was appended is in the log's buffer, which outlives the process.
                _ => session.disk.kill(),
            }
            session.disk.restart();
        }
        session.run_last_process();
    }

    fn describe(&self) -> String {
        self.session.disk.trace().join("\n")
    }
}
