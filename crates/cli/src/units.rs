//! Figures as people read them.

use std::time::Duration;

/// A time with three digits or so, in the unit that suits it.
pub(crate) fn time(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} µs", ns / 1e3),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}
