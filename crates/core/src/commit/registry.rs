//! Who waits for which LSN, and who leads: one registry under one lock, ordered by LSN.
//!
//! The lock is held for a few heap operations, never over a system call, a wake-up or foreign
//! code: entries are taken out under it and woken outside. Nothing is allocated once the vectors
//! have grown to the number of waiters that there are.
//!
//! Three queues share the entries: *threads* can be given leadership; *guests* (wakers and
//! callbacks) cannot lead; *observers* only watch, their waiting asks for no sync.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use super::node::Node;
use crate::{Error, ErrorKind, Lsn, Result};

/// What runs when an LSN is durable, or when it is known that it will not be.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// Somebody who waits.
pub(crate) enum Waiter {
    Thread(Arc<Node>),
    Observer(Arc<Node>),
    Task(Waker),
    Callback(Callback),
    /// A task's wait that failed: kept until its future comes for the error.
    Failed(Error),
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Waiter::Thread(_) => "Thread",
            Waiter::Observer(_) => "Observer",
            Waiter::Task(_) => "Task",
            Waiter::Callback(_) => "Callback",
            Waiter::Failed(_) => "Failed",
        })
    }
}

/// Names an entry; stale once the entry was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    waiter: Option<Waiter>,
}

/// A heap of (target, key), smallest target first; keys of taken entries are skipped.
type Queue = BinaryHeap<Reverse<(Lsn, Key)>>;

/// All queues.
const QUEUES: [fn(&mut Registry) -> &mut Queue; 3] =
    [Registry::threads_mut, Registry::guests_mut, Registry::observers_mut];

/// Waiters and leadership.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Somebody leads: a thread, or the flusher, which may only have been asked to.
    pub(crate) is_led: bool,
    /// The flusher was asked and has not begun: whoever can lead at once takes it from it.
    pub(crate) is_asked: bool,
    threads: Queue,
    guests: Queue,
    observers: Queue,
    // Where those who come now sleep.
    row: u32,
    entries: Vec<Entry>,
    free: Vec<u32>,
    max_waiters: usize,
    // Emptied vectors, kept so that a round does not allocate.
    spare_batches: Vec<Vec<Waiter>>,
}

impl Registry {
    pub(crate) fn new(max_waiters: usize) -> Registry {
        Registry {
            is_led: false,
            is_asked: false,
            threads: Queue::new(),
            guests: Queue::new(),
            observers: Queue::new(),
            row: 0,
            entries: Vec::new(),
            free: Vec::new(),
            max_waiters,
            spare_batches: Vec::new(),
        }
    }

    /// Takes leadership, if nobody holds it or the flusher has not begun.
    pub(crate) fn try_lead(&mut self) -> bool {
        let takes_over = std::mem::take(&mut self.is_asked);
        let leads = takes_over || !self.is_led;
        self.is_led = true;
        leads
    }

    /// A round begins: it will serve those who are here, mostly; those to come sleep elsewhere.
    pub(crate) fn begin_row(&mut self) {
        self.row = self.row.wrapping_add(1);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Registers `waiter` until everything below `target` is durable.
    pub(crate) fn register(&mut self, target: Lsn, waiter: Waiter) -> Result<Key> {
        if self.free.is_empty() {
            self.check_room()?;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, waiter: None });
            self.entries.len() as u32 - 1
        });
        let key = Key { index, generation: self.entries[index as usize].generation };
        let queue = match &waiter {
            Waiter::Thread(_) => &mut self.threads,
            Waiter::Observer(_) => &mut self.observers,
            _ => &mut self.guests,
        };
        queue.push(Reverse((target, key)));
        if let Waiter::Thread(node) | Waiter::Observer(node) = &waiter {
            node.reset(self.row, index);
        }
        self.entries[index as usize].waiter = Some(waiter);
        Ok(key)
    }

    /// Whether one more may wait.
    pub(crate) fn check_room(&self) -> Result<()> {
        if self.free.is_empty() && self.entries.len() >= self.max_waiters {
            let message = format!("{} threads and futures wait already", self.max_waiters);
            let refused = Error::new(ErrorKind::InvalidArgument, message);
            return Err(refused.with_advice("raise max_waiters, or wait again later"));
        }
        Ok(())
    }

    /// The waiter that `key` names, if it was not taken.
    pub(crate) fn waiter_mut(&mut self, key: Key) -> Option<&mut Waiter> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.waiter.as_mut() } else { None }
    }

    /// Takes the waiter that `key` names out, if it was not taken.
    pub(crate) fn take(&mut self, key: Key) -> Option<Waiter> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let waiter = entry.waiter.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(waiter)
    }

    /// Takes the waiter of a wait that was given up, and sweeps when much has been given up.
    pub(crate) fn cancel(&mut self, key: Key) -> Option<Waiter> {
        let waiter = self.take(key)?;
        let stale_bound = 2 * self.len() + 64;
        for queue in QUEUES {
            if queue(self).len() > stale_bound {
                let mut swept = std::mem::take(queue(self));
                swept.retain(|Reverse((_, key))| self.waiter_mut(*key).is_some());
                *queue(self) = swept;
            }
        }
        Some(waiter)
    }

    /// Takes everyone whose target is at or below `durable`, in LSN order within each queue.
    pub(crate) fn take_served(&mut self, durable: Lsn, into: &mut Vec<Waiter>) {
        for queue in QUEUES {
            while queue(self).peek().is_some_and(|Reverse((target, _))| *target <= durable) {
                if let Some(Reverse((_, key))) = queue(self).pop() {
                    into.extend(self.take(key));
                }
            }
        }
    }

    /// Takes everyone who asked for a sync and, if the log is `dead`, the observers, too. Tasks
    /// leave `error` behind for their futures; their wakers are among those taken.
    pub(crate) fn take_failed(&mut self, error: &Error, dead: bool, into: &mut Vec<Waiter>) {
        let mut queues = vec![std::mem::take(&mut self.threads), std::mem::take(&mut self.guests)];
        if dead {
            queues.push(std::mem::take(&mut self.observers));
        }
        for queue in queues {
            for Reverse((_, key)) in queue.into_sorted_vec().into_iter().rev() {
                match self.waiter_mut(key) {
                    Some(waiter @ Waiter::Task(_)) => {
                        into.push(std::mem::replace(waiter, Waiter::Failed(error.clone())));
                    }
                    _ => into.extend(self.take(key)),
                }
            }
        }
    }

    /// Takes the thread with the lowest target: the next leader.
    pub(crate) fn take_next_leader(&mut self) -> Option<Arc<Node>> {
        while let Some(Reverse((_, key))) = self.threads.pop() {
            if let Some(Waiter::Thread(node)) = self.take(key) {
                return Some(node);
            }
        }
        None
    }

    /// The lowest target of a waker or callback.
    pub(crate) fn first_guest_target(&mut self) -> Option<Lsn> {
        while let Some(Reverse((target, key))) = self.guests.peek().copied() {
            if matches!(self.waiter_mut(key), Some(Waiter::Task(_) | Waiter::Callback(_))) {
                return Some(target);
            }
            self.guests.pop();
        }
        None
    }

    pub(crate) fn borrow_batch(&mut self) -> Vec<Waiter> {
        self.spare_batches.pop().unwrap_or_default()
    }

    pub(crate) fn return_batch(&mut self, batch: Vec<Waiter>) {
        debug_assert!(batch.is_empty());
        self.spare_batches.push(batch);
    }

    fn threads_mut(&mut self) -> &mut Queue {
        &mut self.threads
    }

    fn guests_mut(&mut self) -> &mut Queue {
        &mut self.guests
    }

    fn observers_mut(&mut self) -> &mut Queue {
        &mut self.observers
    }
}
