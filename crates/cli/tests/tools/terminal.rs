//! At a terminal: errors are what happened, and in a line of its own what to do; measurements have
//! a bar.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

use super::*;

/// Runs a command whose standard error is a terminal, and returns its exit code and what the
/// terminal shows.
fn at_terminal(dir: &Path, args: &[&str]) -> (i32, String) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let terminal = openpt(flags).unwrap();
    unlockpt(&terminal).unwrap();
    let peer: OwnedFd = ioctl_tiocgptpeer(&terminal, flags).unwrap();
    let mut command = command(dir, args);
    let mut child = command.stdout(Stdio::null()).stderr(peer).spawn().unwrap();
    // The last end of the terminal closes with the process, which ends the read.
    drop(command);
    let (mut shown, mut piece) = (Vec::new(), [0; 512]);
    let mut terminal = File::from(terminal);
    while let Ok(n @ 1..) = terminal.read(&mut piece) {
        shown.extend_from_slice(&piece[..n]);
    }
    (child.wait().unwrap().code().unwrap(), text(&shown).replace("\r\n", "\n"))
}

#[test]
fn at_a_terminal_an_error_is_what_happened_and_what_to_do() {
    let folder = folder();
    let nowhere = folder.path().join("nowhere");
    for tool in [&["map"][..], &["stat"], &["dump", "--follow"], &["info"], &["verify"]] {
        let (exit, shown) = at_terminal(&nowhere, tool);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((exit, lines.len()), (3, 2), "{tool:?}: {shown}");
        assert!(lines[0].starts_with("palisade: ") && lines[0].contains("nowhere"), "{shown}");
        let advice = "what to do: check that the path is right and its disk is mounted";
        assert_eq!(lines[1], advice, "{shown}");
        // Elsewhere it stays in one line, for programs that read it.
        let piped = palisade(&nowhere, tool);
        assert_eq!(text(&piped.stderr).lines().count(), 1, "{piped:?}");
    }
}

#[test]
fn at_a_terminal_damage_and_wrong_usage_say_what_to_do() {
    let folder = folder();
    let lsns = write(folder.path());
    let from = lsns[3].plus(8).to_string();
    let (exit, shown) = at_terminal(folder.path(), &["dump", "--from", &from]);
    assert_eq!((exit, shown.lines().count()), (2, 2), "{shown}");
    damage(folder.path(), lsns[50].plus(25));
    let (exit, shown) = at_terminal(folder.path(), &["stat"]);
    assert_eq!((exit, shown.lines().count()), (4, 2), "{shown}");
    assert!(shown.contains("\nwhat to do: nothing was changed; `palisade verify"), "{shown}");
}

#[test]
fn at_a_terminal_a_measurement_shows_how_far_it_is() {
    let folder = folder();
    for (tool, part) in [("doctor", "256 B + fdatasync"), ("bench", "round ")] {
        let (exit, shown) = at_terminal(folder.path(), &[tool, "--seconds", "0.5"]);
        assert_eq!(exit, 0, "{shown}");
        assert!(shown.contains(part), "{tool}: {shown}");
        // The bar goes away: nothing but control sequences follow its last line.
        let last = shown.rsplit('\r').next().unwrap();
        assert!(!last.contains(part), "{tool}: {shown}");
    }
}
