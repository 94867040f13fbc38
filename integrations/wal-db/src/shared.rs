//! The logs that this process has open, by folder.
//!
//! The published crate takes no lock, so engines open a log again while a handle of it still
//! exists. Such an open gets the log that is open, instead of the error of its lock.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::log::Log;

/// A `Weak` without a log stands for one that a thread is opening or closing.
static LOGS: LazyLock<Mutex<HashMap<PathBuf, Weak<Log>>>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();

/// What `enter` found.
#[derive(Debug)]
pub(crate) enum Found {
    /// The log is open.
    Open(Arc<Log>),
    /// No other thread opens the log while the entry exists. Without an entry, only the lock of
    /// the log keeps a second one away.
    Vacant(Option<Entry>),
}

/// The entry of a log. It is part of the log, so that it is removed after the log has ended.
#[derive(Debug)]
pub(crate) struct Entry(PathBuf);

/// Looks for the log in `folder`. Waits while another thread opens or closes it.
pub(crate) fn enter(folder: &Path) -> Found {
    let mut logs = lock();
    loop {
        match logs.get(folder) {
            None => {
                logs.insert(folder.to_path_buf(), Weak::new());
                return Found::Vacant(Some(Entry(folder.to_path_buf())));
            }
            Some(log) => match log.upgrade() {
                Some(log) => return Found::Open(log),
                None => logs = CHANGED.wait(logs).unwrap_or_else(PoisonError::into_inner),
            },
        }
    }
}

impl Entry {
    /// Shows the log, which has this entry, to other threads.
    pub(crate) fn show(&self, log: &Arc<Log>) {
        lock().insert(self.0.clone(), Arc::downgrade(log));
        CHANGED.notify_all();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock().remove(&self.0);
        CHANGED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, HashMap<PathBuf, Weak<Log>>> {
    LOGS.lock().unwrap_or_else(PoisonError::into_inner)
}
