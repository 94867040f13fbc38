//! Ends a test that hangs instead of hanging with it.

use std::cell::RefCell;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Far above what any test takes on a loaded machine; it only bounds a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// Dropped with the thread of the test.
    static WATCH: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}

/// Ends the process unless this test ends in time. All helpers that make a log call it; only the
/// first call of a test counts.
pub(crate) fn watch() {
    WATCH.with_borrow_mut(|watch| {
        watch.get_or_insert_with(|| {
            let (sender, receiver) = channel();
            let test = thread::current().name().unwrap_or_default().to_owned();
            thread::spawn(move || {
                if receiver.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    // Not captured: nobody is left to show what was.
                    let mut errors = std::io::stderr();
                    let _ = writeln!(errors, "{test}: a call hangs");
                    std::process::abort();
                }
            });
            sender
        });
    });
}

/// Gives up the core until `holds`; the watchdog bounds the wait.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::yield_now();
    }
}
