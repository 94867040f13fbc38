//! std, and fresh pages by memmap2.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this is the door")]

use std::io;
use std::ops::Deref;
pub use std::sync::OnceLock;
pub use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;
pub use std::time::Instant;

use memmap2::{MmapMut, MmapRaw};

pub type JoinHandle = std::thread::JoinHandle<()>;
pub type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;
pub type RwLockWriteGuard<'a, T> = std::sync::RwLockWriteGuard<'a, T>;

/// A number for statistics and hints.
pub type StatCell = AtomicU64;

/// std's atomics as types of our own, because the lint looks at types.
macro_rules! atomic {
    ($name:ident: $value:ty) => {
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            pub const fn new(value: $value) -> $name {
                $name(std::sync::atomic::$name::new(value))
            }
        }

        impl Deref for $name {
            type Target = std::sync::atomic::$name;

            #[inline]
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

/// Words of 0, in pages that are zeroed when they are first touched.
#[derive(Debug)]
pub struct ZeroedWords {
    pages: MmapRaw,
    count: usize,
}

impl ZeroedWords {
    pub fn new(count: usize) -> io::Result<ZeroedWords> {
        let bytes = count.saturating_mul(size_of::<AtomicU64>());
        Ok(ZeroedWords { pages: MmapMut::map_anon(bytes)?.into(), count })
    }

    /// Returns whether the kernel gives forked children zeros.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[expect(unsafe_code, reason = "no safe call gives this advice")]
    pub fn clear_in_children(&self) -> bool {
        use rustix::mm::{Advice, madvise};

        // SAFETY:
        // - range: the mapping of `self`, in whole pages, which nothing else lies in.
        // - effect: no byte of this process changes. In a child all bytes are zeros before its
        //   first instruction, and zeros are valid words.
        unsafe {
            madvise(self.pages.as_mut_ptr().cast(), self.pages.len(), Advice::LinuxWipeOnFork)
        }
        .is_ok()
    }

    #[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
    pub fn clear_in_children(&self) -> bool {
        false
    }
}

impl Deref for ZeroedWords {
    type Target = [AtomicU64];

    #[inline]
    #[expect(unsafe_code, reason = "no safe call sees a mapping as atomics")]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY:
        // - aligned: a mapping begins with a page.
        // - in bounds: `new` made it as long as `count` words, which no mapping is that is longer
        //   than `isize::MAX` bytes.
        // - initialised: the pages are zeros at first, and again in a forked child where the kernel
        //   clears them; any bits are an `AtomicU64`.
        // - shared: nobody has another way to these pages; they live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.count) }
    }
}

atomic!(AtomicU32: u32);
atomic!(AtomicU64: u64);

/// A mutex without poisoning: a panic poisons the log, not a lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Waits for a notification or the deadline; may return early.
    pub fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        let Some(deadline) = deadline else {
            return self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        let time = deadline.saturating_duration_since(Instant::now());
        self.0.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    pub fn read(&self) -> std::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn yield_now() {
    std::thread::yield_now();
}

pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

pub fn is_current(handle: &JoinHandle) -> bool {
    handle.thread().id() == std::thread::current().id()
}

/// Returns whether there are two. Asks the system once, which reads files.
pub fn has_two_cores() -> bool {
    static ANSWER: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| cores() > 1);
    *ANSWER
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Calls `body` with each number below `workers` at the same time, and returns the results in
/// order. The caller's thread does the first, and those whose thread cannot be started.
pub fn in_parallel<T: Send>(workers: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let body = &body;
    std::thread::scope(|scope| {
        let start = |worker| {
            let builder = std::thread::Builder::new().name("palisade-verify".to_owned());
            (worker, builder.spawn_scoped(scope, move || body(worker)))
        };
        let others: Vec<_> = (1..workers).map(start).collect();
        let mut results = vec![body(0)];
        for (worker, thread) in others {
            results.push(match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(_) => body(worker),
            });
        }
        results
    })
}
