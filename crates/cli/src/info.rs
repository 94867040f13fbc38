//! `palisade info`: what a log is, found without a scan of it.

use std::io::{self, Write};

use palisade::inspect::{BufferPlace, Inspector, Segment, State};
use palisade::{ErrorKind, Lsn};
use serde_json::{Value, json};

use crate::args::InfoArgs;
use crate::dump::{self, hex};
use crate::exit::Failure;
use crate::output;

/// The one format version that this program reads; a log of another one is refused.
const FORMAT_VERSION: u32 = 1;

/// What a damaged copy of the state means.
pub(crate) const DAMAGED_COPY: &str = "one of the two copies of the state in `meta` is damaged: \
                                       the other one serves, and the next open writes both";

/// Prints what is known of the log.
///
/// # Errors
/// Those of reading the log and of `out`.
pub(crate) fn run(args: &InfoArgs, out: &mut impl Write) -> Result<(), Failure> {
    let info = Info::of(&dump::inspect(&args.log.dir)?)?;
    output::print(out, args.log.json.then(|| info.object(args)), |out| info.print(args, out))
}

/// What a log's files say about it.
struct Info {
    state: State,
    /// The word for `--json`, and what it means.
    standing: (&'static str, &'static str),
    /// The meta file is lost.
    is_lost: bool,
    /// Where the log ends, if that is known without a scan.
    end: Option<Lsn>,
    /// Where the log buffer lies; `None` where the meta file, which names it, is lost.
    buffer: Option<BufferPlace>,
    segments: Vec<Segment>,
    /// One of the two copies of the state does not validate.
    has_damaged_copy: bool,
}

impl Info {
    fn of(log: &Inspector) -> Result<Info, Failure> {
        let (state, is_lost) = (log.state()?, log.has_rebuilt_state());
        let clean_end = state.clean_end.max(state.head);
        let goes_on = state.clean && log.end().is_ok_and(|end| end > clean_end);
        let standing = match log.check_synced() {
            Err(error) if error.kind() == ErrorKind::Foreign => (
                "unsynced",
                "not synced: an open could not sync this copy of a log; run `palisade verify`",
            ),
            Err(error) => return Err(error.into()),
            Ok(()) if is_lost => {
                ("lost", "lost: `meta` is missing or damaged; read from the segments' headers")
            }
            Ok(()) if log.has_writer()? => ("open", "open: a process holds the log"),
            Ok(()) if goes_on => (
                "unclean",
                "records follow the clean end: `meta` was saved before them; the next open \
                 recovers",
            ),
            Ok(()) if state.clean => ("closed", "closed cleanly"),
            Ok(()) => ("unclean", "not closed cleanly: the next open recovers"),
        };
        let end = (standing.0 == "closed").then_some(state.clean_end);
        let buffer = if is_lost { None } else { Some(log.buffer()?) };
        let has_damaged_copy = !is_lost && log.has_damaged_copy()?;
        let segments = log.segments()?;
        Ok(Info { state, standing, is_lost, end, buffer, segments, has_damaged_copy })
    }

    /// Returns how far the log was durable when a process last closed it or dropped its last
    /// handle, unless the log ends there.
    fn last_end(&self) -> Option<Lsn> {
        let end = self.state.clean_end;
        (self.end.is_none() && end > Lsn::ZERO).then_some(end)
    }

    fn checkpoint(&self) -> Option<Lsn> {
        Some(self.state.checkpoint).filter(|lsn| *lsn > Lsn::ZERO)
    }

    fn print(&self, args: &InfoArgs, out: &mut impl Write) -> io::Result<()> {
        let state = &self.state;
        let lsn = |lsn: Option<Lsn>, or: &str| lsn.map_or(or.into(), |lsn| format!("LSN {lsn}"));
        let end = lsn(self.end, "not known without a scan: run `palisade verify`");
        writeln!(out, "log         {}", args.log.dir.display())?;
        writeln!(out, "format      version {FORMAT_VERSION}")?;
        writeln!(out, "uuid        {}", state.uuid)?;
        writeln!(out, "state       {}", self.standing.1)?;
        if self.has_damaged_copy {
            writeln!(out, "note        {DAMAGED_COPY}")?;
        }
        if let Some(codec) = &state.codec {
            writeln!(out, "codec       {codec}")?;
        }
        writeln!(out, "segment     {} bytes", state.segment_bytes)?;
        if self.is_lost {
            writeln!(out, "buffer      unknown: only `meta` names the log buffer")?;
            writeln!(out, "epoch       unknown: `--segments` lists those of the segments")?;
            writeln!(
                out,
                "head        LSN {} or above: the first segment begins there",
                state.head
            )?;
            writeln!(out, "checkpoint  unknown")?;
        } else {
            let place = self.buffer.as_ref().map_or_else(String::new, place);
            writeln!(out, "buffer      {} bytes, {place}", state.buffer_bytes)?;
            writeln!(out, "epoch       {}, begins at LSN {}", state.epoch, state.epoch_base)?;
            writeln!(out, "head        LSN {}", state.head)?;
            writeln!(out, "checkpoint  {}", lsn(self.checkpoint(), "none"))?;
        }
        writeln!(out, "end         {end}")?;
        if let Some(last) = self.last_end() {
            writeln!(out, "last end    LSN {last} (the log may have gone on since)")?;
        }
        self.print_segments(args.segments, out)
    }

    /// Returns the object of `--json`. The help documents its names, so they must not change.
    fn object(&self, args: &InfoArgs) -> Value {
        let state = &self.state;
        let (buffer, file) = match &self.buffer {
            None => ("unknown", None),
            Some(BufferPlace::None) => ("none", None),
            Some(BufferPlace::Gone) => ("gone", None),
            Some(BufferPlace::Memory(path)) => ("memory", Some(path)),
            Some(BufferPlace::Marks(path)) => ("heap", Some(path)),
            Some(_) => ("heap", None),
        };
        let number = |segment: Option<&Segment>| segment.map(|segment| segment.number);
        let known = |value: u64| (!self.is_lost).then_some(value);
        let mut object = json!({
            "dir": args.log.dir.display().to_string(),
            "format_version": FORMAT_VERSION,
            "uuid": state.uuid.to_string(),
            "state": self.standing.0,
            "has_damaged_copy": self.has_damaged_copy,
            "codec": state.codec.map(|codec| codec.name().to_owned()),
            "codec_key": state.codec.map(|codec| hex(codec.key_id())),
            "segment_bytes": state.segment_bytes,
            "buffer_bytes": known(state.buffer_bytes),
            "buffer": buffer,
            "buffer_file": file.map(|path| path.display().to_string()),
            "epoch": known(state.epoch),
            "epoch_base": known(state.epoch_base.as_u64()),
            "head": state.head.as_u64(),
            "checkpoint": self.checkpoint().map(Lsn::as_u64),
            "end": self.end.map(Lsn::as_u64),
            "last_end": self.last_end().map(Lsn::as_u64),
            "segments": self.segments.len(),
            "unreadable_segments": self.unreadable(),
            "first_segment": number(self.segments.first()),
            "last_segment": number(self.segments.last()),
        });
        if args.segments {
            let segment = |Segment { number, header }: &Segment| {
                let (base, epoch) =
                    header.as_ref().ok().map(|it| (it.base.as_u64(), it.epoch)).unzip();
                let error = header.as_ref().err().map(ToString::to_string);
                json!({ "number": number, "base": base, "epoch": epoch, "error": error })
            };
            object["segment_list"] = self.segments.iter().map(segment).collect();
        }
        object
    }

    fn unreadable(&self) -> usize {
        self.segments.iter().filter(|segment| segment.header.is_err()).count()
    }

    fn print_segments(&self, all: bool, out: &mut impl Write) -> io::Result<()> {
        write!(out, "segments    {}", self.segments.len())?;
        if let [first, .., last] = &self.segments[..] {
            write!(out, ", from number {} to {}", first.number, last.number)?;
        }
        match self.unreadable() {
            0 => writeln!(out)?,
            bad => writeln!(out, "; {bad} unreadable, which --segments lists")?,
        }
        let segments = self.segments.iter().filter(|_| all);
        segments.into_iter().try_for_each(|segment| print_segment(segment, out))
    }
}

fn print_segment(Segment { number, header }: &Segment, out: &mut impl Write) -> io::Result<()> {
    match header {
        Ok(header) => {
            write!(out, "  {number:>8}  from LSN {:>16}", header.base)?;
            write!(out, "  epoch {}", header.epoch)?;
            if let Some(predecessor) = header.predecessor {
                let (epoch, end) = (predecessor.epoch, predecessor.end);
                write!(out, ", its first: epoch {epoch} ended at LSN {end}")?;
            }
            writeln!(out)
        }
        Err(why) => writeln!(out, "  {number:>8}  unreadable: {why}"),
    }
}

fn place(place: &BufferPlace) -> String {
    const LOST: &str = "on the heap: commits survive the death of the process; appends do not \
                        under the policies OnCommit and Interval";
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
