//! Durable commits a second, of this crate and of the published one in turns.
//!
//! In the folder of this package:
//!
//!     cargo bench                           # 7 rounds of 2000 commits a thread
//!     ROUNDS=9 COMMITS=4000 cargo bench
//!
//! Each round opens a new log of each crate in a folder on disk, and lets the threads call
//! `append_and_sync` with records of 256 bytes. Prints the median of the rounds and their range.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

use std::path::Path;
use std::time::Instant;

const RECORD: [u8; 256] = [7; 256];

fn main() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (rounds, commits) = (number("ROUNDS", 7), number("COMMITS", 2000));
    println!("{:>7} {:>12} {:>22} {:>12} {:>22} {:>6}", "threads", "here", "", "published", "", "");
    for threads in [1, 2, 4, 8, 16] {
        let (mut here, mut published) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            here.push(in_a_folder(|path| {
                let wal = wal_db::Wal::open(path).expect("a new log");
                rate(threads, commits, || wal.append_and_sync(&RECORD).expect("a commit"))
            }));
            published.push(in_a_folder(|path| {
                let wal = published::Wal::open(path).expect("a new log");
                rate(threads, commits, || wal.append_and_sync(&RECORD).expect("a commit"))
            }));
        }
        let (ours, theirs) = (Figure::of(here), Figure::of(published));
        let ratio = ours.median / theirs.median;
        println!("{threads:>7} {ours} {theirs} {ratio:>5.2}x");
    }
}

fn in_a_folder(run: impl FnOnce(&Path) -> f64) -> f64 {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    run(&folder.path().join("wal.log"))
}

/// Returns the commits a second of so many threads.
fn rate<T>(threads: usize, commits: usize, commit: impl Fn() -> T + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..commits).for_each(|_| drop(commit())));
        }
    });
    (threads * commits) as f64 / start.elapsed().as_secs_f64()
}

struct Figure {
    median: f64,
    least: f64,
    most: f64,
}

impl Figure {
    fn of(mut rates: Vec<f64>) -> Figure {
        rates.sort_by(f64::total_cmp);
        Figure { median: rates[rates.len() / 2], least: rates[0], most: rates[rates.len() - 1] }
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = format!("({:.0} to {:.0})", self.least, self.most);
        write!(f, "{:>10.0}/s {range:>22}", self.median)
    }
}
