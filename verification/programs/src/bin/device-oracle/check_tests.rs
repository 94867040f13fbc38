use super::*;
use crate::ledger::{Entry, Known};

const SEED: u64 = 11;

/// Makes a ledger with the records 0 and 1 of two threads of session 1, at 0, 100 and 50, 150. The
/// two at 0 and 50 are owed.
fn ledger(folder: &tempfile::TempDir) -> Ledger {
    let mut ledger = Ledger::open(&folder.path().join("ledger")).unwrap();
    ledger.begin_session().unwrap();
    ledger.note((0, 0), Lsn::new(0), true).unwrap();
    ledger.note((1, 0), Lsn::new(50), true).unwrap();
    ledger.note((0, 1), Lsn::new(100), false).unwrap();
    ledger.note((1, 1), Lsn::new(150), false).unwrap();
    ledger
}

/// Session, thread, seq and LSN of records that a log holds.
type Held = (Session, u32, u64, u64);

const ALL: [Held; 4] = [(1, 0, 0, 0), (1, 1, 0, 50), (1, 0, 1, 100), (1, 1, 1, 150)];

fn compare(ledger: &Ledger, head: u64, held: &[Held]) -> Result<Found, String> {
    let mut check = LedgerCheck::new(ledger, SEED, Lsn::new(head));
    for &(session, thread, seq, lsn) in held {
        let mut data = [0; 40];
        Origin { seed: seed_of(SEED, session), thread, seq }.fill(&mut data);
        check.record(Lsn::new(lsn), &data);
    }
    check.finish().map_err(|error| match error {
        Broken::Violated(text) => text,
        Broken::Unread(error) => error.to_string(),
    })
}

#[test]
fn holds_with_each_prefix_that_has_what_is_owed() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    for held in 2..=4 {
        let found = compare(&ledger, 0, &ALL[..held]).unwrap();
        assert_eq!(found[&1].len(), held);
    }
    // Its process died between the append and the note.
    let unnoted = [&ALL[..], &[(1, 0, 2, 200)]].concat();
    assert_eq!(compare(&ledger, 0, &unnoted).unwrap()[&1].len(), 5);
}

#[test]
fn names_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    let text = compare(&ledger, 0, &ALL[..1]).unwrap_err();
    assert!(text.starts_with("1 acknowledged or reported records are missing"), "{text}");
    let text = compare(&ledger, 0, &[ALL[0], ALL[1], ALL[3]]).unwrap_err();
    assert!(text.starts_with("a record is missing before others that are there"), "{text}");
}

#[test]
fn names_what_should_not_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    let cases: [(&[Held], &str); 6] = [
        (&[(2, 0, 0, 200)], "foreign"),
        (&[(1, 0, 0, 200)], "twice"),
        (&[(1, 0, 3, 200)], "it was appended elsewhere, or never"),
        (&[(1, 0, 2, 120)], "out of order"),
        (&[(1, 0, 2, 200), (1, 0, 2, 300)], "twice"),
        (&[(1, 1, 7, 150)], "another record is in its place"),
    ];
    for (more, expected) in cases {
        let text = compare(&ledger, 0, &[&ALL, more].concat()).unwrap_err();
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn what_an_open_reported_is_owed_and_nothing_else_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = ledger(&folder);
    let found = compare(&ledger, 0, &ALL[..3]).unwrap();
    ledger.settle(&found).unwrap();
    compare(&ledger, 0, &ALL[..3]).unwrap();
    let text = compare(&ledger, 0, &ALL[..2]).unwrap_err();
    assert!(text.starts_with("1 acknowledged or reported records are missing"), "{text}");
    let text = compare(&ledger, 0, &ALL).unwrap_err();
    assert!(text.starts_with("an earlier open did not report it"), "{text}");
}

#[test]
fn records_below_a_requested_truncation_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = ledger(&folder);
    let text = compare(&ledger, 100, &ALL[2..]).unwrap_err();
    assert!(text.starts_with("the log begins at 100"), "{text}");
    ledger.may_truncate(Lsn::new(100)).unwrap();
    compare(&ledger, 100, &ALL[2..]).unwrap();
    compare(&ledger, 0, &ALL).unwrap();
}

#[test]
fn a_ledger_that_is_read_again_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = ledger(&folder);
    let unnoted = [&ALL[..3], &[(1, 1, 1, 170)]].concat();
    before.sessions.get_mut(&1).unwrap().records.remove(&Lsn::new(150));
    let found: Found = [(1, unnoted.iter().map(|r| (Lsn::new(r.3), (r.1, r.2))).collect())].into();
    before.settle(&found).unwrap();
    before.begin_session().unwrap();
    before.note((0, 0), Lsn::new(4096), false).unwrap();
    before.durable(Lsn::new(4097)).unwrap();
    before.may_truncate(Lsn::new(50)).unwrap();
    let again = Ledger::open(&folder.path().join("ledger")).unwrap();
    let owed = |known: &Known| -> Vec<(u64, Entry)> {
        known.records.iter().map(|(lsn, entry)| (lsn.as_u64(), *entry)).collect()
    };
    assert_eq!((again.head_may_be, again.session()), (Lsn::new(50), 2));
    assert!(again.sessions[&1].is_settled && !again.sessions[&2].is_settled);
    assert_eq!(owed(&again.sessions[&2]), owed(&before.sessions[&2]));
    assert!(again.sessions[&2].records[&Lsn::new(4096)].is_owed);
    assert!(again.sessions[&1].records.values().all(|entry| entry.is_owed));
    assert_eq!(again.owed_at(100, Lsn::new(0)), Some(Lsn::new(4096)));
}
