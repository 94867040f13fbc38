//! How a command ends: exit codes and the failures behind them.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use palisade::ErrorKind;

/// The exit codes of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; for `demo`: the check held; for `verify`: every record is whole.
    Success,
    /// `demo`: the check did not hold.
    CheckFailed,
    /// `verify`: a crash left a torn tail.
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
    /// Makes the failure of a write to standard output.
    pub(crate) fn output(source: io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::io("could not write to standard output", source),
        }
    }

    /// Makes a failure of the operating system; `what` is a clause, such as "could not start X".
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Failure {
        Failure::Io { what: what.into(), source }
    }

    /// Makes a failure to do something with a path; `what` is a verb, such as "write".
    pub(crate) fn at(what: &str, path: &Path) -> impl Fn(io::Error) -> Failure + Copy {
        move |source| Failure::io(format!("could not {what} {}", path.display()), source)
    }

    /// Makes the failure of a path that must be a folder and is not.
    pub(crate) fn no_folder(path: &Path) -> Failure {
        let error = palisade::Error::new(ErrorKind::InvalidArgument, "the path is no folder");
        error.at_path(path).with_advice("name a folder on the disk in question").into()
    }

    /// Returns what happened, without what to do about it. This is one line, except for the list of
    /// a check.
    fn finding(&self) -> String {
        match self {
            Failure::Log(error) => finding_of(error).replace('\n', " "),
            Failure::Io { .. } | Failure::Usage(_) => self.to_string().replace('\n', " "),
            Failure::Check(_) | Failure::OutputClosed => self.to_string(),
        }
    }

    /// Returns what to do about the failure with this command line.
    fn advice(&self) -> &'static str {
        match self {
            Failure::Log(error) => advice_of(error).unwrap_or_else(|| match self.exit() {
                Exit::Usage => HELP_ADVICE,
                _ => error.io_kind().map_or(ANY_ADVICE, advice_of_io),
            }),
            Failure::Io { source, .. } => advice_of_io(source.kind()),
            Failure::Usage(_) => HELP_ADVICE,
            Failure::Check(_) => "keep the log's folder: it shows what went wrong",
            Failure::OutputClosed => "nothing: the output has no reader",
        }
    }

    /// Says it to a person at a terminal: what happened, and in a line of its own what to do.
    pub(crate) fn for_terminal(&self) -> String {
        format!("palisade: {}\nwhat to do: {}", self.finding(), self.advice())
    }

    /// Returns the exit code that this failure calls for.
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
    let finding = finding_of(error);
    advice_of(error).map_or(finding.clone(), |advice| format!("{finding}; {advice}"))
}

fn finding_of(error: &palisade::Error) -> String {
    match error.finding().as_str() {
        "" => format!("the log failed ({:?})", error.kind()),
        text => text
            .replace("segment_bytes", "--segment-bytes")
            .replace("buffer_bytes", "--buffer-bytes"),
    }
}

fn advice_of(error: &palisade::Error) -> Option<&'static str> {
    error.advice_of_cause().or_else(|| advice(error.kind()))
}

const HELP_ADVICE: &str = "see the examples that `--help` behind the command prints";
const ANY_ADVICE: &str =
    "the messages of the system may tell more (`dmesg`); run the command again";

/// Returns what to do about a failure of the operating system.
fn advice_of_io(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "check that the path is right and its disk is mounted",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "name a folder: the path names a file, or leads through one"
        }
        io::ErrorKind::PermissionDenied => "grant this user access, or name another path",
        io::ErrorKind::StorageFull => "free space, then run the command again",
        _ => ANY_ADVICE,
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

/// Returns what to do about an error of this kind with this command line; `None` if the kind has no
/// advice of its own.
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
            Failure::Io { what, source } => write!(f, "{what}: {source}"),
            Failure::OutputClosed => f.write_str("standard output was closed"),
        }
    }
}

impl From<palisade::Error> for Failure {
    fn from(error: palisade::Error) -> Failure {
        Failure::Log(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_a_terminal_each_failure_is_a_cause_and_an_advice_line() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let failures = [
            Failure::Usage("first\nsecond".into()),
            Failure::Io { what: "could not list ./log".into(), source: denied },
            Failure::io("could not write", full),
            Failure::io("could not wait", io::Error::other("two\nlines")),
            Failure::Log(palisade::Error::new(ErrorKind::Locked, "another process has it")),
            Failure::Log(palisade::Error::new(ErrorKind::Io, "the read failed")),
            Failure::Log(palisade::Error::new(ErrorKind::InvalidArgument, "no such size")),
            Failure::Check("record 7 is missing".into()),
        ];
        for failure in failures {
            let text = failure.for_terminal();
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
    fn at_a_terminal_an_error_names_its_advice_once() {
        let failure = Failure::Log(palisade::Error::new(ErrorKind::Locked, "it is in use"));
        let advice = advice(ErrorKind::Locked).unwrap();
        let text = failure.for_terminal();
        assert_eq!(text, format!("palisade: it is in use\nwhat to do: {advice}"));
    }
}
