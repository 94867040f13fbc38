use super::*;

const RECORD_BYTES: usize = 40;
const SEED: u64 = 11;

/// Returns a round of two threads, whose records 0 and 1 were acknowledged at 0, 100 and 50, 150.
fn acknowledged() -> Round {
    let mut round = Round::new(1, SEED, 2);
    for (_, thread, seq, lsn) in ALL {
        assert!(round.acknowledge(Ack { thread, seq, lsn: Lsn::new(lsn) }));
    }
    round
}

fn check(rounds: &[Round], records: &[(u64, u32, u64, u64)]) -> Result<Vec<Round>, String> {
    let mut check = Check::new(rounds, RECORD_BYTES);
    for (seed, thread, seq, lsn) in records.iter().copied() {
        let mut data = [0; RECORD_BYTES];
        Origin { seed, thread, seq }.fill(&mut data);
        check.record(Lsn::new(lsn), &data)?;
    }
    check.finish().map_err(|violations| violations[0].clone())
}

const ALL: [(u64, u32, u64, u64); 4] =
    [(SEED, 0, 0, 0), (SEED, 1, 0, 50), (SEED, 0, 1, 100), (SEED, 1, 1, 150)];

/// Expects a violation whose text has `part`.
fn violates(rounds: &[Round], records: &[(u64, u32, u64, u64)], part: &str) {
    let text = check(rounds, records).unwrap_err();
    assert!(text.contains(part), "`{part}` is not in {text}");
}

#[test]
fn holds_when_all_is_there_and_when_more_is_there() {
    let rounds = [acknowledged()];
    assert_eq!(check(&rounds, &ALL).unwrap()[0].records(), 4);
    let more = [&ALL[..], &[(SEED, 0, 2, 200)]].concat();
    assert_eq!(check(&rounds, &more).unwrap()[0].records(), 5);
}

#[test]
fn an_acknowledgement_that_is_not_the_next_one_is_refused() {
    let mut round = acknowledged();
    for (thread, seq) in [(0, 1), (0, 3), (2, 0)] {
        assert!(!round.acknowledge(Ack { thread, seq, lsn: Lsn::new(200) }));
    }
}

#[test]
fn finds_what_is_missing_at_the_end_and_in_the_middle() {
    let rounds = [acknowledged()];
    violates(&rounds, &ALL[..3], "missing: record 1 of thread 1 of round 1; 1 in all, the last at");
    let part = "missing: record 0 of thread 0 of round 1; the next one is at LSN 100";
    violates(&rounds, &[ALL[1], ALL[2]], part);
}

#[test]
fn finds_what_is_there_twice_or_out_of_order() {
    let rounds = [acknowledged()];
    violates(&rounds, &[ALL[0], (SEED, 0, 0, 50)], "there twice: record 0 of thread 0");
    violates(&rounds, &[ALL[1], ALL[0]], "out of order: record 0 of thread 0");
}

#[test]
fn finds_what_is_at_another_lsn() {
    let moved = [(SEED, 0, 0, 8), ALL[1], ALL[2], ALL[3]];
    violates(&[acknowledged()], &moved, "moved: record 1 of thread 0");
}

#[test]
fn finds_what_was_never_appended() {
    let rounds = [acknowledged()];
    violates(&rounds, &[(SEED + 1, 0, 0, 0)], "foreign: 40 bytes at LSN 0");
    violates(&rounds, &[(SEED, 2, 0, 0)], "foreign: 40 bytes at LSN 0");
    let mut longer = Check::new(&rounds, RECORD_BYTES);
    let mut data = [0; RECORD_BYTES + 1];
    Origin { seed: SEED, thread: 0, seq: 0 }.fill(&mut data);
    assert!(longer.record(Lsn::ZERO, &data).unwrap_err().contains("foreign: 41 bytes"));
}

#[test]
fn an_earlier_round_must_be_there_exactly() {
    let settled = check(&[acknowledged()], &ALL).unwrap();
    check(&settled, &ALL).unwrap();
    violates(&settled, &ALL[..3], "missing: record 1 of thread 1");
    let more = [&ALL[..], &[(SEED, 0, 2, 200)]].concat();
    violates(&settled, &more, "foreign: record 3 of thread 0 of round 1; an earlier open found 2");
    violates(&settled, &[ALL[0], (SEED, 1, 0, 58), ALL[2], ALL[3]], "another LSN");
}
