//! Real processes that are killed: threads change streams of their own and one that they share,
//! beside the keeper. After each kill an open must find what a model says.
//!
//! `PALISADE_SECONDS=600` makes a soak of ten minutes of it; `cargo test` runs a few kills.

#![expect(clippy::print_stdout, reason = "progress and figures of long runs")]

#[path = "../../palisade/tests/common/dice.rs"]
mod dice;
#[path = "histories/model.rs"]
mod model;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dice::Dice;
use model::{CONSUMERS, Change, KEYS, Model, apply, read, summary};
use palisade_streams::{Options, Streams};

const THREADS: u64 = 4;
const STREAMS_OF_A_THREAD: u64 = 5;
const SHARED: &[u8] = b"shared";
/// Kills of a plain `cargo test`.
const KILLS: u64 = 4;
/// Gives the process that is killed its folder.
const FOLDER: &str = "PALISADE_TEST_FOLDER";

fn open(folder: &Path) -> Streams {
    let log = palisade::Options::new().segment_bytes(256 << 10).buffer_bytes(64 << 10);
    Options::new().log(log).move_percent(25).open(folder.join("log")).expect("the log is sound")
}

/// The changes of one thread in one process run. The parent makes the same ones.
struct Script {
    thread: u64,
    dice: Dice,
    /// What the thread's own streams hold.
    model: Model,
}

/// What a step changes: all of it or nothing.
type Changes = Vec<(Vec<u8>, Change)>;

impl Script {
    fn new(thread: u64, run: u64, all: &Model) -> Script {
        let own = |name: &&Vec<u8>| name.starts_with(&[b't', b'0' + thread as u8]);
        let model = all.keys().filter(own).map(|name| (name.clone(), all[name].clone())).collect();
        Script { thread, dice: Dice::new(run << 8 | thread), model }
    }

    fn next(&mut self) -> Changes {
        let number = self.dice.below(STREAMS_OF_A_THREAD);
        let name = format!("t{}-{number}", self.thread).into_bytes();
        let Some(stream) = self.model.get(&name) else { return vec![(name, Change::Create)] };
        let (first, next) = (stream.first, stream.next);
        let data = |dice: &mut Dice| {
            let len = dice.pick(&[0, 10, 100, 400, 2000]);
            vec![dice.next() as u8; len as usize]
        };
        let change = match self.dice.below(30) {
            0 => Change::From(first + self.dice.below(next - first + 1)),
            // One stream of each thread is slow: the keeper has to move it.
            1..3 if number > 0 => Change::Before(next - self.dice.below(next - first + 1).min(3)),
            3 => Change::Before(first + self.dice.below(next - first + 1)),
            4 => Change::Put(self.dice.pick(&KEYS).to_vec(), Some(data(&mut self.dice))),
            5 => Change::Put(self.dice.pick(&KEYS).to_vec(), None),
            6 if self.dice.once_in(5) => Change::Delete,
            9..11 => {
                let called = self.dice.pick(&CONSUMERS).to_vec();
                let is_known = stream.consumers.contains_key(&called);
                // A new one begins at the first entry.
                let to = if is_known { first + self.dice.below(next - first + 1) } else { first };
                Change::Consumer(called, to)
            }
            11 if !stream.consumers.is_empty() => {
                let called = stream.consumers.keys().next().cloned();
                Change::RemoveConsumer(called.unwrap_or_default())
            }
            7..9 => {
                let others: Vec<_> = self.model.keys().cloned().collect();
                let each = |other: Vec<u8>| (other, Change::Append(data(&mut self.dice)));
                return others.into_iter().map(each).collect();
            }
            _ => Change::Append(data(&mut self.dice)),
        };
        vec![(name, change)]
    }

    fn note(&mut self, changes: &Changes) {
        changes.iter().for_each(|(name, change)| apply(&mut self.model, name, change));
    }
}

fn make(streams: &Streams, changes: &Changes) -> palisade::Result<()> {
    if let [(name, change)] = &changes[..] {
        if let Change::Create = change {
            return streams.create(name).map(drop);
        }
        let stream = streams.stream(name)?;
        return match change {
            Change::Append(data) => stream.append(data).map(drop),
            Change::Before(first) => stream.truncate_before(*first).map(drop),
            Change::From(next) => stream.truncate_from(*next).map(drop),
            Change::Put(key, Some(value)) => stream.put(key, value).map(drop),
            Change::Put(key, None) => stream.remove_value(key).map(drop),
            Change::Delete | Change::Create => streams.delete(name).map(drop),
            Change::Consumer(called, to) => stream.consumer(called)?.seek(*to).map(drop),
            Change::RemoveConsumer(called) => stream.remove_consumer(called).map(drop),
        };
    }
    let handles = changes
        .iter()
        .map(|(name, _)| streams.stream(name))
        .collect::<palisade::Result<Vec<_>>>()?;
    let mut batch = streams.batch();
    for (stream, (_, change)) in handles.iter().zip(changes) {
        if let Change::Append(data) = change {
            batch = batch.append(stream, data);
        }
    }
    batch.apply().map(drop)
}

fn steps_file(folder: &Path, thread: u64) -> File {
    let path = folder.join(format!("steps-{thread}"));
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// The steps that a thread of the killed process had finished.
fn steps(folder: &Path, thread: u64) -> u64 {
    let mut bytes = [0; 8];
    let read = steps_file(folder, thread).read_at(&mut bytes, 0).unwrap();
    if read == 8 { u64::from_le_bytes(bytes) } else { 0 }
}

/// The process that is killed.
fn work(folder: &Path) {
    let run = fs::read_to_string(folder.join("run")).unwrap().parse().unwrap();
    let streams = open(folder);
    let all = read(&streams).unwrap();
    let shared = streams.stream_or_create(SHARED).unwrap();
    let appender = |thread: u64| {
        let mut script = Script::new(thread, run, &all);
        let file = steps_file(folder, thread);
        for step in 1..u64::MAX {
            let changes = script.next();
            make(&streams, &changes).unwrap();
            script.note(&changes);
            let ticket = shared.append([run, thread, step].map(u64::to_le_bytes).as_flattened());
            let index = ticket.unwrap().index();
            if index % 500 == 499 {
                shared.truncate_before(index.saturating_sub(200)).unwrap();
            }
            // One write of 8 bytes, which a kill does not tear.
            file.write_all_at(&step.to_le_bytes(), 0).unwrap();
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let appender = &appender;
            scope.spawn(move || appender(thread));
        }
        std::io::stderr().write_all(b"\nbegun\n").unwrap();
    });
}

/// The process that is killed, as its parent sees it. It does not outlive this value.
struct Writer(Child);

impl Writer {
    /// Starts it, and waits until its threads have begun.
    fn start(folder: &Path) -> Writer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed_processes_leave_what_was_changed", "--nocapture"]);
        command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut writer = Writer(command.spawn().unwrap());
        let output = BufReader::new(writer.0.stderr.as_mut().unwrap());
        let lines: Vec<_> = output.lines().map_while(Result::ok).take_while(is_no_start).collect();
        assert!(!lines.iter().any(|line| line.contains("panicked")), "{lines:?}");
        writer
    }

    /// Kills it. It cannot have ended before: it works until a call fails.
    fn kill(&mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "the process ended by itself");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn is_no_start(line: &String) -> bool {
    line != "begun"
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Both fail only where the process has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks the entries of the shared stream: those of a thread are in order, and the last ones that
/// were acknowledged are there.
fn check_shared(found: &model::Stream, run: u64, finished: &[u64]) {
    let mut last = vec![0; finished.len()];
    for data in found.entries.values() {
        let numbers: Vec<u64> =
            data.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect();
        let [of_run, thread, step] = numbers[..] else { panic!("{data:?}") };
        if of_run == run {
            let last = &mut last[thread as usize];
            assert!(*last == 0 || step == *last + 1, "step {step} of {thread} follows {last}");
            *last = step;
        }
    }
    for (thread, (last, finished)) in last.iter().zip(finished).enumerate() {
        // A slow thread's entries may have been truncated by the others.
        let is_there = *last == 0 || *last >= *finished;
        assert!(is_there, "thread {thread}: {last} is the last of {finished} steps");
    }
}

/// Opens the log after a kill and compares. Returns what it holds.
fn check(folder: &Path, run: u64, before: &Model) -> (Model, u64) {
    let streams = open(folder);
    let mut found = read(&streams).unwrap();
    let finished: Vec<u64> = (0..THREADS).map(|thread| steps(folder, thread)).collect();
    check_shared(&found.remove(SHARED).unwrap_or_default(), run, &finished);
    for (thread, &finished) in (0..).zip(&finished) {
        let mut script = Script::new(thread, run, before);
        for _ in 0..finished {
            let changes = script.next();
            script.note(&changes);
        }
        let own = Script::new(thread, run, &found).model;
        if own != script.model {
            // The step that the kill has met.
            let sure = summary(&script.model);
            let changes = script.next();
            script.note(&changes);
            assert!(own == script.model, "thread {thread}\n{}\n{sure}", summary(&own));
        }
    }
    streams.close().unwrap();
    (found, finished.iter().sum())
}

#[test]
fn killed_processes_leave_what_was_changed() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return work(&PathBuf::from(folder));
    }
    let seconds = std::env::var("PALISADE_SECONDS").ok().map(|text| text.parse().unwrap());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = dir.path();
    if !open(folder).log().stats().appends_survive_kill {
        // Without a shared log buffer, a kill may take what was not committed.
        println!("skipped: there is no room for a shared log buffer");
        return;
    }
    let (mut model, mut dice, mut run, mut steps) = (Model::new(), Dice::new(7), 0, 0);
    while end.map_or(run < KILLS, |end| Instant::now() < end) {
        run += 1;
        fs::write(folder.join("run"), run.to_string()).unwrap();
        for thread in 0..THREADS {
            steps_file(folder, thread).write_all_at(&[0; 8], 0).unwrap();
        }
        let mut writer = Writer::start(folder);
        // Nothing that is checked depends on when the kill comes.
        let most = if end.is_some() { 1500 } else { 200 };
        thread::sleep(Duration::from_millis(20 + dice.below(most)));
        writer.kill();
        let (found, finished) = check(folder, run, &model);
        (model, steps) = (found, steps + finished);
        if run % 50 == 0 {
            println!("{run} kills, {steps} steps");
        }
    }
    println!("{run} kills, {steps} steps: held");
    assert!(steps > 0, "the processes changed nothing");
}
