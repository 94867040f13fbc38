//! What the commands print: results on standard output, and notes on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use crate::exit::Failure;

/// Prints a result: as the object, if there is one, or else as text.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print<W: Write>(
    out: &mut W,
    object: Option<Value>,
    text: impl FnOnce(&mut W) -> io::Result<()>,
) -> Result<(), Failure> {
    let printed = match object {
        Some(object) => print_json(out, &object),
        None => text(out),
    };
    printed.and_then(|()| out.flush()).map_err(Failure::output)
}

/// Prints an object as JSON in a line of its own.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print_json(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    out.write_all(b"\n")
}

/// Prints a line for each of the first `most` items, and one that says how many more there are.
/// Each begins with `name`.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print_some<T>(
    out: &mut impl Write,
    name: &str,
    items: &[T],
    most: usize,
    line: impl Fn(&T) -> String,
) -> io::Result<()> {
    for item in items.iter().take(most) {
        writeln!(out, "{name}{}", line(item))?;
    }
    match items.len().saturating_sub(most) {
        0 => Ok(()),
        more => writeln!(out, "{name}and {more} more, which --json lists"),
    }
}

/// Prints a line to standard error.
pub(crate) fn complain(text: impl Display) {
    // Where standard error is gone, the exit code or the output still shows it.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a note to standard error, behind the output so far.
///
/// # Errors
/// Those of `out`.
pub(crate) fn note(out: &mut impl Write, text: impl Display) -> Result<(), Failure> {
    out.flush().map_err(Failure::output)?;
    complain(format_args!("note: {text}"));
    Ok(())
}
