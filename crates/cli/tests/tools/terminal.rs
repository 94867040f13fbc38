//! At a terminal: errors are what happened, and in a line of its own what to do; measurements have
//! a bar.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

use super::*;

/// Runs a command whose standard error is a terminal, and returns its exit code and what the
/// terminal shows.
fn at_terminal(dir: &Path, args: &[&str]) -> (i32, String) {
    words_at_terminal(&[&[args[0], dir.to_str().unwrap()], &args[1..]].concat())
}

fn words_at_terminal(args: &[&str]) -> (i32, String) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let terminal = openpt(flags).unwrap();
    unlockpt(&terminal).unwrap();
    let peer: OwnedFd = ioctl_tiocgptpeer(&terminal, flags).unwrap();
    let mut command = words(args);
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
    let (folder, lsns) = written();
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
    let (exit, shown) = at_terminal(folder.path(), &["doctor", "--seconds", "0.5"]);
    assert_eq!(exit, 0, "{shown}");
    // The bar goes away: nothing but control sequences follow its last line.
    let last = shown.rsplit('\r').next().unwrap();
    for part in ["256 B + fdatasync", "round "] {
        assert!(shown.contains(part) && !last.contains(part), "{part}: {shown}");
    }
}

#[test]
fn at_a_terminal_each_command_fails_with_cause_and_advice_lines() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [log, copy, inside, empty, nowhere, file] =
        ["log", "copy", "log/copy", "empty", "nowhere", "file"].map(path);
    let [log, copy, inside, empty] = [&*log, &*copy, &*inside, &*empty];
    write(Path::new(log));
    fs::create_dir(empty).unwrap();
    fs::write(&file, "mine").unwrap();
    let no_folder = "name a folder on the disk in question";
    let mount = "check that the path is right and its disk is mounted";
    let cases: [(&[&str], i32, &str); 18] = [
        (&["frobnicate"], 2, "--help"),
        (&["verify", log, "--jsn"], 2, "a similar argument exists: '--json'"),
        (&["repair", log, "--from", "24"], 2, "--help"),
        (&["doctor", &file], 2, no_folder),
        (&["doctor", &nowhere], 2, no_folder),
        (&["info", &file], 3, "name a folder that holds a log"),
        (&["salvage", empty], 3, mount),
        (&["backup", empty, "--into", copy], 3, mount),
        (&["backup", log, "--into", &file], 2, "name one that is missing or empty"),
        (&["backup", log, "--into", inside], 2, "name one outside of it"),
        (&["repair", log, "--from", "0", "--into", inside], 2, "name one outside of it"),
        (&["restore", "--log", log], 2, "--help"),
        (&["restore", "--dry-run", "--into", copy], 2, "--help"),
        (&["restore", "--dry-run", "--archive", &file], 3, "names a file"),
        (&["restore", "--dry-run", "--archive", log], 2, "name it as the log"),
        (&["dump", log, "--from", "8"], 2, "prints the LSNs of all records"),
        (&["dump", log, "--follow", "--from", "8"], 2, "prints the LSNs of all records"),
        (&["man", "nonsense"], 2, "--help"),
    ];
    for (words, expected, advice) in cases {
        let (exit, shown) = words_at_terminal(words);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((exit, lines.len()), (expected, 2), "{words:?}: {shown}");
        assert!(lines[0].starts_with("palisade: "), "{words:?}: {shown}");
        assert!(lines[1].starts_with("what to do: "), "{words:?}: {shown}");
        assert!(lines[1].contains(advice), "{words:?}: {shown}");
    }
    assert!(!Path::new(copy).exists() && !Path::new(inside).exists());
}
