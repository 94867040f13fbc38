//! A word on which threads sleep, so that one system call wakes all of them, or one. On Linux it is
//! a futex, elsewhere and under the model checker a lock and a condition variable.
//!
//! # Protocol
//! Sleeper: (1) `look`. (2) Look at what it waits for. (3) `sleep` with the word as it was at 1.
//! Waker: (1) Make it come true. (2) `wake_all` or `wake_one`, which change the word, then wake.
//!
//! # Ordering pairs
//! - P10: the word's addition in a wake-up (Release) with the load in `look` (Acquire). A sleeper
//!   that looked after it sees what came true before it. A sleeper that looked before it finds the
//!   word changed when it wants to sleep, or sleeps already when the call wakes it.

#[cfg(any(loom, not(any(target_os = "linux", target_os = "android"))))]
pub use self::condvar::WaitWord;
#[cfg(all(not(loom), any(target_os = "linux", target_os = "android")))]
pub use self::futex::WaitWord;

#[cfg(all(not(loom), any(target_os = "linux", target_os = "android")))]
mod futex {
    use rustix::thread::futex::{Flags, Timespec, wait, wake};

    use crate::sync::{AtomicU32, CachePadded, Instant, Ordering};

    /// Its bits count wake-ups.
    #[derive(Debug, Default)]
    pub struct WaitWord(CachePadded<AtomicU32>);

    impl WaitWord {
        pub fn look(&self) -> u32 {
            // Acquire: pairs with the Release in `wake` [P10].
            self.0.load(Ordering::Acquire)
        }

        /// Sleeps until a wake-up or the deadline, but not if there was a wake-up since `seen`. May
        /// return early.
        pub fn sleep(&self, seen: u32, deadline: Option<Instant>) {
            let left = deadline.map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            // An error is an early return: the caller looks again.
            let _ = wait(&self.0, Flags::PRIVATE, seen, left.as_ref());
        }

        pub fn wake_all(&self) {
            self.wake(i32::MAX as u32);
        }

        pub fn wake_one(&self) {
            self.wake(1);
        }

        fn wake(&self, count: u32) {
            // Release: publishes what came true; pairs with the Acquire in `look` [P10].
            self.0.fetch_add(1, Ordering::Release);
            // The call fails on a bad address only.
            let _ = wake(&self.0, Flags::PRIVATE, count);
        }
    }
}

#[cfg(any(test, loom, not(any(target_os = "linux", target_os = "android"))))]
mod condvar {
    #![cfg_attr(
        not(any(loom, windows)),
        expect(unreachable_pub, reason = "where there is a futex, only a test uses it")
    )]

    use crate::sync::{Condvar, Instant, Mutex};

    #[derive(Debug, Default)]
    pub struct WaitWord {
        wakes: Mutex<u32>,
        sleepers: Condvar,
    }

    #[cfg_attr(not(any(loom, windows)), expect(clippy::allow_attributes, reason = "for tests"))]
    #[allow(dead_code, reason = "where there is a futex, only a test uses it")]
    impl WaitWord {
        pub fn look(&self) -> u32 {
            *self.wakes.lock()
        }

        pub fn sleep(&self, seen: u32, deadline: Option<Instant>) {
            let wakes = self.wakes.lock();
            if *wakes == seen {
                drop(self.sleepers.wait(wakes, deadline));
            }
        }

        pub fn wake_all(&self) {
            self.note_wake_up();
            self.sleepers.notify_all();
        }

        pub fn wake_one(&self) {
            self.note_wake_up();
            self.sleepers.notify_one();
        }

        fn note_wake_up(&self) {
            let mut wakes = self.wakes.lock();
            *wakes = wakes.wrapping_add(1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{WaitWord, condvar};
    use crate::sync::{AtomicU32, Instant, Ordering};

    macro_rules! each_sleeper_wakes {
        ($name:ident: $word:ty) => {
            #[test]
            fn $name() {
                let word = Arc::new(<$word>::default());
                let round = Arc::new(AtomicU32::new(0));
                std::thread::scope(|scope| {
                    for until in 1..=3 {
                        let (word, round) = (Arc::clone(&word), Arc::clone(&round));
                        scope.spawn(move || {
                            loop {
                                let seen = word.look();
                                // Acquire: pairs with the Release below.
                                if round.load(Ordering::Acquire) >= until {
                                    // The wake-up of one thread may have come to this one.
                                    word.wake_one();
                                    break;
                                }
                                word.sleep(seen, None);
                            }
                        });
                    }
                    for round_now in 1..=3 {
                        // Release: pairs with the Acquire above.
                        round.store(round_now, Ordering::Release);
                        if round_now < 3 { word.wake_all() } else { word.wake_one() }
                    }
                });
                let seen = word.look();
                word.sleep(seen, Some(Instant::now() + Duration::from_millis(1)));
                word.sleep(seen.wrapping_sub(1), None);
            }
        };
    }

    each_sleeper_wakes!(each_sleeper_wakes: WaitWord);
    each_sleeper_wakes!(each_sleeper_of_a_condition_variable_wakes: condvar::WaitWord);
}
