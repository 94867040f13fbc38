//! Truncations whose segments another thread frees.

use palisade::{Release, Result};

use crate::held_release::{Held, held};
use crate::prelude::*;

type HeldLog = (TempDir, PathBuf, Wal, Sender<Result<()>>, Receiver<u64>);

/// A log whose callback waits, and both ends of that.
fn log_with_held() -> HeldLog {
    let (callback, results, begins) = held();
    let (dir, path, wal) = log_on_files(small().on_release(callback));
    (dir, path, wal, results, begins)
}

/// Fills three segments. Returns the first records of the second and the third.
fn fill(wal: &Wal) -> [Lsn; 2] {
    let mut firsts = Vec::new();
    while firsts.len() < 3 {
        let lsn = wal.append(&[7; 1000]).unwrap().lsn();
        if lsn.as_u64() / SEGMENT_BYTES == firsts.len() as u64 {
            firsts.push(lsn);
        }
    }
    wal.sync().unwrap();
    [firsts[1], firsts[2]]
}

/// Begins two releases. Returns the new head, the release that runs, and the one that waits.
fn two_releases(wal: &Wal, begins: &Receiver<u64>) -> (Lsn, Release, Release) {
    let [second, third] = fill(wal);
    let first = wal.truncate_before_in_background(second).unwrap();
    begins.recv().unwrap();
    (third, first, wal.truncate_before_in_background(third).unwrap())
}

fn poll(release: &mut Release, waker: &Waker) -> Poll<Result<()>> {
    Pin::new(release).poll(&mut Context::from_waker(waker))
}

#[test]
fn the_head_moves_at_once_and_nobody_waits_for_the_files() {
    let (_folder, path, wal, results, begins) = log_with_held();
    let [second, third] = fill(&wal);
    let mut release = wal.truncate_before_in_background(second).unwrap();
    assert_eq!(wal.head_lsn(), second);
    assert_eq!(begins.recv().unwrap(), 0, "another thread runs the callback");
    assert!(!release.wait_timeout(Duration::ZERO).unwrap());
    let bell = Arc::new(Count::default());
    assert!(poll(&mut release, &Waker::from(Arc::clone(&bell))).is_pending());
    // Commits and other callbacks go on meanwhile.
    let lsn = wal.commit(b"beside").unwrap();
    let (sender, durable) = channel();
    wal.on_durable(lsn, move |result| sender.send(result).unwrap()).unwrap();
    durable.recv().unwrap().unwrap();
    let last = wal.truncate_before_in_background(third).unwrap();
    assert_eq!((wal.head_lsn(), bell.woken()), (third, 0));
    assert!(segment(&path, 0).exists());
    results.send(Ok(())).unwrap();
    until(|| bell.woken() == 1);
    assert!(poll(&mut release, Waker::noop()).is_ready());
    release.wait().unwrap();
    assert!(!segment(&path, 0).exists() && segment(&path, 1).exists());
    results.send(Ok(())).unwrap();
    block_on(last).unwrap();
    assert!(!segment(&path, 1).exists() && segment(&path, 2).exists());
}

/// The thread that runs the callback frees what is truncated meanwhile.
#[test]
fn a_truncation_of_the_suffix_does_not_wait_for_a_callback() {
    let (_folder, path, wal, results, begins) = log_with_held();
    let [second, third] = fill(&wal);
    let release = wal.truncate_before_in_background(second).unwrap();
    begins.recv().unwrap();
    wal.truncate_after(second).unwrap();
    let next = wal.commit(b"next").unwrap();
    wal.truncate_from(next).unwrap();
    assert_eq!(contents(&wal), [(second, vec![7; 1000])]);
    let truncated = [third, next].map(|lsn| segment(&path, lsn.segment(SEGMENT_BYTES)));
    assert!(truncated.iter().all(|file| file.exists()), "the thread that frees them is busy");
    results.send(Ok(())).unwrap();
    release.wait().unwrap();
    assert!(truncated.iter().all(|file| !file.exists()));
    wal.commit(b"last").unwrap();
    wal.close().unwrap();
    assert_eq!(contents(&small().open(&path).unwrap()).len(), 2);
}

#[test]
fn the_head_survives_a_kill_before_the_files_are_freed() {
    let (_folder, path, wal, results, begins) = log_with_held();
    let [second, _] = fill(&wal);
    let before = contents(&wal);
    let _release = wal.truncate_before_in_background(second).unwrap();
    begins.recv().unwrap();
    let (_other, copy) = crate::folder::copy_as_killed(&path);
    let again = small().open(&copy).unwrap();
    assert_eq!(again.head_lsn(), second);
    let kept: Vec<_> = before.into_iter().filter(|(lsn, _)| *lsn >= second).collect();
    assert_eq!(contents(&again), kept);
    results.send(Ok(())).unwrap();
}

#[test]
fn a_waiter_gets_a_release_error_and_a_later_truncation_retries() {
    let (_folder, path, wal, results, _begins) = log_with_held();
    let [second, _] = fill(&wal);
    results.send(Err(Error::new(ErrorKind::Locked, "the bucket is busy"))).unwrap();
    let release = wal.truncate_before_in_background(second).unwrap();
    let error = release.wait().unwrap_err();
    assert!(error.to_string().contains("the bucket is busy"), "{error}");
    assert_eq!(release.wait().unwrap_err().kind(), error.kind(), "it stays");
    assert!(segment(&path, 0).exists());
    results.send(Ok(())).unwrap();
    wal.truncate_before_in_background(second).unwrap().wait().unwrap();
    assert!(!segment(&path, 0).exists());
}

/// Checks that the next truncation frees what the release has not freed.
#[test]
fn a_queued_release_is_closed_at_the_end_and_left_to_the_next() {
    let (_folder, path, wal, results, begins) = log_with_held();
    let (third, first, last) = two_releases(&wal, &begins);
    drop(wal);
    results.send(Ok(())).unwrap();
    first.wait().unwrap();
    assert_eq!(last.wait().unwrap_err().kind(), ErrorKind::Closed);
    // Its thread was the last handle.
    until(|| small().open(&path).is_ok());
    let wal = small().open(&path).unwrap();
    wal.truncate_before(third).unwrap();
    assert!(!segment(&path, 1).exists());
}

/// The last handle goes while callbacks wait for the release that runs, and for one that has not
/// begun.
#[test]
fn a_callback_may_wait_for_a_release_when_the_last_handle_goes() {
    let (_folder, path, wal, results, begins) = log_with_held();
    let (third, first, last) = two_releases(&wal, &begins);
    let ((running, runs), (ended, ends)) = (channel(), channel());
    wal.on_durable(third, move |_| {
        running.send(()).unwrap();
        ended.send((first.wait(), last.wait())).unwrap();
    })
    .unwrap();
    runs.recv().unwrap();
    drop(wal);
    results.send(Ok(())).unwrap();
    let (first, last) = ends.recv().unwrap();
    first.unwrap();
    assert_eq!(last.unwrap_err().kind(), ErrorKind::Closed);
    until(|| small().open(&path).is_ok());
}

/// A callback that panics when it gets a result.
#[derive(Debug)]
struct Panics(Held);

impl OnRelease for Panics {
    fn released(&self, segment: &ReleasedSegment<'_>) -> Result<()> {
        self.0.released(segment)?;
        panic!("the callback panics")
    }
}

/// A thread, a task and a callback wait when the panic comes.
#[test]
fn a_callback_that_panics_is_the_error_of_those_who_wait() {
    let (callback, results, begins) = held();
    let (_folder, _, wal) = log_on_files(small().on_release(Panics(callback)));
    let [second, third] = fill(&wal);
    let panicked = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("panicked") && !error.is_fatal(), "{error}");
    };
    let mut release = wal.truncate_before_in_background(second).unwrap();
    begins.recv().unwrap();
    let bell = Arc::new(Count::default());
    assert!(poll(&mut release, &Waker::from(Arc::clone(&bell))).is_pending());
    let ((running, runs), (ended, ends)) = (channel(), channel());
    wal.on_durable(second, move |_| {
        running.send(()).unwrap();
        ended.send((release.wait(), release)).unwrap();
    })
    .unwrap();
    runs.recv().unwrap();
    results.send(Ok(())).unwrap();
    let (waited, mut release) = ends.recv().unwrap();
    panicked(waited);
    until(|| bell.woken() == 1);
    assert!(matches!(poll(&mut release, Waker::noop()), Poll::Ready(Err(_))));
    // The thread goes on.
    results.send(Ok(())).unwrap();
    panicked(wal.truncate_before_in_background(third).unwrap().wait());
    wal.commit(b"x").unwrap();
}

#[test]
fn an_lsn_that_is_no_record_is_refused_and_the_head_stays() {
    let (_folder, _, wal) = log_on_files(small());
    let [second, _] = fill(&wal);
    let error = wal.truncate_before_in_background(second.plus(8)).unwrap_err();
    assert_eq!((error.kind(), wal.head_lsn()), (ErrorKind::NotARecord, Lsn::ZERO));
}
