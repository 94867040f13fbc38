//! How a command ends: exit codes and the failures behind them.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::process::ExitCode;

use palisade::ErrorKind;

/// The exit codes of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; for `demo`: the check held; for `verify`: every record is whole.
    Success,
    /// `demo`: the check did not hold.
    CheckFailed,
    /// `verify`: a crash left an incomplete tail, which the next open cuts off.
    TornTail,
    /// An argument is wrong; also clap's code for arguments that it cannot parse.
    Usage,
    /// The operating system reported a failure, or there is no log that can be read.
    Io,
    /// Acknowledged data is damaged or missing; for `salvage`: there are gaps.
    Corrupt,
}

impl Exit {
    const fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::CheckFailed | Exit::TornTail => 1,
            Exit::Usage => 2,
            Exit::Io => 3,
            Exit::Corrupt => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command did not do what it was asked to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments ask for something that cannot be done.
    Usage(String),
    /// The demo's check did not hold: what is missing or foreign, one per line.
    Check(String),
    /// The log refused or failed.
    Log(palisade::Error),
    /// The operating system failed.
    Io {
        /// What was being done.
        what: String,
        /// How it failed.
        source: io::Error,
    },
    /// Whoever read the output has gone: nothing is wrong, nobody is interested.
    OutputClosed,
}

impl Failure {
    /// A failure to write to standard output.
    pub(crate) fn output(source: io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::io("could not write to standard output", source),
        }
    }

    /// A failure of the operating system; `what` is a clause, such as "could not start X".
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Failure {
        Failure::Io { what: what.into(), source }
    }

    /// The exit code that this failure calls for.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::Check(_) => Exit::CheckFailed,
            Failure::Log(error) => exit_of(error.kind()),
            Failure::Io { .. } => Exit::Io,
            Failure::OutputClosed => Exit::Success,
        }
    }
}

fn exit_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Corrupt => Exit::Corrupt,
        ErrorKind::InvalidArgument
        | ErrorKind::TooLarge
        | ErrorKind::NotARecord
        | ErrorKind::OutOfRange
        | ErrorKind::Truncated => Exit::Usage,
        _ => Exit::Io,
    }
}

/// Says an error of the log in the words of this command line: its user has no program to change.
fn text_of(error: &palisade::Error) -> String {
    let finding = error.finding();
    let finding = match finding.as_str() {
        "" => format!("the log failed ({:?})", error.kind()),
        text => text
            .replace("segment_bytes", "--segment-bytes")
            .replace("buffer_bytes", "--buffer-bytes"),
    };
    let advice = error.advice_of_cause().or_else(|| advice(error.kind()));
    advice.map_or(finding.clone(), |advice| format!("{finding}; {advice}"))
}

/// What to do about an error of this kind with this command line.
fn advice(kind: ErrorKind) -> Option<&'static str> {
    let advice = match kind {
        ErrorKind::TooLarge => "name smaller records or larger segments and buffer",
        ErrorKind::NoSpace => {
            "nothing is lost: free space, or raise the limit, then run the command again"
        }
        ErrorKind::NoFiles => {
            "nothing is lost: close files or raise the limit, then run the command again"
        }
        ErrorKind::NotFound => "check that the path is right and its disk is mounted",
        ErrorKind::Foreign => "name a folder that holds a log of Palisade",
        ErrorKind::Unsupported => "use the `palisade` of the version that wrote it",
        ErrorKind::Locked => "stop the process that has it open, then run the command again",
        ErrorKind::Corrupt => {
            "nothing was changed; `palisade verify --deep` names what is damaged: restore from a \
             replica or backup, or copy with `palisade repair` what lies below the damage"
        }
        ErrorKind::NotARecord => "`palisade dump` prints the LSNs of all records",
        ErrorKind::OutOfRange => "`palisade verify` prints where the log ends",
        ErrorKind::Truncated => "`palisade info` prints where the log begins",
        ErrorKind::PermissionDenied => "grant this user access to the folder and the files in it",
        _ => return None,
    };
    Some(advice)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Check(text) => f.write_str(text),
            Failure::Log(error) => f.write_str(&text_of(error)),
            Failure::Io { what, .. } => f.write_str(what),
            Failure::OutputClosed => f.write_str("standard output was closed"),
        }
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Failure::Io { source, .. } => Some(source),
            // The text of a log's error contains its causes.
            _ => None,
        }
    }
}

impl From<palisade::Error> for Failure {
    fn from(error: palisade::Error) -> Failure {
        Failure::Log(error)
    }
}
