//! Asynchronous commits: many futures on few threads, each awaits its own record.
//!
//! Each thread polls its share of the tasks; a task that is woken is polled by its own thread.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use anyhow::Result;

use super::burst::{Round, Worker};
use crate::{Form, Measurement, Plan};

/// How many futures commit.
pub(super) const FORMS: [Form; 1] = [Form { number: 1024.0, ..Form::named("1024 tasks") }];

/// Measures the form's tasks on the plan's threads.
pub(super) fn measure(plan: &Plan) -> Result<Measurement> {
    let tasks = plan.form.number as usize;
    let work = |worker: &mut Worker<'_>| {
        // The first threads have one more if the tasks cannot be shared evenly.
        commit(worker, (tasks + plan.threads - 1 - worker.thread) / plan.threads)
    };
    Round { plan, records_a_turn: 1, work: &work }.run()
}

fn commit(worker: &mut Worker<'_>, tasks: usize) -> Result<()> {
    let wal = worker.log.wal()?;
    let worker = RefCell::new(worker);
    let task = || async {
        while worker.borrow().next_turn().is_some() {
            let begin = Instant::now();
            let ticket = wal.append(worker.borrow().record)?;
            ticket.await?;
            let time = begin.elapsed();
            let mut worker = worker.borrow_mut();
            worker.latencies.record(time);
            worker.records += 1;
        }
        Ok(())
    };
    run((0..tasks).map(|_| Box::pin(task()) as Task<'_>).collect())
}

type Task<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Polls the tasks on this thread until all are done, or one has failed.
fn run(tasks: Vec<Task<'_>>) -> Result<()> {
    let (ready, woken) = mpsc::channel();
    let mut left = tasks.len();
    let task = |(index, task)| {
        let waker = Waker::from(Arc::new(TaskWaker { index, ready: ready.clone() }));
        waker.wake_by_ref();
        Some((task, waker))
    };
    let mut tasks: Vec<_> = tasks.into_iter().enumerate().map(task).collect();
    while left > 0 {
        let index: usize = woken.recv()?;
        // A task that is done may still be woken by an earlier wait.
        let Some((task, waker)) = &mut tasks[index] else { continue };
        if let Poll::Ready(result) = task.as_mut().poll(&mut Context::from_waker(waker)) {
            result?;
            tasks[index] = None;
            left -= 1;
        }
    }
    Ok(())
}

/// Sends the number of its task to the thread that polls it.
struct TaskWaker {
    index: usize,
    ready: Sender<usize>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        // It fails only if the thread polls no more.
        let _ = self.ready.send(self.index);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use super::*;

    /// Pending this many times, each time woken by another thread.
    struct Yields(u32);

    impl Future for Yields {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.0 == 0 {
                return Poll::Ready(());
            }
            self.0 -= 1;
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        }
    }

    #[test]
    fn each_task_runs_to_its_end() {
        let done = Cell::new(0);
        let task = |yields| {
            let done = &done;
            Box::pin(async move {
                Yields(yields).await;
                done.set(done.get() + 1);
                Ok(())
            }) as Task<'_>
        };
        run((0..20).map(task).collect()).unwrap();
        assert_eq!(done.get(), 20);
    }

    #[test]
    fn an_error_of_one_task_is_the_error_of_all() {
        let waits = Box::pin(std::future::pending());
        let fails = Box::pin(async { anyhow::bail!("on purpose") });
        let error = run(vec![waits, fails]).unwrap_err();
        assert_eq!(error.to_string(), "on purpose");
    }
}
