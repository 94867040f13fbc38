//! A process opens, appends, closes and opens again, all in one boot, until it is killed: this
//! program starts itself again.

use crate::prelude::*;

const CHILD: &str = "durability::clean_kills::the_killed_process";
const KILLS: u64 = 6;
const FIRST_OF_KILL: u64 = 300;

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).buffer_bytes(16 << 10).buffer(BufferKind::Mapped)
}

/// Not a test by itself: the part of the process that is killed. Says each number whose append has
/// returned.
#[test]
fn the_killed_process() {
    let Some(path) = given_folder() else { return };
    let mut number = None;
    loop {
        let wal = options().open(&path).unwrap();
        let mut next = number.unwrap_or_else(|| numbers(&wal).len() as u64);
        assert!(number.is_none() || wal.recovery_report().clean, "closed, and opened as unclean");
        for _ in 0..next % 40 + 1 {
            drop(wal.append(&record(next, next as usize * 37 % 500 + 8)).unwrap());
            say(&next.to_string());
            next += 1;
            if next % 7 == 0 {
                wal.sync().unwrap();
            }
        }
        wal.close().unwrap();
        number = Some(next);
    }
}

/// Runs the process until it has said some numbers; returns the last one that it said.
fn killed_after(path: &Path, lines: u64) -> u64 {
    let mut other = Other::start(CHILD, path);
    let mut last = None;
    let mut heard = 0;
    // What it said before it died is heard to the end.
    while let Some(said) = other.hear() {
        // A kill may come in the middle of a word.
        let Ok(number) = said.parse() else { continue };
        last = Some(number);
        heard += 1;
        if heard == lines {
            other.kill();
        }
    }
    last.expect("it has said a number")
}

/// Protection: the ring that a clean open goes on with, full of the frames of the run before.
#[test]
fn a_kill_after_clean_opens_loses_no_append_that_returned() {
    let (_dir, path) = folder();
    let mut from = 0;
    for kill in 0..KILLS {
        let last = killed_after(&path, FIRST_OF_KILL + kill * 7 % 41);
        let wal = options().open(&path).unwrap();
        let found = numbers(&wal);
        assert!(found.iter().copied().eq(0..found.len() as u64), "kill {kill}: {found:?}");
        assert!(found.len() as u64 > last, "kill {kill}: {} records, {last} said", found.len());
        assert!(found.len() as u64 > from);
        from = found.len() as u64;
        wal.close().unwrap();
    }
}
