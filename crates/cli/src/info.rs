//! `palisade info`: what a log is, told without a scan of it.

use std::io::{self, Write};
use std::path::Path;

use palisade::inspect::{BufferPlace, Inspector};
use palisade::store::{Segment, State};

use crate::args::InfoArgs;
use crate::exit::Failure;

/// The one format version that this program reads; a log of another one is refused.
const FORMAT_VERSION: u32 = 1;
/// Prints what is known of the log.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &InfoArgs, out: &mut impl Write) -> Result<(), Failure> {
    let log = Inspector::open(&args.dir)?;
    let (state, has_writer) = (log.state()?, log.has_writer()?);
    let segments = log.segments()?;
    let is_rebuilt = log.has_rebuilt_state();
    let buffer = match is_rebuilt {
        true => "unknown: only `meta` names the log buffer".into(),
        false => buffer_place(&log.buffer()?),
    };
    print(out, &args.dir, &state, has_writer, is_rebuilt, &buffer).map_err(Failure::output)?;
    print_segments(out, &segments).map_err(Failure::output)
}

fn print(
    out: &mut impl Write,
    dir: &Path,
    state: &State,
    has_writer: bool,
    is_rebuilt: bool,
    buffer: &str,
) -> io::Result<()> {
    let life = match (has_writer, state.clean) {
        _ if is_rebuilt => "lost: `meta` is missing or damaged; read from the segments' headers",
        (true, _) => "open: a writer is running",
        (false, true) => "closed cleanly",
        (false, false) => "not closed cleanly: the next open recovers",
    };
    let end = match (has_writer, state.clean) {
        (false, true) => format!("LSN {}", state.clean_end),
        _ => "not known without a scan: run `palisade verify`".into(),
    };
    writeln!(out, "log         {}", dir.display())?;
    writeln!(out, "format      version {FORMAT_VERSION}")?;
    writeln!(out, "uuid        {}", state.uuid)?;
    writeln!(out, "state       {life}")?;
    writeln!(out, "segment     {} bytes", state.segment_bytes)?;
    writeln!(out, "buffer      {} bytes, {buffer}", state.buffer_bytes)?;
    writeln!(out, "epoch       {}, begins at LSN {}", state.epoch, state.epoch_base)?;
    writeln!(out, "head        LSN {}", state.head)?;
    writeln!(out, "checkpoint  LSN {}", state.checkpoint)?;
    writeln!(out, "clean end   LSN {} (of the last clean close)", state.clean_end)?;
    writeln!(out, "end         {end}")
}

fn buffer_place(place: &BufferPlace) -> String {
    const LOST: &str = "on the heap: appends do not survive the death of the process, commits do";
    match place {
        BufferPlace::None => "none: the log was closed".into(),
        BufferPlace::Gone => "none: it is gone, or of another folder: a copy has no buffer".into(),
        BufferPlace::Memory(path) => {
            format!("{}: appends survive the death of the process", path.display())
        }
        BufferPlace::Marks(path) => format!("{LOST} (marks in {})", path.display()),
        _ => LOST.into(),
    }
}

fn print_segments(out: &mut impl Write, segments: &[Segment]) -> io::Result<()> {
    writeln!(out, "segments    {}", segments.len())?;
    for Segment { number, header } in segments {
        match header {
            Ok(header) => {
                write!(out, "  {number:>8}  from LSN {:>16}", header.base)?;
                write!(out, "  epoch {}", header.epoch)?;
                if let Some(predecessor) = header.predecessor {
                    let (epoch, end) = (predecessor.epoch, predecessor.end);
                    write!(out, ", its first: epoch {epoch} ended at LSN {end}")?;
                }
                writeln!(out)?;
            }
            Err(why) => writeln!(out, "  {number:>8}  unreadable: {why}")?,
        }
    }
    Ok(())
}
