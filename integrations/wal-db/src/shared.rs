//! The logs that this process has open, by disk and folder.
//!
//! The published crate takes no lock, so engines open a log again while a handle of it still
//! exists. Such an open gets the log that is open, instead of the error of its lock.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use palisade::disk::Disk;

use crate::log::Log;

/// The address of a disk, and the folder of a log there.
type Key = (usize, PathBuf);

/// A `Weak` without a log stands for one that a thread is opening or closing.
static LOGS: LazyLock<Mutex<HashMap<Key, Weak<Log>>>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();

/// What `enter` found.
#[derive(Debug)]
pub(crate) enum Found {
    /// The log is open.
    Open(Arc<Log>),
    /// No other thread opens the log while the entry exists.
    Vacant(Entry),
}

/// The entry of a log. It is part of the log, so that it is removed after the log has ended.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The entry owns it, so that no other disk gets its address.
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

/// Looks for the log in `folder` on `disk`, which is the same one only in clones of one `Arc`.
/// Waits while another thread opens or closes the log.
pub(crate) fn enter(disk: &Arc<dyn Disk>, folder: &Path) -> Found {
    let key = key(disk, folder);
    let mut logs = lock();
    loop {
        match logs.get(&key) {
            None => {
                logs.insert(key, Weak::new());
                let (disk, folder) = (Arc::clone(disk), folder.to_path_buf());
                return Found::Vacant(Entry { disk, folder });
            }
            Some(log) => match log.upgrade() {
                Some(log) => return Found::Open(log),
                None => logs = CHANGED.wait(logs).unwrap_or_else(PoisonError::into_inner),
            },
        }
    }
}

fn key(disk: &Arc<dyn Disk>, folder: &Path) -> Key {
    (Arc::as_ptr(disk).addr(), folder.to_path_buf())
}

impl Entry {
    /// Shows the log, which has this entry, to other threads.
    pub(crate) fn show(&self, log: &Arc<Log>) {
        lock().insert(key(&self.disk, &self.folder), Arc::downgrade(log));
        CHANGED.notify_all();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock().remove(&key(&self.disk, &self.folder));
        CHANGED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, HashMap<Key, Weak<Log>>> {
    LOGS.lock().unwrap_or_else(PoisonError::into_inner)
}
