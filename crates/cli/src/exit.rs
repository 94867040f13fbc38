//! How a command ends: exit codes and the failures behind them.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use palisade::{Error, ErrorKind};

/// The exit codes of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; for `demo`: the check held; for `verify`: every record is whole.
    Success = 0,
    /// `demo`: the check did not hold; `verify`: a crash left a torn tail.
    CheckFailed = 1,
    /// An argument is wrong; also clap's code for arguments that it cannot parse.
    Usage = 2,
    /// The operating system reported a failure, or there is no log that can be read.
    Io = 3,
    /// Acknowledged data is damaged or missing; for `salvage`: there are gaps.
    Corrupt = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what it was asked to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The demo's check did not hold: what is missing or foreign, one per line.
    Check(String),
    /// The arguments ask for something that cannot be done, or the log or the operating system
    /// failed.
    Error(Error),
    /// Whoever read the output has gone: nothing is wrong, nobody is interested.
    OutputClosed,
}

impl Failure {
    /// Makes the failure of a write to standard output.
    pub(crate) fn output(source: io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::io("write to standard output")(source),
        }
    }

    /// Makes a failure of the operating system to do `what`, such as "start the writing process".
    pub(crate) fn io(what: &str) -> impl Fn(io::Error) -> Failure + Copy {
        move |source| Error::io(what, source).into()
    }

    /// Makes a failure of the operating system to do something with a path; `what` is a verb.
    pub(crate) fn at(what: &str, path: &Path) -> impl Fn(io::Error) -> Failure + Copy {
        move |source| Error::io(what, source).at_path(path).into()
    }

    /// Makes the failure of arguments that ask for something that cannot be done.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Error::new(ErrorKind::InvalidArgument, text).into()
    }

    /// Returns what happened and what to do about it with this command line, in one line unless it
    /// is the list of a check. At a terminal the advice has a line of its own.
    pub(crate) fn text(&self, is_at_terminal: bool) -> String {
        let advice = match self {
            Failure::Error(error) => advice(error),
            Failure::Check(_) => "keep the log's folder: it shows what went wrong",
            Failure::OutputClosed => "nothing: the output has no reader",
        };
        match is_at_terminal {
            true => format!("palisade: {self}\nwhat to do: {advice}"),
            false => format!("palisade: {self}; {advice}"),
        }
    }

    /// Returns the exit code that this failure calls for.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Check(_) => Exit::CheckFailed,
            Failure::Error(error) => exit_of(error.kind()),
            Failure::OutputClosed => Exit::Success,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Check(text) => f.write_str(text),
            // The user has no program to change.
            Failure::Error(error) => match error.finding().as_str() {
                "" => write!(f, "the log failed ({:?})", error.kind()),
                text => f.write_str(
                    &text
                        .replace('\n', " ")
                        .replace("segment_bytes", "--segment-bytes")
                        .replace("buffer_bytes", "--buffer-bytes"),
                ),
            },
            Failure::OutputClosed => f.write_str("standard output was closed"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
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

const HELP_ADVICE: &str = "see the examples that `--help` behind the command prints";
const MOUNT_ADVICE: &str = "check that the path is right and its disk is mounted";

/// Returns what to do about an error with this command line.
fn advice(error: &Error) -> &'static str {
    if let Some(advice) = error.advice_of_cause() {
        return advice;
    }
    match error.kind() {
        ErrorKind::InvalidArgument => HELP_ADVICE,
        ErrorKind::TooLarge => "name smaller records or larger segments and buffer",
        ErrorKind::NoSpace => "free space, or raise the limit, then run the command again",
        ErrorKind::NoFiles => "close files or raise the limit, then run the command again",
        ErrorKind::NotFound => MOUNT_ADVICE,
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
        _ => match error.io_kind() {
            Some(io::ErrorKind::NotFound) => MOUNT_ADVICE,
            Some(io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists) => {
                "name a folder: the path names a file, or leads through one"
            }
            _ => "the messages of the system may tell more (`dmesg`); run the command again",
        },
    }
}

/// Says wrong usage to a person at a terminal. `None`: the text is the help itself.
pub(crate) fn usage_for_terminal(error: &clap::Error) -> Option<String> {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let text = error.to_string();
    let mut parts = text.split("\n\n").map(one_line);
    let what = parts.next()?;
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let tip = parts.find_map(|part| part.strip_prefix("tip: ").map(str::to_owned));
    Some(format!("palisade: {what}\nwhat to do: {}", tip.as_deref().unwrap_or(HELP_ADVICE)))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_terminal_each_failure_is_a_cause_and_an_advice_line() {
        let io = |kind: io::ErrorKind| Failure::io("list ./log")(kind.into());
        let log = |kind, text| Failure::Error(Error::new(kind, text));
        let failures = [
            Failure::usage("first\nsecond"),
            io(io::ErrorKind::PermissionDenied),
            io(io::ErrorKind::StorageFull),
            Failure::io("wait")(io::Error::other("two\nlines")),
            log(ErrorKind::Locked, "another process has it"),
            log(ErrorKind::Io, "the read failed"),
            log(ErrorKind::InvalidArgument, "no such size"),
            Failure::Check("record 7 is missing".into()),
        ];
        for failure in failures {
            let text = failure.text(true);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2, "{text}");
            assert!(lines[0].starts_with("palisade: "), "{text}");
            assert!(lines[1].starts_with("what to do: "), "{text}");
        }
    }

    #[test]
    fn at_a_terminal_wrong_usage_is_two_lines_too() {
        use clap::Parser;

        let usage = |args: &str| {
            let words = std::iter::once("palisade").chain(args.split_whitespace());
            usage_for_terminal(&crate::command::Cli::try_parse_from(words).unwrap_err())
        };
        let missing = usage("repair ./log").unwrap();
        let what = "the following required arguments were not provided: --from <LSN> --into <DIR>";
        assert_eq!(missing, format!("palisade: {what}\nwhat to do: {HELP_ADVICE}"));
        let close = usage("verify --jsn ./log").unwrap();
        let tip = "what to do: a similar argument exists: '--json'";
        assert!(close.ends_with(tip) && close.lines().count() == 2, "{close}");
        let shell = usage("completions tcsh").unwrap();
        assert!(shell.contains("possible values: bash") && shell.lines().count() == 2, "{shell}");
        assert_eq!(usage(""), None);
    }

    #[test]
    fn an_error_names_its_advice_once() {
        let error = Error::new(ErrorKind::Locked, "it is in use");
        let advice = advice(&error);
        let failure = Failure::Error(error);
        let text = failure.text(true);
        assert_eq!(text, format!("palisade: it is in use\nwhat to do: {advice}"));
        assert_eq!(failure.text(false), format!("palisade: it is in use; {advice}"));
    }
}
