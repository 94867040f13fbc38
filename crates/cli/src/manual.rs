//! `palisade completions` and `palisade man`: texts for shells and for `man`, made of the same
//! command line that `--help` shows.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Failure;

/// The name that the user types.
const NAME: &str = "palisade";

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  palisade completions bash > ~/.local/share/bash-completion/completions/palisade
  palisade completions zsh > ~/.zfunc/_palisade
  palisade completions fish > ~/.config/fish/completions/palisade.fish

Exit codes: 0 done, 2 wrong usage, 3 output failed.";

pub(crate) const MAN_EXAMPLES: &str = "\
Examples:
  palisade man | man -l -
  palisade man > /usr/local/share/man/man1/palisade.1
  palisade man verify > /usr/local/share/man/man1/palisade-verify.1

Exit codes: 0 done, 2 wrong usage, 3 output failed.";

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell that is to complete commands and options.
    shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Print the page of this command instead of the one for all.
    command: Option<String>,
}

/// Prints the completions of the command line `all` for a shell.
///
/// # Errors
/// Those of `out`.
pub(crate) fn completions(
    args: &CompletionsArgs,
    all: &Command,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    // The generator panics if a write fails: a write into memory never does.
    clap_complete::generate(args.shell, &mut shown(all), NAME, &mut script);
    out.write_all(&script).map_err(Failure::output)
}

/// Prints the manual page of the command line `all`, or of one of its commands.
///
/// # Errors
/// `Usage` if there is no such command, and those of `out`.
pub(crate) fn man(args: &ManArgs, all: &Command, out: &mut impl Write) -> Result<(), Failure> {
    let mut all = shown(all).disable_help_subcommand(true).subcommand_required(true);
    all.build();
    let page = match &args.command {
        None => all,
        Some(name) => page_of(&all, name)?,
    };
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(page).source(source).render(out).map_err(Failure::output)
}

fn page_of(all: &Command, name: &str) -> Result<Command, Failure> {
    let unknown = || {
        let commands = all.get_subcommands().map(Command::get_name);
        let commands = commands.collect::<Vec<_>>().join(", ");
        Failure::usage(format!("no command has the name `{name}`; these have a page: {commands}"))
    };
    // A command of a group has the name of its page: `streams-ls`.
    let in_group = || {
        let (group, name) = name.split_once('-')?;
        all.find_subcommand(group)?.find_subcommand(name)
    };
    all.find_subcommand(name).or_else(in_group).cloned().ok_or_else(unknown)
}

/// Returns the command line without the commands that only this program calls.
fn shown(all: &Command) -> Command {
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let shown: Vec<Command> = shown.collect();
    let about = all.get_about().cloned().unwrap_or_default();
    let help = all.get_after_help().cloned().unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    Command::new(NAME).about(about).version(version).after_help(help).subcommands(shown)
}
