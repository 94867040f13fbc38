//! A history: several process runs, and how each of them ends.

use palisade::ErrorKind;
use palisade_streams::{Streams, verify_on};

use crate::model::{read, summary};
use crate::seeds::Seeded;
use crate::session::Session;

const PROCESS_RUNS: u64 = 6;

impl Session {
    /// Checks that the log takes entries again when its streams are gone, also after crashes.
    fn check_room(&mut self, mut streams: Streams) {
        if !self.delete_all(&streams) {
            assert!(self.kills > 0, "a log that was always closed has room for truncations");
            // The advice for a log that was killed so often that truncations have no room.
            self.count("limits raised", 1);
            let limit = self.limit;
            self.limit = limit.map(|limit| 2 * limit);
            drop(streams);
            streams = self.open().expect("nothing fails");
            assert!(self.delete_all(&streams), "a higher limit gives truncations room");
            streams.close().expect("nothing fails");
            self.limit = limit;
        }
        drop(streams);
        self.crash();
        let streams = self.open().expect("nothing fails");
        assert_eq!(streams.list(), Vec::<Vec<u8>>::new());
        // A kill can leave dead segments, which the keeper releases.
        while self.maintain(&streams).expect("nothing fails") {}
        let stream = streams.create("room").expect("the log is empty");
        stream.commit([7; 3000]).expect("the log is empty");
        drop((stream, streams));
        self.crash();
        let streams = self.open().expect("nothing fails");
        let entry = streams.stream("room").and_then(|stream| stream.get(0));
        assert_eq!(entry.expect("it is durable").data(), [7; 3000]);
    }

    fn crash(&mut self) {
        match self.dice.below(3) {
            0 => self.disk.lose_power(),
            // What was appended is in the log's buffer, which outlives the process.
            _ => self.disk.kill(),
        }
        self.disk.restart();
    }

    fn has_opened(&self) -> bool {
        self.figures.contains_key("opens")
    }

    /// Checks what is in the files after a crash: footers and records say the same.
    fn check_files(&mut self) {
        let verdict = match verify_on(self.disk.as_disk(), "/log") {
            Ok(verdict) => verdict,
            // A crash has ended the open that makes the log.
            Err(error) if error.kind() == ErrorKind::NotFound && !self.has_opened() => return,
            Err(error) => panic!("{error}"),
        };
        assert!(verdict.is_whole(), "{verdict:?}");
        self.count("checks of footers", verdict.footers);
    }

    /// Deletes all streams, and releases what they had. Returns false if there is no room for it.
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
        self.archive.set_away(false);
        self.check_room(streams);
    }
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
            session.crash();
            session.check_files();
        }
        session.run_last_process();
    }

    fn describe(&self) -> String {
        self.session.disk.trace().join("\n")
    }
}
