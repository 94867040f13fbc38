//! Results for programs: one JSON object a line.

use std::io::{self, Write};

use serde::Serialize;

/// Prints `object` in a line of its own.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    out.write_all(b"\n")
}
