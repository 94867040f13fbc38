//! `dump --follow` beside a writer that commits, rotates, truncates, dies and comes back.

use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::*;
use crate::common::{LIMIT, wait_until};

/// A `dump --follow` and the lines that it prints.
struct Following {
    child: Child,
    out: Receiver<String>,
    notes: Receiver<String>,
}

impl Following {
    fn start(dir: &Path, flags: &[&str]) -> Following {
        let args = [&["dump", "--follow", "--poll-ms", "5"], flags].concat();
        let mut command = command(dir, &args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = lines(child.stdout.take().unwrap());
        let notes = lines(child.stderr.take().unwrap());
        Following { child, out, notes }
    }

    /// The LSN of the next record, which `--json` printed.
    fn lsn(&self) -> Lsn {
        let line = self.out.recv_timeout(LIMIT).expect("a record is printed");
        let object: Value = serde_json::from_str(&line).unwrap();
        Lsn::new(object["lsn"].as_u64().unwrap())
    }

    fn prints(&self, lsns: &[Lsn]) {
        lsns.iter().for_each(|lsn| assert_eq!(self.lsn(), *lsn));
    }

    fn note(&self) -> String {
        self.notes.recv_timeout(LIMIT).expect("a note is printed")
    }

    fn ends(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    #[cfg(target_os = "linux")]
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

#[cfg(target_os = "linux")]
impl Following {
    fn stop(&self) {
        use rustix::process::{Pid, Signal, WaitOptions, waitpid};

        self.signal(Signal::STOP);
        let pid = Some(Pid::from_child(&self.child));
        let (_, status) = waitpid(pid, WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped());
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(pipe).lines().map_while(Result::ok);
        lines.into_iter().try_for_each(|line| sender.send(line))
    });
    receiver
}

fn commit(wal: &Wal, count: usize) -> Vec<Lsn> {
    (0..count).map(|_| wal.commit(&[7; 2000]).unwrap()).collect()
}

#[test]
fn a_follower_prints_each_record_once_over_rotation_and_reopen() {
    let (folder, wal) = open_log(&small());
    let mut lsns = commit(&wal, 3);
    let mut follow = Following::start(folder.path(), &["--json", "--limit", "306"]);
    follow.prints(&lsns);
    lsns = commit(&wal, 300);
    follow.prints(&lsns);
    wal.close().unwrap();
    let wal = small().open(folder.path()).unwrap();
    lsns = commit(&wal, 3);
    follow.prints(&lsns);
    assert_eq!(follow.ends().code(), Some(0));
    assert!(follow.notes.recv().is_err(), "nothing was truncated");
    wal.close().unwrap();
}

#[test]
fn a_follower_notes_a_truncation_of_printed_records_and_goes_on() {
    let (folder, wal) = open_log(&small());
    let lsns = commit(&wal, 3);
    let follow = Following::start(folder.path(), &["--json"]);
    follow.prints(&lsns);
    wal.truncate_after(lsns[1]).unwrap();
    let after = commit(&wal, 2);
    follow.prints(&after);
    let expected = format!(
        "note: the writer truncated the log from LSN {} on, which was printed up to LSN",
        lsns[2]
    );
    let note = follow.note();
    assert!(note.starts_with(&expected), "{note}");
    assert!(note.ends_with(&format!("the log continues at LSN {}", after[0])), "{note}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_follower_names_the_range_truncated_before_it_was_printed() {
    let (folder, wal) = open_log(&small());
    let lsns = commit(&wal, 3);
    let follow = Following::start(folder.path(), &["--json"]);
    follow.prints(&lsns);
    follow.stop();
    let unseen = commit(&wal, 200);
    wal.truncate_before(unseen[150]).unwrap();
    follow.signal(rustix::process::Signal::CONT);
    let first = follow.lsn();
    assert_eq!(first, unseen[150]);
    follow.prints(&unseen[151..]);
    let expected = format!("note: the writer truncated LSN {} to {first} before", unseen[0]);
    let note = follow.note();
    assert!(note.starts_with(&expected), "{note} is not {expected}");
}

#[test]
fn a_follower_goes_on_after_the_writer_crashes_and_recovers() {
    let (folder, wal) = open_log(&small());
    let lsns = commit(&wal, 3);
    let mut follow = Following::start(folder.path(), &["--json", "--limit", "5"]);
    follow.prints(&lsns);
    // No close: the next open recovers, and begins an epoch.
    drop(wal);
    let wal = small().open(folder.path()).unwrap();
    follow.prints(&commit(&wal, 2));
    assert_eq!(follow.ends().code(), Some(0));
    let note = follow.notes.recv().unwrap();
    assert!(note.starts_with("note: the log has no records from LSN "), "{note}");
}

/// As Ctrl-C does, which a shell may have its background jobs ignore.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_a_follower_that_has_printed_whole_lines() {
    use std::os::unix::process::ExitStatusExt;

    let (folder, lsns) = written();
    let mut follow = Following::start(folder.path(), &["--json"]);
    follow.prints(&lsns);
    follow.signal(rustix::process::Signal::TERM);
    assert_eq!(follow.ends().signal(), Some(rustix::process::Signal::TERM.as_raw()));
    assert!(follow.out.recv().is_err() && follow.notes.recv().is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_follower_without_new_records_ends_when_its_output_closes() {
    let (folder, _) = written();
    let mut command = command(folder.path(), &["dump", "--follow", "--poll-ms", "3600000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let notes = lines(child.stderr.take().unwrap());
    for _ in 0..RECORDS {
        assert!(out.read_line(&mut String::new()).unwrap() > 0);
    }
    drop(out);
    let mut follow = Following { child, out: channel().1, notes };
    assert_eq!(follow.ends().code(), Some(0));
    assert!(follow.notes.recv().is_err(), "it ends quietly");
}

#[test]
fn a_follower_begins_where_it_was_asked_to_or_refuses() {
    let (folder, wal) = open_log(&small());
    let lsns = commit(&wal, 10);
    wal.truncate_before(lsns[2]).unwrap();
    let refused = |from: Lsn| {
        let flags = ["dump", "--follow", "--from", &from.to_string(), "--limit", "1"];
        let output = palisade(folder.path(), &flags);
        assert_eq!(code(&output), 2, "{output:?}");
        text(&output.stderr)
    };
    let within = refused(lsns[4].plus(8));
    assert!(within.contains(&format!("the next one begins at LSN {}", lsns[5])), "{within}");
    refused(lsns[4].plus(4));
    let below = refused(lsns[1]);
    assert!(below.contains(&format!("the log, which begins at LSN {}", lsns[2])), "{below}");
    let next = wal.durable_lsn();
    let follow = Following::start(folder.path(), &["--json", "--from", &next.to_string()]);
    follow.prints(&commit(&wal, 20));
    assert_eq!(code(&palisade(folder.path(), &["dump", "--poll-ms", "5"])), 2);
    let zero = ["dump", "--follow", "--poll-ms", "0"];
    assert_eq!(code(&palisade(folder.path(), &zero)), 2);
}

/// Checks a log that was closed and one that was dropped.
#[test]
fn without_a_writer_a_start_within_the_last_record_is_refused() {
    for is_closed in [true, false] {
        let (folder, wal) = open_log(&small());
        let last = commit(&wal, 3)[2];
        let end = wal.durable_lsn();
        if is_closed {
            wal.close().unwrap();
        } else {
            drop(wal);
        }
        let within = last.plus(8).to_string();
        let refused = |flags: &[&str]| {
            let flags = [&["dump", "--from", &within, "--limit", "1"], flags].concat();
            let output = palisade(folder.path(), &flags);
            assert_eq!(code(&output), 2, "closed: {is_closed}, {output:?}");
            text(&output.stderr)
        };
        assert_eq!(refused(&["--follow"]), refused(&[]));

        let follow = Following::start(folder.path(), &["--json", "--from", &end.to_string()]);
        let wal = small().open(folder.path()).unwrap();
        follow.prints(&commit(&wal, 2));
    }
}

#[test]
fn beside_a_writer_a_start_within_the_last_record_is_refused() {
    let (folder, wal) = open_log(&small());
    let within = commit(&wal, 3)[2].plus(8).to_string();
    let output = palisade(folder.path(), &["dump", "--follow", "--from", &within, "--limit", "1"]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(text(&output.stderr).contains(&format!("no record begins at LSN {within}")));
}

#[test]
fn a_follower_waits_at_the_end_of_an_epoch_for_the_next_one() {
    let (folder, wal) = open_log(&small());
    commit(&wal, 3);
    let end = wal.durable_lsn();
    drop(wal);
    // No close: the open begins an epoch, which is empty.
    let wal = small().open(folder.path()).unwrap();
    let follow = Following::start(folder.path(), &["--json", "--from", &end.to_string()]);
    follow.prints(&commit(&wal, 2));
}

#[test]
fn a_follower_does_not_wait_at_damage() {
    let (folder, lsns) = written();
    damage(folder.path(), lsns[7].plus(25));
    let output = palisade(folder.path(), &["dump", "--follow"]);
    assert_eq!((code(&output), text(&output.stdout).lines().count()), (4, 7), "{output:?}");
    assert!(text(&output.stderr).contains(&format!("LSN {}", lsns[7])), "{output:?}");
}

#[test]
fn a_follower_beside_a_writer_reports_an_invalid_record() {
    let (folder, wal) = open_log(&small());
    let lsns = commit(&wal, 10);
    damage(folder.path(), lsns[7].plus(25));
    let follow = Following::start(folder.path(), &["--json"]);
    follow.prints(&lsns[..7]);
    let expected = format!("no valid record at LSN {}, though one follows", lsns[7]);
    let note = follow.note();
    assert!(note.contains(&expected), "{note}");
}

#[test]
fn a_follower_beside_recycling_prints_whole_records_in_order() {
    let (folder, wal) = open_log(&small());
    let flags = ["dump", "--follow", "--poll-ms", "1", "--json", "--limit", "8000"];
    let output = beside_a_recycler(wal, || palisade(folder.path(), &flags));
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let mut last = None;
    for line in text(&output.stdout).lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let lsn = object["lsn"].as_u64();
        assert!(lsn > last, "{lsn:?} after {last:?}");
        last = lsn;
        let hex = object["hex"].as_str().unwrap();
        assert_eq!(hex, hex[..8].repeat(200), "a record that the writer never wrote");
    }
    let notes = text(&output.stderr);
    let is_of_truncation = |note: &str| {
        note.starts_with("note: the writer truncated ")
            || note.starts_with("note: the log has no records from ")
    };
    assert!(notes.lines().all(is_of_truncation), "{notes}");
}
