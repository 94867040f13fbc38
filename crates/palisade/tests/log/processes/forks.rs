//! A process that forks while it has a log open: the child inherits the handle.
//!
//! Each test starts this program again, because a fork copies only the calling thread: in a process
//! of its own no other test holds a lock at that moment. There it opens a log, forks, and checks
//! what the child reports through a pipe.

use std::future::Future;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::iter;

use self::posix::{_exit, alarm, is_child_of_fork};
use super::second_process::{first_word, start};
use crate::folder::Snapshot;
use crate::prelude::*;

/// A child that hangs is killed by then. Far above what any child takes.
const CHILD_SECONDS: u32 = 30;

/// The calls that std does not have.
#[expect(unsafe_code, reason = "the tests are about fork")]
mod posix {
    // SAFETY: The declarations are those of POSIX; an `int` and a `pid_t` are an `i32` on Linux.
    unsafe extern "C" {
        fn fork() -> i32;
        // Safe: any number is valid.
        pub(super) safe fn alarm(seconds: u32) -> u32;
        // Safe: ends the process; nothing in it runs any more.
        pub(super) safe fn _exit(status: i32) -> !;
    }

    /// Forks this process; true in the child.
    pub(super) fn is_child_of_fork() -> bool {
        // SAFETY:
        // - The call takes no argument and touches no memory of the caller.
        // - The child may allocate: glibc holds its allocator's locks across the call.
        let pid = unsafe { fork() };
        assert!(pid >= 0, "{}", std::io::Error::last_os_error());
        pid == 0
    }
}

/// The child's end of the two pipes.
struct Parent {
    output: PipeWriter,
    input: PipeReader,
}

impl Parent {
    fn say(&mut self, text: &str) {
        writeln!(self.output, "{text}").unwrap();
    }

    /// Waits until the parent has called `go_on`.
    fn wait(&mut self) {
        self.input.read_exact(&mut [0]).unwrap();
    }
}

/// The parent's end of the two pipes.
struct Child {
    output: BufReader<PipeReader>,
    input: PipeWriter,
}

impl Child {
    /// Forks; the child runs `body` and ends.
    fn start(body: impl FnOnce(&mut Parent)) -> Child {
        let (from_child, to_parent) = pipe().unwrap();
        let (from_parent, to_child) = pipe().unwrap();
        if !is_child_of_fork() {
            return Child { output: BufReader::new(from_child), input: to_child };
        }
        alarm(CHILD_SECONDS);
        drop((from_child, to_child));
        let mut parent = Parent { output: to_parent, input: from_parent };
        let ended = catch_unwind(AssertUnwindSafe(|| body(&mut parent)));
        _exit(i32::from(ended.is_err()))
    }

    /// What the child says next; an empty text if it hung or panicked.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn go_on(&mut self) {
        self.input.write_all(&[1]).unwrap();
    }
}

fn open(path: &Path) -> Wal {
    small().open(path).unwrap()
}

/// The files of the log in `path`, and those of its log buffer.
fn all_files(path: &Path, wal: &Wal) -> (Snapshot, Vec<(PathBuf, Vec<u8>)>) {
    let prefix = format!("palisade-{}", wal.uuid());
    let names = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    let ours =
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix));
    let buffers = ours.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    (snapshot_at_rest(path), buffers)
}

/// Appends and commits at the end, closes the log, and finds `expected` in it.
fn goes_on(wal: Wal, path: &Path, expected: &[u64]) {
    wal.commit(&record(expected.len() as u64 - 1, 100)).unwrap();
    assert_eq!(numbers(&wal), expected);
    wal.close().unwrap();
    let wal = open(path);
    assert!(wal.recovery_report().clean);
    assert_eq!(numbers(&wal), expected);
}

/// Protection: the lock, which parent and child hold by the same file description; the log's
/// threads, of which the child has none.
#[test]
fn a_child_that_drops_its_handle_leaves_the_log_to_its_parent() {
    in_a_process(|path| {
        let mut wal = Some(open(path));
        wal.as_ref().unwrap().commit(&record(0, 100)).unwrap();
        wal.as_ref().unwrap().append(&record(1, 100)).unwrap();
        let before = all_files(path, wal.as_ref().unwrap()).1;
        let mut child = Child::start(|parent| {
            drop(wal.take());
            parent.say("dropped");
            parent.wait();
        });
        assert_eq!(child.hear(), "dropped");
        assert_eq!(first_word(&mut start(path)), "Locked");
        let wal = wal.unwrap();
        assert_eq!(all_files(path, &wal).1, before);
        goes_on(wal, path, &[0, 1, 2]);
    });
}

/// Not a test by itself: opens a log and forks while all of the log's threads run. The child leaves
/// the log to its parent and goes on.
fn with_a_child_that_outlives_it(leave: impl FnOnce(Wal)) {
    let Some(path) = given_folder() else { return };
    let wal = open(&path);
    wal.commit(&record(0, 100)).unwrap();
    let (sender, receiver) = channel();
    wal.on_durable(wal.head_lsn(), move |result| sender.send(result).unwrap()).unwrap();
    receiver.recv().unwrap().unwrap();
    wal.append(&record(1, 100)).unwrap();
    if !is_child_of_fork() {
        // Until the test kills this process.
        loop {
            thread::park();
        }
    }
    alarm(CHILD_SECONDS);
    let left = catch_unwind(AssertUnwindSafe(|| leave(wal)));
    say(if left.is_ok() { "left" } else { "failed" });
    // The standard input of both processes ends with the test.
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|len| len > 0) {
        say(line.trim_end());
        line.clear();
    }
    _exit(0);
}

#[test]
fn a_child_that_drops_its_handle_and_lives_on() {
    with_a_child_that_outlives_it(drop);
}

#[test]
fn a_child_that_closes_a_handle_and_lives_on() {
    with_a_child_that_outlives_it(|wal| {
        // As one that a thread of the parent had.
        std::mem::forget(wal.clone());
        assert_eq!(wal.close().unwrap_err().kind(), ErrorKind::Forked);
        std::mem::forget(wal);
    });
}

/// Protection: the descriptors of the locks, which the log's threads seem to use for ever in a
/// child that has none of them.
/// Checks a child that dropped its handle and one that closed it.
#[test]
fn a_log_is_free_if_only_a_child_that_dropped_it_still_runs() {
    for leaves in ["drops_its", "closes_a"] {
        let (_dir, path) = folder();
        let test = format!("processes::forks::a_child_that_{leaves}_handle_and_lives_on");
        let mut other = Other::start(&test, &path);
        assert_eq!(other.hear().as_deref(), Some("left"), "{leaves}");
        assert_eq!(first_word(&mut start(&path)), "Locked", "{leaves}: the parent has it");
        other.die();
        let wal = open(&path);
        assert_eq!(numbers(&wal), [0, 1], "{leaves}");
        other.tell("the child goes on");
        assert_eq!(other.hear().as_deref(), Some("the child goes on"), "{leaves}");
    }
}

/// The error of each call that a child makes with what it inherited.
fn refusals(wal: &Wal, ticket: palisade::Ticket<'static>) -> Vec<(&'static str, Option<Error>)> {
    let (data, lsn) = (record(9, 100), wal.durable_lsn());
    let first = wal.head_lsn();
    let mut ticket = Box::pin(ticket);
    let polled = match ticket.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(result) => result.err(),
        std::task::Poll::Pending => None,
    };
    vec![
        ("append", wal.append(&data).err()),
        ("append_tagged", wal.append_tagged(1, &data).err()),
        ("append_vectored", wal.append_vectored(&[IoSlice::new(&data)]).err()),
        ("append_vectored_tagged", wal.append_vectored_tagged(1, &[IoSlice::new(&data)]).err()),
        ("append_with", wal.append_with(8, |_, _| ()).err()),
        ("append_batch", wal.append_batch(&[&data]).err()),
        ("append_batch_tagged", wal.append_batch_tagged([(1, &data)]).err()),
        ("append_many", wal.append_many(&[&data]).err()),
        ("append_many_tagged", wal.append_many_tagged([(1, &data)]).err()),
        ("try_append", wal.try_append(&data).err()),
        ("commit", wal.commit(&data).err()),
        ("commit_tagged", wal.commit_tagged(1, &data).err()),
        ("barrier", wal.barrier().wait().err()),
        ("sync", wal.sync().err()),
        ("wait_durable", wal.wait_durable(first).err()),
        ("on_durable", wal.on_durable(lsn, drop).err()),
        ("flush_to_os", wal.flush_to_os(lsn).err()),
        ("get", wal.get(first).err()),
        ("get_batch", wal.get_batch(&[first]).err()),
        ("get_batch of nothing", wal.get_batch(&[]).err()),
        ("last_record", wal.last_record().err()),
        ("is_empty", wal.is_empty().err()),
        ("records", wal.records().err()),
        ("range", wal.range(first..).err()),
        ("resume_lsn", wal.resume_lsn(first).err()),
        ("records_from", wal.records_from(first).err()),
        ("tail", wal.tail().err()),
        ("tail_from", wal.tail_from(first).err()),
        ("truncate_before", wal.truncate_before(lsn).err()),
        ("truncate_after", wal.truncate_after(first).err()),
        ("truncate_from", wal.truncate_from(first).err()),
        ("replace_from", wal.replace_from(first, [&data]).err()),
        ("checkpoint", wal.checkpoint(lsn).err()),
        ("ticket.wait", ticket.wait().err()),
        ("ticket.wait_timeout", ticket.wait_timeout(Duration::ZERO).err()),
        ("ticket.await", polled),
        ("close", wal.clone().close().err()),
    ]
}

/// Protection: the log buffer, which parent and child share, and every call that writes or waits.
#[test]
fn a_child_gets_an_error_from_each_call_and_changes_nothing() {
    in_a_process(|path| {
        let wal = open(path);
        wal.commit(&record(0, 100)).unwrap();
        // The log's own threads run.
        let (sender, receiver) = channel();
        wal.on_durable(wal.head_lsn(), move |result| sender.send(result).unwrap()).unwrap();
        receiver.recv().unwrap().unwrap();
        let (mut records, mut tail) = (wal.records().unwrap(), wal.tail().unwrap());
        let ticket = wal.append(&record(1, 100)).unwrap().detach();
        let before = all_files(path, &wal);
        let mut inherited = Some((wal, ticket));
        let mut child = Child::start(|parent| {
            let (wal, ticket) = inherited.take().unwrap();
            let stats = wal.stats();
            assert_eq!((stats.waiters, wal.reserved_lsn()), (0, ticket.end_lsn()));
            assert_eq!(wal.live_bytes(), ticket.end_lsn().bytes_since(wal.head_lsn()));
            let mut results = refusals(&wal, ticket);
            results.push(("records.next", records.next().err()));
            results.push(("records.next again", records.next().err()));
            results.push(("tail.next", tail.next(Duration::ZERO).err()));
            let is_forked = |error: &Error| {
                error.kind() == ErrorKind::Forked
                    && error.is_fatal()
                    && error.path() == Some(path)
                    && error.to_string().starts_with("this process was forked")
            };
            results.retain(|(_, error)| !error.as_ref().is_some_and(is_forked));
            drop((wal, records, tail));
            parent.say(&format!("{results:?}"));
        });
        assert_eq!(child.hear(), "[]");
        let (wal, ticket) = inherited.unwrap();
        let after = all_files(path, &wal);
        assert_eq!(after.1, before.1, "the log buffer");
        for (name, bytes) in before.0.iter().filter(|(name, _)| !name.starts_with("spare")) {
            // The parent may still be getting space ready: zeros follow.
            let grown = after.0[name].strip_prefix(bytes.as_slice()).expect(name);
            assert!(grown.iter().all(|&byte| byte == 0), "{name}");
        }
        drop(ticket);
        goes_on(wal, path, &[0, 1, 2]);
    });
}

/// Protection: a range that the parent has reserved, which the child would publish, too.
#[test]
fn a_child_forked_in_the_middle_of_an_append_writes_nothing() {
    in_a_process(|path| {
        let wal = open(path);
        wal.commit(&record(0, 100)).unwrap();
        let mut child = None;
        let mut is_told = None;
        let appended = wal.append_with(100, |_, bytes| {
            let (from_child, to_parent) = pipe().unwrap();
            // The child goes on behind the closure, so it is no `Child::start`.
            if is_child_of_fork() {
                alarm(CHILD_SECONDS);
                is_told = Some(to_parent);
                return;
            }
            child = Some(BufReader::new(from_child));
            let mut line = String::new();
            drop(to_parent);
            child.as_mut().unwrap().read_line(&mut line).unwrap();
            assert_eq!(line, "Err(Forked)\n");
            assert!(bytes.iter().all(|&byte| byte == 0), "the child has written into the range");
            bytes.copy_from_slice(&record(1, 100));
        });
        if let Some(mut parent) = is_told {
            let result = appended.map(drop).map_err(|error| error.kind());
            let written = writeln!(parent, "{result:?}");
            _exit(i32::from(written.is_err()));
        }
        appended.unwrap();
        goes_on(wal, path, &[0, 1, 2]);
    });
}

/// A fork in the middle of an append, by code that the log calls.
struct Fork<'a> {
    path: &'a Path,
    wal: &'a Wal,
    /// In the child, which goes on behind the fork.
    parent: Cell<Option<PipeWriter>>,
}

impl Fork<'_> {
    /// Forks. The parent waits for what the child says, and looks what it has written.
    fn fork(&self) {
        let before = all_files(self.path, self.wal).1;
        let (from_child, to_parent) = pipe().unwrap();
        if is_child_of_fork() {
            alarm(CHILD_SECONDS);
            self.parent.set(Some(to_parent));
            return;
        }
        drop(to_parent);
        let mut line = String::new();
        BufReader::new(from_child).read_line(&mut line).unwrap();
        assert_eq!(line, "Err(Forked)\n");
        let is_untouched = all_files(self.path, self.wal).1 == before;
        assert!(is_untouched, "the child has written into the range");
    }

    /// Ends the child, which reports the `result` of the append to its parent.
    fn end<T>(&self, result: palisade::Result<T>) {
        if let Some(mut parent) = self.parent.take() {
            let result = result.map(drop).map_err(|error| error.kind());
            let written = writeln!(parent, "{result:?}");
            _exit(i32::from(written.is_err()));
        }
        result.unwrap();
    }
}

/// A record that forks the second time it is asked for its bytes: the first time it is measured.
struct ForkingRecord<'a> {
    fork: &'a Fork<'a>,
    asked: Cell<u32>,
    bytes: Vec<u8>,
}

impl AsRef<[u8]> for ForkingRecord<'_> {
    fn as_ref(&self) -> &[u8] {
        self.asked.set(self.asked.get() + 1);
        if self.asked.get() == 2 {
            self.fork.fork();
        }
        &self.bytes
    }
}

/// Protection: as above, where the records of a batch, or their iterator, fork.
#[test]
fn a_child_forked_in_the_middle_of_a_batch_writes_nothing() {
    in_a_process(|path| {
        let wal = open(path);
        wal.commit(&record(0, 100)).unwrap();
        let fork = Fork { path, wal: &wal, parent: Cell::new(None) };
        let forking =
            |number| ForkingRecord { fork: &fork, asked: Cell::new(0), bytes: record(number, 100) };
        fork.end(wal.append_batch([&forking(1)]));
        fork.end(wal.append_many([&forking(2)]));
        // The end of the iterator: the second one comes behind the last record.
        let ends = Cell::new(0);
        let end = || {
            ends.set(ends.get() + 1);
            if ends.get() % 2 == 0 {
                fork.fork();
            }
            None
        };
        let records = |number| [record(number, 100)].into_iter().chain(iter::from_fn(end));
        fork.end(wal.append_batch(records(3)));
        fork.end(wal.append_many(records(4)));
        goes_on(wal, path, &[0, 1, 2, 3, 4, 5]);
    });
}

/// Protection: as above, where the iterator of a replacement forks.
#[test]
fn a_child_forked_in_the_middle_of_a_replacement_writes_nothing() {
    in_a_process(|path| {
        let wal = open(path);
        wal.commit(&record(0, 100)).unwrap();
        let replaced = wal.commit(&record(9, 100)).unwrap();
        let fork = Fork { path, wal: &wal, parent: Cell::new(None) };
        let end = || {
            fork.fork();
            None
        };
        let records = [record(1, 100)].into_iter().chain(iter::from_fn(end));
        fork.end(wal.replace_from(replaced, records));
        goes_on(wal, path, &[0, 1, 2]);
    });
}

/// Protection: an inherited descriptor of the lock file, which must not stand in the way of an
/// open.
#[test]
fn a_child_opens_another_log_and_its_parents_log_after_a_close() {
    in_a_process(|path| {
        let wal = open(path);
        wal.commit(&record(0, 100)).unwrap();
        let mut child = Child::start(|parent| {
            goes_on(open(&path.with_file_name("other")), &path.with_file_name("other"), &[0]);
            parent.say(&format!("{:?}", small().open(path).map(drop).map_err(|e| e.kind())));
            parent.wait();
            goes_on(open(path), path, &[0, 1]);
            parent.say("went on");
        });
        assert_eq!(child.hear(), "Err(Locked)");
        wal.close().unwrap();
        child.go_on();
        assert_eq!(child.hear(), "went on");
        goes_on(open(path), path, &[0, 1, 2]);
    });
}
