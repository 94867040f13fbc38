//! Models of tails: what wakes them, and what they find when entries are replaced and when the log
//! ends.
//!
//! They run the hub and the stripes themselves. The end of the log is a flag and the waker of one
//! task: the log sets the flag first, too, and then wakes the task.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::thread;
use palisade::{Error, ErrorKind, Result};
use palisade_store::sync::{Instant, Mutex, WaitWord, model_check};

use super::{Model, STREAMS};
use crate::hub::{Found, Hub};
use crate::record::StreamId;

const ID: StreamId = STREAMS[0];

/// A stream with one tail.
struct Followed {
    model: Arc<Model>,
    hub: Arc<Hub>,
    tail: u64,
    end: Mutex<End>,
}

#[derive(Default)]
struct End {
    has_come: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Bell(WaitWord);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.wake_all();
    }
}

impl Followed {
    fn new() -> Arc<Followed> {
        let model = Model::new();
        let mut stripe = model.directory.lock_of(ID);
        let hub = Arc::clone(stripe.live(ID).expect("it is there").make_hub());
        drop(stripe);
        let tail = hub.add();
        Arc::new(Followed { model, hub, tail, end: Mutex::default() })
    }

    fn append(&self, count: u64) {
        for _ in 0..count {
            self.model.append(ID);
        }
    }

    fn look(&self, next: u64) -> Result<Found<()>> {
        let found = self.hub.look(&self.model.directory, ID, self.tail, next)?;
        Ok(match found {
            Found::At(_) => Found::At(()),
            Found::Nothing { changes } => Found::Nothing { changes },
        })
    }

    /// Waits for entry `next` as a thread does.
    fn wait(&self, next: u64) -> Result<()> {
        while let Found::Nothing { changes } = self.look(next)? {
            // Time stands still, so the deadline never comes.
            self.hub.wait(changes, Instant::now() + Duration::from_secs(1));
        }
        Ok(())
    }

    /// Waits for entry `next`, or for the end of the log, as a task does.
    fn block_on(&self, next: u64) -> Result<()> {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        loop {
            let seen = bell.0.look();
            let mut context = Context::from_waker(&waker);
            let ended = |context: &mut Context<'_>| self.poll_end(context);
            match self.hub.poll(self.tail, &mut context, || self.look(next), ended) {
                Poll::Ready(found) => return found,
                Poll::Pending => bell.0.sleep(seen, None),
            }
        }
    }

    fn poll_end(&self, context: &mut Context<'_>) -> Poll<Error> {
        let mut end = self.end.lock();
        if end.has_come {
            return Poll::Ready(Error::new(ErrorKind::Closed, "the log was closed"));
        }
        end.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends the log.
    fn end(&self) {
        let mut end = self.end.lock();
        end.has_come = true;
        let waker = end.waker.take();
        drop(end);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Checks that a thread that follows a stream misses none of two appends.
#[test]
fn a_thread_misses_no_entry() {
    model_check("a_thread_misses_no_entry", 3, || {
        let followed = Followed::new();
        let appender = {
            let followed = Arc::clone(&followed);
            thread::spawn(move || followed.append(2))
        };
        (0..2).for_each(|next| followed.wait(next).expect("it is not truncated"));
        appender.join().unwrap();
    });
}

/// Checks that a task that follows a stream misses none of two appends.
#[test]
fn a_task_misses_no_entry() {
    model_check("a_task_misses_no_entry", 3, || {
        let followed = Followed::new();
        let appender = {
            let followed = Arc::clone(&followed);
            thread::spawn(move || followed.append(2))
        };
        (0..2).for_each(|next| followed.block_on(next).expect("the log does not end"));
        appender.join().unwrap();
    });
}

/// Checks that a task beside an append and the end of the log gets the entry if the log has it.
#[test]
fn a_task_misses_no_entry_before_the_end() {
    model_check("a_task_misses_no_entry_before_the_end", 3, || {
        let followed = Followed::new();
        let appender = {
            let followed = Arc::clone(&followed);
            thread::spawn(move || followed.model.append_if(ID, || !followed.end.lock().has_come))
        };
        let closer = {
            let followed = Arc::clone(&followed);
            thread::spawn(move || followed.end())
        };
        let found = followed.block_on(0);
        assert_eq!(found.is_ok(), appender.join().unwrap().is_some(), "{found:?}");
        closer.join().unwrap();
    });
}

/// Checks that a tail beside a truncation of the suffix and two appends returns `Truncated`, and no
/// entry behind a replaced one.
#[test]
fn no_entry_behind_a_replaced_one_is_found() {
    model_check("no_entry_behind_a_replaced_one_is_found", 3, || {
        let followed = Followed::new();
        followed.model.append(ID);
        let writer = {
            let followed = Arc::clone(&followed);
            thread::spawn(move || {
                followed.model.truncate_from(ID, 0);
                followed.append(2);
            })
        };
        // It has returned entry 0.
        let found = followed.wait(1);
        assert_eq!(found.map_err(|error| error.kind()), Err(ErrorKind::Truncated));
        writer.join().unwrap();
    });
}
