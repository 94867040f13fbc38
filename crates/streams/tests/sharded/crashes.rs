//! Each call of each disk is where the process dies, in the first open of a set, in a checkpoint
//! and in a removal. Then the process is gone on all disks, or the power.

use std::collections::BTreeMap;

use palisade::ErrorKind;
use palisade_streams::Sharded;

use crate::disks::Disks;

const SHARDS: u64 = 3;

pub(crate) type Positions = BTreeMap<Vec<u8>, u64>;

fn name(n: u64) -> Vec<u8> {
    [vec![b'n'; 900], n.to_be_bytes().to_vec()].concat()
}

pub(crate) fn positions(sharded: &Sharded) -> Positions {
    let next = |name: Vec<u8>| {
        let next = sharded.stream(&name).unwrap().next_index().unwrap();
        (name, next)
    };
    sharded.list().into_iter().map(next).collect()
}

pub(crate) fn load(sharded: &Sharded, name: &[u8]) -> Positions {
    let loaded = sharded.load(name).unwrap_or_else(|error| panic!("{error}"));
    loaded.iter().map(|(name, next)| (name.to_vec(), next)).collect()
}

fn append_to_all(sharded: &Sharded) {
    for name in sharded.list() {
        sharded.stream(&name).unwrap().append(b"entry").unwrap();
    }
}

/// A set with streams and the checkpoints `names`, and the positions of each.
fn made(disks: &Disks, names: &[&str]) -> (Sharded, Vec<Positions>) {
    let sharded = disks.open().unwrap();
    sharded.create_many((0..60).map(name)).unwrap();
    let mut all = Vec::new();
    for name in names {
        append_to_all(&sharded);
        all.push(positions(&sharded));
        sharded.checkpoint(name).unwrap();
    }
    append_to_all(&sharded);
    (sharded, all)
}

/// Runs `check` for each call of each disk that `work` makes after `prepare`, and for the call
/// after the last one, with a kill and with a power loss.
fn at_each_call<T>(
    prepare: impl Fn(&Disks) -> T,
    work: impl Fn(&Disks, T) -> bool,
    check: impl Fn(&Disks, bool),
) {
    let whole = Disks::new(1, SHARDS);
    let prepared = prepare(&whole);
    let before = whole.calls();
    assert!(work(&whole, prepared), "nothing fails");
    let after = whole.calls();
    for shard in 0..SHARDS as usize {
        for call in before[shard]..=after[shard] {
            for loses_power in [false, true] {
                println!("disk {shard}, call {call}, power loss: {loses_power}");
                let disks = Disks::new(1, SHARDS);
                let prepared = prepare(&disks);
                disks.0[shard].crash_at(call);
                let is_ok = work(&disks, prepared);
                disks.end((), loses_power);
                check(&disks, is_ok);
            }
        }
    }
    println!("calls from {before:?} to {after:?}");
}

#[test]
fn a_first_open_that_dies_at_any_call_is_continued_by_the_next() {
    let work = |disks: &Disks, ()| {
        let opened = disks.open();
        let is_ok = opened.is_ok();
        disks.0.iter().for_each(palisade::sim::SimDisk::kill);
        is_ok
    };
    at_each_call(
        |_| (),
        work,
        |disks, _| {
            let sharded = disks.open().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(sharded.list().len(), 0);
            sharded.create("orders").unwrap().commit("two apples").unwrap();
            sharded.checkpoint("monday").unwrap();
            disks.end(sharded, true);
            let sharded = disks.open().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(sharded.latest().unwrap().unwrap().next_index("orders"), Some(1));
        },
    );
}

/// Restores each shard of `disks` in turn from what it was in `backup`, and checks that the
/// checkpoint `name` has the positions `expected`, or is found to be damaged.
fn check_restored(disks: &Disks, backup: &Disks, name: &[u8], expected: &Positions) {
    for restored in 0..SHARDS as usize {
        let mut set = disks.fork();
        set.0[restored] = backup.0[restored].fork(1);
        set.end((), false);
        let sharded = set.open().unwrap_or_else(|error| panic!("{error}"));
        match sharded.load(name) {
            Ok(loaded) => {
                let found = loaded.iter().map(|(name, next)| (name.to_vec(), next));
                assert!(found.collect::<Positions>() == *expected, "shard {restored} is another's");
            }
            // Without shard 0's newest entries there is no such checkpoint.
            Err(error) if error.kind() == ErrorKind::NotFound => assert_eq!(restored, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
        }
        let there = sharded.checkpoints().unwrap();
        let are_whole = there.iter().all(|info| sharded.load(&info.name).is_ok());
        match sharded.checkpoint("after the restore") {
            Ok(_) => assert!(are_whole, "a checkpoint beside damaged ones"),
            Err(error) => assert!(!are_whole && error.kind() == ErrorKind::Corrupt, "{error}"),
        }
    }
}

#[test]
fn a_checkpoint_that_dies_at_any_call_is_whole_or_absent() {
    let expected = std::cell::RefCell::new(Vec::new());
    let prepare = |disks: &Disks| {
        let (sharded, mut all) = made(disks, &["old"]);
        all.push(positions(&sharded));
        *expected.borrow_mut() = all;
        sharded
    };
    let work = |disks: &Disks, sharded: Sharded| {
        let is_ok = sharded.checkpoint("new").is_ok();
        disks.0.iter().for_each(palisade::sim::SimDisk::kill);
        is_ok
    };
    at_each_call(prepare, work, |disks, is_ok| {
        let backup = disks.fork();
        let sharded = disks.open().unwrap();
        let expected = expected.borrow();
        let there = sharded.checkpoints().unwrap();
        assert!(there.len() == 2 || there.len() == 1 && !is_ok, "acknowledged: {is_ok}");
        for (info, expected) in there.iter().zip(expected.iter()) {
            assert!(load(&sharded, &info.name) == *expected, "a part of {info:?}");
        }
        if there.len() == 2 {
            let now = positions(&sharded);
            let is_there = |(name, next): (&Vec<u8>, &u64)| now[name] >= *next;
            assert!(expected[1].iter().all(is_there), "an entry of the checkpoint is missing");
        }
        // Leftovers of the dead process do not get into a later one.
        append_to_all(&sharded);
        let now = positions(&sharded);
        sharded.checkpoint("next").unwrap();
        disks.end(sharded, true);
        let sharded = disks.open().unwrap();
        assert!(load(&sharded, b"next") == now);
        assert!(load(&sharded, b"old") == expected[0]);
        disks.end(sharded, false);
        check_restored(disks, &backup, b"next", &now);
    });
}

#[test]
fn a_removal_that_dies_at_any_call_leaves_whole_checkpoints() {
    let expected = std::cell::RefCell::new(Vec::new());
    let prepare = |disks: &Disks| {
        let (sharded, all) = made(disks, &["a", "b", "c"]);
        *expected.borrow_mut() = all;
        sharded
    };
    let work = |disks: &Disks, sharded: Sharded| {
        let is_ok = sharded.prune(1).is_ok();
        // The other shards may have made durable what the removal did there.
        sharded.shards()[1..].iter().for_each(|shard| drop(shard.sync()));
        disks.0.iter().for_each(palisade::sim::SimDisk::kill);
        is_ok
    };
    at_each_call(prepare, work, |disks, is_ok| {
        let sharded = disks.open().unwrap();
        let expected = expected.borrow();
        let there = sharded.checkpoints().unwrap();
        assert!(there.len() == 1 || there.len() == 3 && !is_ok, "acknowledged: {is_ok}");
        for (info, expected) in there.iter().rev().zip(expected.iter().rev()) {
            assert!(load(&sharded, &info.name) == *expected, "a part of {info:?}");
        }
        sharded.prune(0).unwrap();
        disks.end(sharded, true);
        let sharded = disks.open().unwrap();
        assert_eq!(sharded.checkpoints().unwrap(), []);
    });
}
