//! Models of a release in the background: the slot through which its job gives the result.

use super::async_waiters::block_on;
use super::{Bound, Log, check};
use crate::{ErrorKind, Release};

/// Checks that a thread which waits beside the end of a background release gets its result (P10).
#[test]
fn a_thread_that_waits_for_a_release_gets_its_result() {
    check("a_thread_that_waits_for_a_release_gets_its_result", Bound::None, || {
        let (release, finish) = Release::model(&Log::tiny().wal);
        let job = loom::thread::spawn(move || finish(Ok(())));
        release.wait().unwrap();
        job.join().unwrap();
    });
}

/// Checks that a task which waits beside the end of a background release is woken.
#[test]
fn a_task_that_waits_for_a_release_is_woken() {
    check("a_task_that_waits_for_a_release_is_woken", Bound::None, || {
        let (release, finish) = Release::model(&Log::tiny().wal);
        let job = loom::thread::spawn(move || finish(Ok(())));
        block_on(release).unwrap();
        job.join().unwrap();
    });
}

/// Checks that a wait for a release ends if its job is dropped and never runs.
#[test]
fn a_release_whose_job_is_dropped_ends_its_wait() {
    check("a_release_whose_job_is_dropped_ends_its_wait", Bound::None, || {
        let (release, finish) = Release::model(&Log::tiny().wal);
        let job = loom::thread::spawn(move || drop(finish));
        assert_eq!(release.wait().unwrap_err().kind(), ErrorKind::Closed);
        job.join().unwrap();
    });
}
