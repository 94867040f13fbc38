//! The door's other side: the model checker loom in place of std and parking_lot.

use std::time::{Duration, Instant};

pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::OnceLock;

pub(crate) type JoinHandle = loom::thread::JoinHandle<()>;
pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

/// loom's mutex with parking_lot's interface: a panic in a model ends the model, not the lock.
#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no model goes on after a panic")
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

#[derive(Debug)]
pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock(loom::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        self.0.read().expect("no model goes on after a panic")
    }

    pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        self.0.write().expect("no model goes on after a panic")
    }
}

#[derive(Debug)]
pub(crate) struct Parker(loom::thread::Thread);

impl Parker {
    pub(crate) fn current() -> Parker {
        Parker(loom::thread::current())
    }

    pub(crate) fn unpark(&self) {
        self.0.unpark();
    }
}

pub(crate) fn park() {
    loom::thread::park();
}

/// A model has no clock: a timed wait gives the core up and returns.
pub(crate) fn park_until(_deadline: Instant) {
    loom::thread::yield_now();
}

pub(crate) fn yield_now() {
    loom::thread::yield_now();
}

pub(crate) fn sleep(_time: Duration) {
    loom::thread::yield_now();
}

/// Models have no background thread: they run its parts on a thread of their own.
pub(crate) fn spawn(_: &str, _: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
    Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
}

pub(crate) fn is_current(_: &JoinHandle) -> bool {
    false
}

macro_rules! per_thread {
    ($name:ident: $type:ty = $make:expr) => {
        fn $name() -> std::sync::Arc<$type> {
            std::sync::Arc::new($make)
        }
    };
}
pub(crate) use per_thread;
