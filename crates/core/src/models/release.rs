//! Models of a release in the background.

use super::async_waiters::block_on;
use super::{Bound, Log, check};
use crate::{ErrorKind, Release};

/// Checks P10.
#[test]
fn a_thread_that_waits_for_a_release_gets_its_result() {
    check("a_thread_that_waits_for_a_release_gets_its_result", Bound::None, || {
        let (release, finish) = Release::model(&Log::tiny().wal);
        let job = loom::thread::spawn(move || finish(Ok(())));
        release.wait().unwrap();
        job.join().unwrap();
    });
}

#[test]
fn a_task_that_waits_for_a_release_is_woken() {
    check("a_task_that_waits_for_a_release_is_woken", Bound::None, || {
        let (release, finish) = Release::model(&Log::tiny().wal);
        let job = loom::thread::spawn(move || finish(Ok(())));
        block_on(release).unwrap();
        job.join().unwrap();
    });
}

#[test]
fn a_release_whose_job_is_dropped_ends_its_wait() {
    check("a_release_whose_job_is_dropped_ends_its_wait", Bound::None, || {
        let (release, finish) = Release::model(&Log::tiny().wal);
        let job = loom::thread::spawn(move || drop(finish));
        assert_eq!(release.wait().unwrap_err().kind(), ErrorKind::Closed);
        job.join().unwrap();
    });
}
