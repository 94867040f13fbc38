//! Ends a test that hangs instead of hanging with it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Far above what any test takes on a loaded machine; it only bounds a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` on a thread of its own; panics if it does not end, and as it panics if it does.
pub(crate) fn guarded<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        // The receiver may have given up.
        let _ = sender.send(body());
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("a call hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            let payload = thread.join().expect_err("only a panic sends no result");
            std::panic::resume_unwind(payload)
        }
    }
}

/// Gives up the core until `holds`; a watchdog bounds the wait.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::yield_now();
    }
}
