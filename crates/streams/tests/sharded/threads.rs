//! Threads that use a set at the same time, on whole disks and on disks that die.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use palisade::ErrorKind;
use palisade::disk::MemDisk;
use palisade::sim::SimDisk;
use palisade_streams::Sharded;

use crate::crashes::{Positions, load, positions};
use crate::disks::{Disks, open_three};

/// A set with streams of 0 to 6 entries.
fn made(disk: &MemDisk) -> Sharded {
    let sharded = open_three(disk);
    for (n, stream) in (0..).zip(sharded.create_many((1..=40_u8).map(|n| [n])).unwrap()) {
        (0..n % 7).for_each(|_| drop(stream.append("entry").unwrap()));
    }
    sharded
}

#[test]
fn checkpoints_of_two_threads_are_both_whole() {
    let sharded = made(&MemDisk::new());
    let expected = positions(&sharded);
    for round in 0..40 {
        let begins = Barrier::new(2);
        let make = |name: String| {
            begins.wait();
            sharded.checkpoint(name)
        };
        thread::scope(|scope| {
            let (one, two) = (format!("{round}"), format!("{}", round + round % 2));
            let (same, make) = (one == two, &make);
            let other = scope.spawn(move || make(two));
            let made = [make(one), other.join().unwrap()];
            let numbers: Vec<_> = made.iter().flatten().map(|info| info.number).collect();
            assert_eq!(numbers.len(), if same { 1 } else { 2 }, "{made:?}");
            assert!(same || numbers[0] != numbers[1]);
            let refused = made.into_iter().find_map(Result::err);
            assert!(refused.is_none_or(|error| error.kind() == ErrorKind::AlreadyExists));
        });
        for info in sharded.checkpoints().unwrap() {
            assert!(load(&sharded, &info.name) == expected, "{info:?}");
        }
        sharded.prune(0).unwrap();
    }
}

#[test]
fn a_prune_beside_checkpoints_leaves_whole_ones() {
    let sharded = made(&MemDisk::new());
    let expected = positions(&sharded);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: it ends the loop, and orders nothing.
            while !is_done.load(Ordering::Relaxed) {
                sharded.prune(2).unwrap();
            }
        });
        let made = (0..60_u8).try_for_each(|n| sharded.checkpoint([n]).map(drop));
        is_done.store(true, Ordering::Relaxed);
        made.unwrap();
    });
    sharded.prune(2).unwrap();
    let left: Vec<_> = sharded.checkpoints().unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(left, [[58], [59]]);
    left.iter().for_each(|name| assert!(load(&sharded, name) == expected));
}

const KEYS: [&str; 6] = ["{a}", "{b}", "{c}", "{d}", "{e}", "{f}"];

/// Applies batches and makes checkpoints. After some of these, `kill` sees to it that a disk dies.
/// Returns what the checkpoints hold whose calls have returned.
fn run_until_death(
    sharded: &Sharded,
    checkpoints: usize,
    kill: impl Fn(),
) -> Vec<(Vec<u8>, Positions)> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in KEYS.iter().cycle() {
                let streams = ["x", "y"].map(|part| sharded.stream(format!("{key}{part}")));
                let [Ok(x), Ok(y)] = streams else { return };
                let batch = sharded.batch(key).append(&x, b"both").append(&y, b"or none");
                let applied = batch.apply().and_then(|ticket| ticket.wait().map(drop));
                // Relaxed: as above.
                if applied.is_err() || is_done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut noted = Vec::new();
        for name in (0..=u8::MAX).map(|n| vec![n]) {
            if noted.len() == checkpoints {
                kill();
            }
            let Ok(_) = sharded.checkpoint(&name) else { break };
            let Ok(loaded) = sharded.load(&name) else { break };
            noted.push((name, loaded.iter().map(|(name, next)| (name.to_vec(), next)).collect()));
        }
        is_done.store(true, Ordering::Relaxed);
        noted
    })
}

/// In each, another call of one of the disks is the one at which it dies.
const ROUNDS: u64 = 24;

#[test]
fn a_checkpoint_beside_batches_and_a_crash_is_whole_or_absent() {
    for round in 0..ROUNDS {
        let disks = Disks::new(round, 3);
        let sharded = disks.open().unwrap();
        let names = KEYS.iter().flat_map(|key| ["x", "y"].map(|part| format!("{key}{part}")));
        sharded.create_many(names).unwrap();
        let dies: &SimDisk = &disks.0[(round % 3) as usize];
        // Of the next calls, batches make some, and a checkpoint the others.
        let kill = || dies.crash_at(dies.calls() + 1 + round);
        let noted = run_until_death(&sharded, round as usize % 3, kill);
        assert!(dies.is_dead());
        disks.end(sharded, round % 2 == 0);

        let sharded = disks.open().unwrap();
        let now = positions(&sharded);
        let there = sharded.checkpoints().unwrap();
        assert!(there.len() - noted.len() <= 1, "{there:?}");
        for (info, (name, expected)) in there.iter().zip(&noted) {
            assert_eq!(info.name, *name);
            assert!(load(&sharded, name) == *expected, "round {round}: {info:?}");
        }
        if let Some(last) = there.last() {
            let last = load(&sharded, &last.name);
            assert_eq!(last.len(), 2 * KEYS.len());
            assert!(last.iter().all(|(name, next)| now[name] >= *next), "round {round}");
        }
        for key in KEYS {
            let [x, y] = ["x", "y"].map(|part| now[format!("{key}{part}").as_bytes()]);
            assert_eq!(x, y, "round {round}: a part of a batch");
        }
    }
}
