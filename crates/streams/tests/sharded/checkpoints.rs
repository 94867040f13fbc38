//! Checkpoints: what they hold, and what removes them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use palisade::ErrorKind;
use palisade::disk::MemDisk;
use palisade_streams::{CheckpointInfo, MAX_NAME_BYTES, Options, Sharded, Stream};

use crate::disks::{kind, log, open_three, options};

/// The chunks of checkpoints that the shards have.
fn chunks(sharded: &Sharded) -> u64 {
    let own = |shard: &palisade_streams::Streams| {
        shard.stream(b"\0palisade.shard").unwrap().len().unwrap()
    };
    sharded.shards().iter().map(own).sum()
}

fn names(infos: &[CheckpointInfo]) -> Vec<&str> {
    infos.iter().map(|info| std::str::from_utf8(&info.name).unwrap()).collect()
}

#[test]
fn a_checkpoint_holds_the_next_index_of_each_stream() {
    let disk = MemDisk::new();
    let sharded = open_three(&disk);
    let mut expected = BTreeMap::new();
    for n in 0..40_u64 {
        let stream = sharded.create(format!("stream {n}")).unwrap();
        (0..n % 7).for_each(|_| drop(stream.append("entry").unwrap()));
        expected.insert(stream.name().to_vec(), n % 7);
    }
    let info = sharded.checkpoint("monday").unwrap();
    assert_eq!((info.number, &info.name[..], info.streams), (0, &b"monday"[..], 40));
    // What comes later is not in it.
    for n in 0..40 {
        sharded.stream(format!("stream {n}")).unwrap().append("late").unwrap();
    }
    sharded.create("late").unwrap();
    sharded.delete("stream 7").unwrap().wait().unwrap();
    let check = |sharded: &Sharded| {
        let monday = sharded.load("monday").unwrap();
        assert_eq!(monday.info(), &info);
        let found: Vec<_> = monday.iter().map(|(name, next)| (name.to_vec(), next)).collect();
        assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>(), "in order of names");
        assert_eq!(monday.next_index("stream 20"), Some(6));
        assert_eq!(monday.next_index("stream 7"), Some(0), "deleted since");
        assert_eq!(monday.next_index("late"), None);
        assert_eq!(monday.next_index(b"\0palisade.shard"), None);
    };
    check(&sharded);
    sharded.close().unwrap();
    drop(sharded);
    check(&open_three(&disk));
}

#[test]
fn damaged_checkpoints_can_be_removed() {
    let disk = MemDisk::new();
    let sharded = open_three(&disk);
    sharded.create("s").unwrap();
    sharded.checkpoint("monday").unwrap();
    sharded.shards()[0].stream(b"\0palisade.checkpoints").unwrap().commit([255]).unwrap();
    assert_eq!(kind(sharded.checkpoint("tuesday")), ErrorKind::Corrupt);
    assert_eq!(kind(sharded.prune(1)), ErrorKind::Corrupt);
    assert_eq!(sharded.prune(0).unwrap(), 2);
    sharded.checkpoint("tuesday").unwrap();
    assert_eq!(names(&sharded.checkpoints().unwrap()), ["tuesday"]);
}

#[test]
fn checkpoints_have_names_and_numbers() {
    let disk = MemDisk::new();
    let sharded = open_three(&disk);
    assert!(sharded.latest().unwrap().is_none());
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        assert_eq!(sharded.checkpoint(name).unwrap().number, number as u64);
    }
    assert_eq!(kind(sharded.checkpoint("b")), ErrorKind::AlreadyExists);
    for name in [&b""[..], &[7; MAX_NAME_BYTES + 1]] {
        assert_eq!(kind(sharded.checkpoint(name)), ErrorKind::InvalidArgument);
    }
    sharded.checkpoint([0; MAX_NAME_BYTES]).unwrap();
    assert_eq!(kind(sharded.load("none")), ErrorKind::NotFound);
    assert_eq!(sharded.prune(9).unwrap(), 0);
    assert_eq!(sharded.prune(2).unwrap(), 3);
    drop(sharded);

    let sharded = open_three(&disk);
    let left = sharded.checkpoints().unwrap();
    assert_eq!((names(&left)[0], left.len()), ("d", 2));
    assert_eq!(sharded.latest().unwrap().unwrap().info().number, 4);
    assert_eq!(kind(sharded.load("a")), ErrorKind::NotFound);
    assert_eq!(sharded.checkpoint("a").unwrap().number, 5, "a name is free again, a number never");
    assert_eq!(sharded.prune(0).unwrap(), 3);
    assert!(sharded.latest().unwrap().is_none());
    assert_eq!(sharded.checkpoint("a").unwrap().number, 6);
}

#[test]
fn a_checkpoint_of_many_streams_has_many_chunks() {
    let sharded = open_three(&MemDisk::new());
    let name = |n: u64| [vec![b'n'; 900], n.to_be_bytes().to_vec()].concat();
    sharded.create_many((0..500).map(name)).unwrap();
    sharded.checkpoint("one").unwrap();
    let per_checkpoint = chunks(&sharded);
    assert!(per_checkpoint > 9, "{per_checkpoint} chunks");
    sharded.checkpoint("two").unwrap();
    for checkpoint in ["one", "two"] {
        let loaded = sharded.load(checkpoint).unwrap();
        assert!(loaded.iter().map(|(name, _)| name.to_vec()).eq((0..500).map(name)));
    }
    sharded.prune(1).unwrap();
    assert_eq!(chunks(&sharded), per_checkpoint);
    sharded.prune(0).unwrap();
    assert_eq!(chunks(&sharded), 0);
}

#[test]
fn what_a_failed_checkpoint_left_is_truncated() {
    let sharded = open_three(&MemDisk::new());
    sharded.create_many((0..30_u8).map(|n| [n + 1])).unwrap();
    let leave_chunks = || {
        for shard in sharded.shards() {
            shard.stream(b"\0palisade.shard").unwrap().append("left").unwrap();
        }
    };
    leave_chunks();
    sharded.checkpoint("one").unwrap();
    assert_eq!(chunks(&sharded), 3);
    leave_chunks();
    sharded.checkpoint("two").unwrap();
    assert_eq!(chunks(&sharded), 6);
    leave_chunks();
    sharded.prune(1).unwrap();
    assert_eq!(chunks(&sharded), 3);
    assert_eq!(sharded.latest().unwrap().unwrap().iter().count(), 30);
}

/// Changes the chunks of shard 1, and checks that its checkpoint `two` cannot be read any more.
fn damage_and_check(damage: impl Fn(&Stream)) {
    let sharded = open_three(&MemDisk::new());
    sharded.create_many((0..30_u8).map(|n| [n + 1])).unwrap();
    sharded.checkpoint("one").unwrap();
    sharded.checkpoint("two").unwrap();
    damage(&sharded.shards()[1].stream(b"\0palisade.shard").unwrap());
    let load = sharded.load("two").map(drop);
    let checkpoint = sharded.checkpoint("three").map(drop);
    for result in [load, checkpoint, sharded.prune(1).map(drop)] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = format!("{error} {:?}", error.advice_of_cause());
        assert!(text.contains("shard 1") && text.contains("prune(0)"), "{text}");
    }
    assert_eq!(names(&sharded.checkpoints().unwrap()), ["one", "two"]);
    assert_eq!(sharded.load("one").unwrap().iter().count(), 30);
    assert_eq!(sharded.prune(0).unwrap(), 2);
    sharded.checkpoint("three").unwrap();
    assert_eq!(sharded.load("three").unwrap().iter().count(), 30);
}

/// As a shard that was restored from an older backup.
#[test]
fn a_shard_without_its_chunks_is_named_until_a_full_prune() {
    damage_and_check(|chunks| {
        chunks.truncate_from(chunks.next_index().unwrap() - 1).unwrap();
    });
}

/// As a shard that was restored from a backup in the middle of an attempt that failed.
#[test]
fn a_shard_with_mixed_chunks_is_named_until_a_full_prune() {
    damage_and_check(|chunks| {
        let of_another = chunks.get(0).unwrap().into_data();
        chunks.truncate_from(chunks.next_index().unwrap() - 1).unwrap();
        chunks.append(of_another).unwrap();
    });
}

/// The keepers move the chunks of an old checkpoint.
#[test]
fn moves_do_not_change_a_checkpoint() {
    let disk = MemDisk::new();
    let folders = || crate::disks::folders(&disk, &["/0", "/1", "/2"]);
    let options = options().move_percent(50);
    let sharded = Sharded::open_on(folders(), &options).unwrap();
    let names: Vec<_> = (0..9).map(|n| format!("stream {n}")).collect();
    let streams = sharded.create_many(&names).unwrap();
    sharded.checkpoint("old").unwrap();
    for _ in 0..300 {
        for stream in &streams {
            let index = stream.append([7; 1000]).unwrap().index();
            stream.truncate_before(index).unwrap();
        }
    }
    while sharded.maintain().unwrap() {}
    let shards = sharded.shards().iter().map(|shard| shard.stats().moved_bytes);
    assert!(shards.clone().all(|moved| moved > 0), "{:?}", shards.collect::<Vec<_>>());
    let check = |sharded: &Sharded| {
        let old = sharded.load("old").unwrap();
        assert!(
            old.iter()
                .map(|(name, next)| (name.to_vec(), next))
                .eq(names.iter().map(|name| (name.clone().into_bytes(), 0)))
        );
    };
    check(&sharded);
    drop((streams, sharded));
    check(&Sharded::open_on(folders(), &options).unwrap());
}

/// Threads append while checkpoints are made, loaded and removed.
#[test]
fn a_checkpoint_holds_finished_appends_and_no_later_ones() {
    let disk = MemDisk::new();
    let options = Options::new().log(log());
    let folders = crate::disks::folders(&disk, &["/0", "/1", "/2"]);
    let sharded = Sharded::open_on(folders, &options).unwrap();
    let writers: Vec<(Stream, AtomicU64)> = sharded
        .create_many((0..3).map(|n| format!("writer {n}")))
        .unwrap()
        .into_iter()
        .map(|stream| (stream, AtomicU64::new(0)))
        .collect();
    let is_done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (stream, returned) in &writers {
            let is_done = &is_done;
            scope.spawn(move || {
                // Relaxed: it ends the loop, and orders nothing.
                while is_done.load(Ordering::Relaxed) == 0 {
                    let index = stream.append("entry").unwrap().index();
                    // Release, with the Acquire below: what was noted has returned.
                    returned.store(index + 1, Ordering::Release);
                }
            });
        }
        scope.spawn(|| {
            // Relaxed: as above.
            while is_done.load(Ordering::Relaxed) == 0 {
                if let Err(error) = sharded.load("checkpoint") {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                }
                sharded.latest().unwrap();
            }
        });
        for _ in 0..20 {
            let before = writers.iter().map(|(_, returned)| returned.load(Ordering::Acquire));
            let before: Vec<_> = before.collect();
            sharded.checkpoint("checkpoint").unwrap();
            let after: Vec<_> =
                writers.iter().map(|(stream, _)| stream.next_index().unwrap()).collect();
            let loaded = sharded.load("checkpoint").unwrap();
            for ((stream, _), (before, after)) in writers.iter().zip(before.iter().zip(&after)) {
                let next = loaded.next_index(stream.name()).unwrap();
                assert!((*before..=*after).contains(&next), "{before} <= {next} <= {after}");
            }
            sharded.prune(0).unwrap();
        }
        is_done.store(1, Ordering::Relaxed);
    });
}
