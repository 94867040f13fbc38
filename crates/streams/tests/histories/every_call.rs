//! One history, in which each call of the disk is where the process dies or the power fails.

use palisade_streams::Streams;

use crate::session::Session;

const STEPS: usize = 160;

/// Runs the history up to its end or the crash.
fn run(session: &mut Session) -> Option<Streams> {
    let streams = session.open().ok()?;
    session.check_opened(&streams).ok()?;
    for _ in 0..STEPS {
        session.step(&streams).ok()?;
    }
    while streams.maintain().ok()? {}
    Some(streams)
}

#[test]
fn a_crash_at_each_call_of_footers_releases_and_moves_loses_nothing() {
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
