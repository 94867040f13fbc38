//! A word on which threads sleep side by side, so that one system call wakes as many as are due.
//!
//! Waking 64 threads one by one takes a call and, mostly, an interrupt of another core for each. On
//! Linux the word is a futex: its wait and wake with a bit set let the waker choose *lanes*, of
//! which there are 32, so that few are woken that are not due. Elsewhere, and under the model
//! checker, it is a lock and a list of parked threads.
//!
//! # Protocol
//! Sleeper: (1) `look`; (2) look at what it waits for; (3) `sleep` with the word as it was at 1. Waker:
//! (1) make it come true; (2) `wake`, which changes the word, then wakes.
//!
//! # Ordering pairs
//! - P10: the word's addition in `wake` (Release) with the load in `look` (Acquire): a sleeper that
//!   looked after it sees what came true before it; one that looked before it finds the word
//!   changed when it wants to sleep, or sleeps already when the call wakes it.

#[cfg(all(not(loom), any(target_os = "linux", target_os = "android")))]
pub(crate) use self::futex::WaitWord;
#[cfg(any(loom, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) use self::list::WaitWord;

/// How many lanes a word has.
pub(crate) const LANES: u32 = 32;

#[cfg(all(not(loom), any(target_os = "linux", target_os = "android")))]
mod futex {
    #![expect(clippy::disallowed_types, reason = "the system call takes std's atomic")]

    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crossbeam_utils::CachePadded;
    use rustix::thread::futex::{Flags, Timespec, wait, wait_bitset, wake_bitset};

    use super::LANES;
    use crate::sync::Instant;

    /// The word. Its bits count wake-ups.
    #[derive(Debug, Default)]
    pub(crate) struct WaitWord(CachePadded<AtomicU32>);

    impl WaitWord {
        /// The word, to be shown to `sleep`.
        pub(crate) fn look(&self) -> u32 {
            // Acquire: pairs with the Release in `wake` [P10].
            self.0.load(Ordering::Acquire)
        }

        /// Sleeps until a `wake` for `lane`, or the deadline; not at all if there was a `wake` since
        /// `seen`. May return early.
        pub(crate) fn sleep(&self, seen: u32, lane: u32, deadline: Option<Instant>) {
            // An error is an early return: the caller looks again.
            let _ = match deadline {
                None => {
                    wait_bitset(&self.0, Flags::PRIVATE, seen, None, lanes(1 << (lane % LANES)))
                }
                Some(deadline) => {
                    // The other call would want the time of a clock that `Instant` does not show.
                    let left = deadline.saturating_duration_since(Instant::now());
                    let left = Timespec {
                        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                        tv_nsec: left.subsec_nanos().into(),
                    };
                    wait(&self.0, Flags::PRIVATE, seen, Some(&left))
                }
            };
        }

        /// Wakes who sleeps in the lanes whose bits are set.
        pub(crate) fn wake(&self, lanes_due: u32) {
            // Release: publishes what came true; pairs with the Acquire in `look` [P10].
            self.0.fetch_add(1, Ordering::Release);
            // The call fails on a bad address only.
            let _ = wake_bitset(&self.0, Flags::PRIVATE, i32::MAX as u32, lanes(lanes_due));
        }
    }

    /// No lane at all is not asked for; all of them would be no mistake.
    fn lanes(bits: u32) -> NonZeroU32 {
        NonZeroU32::new(bits).unwrap_or(NonZeroU32::MAX)
    }
}

#[cfg(any(test, loom, not(any(target_os = "linux", target_os = "android"))))]
mod list {
    use crate::sync::{Instant, Mutex, Parker, park, park_until};

    /// The word, and who sleeps.
    #[derive(Debug, Default)]
    pub(crate) struct WaitWord(Mutex<Sleepers>);

    #[derive(Debug, Default)]
    struct Sleepers {
        wakes: u32,
        parked: Vec<(u32, Parker)>,
    }

    #[cfg_attr(not(any(loom, windows)), expect(clippy::allow_attributes, reason = "for tests"))]
    #[allow(dead_code, reason = "where there is a futex, only a test uses it")]
    impl WaitWord {
        /// The word, to be shown to `sleep`.
        pub(crate) fn look(&self) -> u32 {
            self.0.lock().wakes
        }

        /// Sleeps until a `wake` for `lane`, or the deadline; not at all if there was a `wake` since
        /// `seen`. May return early.
        pub(crate) fn sleep(&self, seen: u32, lane: u32, deadline: Option<Instant>) {
            {
                let mut sleepers = self.0.lock();
                if sleepers.wakes != seen {
                    return;
                }
                sleepers.parked.push((1 << (lane % super::LANES), Parker::current()));
            }
            // Who returns early stays in the list: it is unparked once more, for nothing.
            deadline.map_or_else(park, park_until);
        }

        /// Wakes who sleeps in the lanes whose bits are set.
        pub(crate) fn wake(&self, lanes_due: u32) {
            let due: Vec<_> = {
                let mut sleepers = self.0.lock();
                sleepers.wakes = sleepers.wakes.wrapping_add(1);
                sleepers.parked.extract_if(.., |(lane, _)| *lane & lanes_due != 0).collect()
            };
            due.iter().for_each(|(_, parker)| parker.unpark());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{WaitWord, list};
    use crate::sync::{AtomicU32, Instant, Ordering};

    macro_rules! each_sleeper_wakes {
        ($name:ident: $word:ty) => {
            #[test]
            fn $name() {
                let word = Arc::new(<$word>::default());
                let round = Arc::new(AtomicU32::new(0));
                std::thread::scope(|scope| {
                    for lane in 0..3 {
                        let (word, round) = (Arc::clone(&word), Arc::clone(&round));
                        scope.spawn(move || {
                            loop {
                                let seen = word.look();
                                // Acquire: pairs with the Release below.
                                if round.load(Ordering::Acquire) > lane {
                                    break;
                                }
                                word.sleep(seen, lane, None);
                            }
                        });
                    }
                    for lane in 0..3 {
                        // Release: pairs with the Acquire above.
                        round.store(lane + 1, Ordering::Release);
                        word.wake(1 << lane);
                    }
                });
                let seen = word.look();
                word.sleep(seen, 0, Some(Instant::now() + Duration::from_millis(1)));
                word.sleep(seen.wrapping_sub(1), 0, None);
            }
        };
    }

    each_sleeper_wakes!(each_sleeper_is_woken_in_its_lane: WaitWord);
    each_sleeper_wakes!(each_sleeper_of_a_list_is_woken_in_its_lane: list::WaitWord);
}
