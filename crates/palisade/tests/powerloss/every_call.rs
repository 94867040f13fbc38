//! A crash at every file-system call of every piece of work, again at every call of the recovery
//! from it, and once more in the recovery from that; and, for small logs, every subset of what
//! the medium may have kept.

use std::collections::BTreeMap;

use palisade::sim::{Fate, Loss, SimDisk};
use palisade::{Result, Wal};

use crate::dice::Dice;
use crate::oracle::Crash;
use crate::seeds::number;
use crate::session::Session;
use crate::shape::Shape;

/// Up to so many sectors and names that may or may not have been kept, every subset is tried.
const MOST_ASKED: u32 = 8;
/// The unit in which the medium keeps or loses.
const SECTOR: usize = 512;
/// How many subsets are tried where there are more.
const SAMPLED_SUBSETS: u64 = 16;

/// In a plain `cargo test` one in so many calls of the first recovery is interrupted.
const SHORT_STRIDE: u64 = 8;

/// A piece of work; records are named by their index.
enum Op {
    Append(usize),
    Commit(usize),
    Batch(&'static [usize]),
    TruncateBefore(usize),
    TruncateAfter(usize),
    TruncateFrom(usize),
    Replace(usize, &'static [usize]),
    Checkpoint(usize),
    CloseAndOpen,
    Cursors,
    Again(usize, &'static [Op]),
}

use Op::{
    Again, Append, Batch, Checkpoint, CloseAndOpen, Commit, Cursors, Replace, TruncateAfter,
    TruncateBefore, TruncateFrom,
};

/// Work that is to be interrupted, and what comes before it.
struct Scenario {
    name: &'static str,
    before: &'static [Op],
    work: &'static [Op],
}

const fn scenario(name: &'static str, before: &'static [Op], work: &'static [Op]) -> Scenario {
    Scenario { name, before, work }
}

const SIX: &[Op] = &[Again(6, &[Commit(1200)])];
const NINE: &[Op] = &[Again(9, &[Commit(1200)])];
const THREE_APPENDED: &[Op] = &[Again(3, &[Append(700)])];

const SCENARIOS: &[Scenario] = &[
    scenario("first open", &[], &[]),
    scenario("commit", &[Commit(100)], &[Append(200), Commit(300), Append(10)]),
    scenario("rotate and prepare ahead", &[Commit(1500)], &[Again(4, &[Append(900), Commit(900)])]),
    scenario(
        "truncate_before and recycle",
        NINE,
        &[TruncateBefore(7), Again(6, &[Commit(1200)]), TruncateBefore(4)],
    ),
    scenario(
        "truncate_after",
        SIX,
        &[TruncateAfter(1), Commit(100), Append(50), TruncateAfter(2), Commit(10)],
    ),
    scenario(
        "truncate_from",
        SIX,
        &[TruncateFrom(2), Commit(100), TruncateFrom(2), TruncateFrom(0), Commit(10)],
    ),
    scenario(
        "replace_from",
        SIX,
        &[Replace(2, &[100, 0, 700]), Append(100), Replace(0, &[50]), Commit(10)],
    ),
    scenario("cursors", SIX, &[Cursors]),
    scenario("checkpoint", THREE_APPENDED, &[Checkpoint(1), Append(700), Checkpoint(3)]),
    scenario("close", THREE_APPENDED, &[CloseAndOpen]),
    scenario("close and open", &[Commit(700)], &[CloseAndOpen, Append(300), CloseAndOpen]),
    scenario(
        "batch",
        &[Commit(1300)],
        &[Batch(&[500, 600, 300]), Commit(20), Batch(&[10, 0, 900])],
    ),
];

/// Work that leaves few sectors of the mapped buffer unsynced: little of it, after an open that has
/// made the buffer's file anew.
const SMALL_SCENARIOS: &[Scenario] = &[
    scenario("small commits", &[Commit(100)], &[Append(200), Commit(300), Append(10)]),
    scenario(
        "small rotation",
        &[Commit(1900), Commit(1900)],
        &[Append(100), Commit(150), Append(50), Commit(20)],
    ),
    scenario("small truncate_before", NINE, &[TruncateBefore(7), Append(100), Commit(100)]),
    scenario(
        "small truncate_after",
        SIX,
        &[Append(50), TruncateAfter(1), Commit(100), Append(50), TruncateAfter(2), Commit(10)],
    ),
    scenario(
        "small replace_from",
        &[Again(4, &[Commit(1200)])],
        &[Replace(1, &[100, 10]), Append(50), Replace(0, &[20, 30])],
    ),
    scenario(
        "small checkpoint",
        THREE_APPENDED,
        &[Append(100), Checkpoint(1), Append(100), Checkpoint(3)],
    ),
    scenario(
        "small close and open",
        &[Commit(700)],
        &[Append(300), CloseAndOpen, Append(300), CloseAndOpen],
    ),
    scenario(
        "small batch",
        &[Commit(1300)],
        &[Batch(&[50, 160, 300]), Commit(20), Batch(&[10, 0, 90])],
    ),
];

/// Does the work in the log, and returns the log as it is open then.
fn work(session: &mut Session, mut wal: Wal, ops: &[Op]) -> Result<Wal> {
    for op in ops {
        match *op {
            Append(len) => session.append(&wal, len)?,
            Commit(len) => session.commit(&wal, len)?,
            Batch(lens) => session.append_batch(&wal, lens)?,
            TruncateBefore(index) => session.truncate_before(&wal, index)?,
            TruncateAfter(index) => session.truncate_after(&wal, index)?,
            TruncateFrom(index) => session.truncate_from(&wal, index)?,
            Replace(index, lens) => session.replace_from(&wal, index, lens)?,
            Checkpoint(index) => session.checkpoint(&wal, index)?,
            Cursors => wal = use_cursors(session, wal)?,
            CloseAndOpen => {
                session.close(wal)?;
                wal = session.open()?;
            }
            Again(times, ops) => {
                for _ in 0..times {
                    wal = work(session, wal, ops)?;
                }
            }
        }
    }
    Ok(wal)
}

fn use_cursors(session: &mut Session, wal: Wal) -> Result<Wal> {
    let mut slow = session.create_cursor(&wal, "slow", u64::MAX)?;
    let mut fast = session.create_cursor(&wal, "fast", 0)?;
    session.process(&mut slow, 2)?;
    session.save_cursor(&slow)?;
    session.process(&mut slow, 1)?;
    session.process(&mut fast, 5)?;
    session.truncate_before(&wal, 5)?;
    session.process(&mut slow, 2)?;
    session.truncate_after(&wal, 0)?;
    session.commit(&wal, 100)?;
    drop((slow, fast));
    session.remove_cursor(&wal, "fast")?;
    session.close(wal)?;
    let wal = session.open()?;
    // What it returned last is truncated.
    let mut slow = wal.cursor("slow")?;
    session.seek_cursor(&mut slow, wal.head_lsn())?;
    session.process(&mut slow, 9)?;
    session.save_cursor(&slow)?;
    Ok(wal)
}

/// A session in which the scenario's work comes next, and its log; `None` if its open died.
fn prepared(scenario: &Scenario, shape: &Shape, crash_at: Option<u64>) -> (Session, Option<Wal>) {
    let mut session = Session::new(shape.clone(), 7);
    if scenario.name == "first open" {
        if let Some(call) = crash_at {
            session.disk.crash_at(call);
        }
        session.working_on = "open";
        let wal = session.open();
        assert!(wal.is_ok() || session.disk.is_dead());
        return (session, wal.ok());
    }
    let wal = session.open_and_check(None);
    let wal = work(&mut session, wal, scenario.before).expect("nothing fails yet");
    // The small ones work in a buffer whose file was made anew.
    let wal = if scenario.name.starts_with("small") {
        session.close(wal).expect("nothing fails yet");
        session.open_and_check(None)
    } else {
        wal
    };
    if let Some(call) = crash_at {
        session.disk.crash_at(session.disk.calls() + call);
    }
    (session, Some(wal))
}

/// How many calls the scenario's work makes.
fn calls_of(scenario: &Scenario, shape: &Shape) -> u64 {
    let (mut session, wal) = prepared(scenario, shape, None);
    let begun = if scenario.name == "first open" { 0 } else { session.disk.calls() };
    let worked = work(&mut session, wal.expect("nothing fails"), scenario.work);
    drop(worked.expect("nothing fails"));
    session.disk.calls() - begun
}

/// The session after a crash at the work's `call`.
fn crashed_at(scenario: &Scenario, shape: &Shape, call: u64) -> Session {
    let (mut session, wal) = prepared(scenario, shape, Some(call));
    if let Some(wal) = wal {
        let worked = work(&mut session, wal, scenario.work).map(drop);
        assert!(worked.is_ok() || session.disk.is_dead(), "{}: {worked:?}", scenario.name);
    }
    session.disk.kill();
    session
}

/// Recoveries from the crash of `session`, interrupted at each `stride`th call, `depth` times.
fn descend(session: &Session, so_far: Option<Crash>, depth: u32, dice: &mut Dice) -> u64 {
    let mut runs = 0;
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let worst = if so_far == Some(Crash::PowerLoss) { Crash::PowerLoss } else { crash };
        let seed = dice.next();
        let fresh = || {
            let mut next = session.fork(seed);
            next.crash(crash);
            next
        };
        let mut whole = fresh();
        let before = whole.disk.calls();
        drop(whole.open_and_check(Some(worst)));
        runs += 1;
        if depth == 0 {
            continue;
        }
        let calls = whole.disk.calls() - before;
        // The deeper, the fewer calls: in a long run all of the first recovery, some of the second.
        let is_long = number("PALISADE_SEEDS").is_some();
        let stride = match (depth, is_long) {
            (2, true) => 1,
            (2, false) => SHORT_STRIDE,
            _ => 1 + dice.below(calls.max(1)),
        };
        for call in (dice.below(stride)..calls).step_by(stride as usize) {
            let mut next = fresh();
            next.disk.crash_at(next.disk.calls() + call);
            next.open_and_die(worst);
            next.disk.kill();
            runs += descend(&next, Some(worst), depth - 1, dice);
        }
    }
    runs
}

/// Says where a check failed, on the way out of it; the session says what had happened.
struct Whereabouts<'a> {
    scenario: &'a Scenario,
    call: u64,
}

impl Drop for Whereabouts<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: a crash at its call {}", self.scenario.name, self.call);
        }
    }
}

fn sweep(shape: &Shape) {
    let mut dice = Dice::new(1);
    for scenario in SCENARIOS {
        let calls = calls_of(scenario, shape);
        let mut runs = 0;
        for call in 0..calls {
            let session = crashed_at(scenario, shape, call);
            let _whereabouts = Whereabouts { scenario, call };
            runs += descend(&session, None, 2, &mut dice);
        }
        println!("{}: {calls} calls, {runs} recoveries", scenario.name);
        assert!(calls > 0);
    }
}

#[test]
fn a_crash_at_every_call_three_deep_loses_nothing() {
    sweep(&Shape::smallest());
}

#[test]
fn a_crash_at_every_call_loses_nothing_with_a_heap_buffer() {
    sweep(&Shape { heap: true, ..Shape::smallest() });
}

#[test]
fn a_crash_at_every_call_loses_nothing_with_copy_on_write() {
    sweep(&Shape { in_place: false, ..Shape::smallest() });
}

#[test]
fn a_crash_at_every_call_loses_nothing_with_whole_block_damage() {
    sweep(&Shape { powersafe: false, ..Shape::smallest() });
}

/// Which of the disk's losses can make a difference: not a sector whose bytes on the medium are
/// those that are to come to it, as zeros are in a file that has grown.
fn differing(disk: &SimDisk) -> Vec<bool> {
    let without = disk.fork(0);
    without.lose_power_choosing(&mut |loss| if loss.is_sector() { Fate::Drop } else { Fate::Keep });
    let losses = disk.losses();
    let is_emptied = |name: &str| {
        losses.iter().any(|loss| matches!(loss, Loss::Truncation { file } if file == name))
    };
    let mut contents = BTreeMap::new();
    let mut differs = |name: &str, offset: usize| {
        let files = contents.entry(name.to_owned());
        let (shown, stable) = files.or_insert_with(|| (disk.file(name), without.file(name)));
        let sector = |bytes: &Option<Vec<u8>>| {
            let bytes = bytes.as_deref().and_then(|bytes| bytes.get(offset..));
            bytes.map(|bytes| bytes[..bytes.len().min(SECTOR)].to_vec())
        };
        sector(shown) != sector(stable)
    };
    let makes_a_difference = |loss: &Loss| match loss {
        Loss::Sector { file, offset, .. } => is_emptied(file) || differs(file, *offset as usize),
        _ => true,
    };
    losses.iter().map(makes_a_difference).collect()
}

/// Loses power with every subset of what may have been kept, or with some where there are many.
fn every_subset(session: &Session, dice: &mut Dice) -> (u64, bool) {
    let differs = differing(&session.disk);
    let asked = differs.iter().filter(|differs| **differs).count() as u32;
    let is_whole = asked <= MOST_ASKED;
    let subsets = if is_whole { 1 << asked } else { SAMPLED_SUBSETS };
    for subset in 0..subsets {
        let mut next = session.fork(subset);
        let mut chosen = if is_whole { subset } else { dice.next() };
        let mut differs = differs.iter();
        next.lose_power_choosing(&mut |_| {
            if differs.next() != Some(&true) {
                return Fate::Drop;
            }
            let is_kept = chosen & 1 == 1;
            chosen = chosen.rotate_right(1);
            if is_kept { Fate::Keep } else { Fate::Drop }
        });
        drop(next.open_and_check(Some(Crash::PowerLoss)));
    }
    (subsets, is_whole)
}

fn every_subset_at_every_call(scenarios: &[Scenario], shape: &Shape) {
    let mut dice = Dice::new(2);
    for scenario in scenarios {
        let calls = calls_of(scenario, shape);
        let (mut subsets, mut whole) = (0, 0);
        for call in 0..calls {
            let session = crashed_at(scenario, shape, call);
            let _whereabouts = Whereabouts { scenario, call };
            let (tried, is_whole) = every_subset(&session, &mut dice);
            subsets += tried;
            whole += u64::from(is_whole);
        }
        println!("{}: {calls} calls, {whole} of them whole, {subsets} subsets", scenario.name);
        assert!(2 * whole > calls, "{}: most calls have too many sectors", scenario.name);
    }
}

#[test]
fn every_subset_of_what_was_not_synced_at_every_call() {
    every_subset_at_every_call(SCENARIOS, &Shape { heap: true, ..Shape::smallest() });
}

/// The sectors of the ring and of the sync line are kept or not like all others.
#[test]
fn every_unsynced_subset_with_a_mapped_buffer_loses_nothing() {
    every_subset_at_every_call(SMALL_SCENARIOS, &Shape::smallest());
}
