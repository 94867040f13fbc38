//! Single cases, for both lines.

use palisade::ErrorKind;
use palisade_streams::Streams;
use tempfile::TempDir;

use crate::line::{Group, Id, Line, Line09, Line010};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(folder: &TempDir) -> Streams {
    Streams::open(folder.path().join("log")).unwrap()
}

fn entries(ids: &[Id]) -> Vec<(Id, String)> {
    ids.iter().map(|&(term, index)| ((term, index), format!("{term} {index}"))).collect()
}

/// Runs a case for each line.
macro_rules! for_both_lines {
    ($($case:ident)*) => { $(
        #[tokio::test]
        async fn $case() {
            super::$case::<Line09>().await;
            super::$case::<Line010>().await;
        }
    )* };
}

mod both {
    use super::{Line09, Line010};

    for_both_lines! {
        a_kill_keeps_vote_log_and_committed
        a_truncated_conflict_stays_truncated
        a_purge_beyond_the_end_moves_the_log
        groups_in_one_log_do_not_mix
        an_entry_that_would_leave_a_hole_is_refused
        a_purged_entry_is_not_stored_again
        a_limited_read_ends_early_but_not_empty
        a_log_stays_readable_while_another_handle_is_gone
    }
}

async fn a_kill_keeps_vote_log_and_committed<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut log = L::open(&streams, "group").unwrap();
    log.set_vote(3).await.unwrap();
    log.add(&entries(&[(3, 0), (3, 1), (3, 2), (3, 3)]), true).await.unwrap();
    log.set_committed((3, 2)).await.unwrap();
    log.remove_to((3, 0)).await.unwrap();
    streams.log().clone().abandon();
    drop((log, streams));

    let found = L::open(&open(&folder), "group").unwrap().read_all().await.unwrap();
    let expected = Group {
        vote: Some(3),
        committed: Some((3, 2)),
        purged: Some((3, 0)),
        entries: entries(&[(3, 1), (3, 2), (3, 3)]),
    };
    assert_eq!(found, expected);
}

async fn a_truncated_conflict_stays_truncated<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut log = L::open(&streams, "group").unwrap();
    log.add(&entries(&[(1, 0), (1, 1), (1, 2), (1, 3)]), true).await.unwrap();
    log.remove_from(1).await.unwrap();
    log.add(&entries(&[(2, 1)]), true).await.unwrap();
    streams.log().clone().abandon();
    drop((log, streams));

    let found = L::open(&open(&folder), "group").unwrap().read_all().await.unwrap();
    assert_eq!(found.entries, entries(&[(1, 0), (2, 1)]));
}

async fn a_purge_beyond_the_end_moves_the_log<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut log = L::open(&streams, "group").unwrap();
    log.add(&entries(&[(1, 0), (1, 1)]), true).await.unwrap();
    log.remove_to((4, 100)).await.unwrap();
    let found = log.read_all().await.unwrap();
    assert_eq!((found.purged, found.entries), (Some((4, 100)), Vec::new()));
    log.add(&entries(&[(4, 101), (4, 102), (4, 103)]), true).await.unwrap();
    log.remove_from(103).await.unwrap();
    log.remove_to((4, 101)).await.unwrap();
    assert!(log.remove_from(101).await.is_err(), "a purged entry cannot be truncated");
    streams.close().unwrap();
    drop((log, streams));

    let mut log = L::open(&open(&folder), "group").unwrap();
    let found = log.read_all().await.unwrap();
    assert_eq!((found.purged, found.entries), (Some((4, 101)), entries(&[(4, 102)])));
    log.add(&entries(&[(4, 103)]), true).await.unwrap();
    assert_eq!(log.read_all().await.unwrap().entries, entries(&[(4, 102), (4, 103)]));
}

async fn groups_in_one_log_do_not_mix<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut logs: Vec<_> = (0..8).map(|n| L::open(&streams, &n.to_string()).unwrap()).collect();
    for index in 0..20 {
        for (term, log) in logs.iter_mut().enumerate() {
            log.add(&entries(&[(term as u64, index)]), false).await.unwrap();
        }
    }
    // One acknowledgement covers all that came before it, in whatever group.
    logs[0].set_vote(1).await.unwrap();
    streams.log().clone().abandon();
    drop((logs, streams));

    let streams = open(&folder);
    for term in 0..8 {
        let ids: Vec<_> = (0..20).map(|index| (term, index)).collect();
        let found = L::open(&streams, &term.to_string()).unwrap().read_all().await.unwrap();
        assert_eq!(found.entries, entries(&ids));
        assert_eq!(found.vote, (term == 0).then_some(1));
    }
}

async fn an_entry_that_would_leave_a_hole_is_refused<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut log = L::open(&streams, "group").unwrap();
    log.add(&entries(&[(1, 0)]), true).await.unwrap();
    let refused = log.add(&entries(&[(1, 2)]), true).await.unwrap_err().to_string();
    assert!(refused.contains("the next entry has index 1, and not 2"), "{refused}");
    assert!(log.add(&entries(&[(1, 0)]), true).await.is_err(), "it is there already");
    log.remove_to((1, 4)).await.unwrap();
    assert!(log.add(&entries(&[(1, 6)]), true).await.is_err());
    log.add(&entries(&[(1, 5)]), true).await.unwrap();
    assert_eq!(log.read_all().await.unwrap().entries, entries(&[(1, 5)]));
}

async fn a_purged_entry_is_not_stored_again<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut log = L::open(&streams, "group").unwrap();
    log.remove_to((1, 1)).await.unwrap();
    log.add(&entries(&[(1, 0), (1, 1), (1, 2)]), true).await.unwrap();
    log.remove_to((1, 0)).await.unwrap();
    let found = log.read_all().await.unwrap();
    assert_eq!((found.purged, found.entries), (Some((1, 1)), entries(&[(1, 2)])));
}

async fn a_limited_read_ends_early_but_not_empty<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut log = L::open(&streams, "group").unwrap();
    let long = "x".repeat(700 << 10);
    let many: Vec<_> = (0..5).map(|index| ((1, index), long.clone())).collect();
    log.add(&many, true).await.unwrap();
    assert_eq!(log.read_limited(1).await.unwrap(), [(1, 1), (1, 2)]);
    assert_eq!(log.read_limited(4).await.unwrap(), [(1, 4)]);
    assert!(log.read_limited(5).await.unwrap().is_empty());
}

async fn a_log_stays_readable_while_another_handle_is_gone<L: Line>() {
    let folder = folder();
    let streams = open(&folder);
    let mut log = L::open(&streams, "group").unwrap();
    drop(streams);
    log.add(&entries(&[(1, 0)]), true).await.unwrap();
    assert_eq!(log.read_all().await.unwrap().entries, entries(&[(1, 0)]));
}

#[test]
fn a_group_of_another_line_is_refused() {
    let folder = folder();
    let streams = open(&folder);
    drop(Line09::open(&streams, "group").unwrap());
    let refused = Line010::open(&streams, "group").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Foreign, "{refused}");
    streams.create("topic").unwrap().commit("hello").unwrap();
    let refused = Line09::open(&streams, "topic").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Foreign, "{refused}");
}
