//! The floor of group commit: threads that park until one thread has woken them. No disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};

use anyhow::Result;

use crate::contender::Contender;
use crate::log::Log;
use crate::plan::Plan;
use crate::team::lock;
use crate::workload::Workload;

/// The floor of waking: n parked threads woken by one, no disk.
pub const WAKE: Contender = Contender {
    name: "wake",
    is_floor: true,
    lacks: |workload| {
        (!matches!(workload, Workload::Commit | Workload::OpenLoop))
            .then_some("it has no log, only waiters")
    },
    create: |_, plan| Ok(Box::new(WakeFloor::start(plan))),
    ..Contender::BASE
};

/// Each `commit` parks its thread; one thread wakes all that are parked, again and again.
///
/// It bounds any log whose committers wait for a leader: it has the same parking, waking and
/// returning, and nothing else.
#[derive(Debug)]
struct WakeFloor {
    shared: Arc<Shared>,
    waker: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    slots: Vec<Slot>,
    is_idle: AtomicBool,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Slot {
    is_waiting: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl WakeFloor {
    fn start(plan: &Plan) -> WakeFloor {
        let slots = (0..plan.threads).map(|_| Slot::default()).collect();
        let shared = Arc::new(Shared { slots, ..Shared::default() });
        let waker = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.wake_until_over()
        });
        WakeFloor { shared, waker: Some(waker) }
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
        // Release: pairs with the Acquire in `wait`; the slot is the committer's again.
        self.is_waiting.store(false, Ordering::Release);
        if let Some(thread) = thread {
            thread.unpark();
        }
        true
    }

    fn announce(&self) {
        *lock(&self.thread) = Some(thread::current());
        self.is_waiting.store(true, Ordering::SeqCst);
    }

    fn wait(&self) {
        // Acquire: pairs with the Release in `wake`.
        while self.is_waiting.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Log for WakeFloor {
    fn commit(&self, thread: usize, _record: &[u8]) -> Result<()> {
        let slot = &self.shared.slots[thread];
        slot.announce();
        if self.shared.is_idle.load(Ordering::SeqCst)
            && let Some(waker) = &self.waker
        {
            waker.thread().unpark();
        }
        slot.wait();
        Ok(())
    }
}

impl Drop for WakeFloor {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `wake_until_over`.
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(waker) = self.waker.take() {
            waker.thread().unpark();
            // A panic of the waker has been printed by itself; there is nothing to add here.
            let _ = waker.join();
        }
    }
}
