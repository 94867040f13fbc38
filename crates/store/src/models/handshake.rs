//! Models of the handshake of leader and preparer.

use std::sync::Arc;

use loom::thread;

use crate::Lsn;
use crate::segment::preparer::Handshake;
use crate::sync::{AtomicU64, Ordering, WaitWord, model_check};

#[derive(Debug)]
struct Done {
    up_to: AtomicU64,
    word: WaitWord,
}

impl Done {
    fn wait_for(&self, tail: u64) {
        loop {
            let seen = self.word.look();
            // Relaxed: the word publishes it.
            if self.up_to.load(Ordering::Relaxed) >= tail {
                return;
            }
            self.word.sleep(seen, None);
        }
    }
}

fn prepare(handshake: &Handshake, done: &Done) {
    while handshake.wait_until_asked() {
        loop {
            let tail = handshake.tail();
            // Relaxed: the word publishes it.
            done.up_to.store(tail.as_u64(), Ordering::Relaxed);
            done.word.wake_all();
            if !handshake.finish_round(tail.plus(1)) || handshake.is_stopped() {
                break;
            }
        }
    }
}

/// Checks P8: the preparer sees a tail that moves while it ends a round.
#[test]
fn no_due_work_is_missed() {
    model_check("no_due_work_is_missed", 3, || {
        let handshake = Arc::new(Handshake::new());
        let done = Arc::new(Done { up_to: AtomicU64::new(0), word: WaitWord::default() });
        let preparer = {
            let (handshake, done) = (Arc::clone(&handshake), Arc::clone(&done));
            thread::spawn(move || prepare(&handshake, &done))
        };
        handshake.set_tail(Lsn::new(1));
        handshake.ask();
        for tail in 2..=3 {
            if handshake.follow(Lsn::new(tail)) {
                handshake.ask();
            }
        }
        // If nobody asks, nobody comes.
        done.wait_for(3);
        handshake.stop();
        preparer.join().unwrap();
    });
}
