//! The command line: all commands, and the help of `palisade` itself.

use clap::{Parser, Subcommand};

use crate::args::{
    ChildArgs, DEMO_EXAMPLES, DUMP_EXAMPLES, DemoArgs, DumpArgs, INFO_EXAMPLES, InfoArgs, LogArgs,
    SALVAGE_EXAMPLES, SalvageArgs, VERIFY_EXAMPLES, VerifyArgs,
};
use crate::doctor::place::GuardArgs;
use crate::doctor::{self, DoctorArgs};
use crate::manual::{self, CompletionsArgs, ManArgs};
use crate::map;
use crate::repair::{self, RepairArgs};
use crate::restore::{self, BackupArgs, RestoreArgs};
use crate::stat;
use crate::streams::{self, StreamsArgs};

const EXAMPLES: &str = "\
Examples:
  palisade demo                        kill a writer after 3 s, check what comes back
  palisade demo --promise append       an append that returned must survive the kill
  palisade info ./log                  what the log is and where it begins and ends
  palisade map ./log                   its segments, what they hold, and what is missing
  palisade stat ./log                  its space, and its records by tag and length
  palisade dump ./log --limit 10       its first ten records
  palisade dump ./log --json | jq .    all of them, one JSON object a line
  palisade dump ./log --follow         and those that a running writer adds
  palisade verify ./log                check every checksum
  palisade verify --deep ./log         the same in parallel, and past the damage
  palisade salvage ./log               print all that still validates
  palisade repair ./log --into ./repaired --from 65536
                                       copy what lies below damage into a new log
  palisade restore --archive ./archive --log ./log --into ./restored
                                       make a log of an archive and what is left of the log
  palisade backup ./log --into ./backup
                                       copy a log that no process has open
  palisade streams ls ./log            list the streams of a log of streams
  palisade doctor /var/lib/db          what a sync costs there, and what a log does

Exit codes:
  0  done; for demo: the check held; for verify: every record is whole
  1  demo: the check did not hold; verify: a crash left a torn tail
  2  wrong usage
  3  input or output failed, the log is in use, or there is no log that can be read
  4  acknowledged data is damaged or missing; salvage: there are gaps";

/// Looks into write-ahead logs of Palisade and shows that they keep their promise.
#[derive(Debug, Parser)]
#[command(name = "palisade", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Kills a process that writes a log, opens the log again and checks what comes back.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Shows what a log is: format, sizes, segments, where it begins and ends, clean or not.
    #[command(after_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Shows which segment holds which LSNs, and what it is to the log.
    #[command(after_help = map::EXAMPLES)]
    Map(LogArgs),
    /// Shows the space that a log takes, and how many records it has of which tag and length.
    #[command(after_help = stat::EXAMPLES)]
    Stat(LogArgs),
    /// Prints records.
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(DumpArgs),
    /// Checks every checksum of a log.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Prints everything in a damaged log that still validates.
    #[command(after_help = SALVAGE_EXAMPLES)]
    Salvage(SalvageArgs),
    /// Copies what lies below damage into a new log.
    #[command(after_help = repair::EXAMPLES)]
    Repair(RepairArgs),
    /// Makes a log of an archive, of what is left of the log, or of both.
    #[command(after_help = restore::EXAMPLES)]
    Restore(RestoreArgs),
    /// Copies a log that no process has open.
    #[command(after_help = restore::BACKUP_EXAMPLES)]
    Backup(BackupArgs),
    /// Looks into a log of streams: lists, prints and checks them.
    #[command(after_help = streams::EXAMPLES)]
    Streams(StreamsArgs),
    /// Measures what a sync costs in a folder and what a log does there, and explains the figures.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Prints the script by which a shell completes commands and options.
    #[command(after_help = manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Prints the manual page.
    #[command(after_help = manual::MAN_EXAMPLES)]
    Man(ManArgs),
    /// The process that `demo` starts and kills.
    #[command(hide = true)]
    DemoChild(ChildArgs),
    /// The process that removes what a killed `doctor` leaves.
    #[command(hide = true)]
    DoctorGuard(GuardArgs),
}
