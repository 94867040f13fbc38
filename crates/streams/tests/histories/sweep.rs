//! Many seeds of random histories.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::seeds::sweep;
use crate::session::{Figures, History};

/// Seeds of a plain `cargo test`.
const SEEDS: u64 = 300;

#[test]
fn histories_with_crashes_are_what_the_model_says() {
    let sums: [AtomicU64; 7] = Default::default();
    sweep("palisade-streams --test histories sweep", SEEDS, |history: History| {
        let Figures { opens, footers, released, moved, scans, acked, sought } =
            history.session.figures;
        let figures = [opens, footers, released, moved, scans, acked, sought];
        for (sum, figure) in sums.iter().zip(figures) {
            // Relaxed: a sum that is read after all threads have ended.
            sum.fetch_add(figure, Ordering::Relaxed);
        }
    });
    let [opens, footers, released, moved, scans, acked, sought] = sums.map(AtomicU64::into_inner);
    println!(
        "{opens} opens, {scans} of them of all records, {footers} footers read, {released} bytes \
         released, {moved} moved, {acked} times entries were consumed, {sought} seeks"
    );
    let figures = [footers, released, moved, acked, sought];
    assert!(!figures.contains(&0), "the histories leave out what they check");
}
