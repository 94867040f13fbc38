//! Figures as people and programs read them.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Formats a time with about three digits, in the unit that suits it.
pub(crate) fn time(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} µs", ns / 1e3),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// Returns a time in microseconds, for programs.
pub(crate) fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Prints a table of what was measured in a folder, between the folder's name and the verdict.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print_measured<W: Write>(
    out: &mut W,
    dir: &Path,
    file_system: Option<&str>,
    table: impl FnOnce(&mut W) -> io::Result<()>,
    verdict: &[String],
) -> io::Result<()> {
    writeln!(out, "{} ({})\n", dir.display(), file_system.unwrap_or("file system not known"))?;
    table(out)?;
    writeln!(out)?;
    verdict.iter().try_for_each(|line| writeln!(out, "- {line}"))
}
