//! Histories in which each call of the disk is where the process dies or the power fails.

use std::time::Duration;

use palisade::Result;
use palisade::sim::SimDisk;
use palisade_streams::{Options, Streams};

use crate::session::Session;

const STEPS: usize = 160;

/// Runs the history up to its end or the crash.
fn run(session: &mut Session) -> Option<Streams> {
    let streams = run_up_to_a_crash(session);
    session.end_tails();
    streams
}

fn run_up_to_a_crash(session: &mut Session) -> Option<Streams> {
    let streams = session.open().ok()?;
    session.check_opened(&streams).ok()?;
    for _ in 0..STEPS {
        session.step(&streams).ok()?;
    }
    while session.maintain(&streams).ok()? {}
    Some(streams)
}

#[test]
fn a_crash_at_any_call_of_footer_release_or_move_loses_nothing() {
    let seed = (0..200).find(|&seed| {
        let mut session = Session::new(seed);
        let stats = run(&mut session).expect("nothing fails").stats();
        stats.moved_bytes > 0 && stats.released_bytes > 0
    });
    let seed = seed.expect("one of the seeds moves entries");
    let mut whole = Session::new(seed);
    drop(run(&mut whole));
    let calls = whole.disk.calls();
    for call in 0..calls {
        for loses_power in [false, true] {
            let mut session = Session::new(seed);
            session.disk.crash_at(call);
            drop(run(&mut session));
            match loses_power {
                true => session.disk.lose_power(),
                false => session.disk.kill(),
            }
            session.disk.restart();
            let streams = session.open().unwrap_or_else(|error| panic!("call {call}: {error}"));
            session.check_opened(&streams).expect("nothing fails any more");
        }
    }
    println!("{calls} calls, seed {seed}");
}

/// A stream with four entries and a consumer that has acknowledged them, as far as the disk goes.
fn acknowledge(disk: &SimDisk) -> Result<Streams> {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10);
    let streams = Options::new().log(log).background(false).with_store(disk)?;
    let stream = streams.stream_or_create("s")?;
    let mut consumer = stream.consumer("c")?;
    if stream.is_empty()? {
        (0..4_u8).try_for_each(|n| stream.append([n]).map(drop))?;
        streams.sync()?;
        while consumer.next(Duration::ZERO)?.is_some() {}
        consumer.ack(3)?.wait()?;
    }
    drop((consumer, stream));
    Ok(streams)
}

/// Truncates acknowledged entries behind a record of `filler` bytes, so that the end of a sector is
/// at another place of the records each time.
fn truncate(streams: &Streams, filler: usize) -> Result<()> {
    streams.create("filler")?.append(vec![7; filler])?;
    streams.stream("s")?.truncate_from(1)?.wait().map(drop)
}

#[test]
fn power_loss_in_a_truncation_acknowledges_no_truncated_entry() {
    let (mut before, mut after) = (0, 0);
    for filler in (0..512).step_by(8) {
        for seed in 0..4 {
            for call in 1..6 {
                let disk = SimDisk::new(seed);
                let streams = acknowledge(&disk).expect("nothing fails yet");
                disk.crash_at(disk.calls() + call);
                let _ = truncate(&streams, filler);
                drop(streams);
                disk.lose_power();
                disk.restart();
                let streams = acknowledge(&disk).expect("nothing fails any more");
                let stream = streams.stream("s").expect("it was durable");
                let consumer = stream.consumers().expect("it is there").remove(0);
                let found = (stream.next_index().expect("it is there"), consumer.acked);
                match (found, consumer.is_truncated) {
                    ((4, 4), false) => before += 1,
                    ((1, 1), true) => after += 1,
                    other => panic!("{other:?}, filler {filler}, seed {seed}, call {call}"),
                }
            }
        }
    }
    assert!(before > 0 && after > 0, "{before} without the truncation, {after} with it");
}
