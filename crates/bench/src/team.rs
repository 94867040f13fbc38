//! Threads that start together, and what they share.

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Runs `work(thread)` on `threads` threads at the same time.
///
/// Returns the time from the first begin to the last end, and what they returned: spawning and
/// joining are not in the time.
///
/// # Errors
/// If one of them fails.
///
/// # Panics
/// If `work` panics.
pub fn together<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<(Duration, Vec<T>)> {
    let start = Barrier::new(threads);
    let shift = |thread| {
        start.wait();
        let begin = Instant::now();
        let result = work(thread);
        (begin, Instant::now(), result)
    };
    let shifts: Vec<_> = thread::scope(|scope| {
        let shift = &shift;
        let handles: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || shift(thread))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a worker panicked")).collect()
    });
    let begin = shifts.iter().map(|shift| shift.0).min();
    let end = shifts.iter().map(|shift| shift.1).max();
    let elapsed = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    let results = shifts.into_iter().map(|shift| shift.2).collect::<Result<_>>();
    Ok((elapsed, results?))
}

/// Locks a mutex, also one whose owner has panicked: the panic ends the run by itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_works_once_under_its_own_number() {
        let (_, results) = together(5, Ok).unwrap();
        assert_eq!(results, [0, 1, 2, 3, 4]);
    }
}
