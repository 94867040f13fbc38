//! Work for all shards at the same time.

use std::panic::resume_unwind;
use std::sync::Arc;

use palisade_store::sync::{Mutex, spawn};

/// Runs `work` for each number below `count`, which is at least 1, each on a thread of its own.
/// Returns the results in the order of the numbers. If the system refuses a thread, the calling
/// thread does its work. A panic of the work goes on in the calling thread.
pub(crate) fn at_once<T: Send + 'static>(
    count: usize,
    work: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let work = Arc::new(work);
    let mut threads = Vec::new();
    for number in 1..count {
        let result = Arc::new(Mutex::new(None));
        let body = {
            let (work, result) = (Arc::clone(&work), Arc::clone(&result));
            move || {
                let done = work(number);
                *result.lock() = Some(done);
            }
        };
        threads.push((number, spawn("palisade-shard", body).ok(), result));
    }
    let mut results = vec![work(0)];
    for (number, thread, result) in threads {
        if let Some(Err(panic)) = thread.map(|thread| thread.join()) {
            resume_unwind(panic);
        }
        let done = result.lock().take();
        results.push(done.unwrap_or_else(|| work(number)));
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_numbers() {
        assert_eq!(at_once(1, |number| number), [0]);
        assert_eq!(at_once(9, |number| number * number), [0, 1, 4, 9, 16, 25, 36, 49, 64]);
    }

    #[test]
    fn a_panic_goes_on_in_the_calling_thread() {
        let panics = || at_once(3, |number| assert_ne!(number, 1, "it is to panic"));
        assert!(std::panic::catch_unwind(panics).is_err());
    }
}
