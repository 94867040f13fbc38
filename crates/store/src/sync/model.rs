//! The model checker loom in place of std.
#![expect(clippy::disallowed_types, reason = "this is the door")]

use std::io;
use std::ops::{Add, Deref, Sub};
use std::time::Duration;

pub use loom::sync::atomic::Ordering;

pub type JoinHandle = loom::thread::JoinHandle<()>;
pub type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;
pub type RwLockWriteGuard<'a, T> = loom::sync::RwLockWriteGuard<'a, T>;

/// A number for statistics and hints, outside of the model: each access would be one more place to
/// switch threads at.
pub type StatCell = std::sync::atomic::AtomicU64;

/// loom's atomics, with each thread's last load kept apart.
///
/// loom tries another order of two accesses only if the *last* access before a write conflicts with
/// it. So a thread that loads a value before it changes it, as every append does with the tail,
/// hides the loads of the others. Here each load touches an object of its thread's own, and a write
/// touches those of the others. All of it is Relaxed, which adds no order.
macro_rules! atomic {
    ($name:ident: $value:ty) => {
        #[derive(Debug)]
        pub struct $name {
            inner: loom::sync::atomic::$name,
            loads: Loads,
        }

        impl $name {
            pub fn new(value: $value) -> $name {
                let inner = loom::sync::atomic::$name::new(value);
                $name { inner, loads: Loads::new() }
            }

            pub fn load(&self, order: Ordering) -> $value {
                self.loads.note();
                self.inner.load(order)
            }
        }

        impl Deref for $name {
            type Target = loom::sync::atomic::$name;

            fn deref(&self) -> &Self::Target {
                self.loads.conflict();
                &self.inner
            }
        }
    };
}

atomic!(AtomicU32: u32);
atomic!(AtomicU64: u64);

#[derive(Debug)]
pub struct ZeroedWords(Vec<AtomicU64>);

impl ZeroedWords {
    #[expect(clippy::unnecessary_wraps, reason = "the real form can fail")]
    pub fn new(count: usize) -> io::Result<ZeroedWords> {
        Ok(ZeroedWords((0..count).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Deref for ZeroedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}

const MAX_THREADS: usize = 5;

loom::thread_local! {
    static THREAD_INDEX: usize = thread_index();
}

fn thread_index() -> usize {
    let id = format!("{:?}", loom::thread::current().id());
    let digits: String = id.chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("loom numbers its threads")
}

/// The threads that have loaded a value since others wrote it.
#[derive(Debug)]
struct Loads {
    objects: [loom::sync::atomic::AtomicU32; MAX_THREADS],
    // One bit for each thread. Outside of the model: it steers the search alone.
    pending: StatCell,
}

impl Loads {
    fn new() -> Loads {
        let objects = std::array::from_fn(|_| loom::sync::atomic::AtomicU32::new(0));
        Loads { objects, pending: StatCell::new(0) }
    }

    fn note(&self) {
        let me = THREAD_INDEX.with(|index| *index);
        // Relaxed: a mark for the search, no order; the next load, too.
        self.pending.fetch_or(1 << me, Ordering::Relaxed);
        self.objects[me].load(Ordering::Relaxed);
    }

    fn conflict(&self) {
        let me = THREAD_INDEX.with(|index| *index);
        // Relaxed: as in `note`.
        let pending = self.pending.fetch_and(1 << me, Ordering::Relaxed);
        for (index, object) in self.objects.iter().enumerate() {
            if index != me && pending & 1 << index != 0 {
                // Relaxed: as in `note`.
                object.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no model goes on after a panic")
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("no model goes on after a panic")
    }
}

#[derive(Debug)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> RwLock<T> {
    pub fn new(value: T) -> RwLock<T> {
        RwLock(loom::sync::RwLock::new(value))
    }

    pub fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        self.0.read().expect("no model goes on after a panic")
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect("no model goes on after a panic")
    }
}

/// std's `OnceLock` with a flag that the model sees: without an order, `get` may miss the value.
#[derive(Debug)]
pub struct OnceLock<T> {
    is_set: AtomicU32,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    pub fn new() -> OnceLock<T> {
        OnceLock { is_set: AtomicU32::new(0), value: std::sync::OnceLock::new() }
    }

    pub fn get(&self) -> Option<&T> {
        // Acquire: what std's `get` does when it sees the value; pairs with `get_or_init`.
        if self.is_set.load(Ordering::Acquire) == 0 { None } else { self.value.get() }
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        // Release: publishes the value; pairs with `get`.
        self.is_set.store(1, Ordering::Release);
        Ok(())
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(make);
        // AcqRel: publishes the value, or sees that of the thread that was faster.
        self.is_set.swap(1, Ordering::AcqRel);
        value
    }
}

/// A deadline that has not passed never comes.
#[derive(Debug)]
pub struct Condvar(loom::sync::Condvar);

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar(loom::sync::Condvar::new())
    }
}

impl Condvar {
    pub fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        self.0.wait(guard).expect("no model goes on after a panic")
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Instant {
        Instant(Duration::from_secs(1))
    }

    pub fn elapsed(self) -> Duration {
        Duration::ZERO
    }

    pub fn checked_add(self, time: Duration) -> Option<Instant> {
        self.0.checked_add(time).map(Instant)
    }

    pub fn saturating_duration_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.0 - earlier.0
    }
}

pub fn yield_now() {
    loom::thread::yield_now();
}

pub fn sleep(_time: Duration) {
    loom::thread::yield_now();
}

pub fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle> {
    Ok(loom::thread::spawn(body))
}

pub fn has_two_cores() -> bool {
    false
}

pub fn is_current(handle: &JoinHandle) -> bool {
    handle.thread().id() == loom::thread::current().id()
}

pub fn cores() -> usize {
    1
}

/// Runs one worker after the other: recovery is no part of the models.
pub fn in_parallel<T>(workers: usize, body: impl Fn(usize) -> T) -> Vec<T> {
    (0..workers).map(body).collect()
}

/// Runs `model` through its schedules up to `preemptions`, or `LOOM_MAX_PREEMPTIONS`, and counts
/// them.
#[expect(clippy::print_stdout, reason = "a model reports what it covered")]
pub fn model_check(name: &str, preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let preemptions = *builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    let schedules = std::sync::Arc::new(StatCell::new(0));
    let counter = std::sync::Arc::clone(&schedules);
    let start = std::time::Instant::now();
    builder.check(move || {
        // Relaxed: a count, read when all is over.
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    // Relaxed: as above.
    let schedules = schedules.load(Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    println!("model {name}: preemptions {preemptions}, schedules {schedules}, {seconds:.1} s");
}
