//! An async service that answers a request when its record survives power loss.
//!
//! `cargo run -p palisade --example async_service`
//!
//! - A request decides and appends under a lock, and awaits its ticket without the lock. So all
//!   requests that wait share a sync, on one thread or on many.
//! - An answer that depends on the records of others awaits a barrier. It never shows what a crash
//!   can take back.
//! - A request that is cancelled cancels its wait only. Its record is in the log.
//!
//! The service needs no runtime. The end of this file has the least that can run it; tokio or
//! another one does it as well.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use palisade::{ErrorKind, Options, ReplayFrom, Result, Ticket, Wal};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Booked,
    Taken,
}

/// Books seats. A record of the log is a booking: the seat's number, and the customer's name.
struct Bookings {
    wal: Wal,
    names: Mutex<BTreeMap<u32, String>>,
}

impl Bookings {
    /// Replays the bookings of `recovery` and starts its log.
    fn start(recovery: palisade::Recovery) -> Result<Bookings> {
        let mut names = BTreeMap::new();
        let mut records = recovery.records(ReplayFrom::Head)?;
        while let Some(record) = records.next()? {
            if let Some((seat, name)) = record.data().split_first_chunk() {
                let name = String::from_utf8_lossy(name).into_owned();
                names.insert(u32::from_le_bytes(*seat), name);
            }
        }
        Ok(Bookings { wal: recovery.start(), names: Mutex::new(names) })
    }

    /// Books a seat. The answer is final: power loss does not change it.
    async fn book(&self, seat: u32, name: &str) -> Result<Answer> {
        loop {
            match self.decide(seat, name) {
                Ok(Some(ticket)) => {
                    // A full disk here loses nothing. The error has the record's `appended_lsn`.
                    ticket.await?;
                    return Ok(Answer::Booked);
                }
                Ok(None) => {
                    // The seat may be taken by a booking whose sync is not done.
                    self.wal.barrier().await?;
                    return Ok(Answer::Taken);
                }
                // The log buffer is full, and a sync makes room.
                Err(error) if error.kind() == ErrorKind::NoRoom => drop(self.wal.barrier().await?),
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends the booking if the seat is free. `append` would block the thread, and so the other
    /// tasks, if the log buffer were full.
    fn decide(&self, seat: u32, name: &str) -> Result<Option<Ticket<'_>>> {
        let mut names = self.names.lock().unwrap();
        if names.contains_key(&seat) {
            return Ok(None);
        }
        let appended = self.wal.try_append(&[&seat.to_le_bytes(), name.as_bytes()].concat());
        // With an appended LSN the log has the booking, although the call failed.
        if appended.as_ref().err().is_none_or(|error| error.appended_lsn().is_some()) {
            names.insert(seat, name.to_owned());
        }
        appended.map(Some)
    }
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join("palisade-async-service");
    // Each request that waits needs room among the waiters.
    let recovery = Options::new().max_waiters(1000).recover(folder)?;
    let bookings = Arc::new(Bookings::start(recovery)?);
    println!("{} seats were taken", bookings.names.lock().unwrap().len());

    let requests = (0..1000_u32).map(|number| {
        let bookings = Arc::clone(&bookings);
        async move { bookings.book(number / 2, &format!("customer {number}")).await }
    });
    let answers = run_all(requests).into_iter().collect::<Result<Vec<_>>>()?;
    let booked = answers.iter().filter(|answer| **answer == Answer::Booked).count();
    println!("1000 requests, {booked} new bookings, {} syncs", bookings.wal.stats().syncs);
    bookings.wal.close()
}

type Body = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task of [`run_all`]. When it is woken, it goes to the queue of tasks to poll.
struct Task {
    body: Mutex<Option<Body>>,
    ready: Sender<Arc<Task>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // The send fails after the last task has ended: then there is nothing to poll.
        let _ = self.ready.clone().send(self);
    }
}

/// Runs all futures on this thread, and returns their results in their order.
fn run_all<F>(futures: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let (ready, queue) = channel::<Arc<Task>>();
    let (done, results) = channel();
    let mut left = 0;
    for (number, future) in futures.enumerate() {
        let done = done.clone();
        let body: Body = Box::pin(async move { drop(done.send((number, future.await))) });
        Arc::new(Task { body: Mutex::new(Some(body)), ready: ready.clone() }).wake();
        left += 1;
    }
    while left > 0 {
        let task = queue.recv().expect("this thread has a sender");
        let waker = Waker::from(Arc::clone(&task));
        let mut body = task.body.lock().unwrap();
        let polled = body.as_mut().map(|body| body.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled.is_some_and(|polled| polled.is_ready()) {
            *body = None;
            left -= 1;
        }
    }
    let mut results: Vec<_> = results.try_iter().collect();
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::thread;

    use palisade::ErrorKind;
    use palisade::disk::{Disk, MemDisk};
    use palisade::sim::{CallKind, Calls, Effect, FaultDisk, Target};

    use super::*;

    const SYNCS: Calls = (CallKind::Sync, Target::Segment);

    fn open(disk: impl Disk) -> Arc<Bookings> {
        let options = Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
        let recovery = options.recover_on(Arc::new(disk), "/log").unwrap();
        Arc::new(Bookings::start(recovery).unwrap())
    }

    /// Requests of two customers for each of `seats` seats.
    fn book_all(bookings: &Arc<Bookings>, seats: u32) -> Vec<Result<Answer>> {
        run_all((0..2 * seats).map(|number| {
            let bookings = Arc::clone(bookings);
            async move { bookings.book(number / 2, &format!("customer {number}")).await }
        }))
    }

    #[test]
    fn a_seat_goes_to_one_customer_also_after_power_loss() {
        let disk = MemDisk::new();
        let bookings = open(disk.clone());
        let answers: Vec<_> = book_all(&bookings, 50).into_iter().map(Result::unwrap).collect();
        for seat in answers.chunks(2) {
            assert_eq!(seat, [Answer::Booked, Answer::Taken]);
        }
        drop(bookings);
        disk.lose_power();

        let bookings = open(disk);
        let names = bookings.names.lock().unwrap();
        assert_eq!(names.len(), 50);
        assert!(names.iter().all(|(seat, name)| *name == format!("customer {}", 2 * seat)));
    }

    #[test]
    fn requests_that_wait_share_a_sync() {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let bookings = open(disk.clone());
        disk.set(SYNCS, Effect::Hold);
        let before = disk.count(SYNCS);
        thread::scope(|scope| {
            let requests = scope.spawn(|| book_all(&bookings, 64));
            // All bookings are in the log before the first sync ends.
            while bookings.names.lock().unwrap().len() < 64 || !disk.is_holding(SYNCS) {
                thread::yield_now();
            }
            disk.set(SYNCS, Effect::Pass);
            assert!(requests.join().unwrap().iter().all(Result::is_ok));
        });
        let syncs = disk.count(SYNCS) - before;
        assert!(syncs <= 2, "{syncs} syncs");
    }

    #[test]
    fn a_cancelled_request_has_its_record_in_the_log() {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let bookings = open(disk.clone());
        disk.set(SYNCS, Effect::Hold);
        {
            let mut request = pin!(bookings.book(7, "cancelled"));
            let polled = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        disk.set(SYNCS, Effect::Pass);
        drop(bookings);
        assert_eq!(open(disk).names.lock().unwrap()[&7], "cancelled");
    }

    #[test]
    fn a_failed_sync_answers_no_request() {
        let disk = FaultDisk::new(Arc::new(MemDisk::new()));
        let bookings = open(disk.clone());
        disk.set(SYNCS, Effect::Eio);
        for answer in book_all(&bookings, 10) {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Poisoned);
        }
        drop(bookings);
        disk.set(SYNCS, Effect::Pass);
        // The bookings may be there or not. Either way each seat can be booked, or is taken.
        assert!(book_all(&open(disk), 10).iter().all(Result::is_ok));
    }
}
