use super::*;

const RECORD_BYTES: usize = 40;
const SEED: u64 = 11;

/// Two threads of one round, whose records 0 and 1 were acknowledged at 0, 100 and 50, 150.
fn acknowledged() -> Round {
    let mut round = Round::new(1, SEED, 2);
    for (thread, seq, lsn) in [(0, 0, 0), (1, 0, 50), (0, 1, 100), (1, 1, 150)] {
        assert!(round.threads[thread].acknowledge(seq, Lsn::new(lsn)));
    }
    round
}

fn check(rounds: &[Round], records: &[(u64, u32, u64, u64)]) -> Result<Vec<Found>, String> {
    let mut check = Check::new(rounds, RECORD_BYTES);
    for (seed, thread, seq, lsn) in records.iter().copied() {
        let mut data = [0; RECORD_BYTES];
        Origin { seed, thread, seq }.fill(&mut data);
        check.bytes(Lsn::new(lsn), &data).map_err(|violation| violation.to_string())?;
    }
    check.finish().map_err(|violations| violations[0].to_string())
}

const ALL: [(u64, u32, u64, u64); 4] =
    [(SEED, 0, 0, 0), (SEED, 1, 0, 50), (SEED, 0, 1, 100), (SEED, 1, 1, 150)];

#[test]
fn holds_when_all_is_there_and_when_more_is_there() {
    let rounds = [acknowledged()];
    assert_eq!(check(&rounds, &ALL).unwrap()[0].records(), 4);
    let more = [&ALL[..], &[(SEED, 0, 2, 200)]].concat();
    assert_eq!(check(&rounds, &more).unwrap()[0].records(), 5);
}

#[test]
fn names_the_record_that_is_missing_at_the_end() {
    let text = check(&[acknowledged()], &ALL[..3]).unwrap_err();
    assert!(text.contains("record 1 of thread 1 of round 1, acknowledged at LSN 150"), "{text}");
}

#[test]
fn names_the_record_that_is_missing_in_the_middle() {
    let text = check(&[acknowledged()], &[ALL[1], ALL[2]]).unwrap_err();
    let expected = "missing: record 0 of thread 0 of round 1, acknowledged at LSN 0; its next";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn finds_what_is_there_twice() {
    let text = check(&[acknowledged()], &[ALL[0], (SEED, 0, 0, 50)]).unwrap_err();
    assert!(text.contains("there twice"), "{text}");
}

#[test]
fn finds_what_is_at_another_lsn() {
    let text = check(&[acknowledged()], &[(SEED, 0, 0, 8)]).unwrap_err();
    assert!(text.contains("was acknowledged at LSN 0"), "{text}");
}

#[test]
fn finds_what_was_never_appended() {
    let text = check(&[acknowledged()], &[(SEED + 1, 0, 0, 0)]).unwrap_err();
    assert!(text.contains("foreign: 40 bytes at LSN 0"), "{text}");
    let text = check(&[acknowledged()], &[(SEED, 2, 0, 0)]).unwrap_err();
    assert!(text.contains("foreign"), "{text}");
}

#[test]
fn finds_what_is_out_of_order() {
    let text = check(&[acknowledged()], &[ALL[1], ALL[0]]).unwrap_err();
    assert!(text.contains("out of order"), "{text}");
}

#[test]
fn an_earlier_round_must_be_there_exactly() {
    let found = check(&[acknowledged()], &ALL).unwrap();
    let mut settled = [acknowledged()];
    settled[0].settle(&found[0]);
    check(&settled, &ALL).unwrap();
    let text = check(&settled, &ALL[..3]).unwrap_err();
    assert!(text.contains("missing: record 1 of thread 1"), "{text}");
    let more = [&ALL[..], &[(SEED, 0, 2, 200)]].concat();
    let text = check(&settled, &more).unwrap_err();
    assert!(text.contains("has 3 records"), "{text}");
    let moved = [ALL[0], (SEED, 1, 0, 58), ALL[2], ALL[3]];
    let text = check(&settled, &moved).unwrap_err();
    assert!(text.contains("another LSN"), "{text}");
}
