//! A simulated disk loses power, or its process dies, at a random call; then the database is opened
//! again. It must have all transactions whose commits have returned, whole, and nothing else. The
//! log and the base file both lie on that disk.
//!
//! The long form runs `PALISADE_REDB_SEEDS` seeds, for example 10000. `PALISADE_REDB_SEED` runs
//! one of them.

#![expect(clippy::print_stderr, reason = "progress of long runs")]

use crate::common::{Dice, seeds, small};
use crate::model::Model;
use palisade::sim::{CallKind, Fault, FaultKind, SimDisk};
use palisade_redb::Options;
use redb::{Builder, Database};

const PROCESSES: u64 = 4;
const STEPS: u64 = 25;

/// Of three histories, one has a log that only its limit keeps short, and one a limit that the
/// longest commits exceed.
fn options(seed: u64) -> Options {
    let log = palisade::Options::new().segment_bytes(64 << 10).buffer_bytes(64 << 10);
    let limited = |segments: u64| {
        let log = log.clone().max_bytes(segments * ((64 << 10) + 4096));
        Options::new().log(log).memory_bytes(100 * 4096).log_bytes(1 << 30)
    };
    match seed % 3 {
        0 => small(),
        1 => limited(12),
        _ => limited(4),
    }
}

fn open(disk: &SimDisk, seed: u64) -> Result<Database, Box<dyn std::error::Error>> {
    let backend = options(seed).open_on(disk.as_disk(), "/db")?;
    Ok(Builder::new().set_cache_size(64 << 10).create_with_backend(backend)?)
}

/// What the database may have after a crash.
#[derive(Default)]
struct World {
    /// What the last commit that returned `Ok` has made durable.
    durable: Model,
    /// What a commit has made durable that has not returned, if it has.
    begun: Option<Model>,
}

/// Opens the database and works on it, until the process dies or has made its steps.
fn process(disk: &SimDisk, seed: u64, dice: &mut Dice, world: &mut World) -> Result<(), String> {
    let mut db = open(disk, seed).map_err(|error| error.to_string())?;
    // What the database shows: not all of it may be durable.
    let mut shown = world.durable.clone();
    for _ in 0..STEPS {
        if dice.below(12) == 0 {
            // Begins with a durable commit of what is shown.
            world.begun = Some(shown.clone());
            db.compact().map_err(|error| error.to_string())?;
            if !disk.is_dead() {
                (world.durable, world.begun) = (shown.clone(), None);
            }
        } else {
            let mut begun = None;
            let done = shown.transaction(&db, dice, &mut |after| begun = Some(after.clone()));
            world.begun = begun.or(world.begun.take());
            let (after, is_durable) = done.map_err(|error| error.to_string())?;
            shown = after;
            if is_durable && !disk.is_dead() {
                (world.durable, world.begun) = (shown.clone(), None);
            }
        }
        if disk.is_dead() {
            return Ok(());
        }
    }
    // A close makes everything durable that is shown.
    world.begun = Some(shown.clone());
    drop(db);
    if !disk.is_dead() {
        (world.durable, world.begun) = (shown, None);
    }
    Ok(())
}

#[test]
fn no_crash_loses_a_commit_or_shows_a_part_of_one() {
    for seed in seeds(150) {
        let mut dice = Dice(seed);
        let disk = SimDisk::new(seed);
        disk.fail(Fault::rate(20, FaultKind::ShortWrite));
        disk.fail(Fault::rate(20, FaultKind::Interrupted).only(CallKind::Write));
        let mut world = World::default();
        for run in 0..PROCESSES {
            let context = format!("seed {seed}, process {run}");
            disk.crash_at(disk.calls() + dice.below(400));
            if let Err(error) = process(&disk, seed, &mut dice, &mut world) {
                let is_full = seed % 3 == 2 && error.contains("max_bytes");
                assert!(is_full || disk.is_dead(), "{context}: {error}");
            }
            match dice.below(3) {
                0 => disk.restart(),
                _ => disk.lose_power(),
            }
            let mut db = open(&disk, seed).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = Model::read(&db).unwrap();
            let is_begun = world.begun.as_ref().is_some_and(|begun| *begun == found);
            assert!(found == world.durable || is_begun, "{context}");
            if dice.below(4) == 0 {
                assert!(db.check_integrity().unwrap(), "{context}");
            }
            drop(db);
            world = World { durable: found, begun: None };
        }
        // The long form takes minutes.
        if seed % 500 == 499 {
            eprintln!("{} seeds", seed + 1);
        }
    }
}
