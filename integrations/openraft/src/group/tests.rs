use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use palisade::disk::MemDisk;
use palisade_streams::Options;
use serde::ser::SerializeSeq;

use super::*;

#[test]
fn an_open_finishes_a_purge_that_a_crash_cut_short() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    group.append([(0, "a"), (1, "b")])?;
    // A purge up to 7, beyond the end, of which the crash left only the start.
    group.set_start(&mut group.write_start(), Some(7), 8, 2)?;
    drop(group);

    let group = Group::<u64>::open(&streams, b"group", 9)?;
    assert_eq!(group.state::<String>()?, (Some(7), None));
    assert!(group.stream().is_empty()?);
    group.append([(8, "c")])?;
    assert_eq!(group.read::<String>(..)?, ["c"]);
    Ok(())
}

#[test]
fn a_log_that_lost_its_entries_begins_above_a_purged_snapshot() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    // A crash left the start of an append at 5, and no entry of it.
    group.set_start(&mut group.write_start(), None, 5, 0)?;
    drop(group);

    let group = Group::<u64>::open(&streams, b"group", 9)?;
    assert_eq!(group.state::<String>()?, (None, None));
    group.purge(2, 2)?;
    group.append([(3, "d"), (4, "e")])?;
    assert_eq!(group.read::<String>(..)?, ["d", "e"]);
    assert_eq!(group.read::<String>(4..)?, ["e"]);
    Ok(())
}

#[test]
fn a_purge_that_leaves_a_hole_is_refused_and_changes_nothing() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    group.append([(5, "f"), (6, "g")])?;
    let refused = group.purge(3, 3).expect_err("entry 4 is missing");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert_eq!(group.state::<String>()?, (None, Some("g".into())));
    group.purge(4, 4)?;
    assert_eq!(group.state::<String>()?, (Some(4), Some("g".into())));
    assert_eq!(group.read::<String>(..)?, ["f", "g"]);
    Ok(())
}

/// Appends entries until the log has no room for another one.
fn fill(group: &Group<u64>) {
    let (begin, long) = (group.stream().next_index().unwrap(), "x".repeat(60));
    let full = (begin..).find_map(|index| group.append([(index, &long)]).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
}

#[test]
fn a_group_in_a_full_log_votes_and_purges() -> Result<()> {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let options = Options::new().log(log.max_bytes(8 * (68 << 10))).background(false);
    let streams = options.open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    fill(&group);
    group.save(VOTE, &7_u64)?.wait()?;
    group.save(COMMITTED, &Some(9_u64))?;
    let next = group.stream().next_index()?;
    group.truncate(next - 1)?.wait()?;
    group.purge(next - 2, 5)?;
    while streams.maintain()? {}
    group.append([(next - 1, "again")])?.wait()?;
    assert_eq!(group.read::<String>(..)?, ["again"]);
    assert_eq!((group.load(VOTE)?, group.load(COMMITTED)?), (Some(7_u64), Some(Some(9_u64))));
    Ok(())
}

#[test]
fn entries_with_a_hole_or_out_of_order_are_refused_as_a_whole() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    let refused = |indexes: &[u64]| {
        let entries = indexes.iter().map(|&index| (index, index));
        let error = group.append(entries).expect_err("they are out of order");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        error.to_string()
    };
    for indexes in [&[0, 2][..], &[0, 1, 1], &[0, 1, 0], &[u64::MAX], &[9, 11]] {
        refused(indexes);
        assert_eq!(group.state::<u64>()?, (None, None), "{indexes:?}");
    }
    let text = refused(&[u64::MAX]);
    assert!(text.contains("no log of a Raft group has an entry with index"), "{text}");
    // No refused call has decided where the log begins.
    group.append([(0, 0_u64), (1, 1)])?;
    let text = refused(&[2, 3, 5]);
    assert!(text.contains("the next entry has index 4, and not 5"), "{text}");
    group.purge(3, 3)?;
    refused(&[2, 4]);
    group.append([(2, 2_u64), (3, 3), (4, 4), (5, 5)])?;
    assert_eq!(group.read::<u64>(..)?, [4, 5]);
    Ok(())
}

#[test]
fn a_too_large_entry_leaves_the_entries_before_it_in_the_log() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    let longest = streams.log().max_record_bytes();
    let entries = [1, 1, longest, 1].map(|bytes| "x".repeat(bytes));
    let refused = group.append((4..).zip(&entries)).expect_err("it is too large");
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    assert_eq!(group.read::<String>(..)?, ["x", "x"]);
    group.append([(6, "y")])?;
    assert_eq!(group.read::<String>(..)?, ["x", "x", "y"]);
    Ok(())
}

#[test]
fn a_truncation_below_the_first_entry_is_refused_only_if_purged() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    group.append([(5, "f"), (6, "g")])?;
    group.truncate(2)?;
    assert_eq!(group.state::<String>()?, (None, None));
    group.append([(3, "d"), (4, "e"), (5, "f")])?;
    group.purge(3, 3)?;
    let refused = group.truncate(3).expect_err("entry 3 is purged");
    assert_eq!(refused.kind(), ErrorKind::Truncated, "{refused}");
    assert_eq!(group.read::<String>(..)?, ["e", "f"]);
    group.truncate(9)?;
    assert_eq!(group.read::<String>(..)?, ["e", "f"]);
    group.truncate(4)?;
    assert_eq!(group.state::<String>()?, (Some(3), None));
    Ok(())
}

#[test]
fn a_read_returns_what_the_log_has_of_each_kind_of_range() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    group.append((5..10_u64).map(|index| (index, index)))?;
    assert_eq!(group.read::<u64>(..)?, [5, 6, 7, 8, 9]);
    assert_eq!(group.read::<u64>(..7)?, [5, 6]);
    assert_eq!(group.read::<u64>(0..=7)?, [5, 6, 7]);
    assert_eq!(group.read::<u64>(7..=u64::MAX)?, [7, 8, 9]);
    assert_eq!(group.read::<u64>((Bound::Excluded(7), Bound::Excluded(9)))?, [8]);
    assert_eq!(group.read::<u64>((Bound::Excluded(u64::MAX), Bound::Unbounded))?, [0; 0]);
    for (from, to) in [(0, 5), (7, 7), (8, 6), (10, 20)] {
        assert_eq!(group.read::<u64>(from..to)?, [0; 0], "{from}..{to}");
    }
    Ok(())
}

#[test]
fn a_limited_read_ends_with_the_entry_that_makes_it_a_mebibyte() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    // With its length, which takes two bytes, an entry has a KiB.
    let kib = "x".repeat(1022);
    group.append((0..1026).map(|index| (index, &kib)))?;
    assert_eq!(group.read_limited::<String>(..)?.len(), 1024);
    assert_eq!(group.read_limited::<String>(2..)?.len(), 1024);
    assert_eq!(group.read_limited::<String>(3..)?.len(), 1023);
    assert_eq!(group.read_limited::<String>(3..9)?.len(), 6);
    group.append([(1026, "y".repeat(LIMITED_BYTES)), (1027, "z".into())])?;
    assert_eq!(group.read_limited::<String>(1026..)?, ["y".repeat(LIMITED_BYTES)]);
    Ok(())
}

/// A sequence that does not say how long it is.
struct Unsized;

impl Serialize for Unsized {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_seq(None)?.end()
    }
}

#[test]
fn entries_that_postcard_cannot_encode_are_refused_as_a_whole() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    let refused = group.append([(5, None), (6, Some(Unsized))]).expect_err("it has no length");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert!(refused.to_string().contains("postcard needs types of known length"), "{refused}");
    assert!(group.stream().is_empty()?);
    group.append([(3, "d"), (4, "e")])?;
    assert_eq!(group.read::<String>(4..)?, ["e"]);
    Ok(())
}

#[test]
fn an_undecodable_group_of_another_line_is_foreign() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    Group::<Option<u64>>::open(&streams, b"group", 10)?.purge(4, Some(300))?;
    let foreign = Group::<(bool, String)>::open(&streams, b"group", 9).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Foreign, "{foreign}");
    assert!(foreign.to_string().contains("the line that made it"), "{foreign}");
    let corrupt = Group::<(bool, String)>::open(&streams, b"group", 10).unwrap_err();
    assert_eq!(corrupt.kind(), ErrorKind::Corrupt, "{corrupt}");
    streams.create("no group")?.put(START, "")?;
    let foreign = Group::<u64>::open(&streams, b"no group", 9).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Foreign, "{foreign}");
    Ok(())
}

#[test]
fn bytes_behind_an_entry_or_a_value_are_reported() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    group.append([(0, "a")])?;
    group.stream().append([1, b'b', 0])?;
    group.stream().put(VOTE, [7, 0])?;
    let corrupt = group.read::<String>(..).unwrap_err();
    assert_eq!(corrupt.kind(), ErrorKind::Corrupt, "{corrupt}");
    assert!(corrupt.to_string().contains("1 bytes too many"), "{corrupt}");
    assert_eq!(group.state::<String>().unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(group.load::<u64>(VOTE).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(group.read::<String>(..1)?, ["a"]);
    Ok(())
}

#[test]
fn a_read_is_atomic_beside_truncations_and_purges() -> Result<()> {
    let streams = Options::new().open_on(Arc::new(MemDisk::new()), "/log")?;
    let group = Group::<u64>::open(&streams, b"group", 9)?;
    // Relaxed, both: they only end the loops.
    let (is_done, has_read) = (AtomicBool::new(false), AtomicBool::new(false));
    let read = || -> Result<()> {
        while !is_done.load(Ordering::Relaxed) {
            let found = group.read::<(u64, u64)>(..)?;
            let is_next =
                |pair: &[(u64, u64)]| pair[1].0 == pair[0].0 + 1 && pair[1].1 >= pair[0].1;
            assert!(found.windows(2).all(is_next), "{found:?}");
            has_read.store(true, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(read);
        let write = || -> Result<()> {
            let mut next = 0;
            for term in 0.. {
                if term >= 2000 && (has_read.load(Ordering::Relaxed) || reader.is_finished()) {
                    break;
                }
                group.append((next..next + 40).map(|index| (index, (index, term))))?;
                next += 20;
                group.truncate(next)?;
                group.purge(next - 10, term)?;
            }
            Ok(())
        };
        let written = write();
        is_done.store(true, Ordering::Relaxed);
        reader.join().expect("no read is torn")?;
        written
    })
}
