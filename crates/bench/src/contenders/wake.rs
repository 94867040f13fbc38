//! The floor of group commit: threads that park until one thread has woken them. No disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};

use anyhow::Result;

use crate::{Contender, Log, Plan, Workload, lock};

/// The floor of waking: n parked threads woken by one, no disk.
pub const WAKE: Contender = Contender {
    name: "wake",
    is_floor: true,
    lacks: |workload| {
        (!matches!(workload, Workload::Commit | Workload::OpenLoop))
            .then_some("it has no log, only waiters")
    },
    open: |plan| Ok(Box::new(WakeFloor::start(plan))),
    ..Contender::BASE
};

/// Each `commit` parks its thread; one thread wakes all that are parked, again and again.
///
/// It bounds any log whose committers wait for a leader: it has the same parking, waking and
/// returning, and nothing else.
struct WakeFloor {
    shared: Arc<Shared>,
    waker: Thread,
}

#[derive(Default)]
struct Shared {
    slots: Vec<Slot>,
    is_idle: AtomicBool,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Slot {
    is_waiting: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl WakeFloor {
    fn start(plan: &Plan) -> WakeFloor {
        let slots = (0..plan.threads).map(|_| Slot::default()).collect();
        let shared = Arc::new(Shared { slots, ..Shared::default() });
        let of_waker = Arc::clone(&shared);
        let waker = thread::spawn(move || of_waker.wake_until_over()).thread().clone();
        WakeFloor { shared, waker }
    }
}

impl Shared {
    fn wake_until_over(&self) {
        // Acquire: pairs with the Release in `WakeFloor::drop`; nothing else is read after it.
        while !self.is_over.load(Ordering::Acquire) {
            if self.slots.iter().filter(|slot| slot.wake()).count() > 0 {
                continue;
            }
            // SeqCst, here and in `commit`: either this thread sees the slot of a committer
            // that came meanwhile, or that committer sees the flag and unparks this thread.
            self.is_idle.store(true, Ordering::SeqCst);
            if !self.slots.iter().any(|slot| slot.is_waiting.load(Ordering::SeqCst)) {
                thread::park();
            }
            self.is_idle.store(false, Ordering::SeqCst);
        }
    }
}

impl Slot {
    fn wake(&self) -> bool {
        if !self.is_waiting.load(Ordering::SeqCst) {
            return false;
        }
        let thread = lock(&self.thread).take();
        // Release: pairs with the Acquire in `commit`; the slot is the committer's again.
        self.is_waiting.store(false, Ordering::Release);
        if let Some(thread) = thread {
            thread.unpark();
        }
        true
    }
}

impl Log for WakeFloor {
    fn commit(&self, thread: usize, _record: &[u8]) -> Result<()> {
        let slot = &self.shared.slots[thread];
        *lock(&slot.thread) = Some(thread::current());
        slot.is_waiting.store(true, Ordering::SeqCst);
        if self.shared.is_idle.load(Ordering::SeqCst) {
            self.waker.unpark();
        }
        // Acquire: pairs with the Release in `wake`.
        while slot.is_waiting.load(Ordering::Acquire) {
            thread::park();
        }
        Ok(())
    }
}

impl Drop for WakeFloor {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `wake_until_over`. The waker's thread ends by itself.
        self.shared.is_over.store(true, Ordering::Release);
        self.waker.unpark();
    }
}
