//! The floor of group commit: threads that park until one thread has woken them. No disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use anyhow::Result;

use super::{Log, Profile, no_fill};
use crate::plan::Plan;
use crate::workload::Workload;

pub(super) const PROFILE: Profile = Profile {
    name: "wake",
    version: None,
    lacks: |workload| {
        (!matches!(workload, Workload::Commit | Workload::OpenLoop))
            .then_some("it has no log, only waiters")
    },
    lacks_form: |_| None,
    create: |_, plan| Ok(Box::new(WakeFloor::start(plan))),
    fill: no_fill,
};

/// Each `commit` parks its thread; one thread wakes all that are parked, again and again.
///
/// It bounds what any log can reach whose committers wait for a leader: the same parking,
/// waking and returning, nothing else.
#[derive(Debug)]
struct WakeFloor {
    shared: Arc<Shared>,
    waker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
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
        let shared =
            Shared { slots, is_idle: AtomicBool::new(false), is_over: AtomicBool::new(false) };
        let shared = Arc::new(shared);
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
            if self.wake_all() > 0 {
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

    fn wake_all(&self) -> usize {
        self.slots.iter().filter(|slot| slot.wake()).count()
    }
}

impl Slot {
    fn wake(&self) -> bool {
        if !self.is_waiting.load(Ordering::SeqCst) {
            return false;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Release: pairs with the Acquire in `wait`; the slot is the committer's again.
        self.is_waiting.store(false, Ordering::Release);
        if let Some(thread) = thread {
            thread.unpark();
        }
        true
    }

    fn announce(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        *thread = Some(thread::current());
        drop(thread);
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
    fn append(&self, _thread: usize, _record: &[u8], _count: u32) -> Result<()> {
        Ok(())
    }

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

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn trim(&self) -> Result<()> {
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        None
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        Ok(None)
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
