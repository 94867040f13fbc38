//! Times as people and programs read them.

use std::time::Duration;

/// Returns a time in microseconds.
pub(crate) fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Formats a time with about three digits, in the unit that suits it.
pub(crate) fn text_of(us: f64) -> String {
    match us {
        ..1.0 => format!("{:.0} ns", us * 1e3),
        ..1e3 => format!("{us:.1} µs"),
        ..1e6 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}
