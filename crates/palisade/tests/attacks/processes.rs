//! Two processes and one log: this program starts itself again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use palisade::inspect::{Inspector, Outcome};
use palisade::{ErrorKind, Wal};

use crate::content::{numbers, record};
use crate::folder::{folder, small, snapshot_at_rest};
use crate::watchdog::guarded;

const FOLDER: &str = "PALISADE_TEST_SECOND_PROCESS";
const CHILD: &str = "processes::the_other_process";

/// Not a test by itself: the part of the other process. Opens the log, says how that went, and
/// goes on for as long as it is spoken to.
#[test]
fn the_other_process() {
    let Some(path) = std::env::var_os(FOLDER) else { return };
    let mut out = std::io::stderr();
    let mut say = |text: &str| writeln!(out, "\n> {text}").unwrap();
    let wal = match small().open(Path::new(&path)) {
        Ok(wal) => wal,
        Err(error) => return say(&format!("{:?}", error.kind())),
    };
    wal.commit(&record(numbers(wal.records().unwrap()).len() as u64, 100)).unwrap();
    say("open");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// The other process. It does not outlive this value.
pub(crate) struct Other {
    child: Child,
    output: BufReader<std::process::ChildStderr>,
    _input: ChildStdin,
    _quiet: ChildStdout,
}

impl Other {
    pub(crate) fn start(path: &Path) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", CHILD, "--nocapture"]).env(FOLDER, path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let (input, quiet) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Other { child, output, _input: input, _quiet: quiet }
    }

    /// What it says next.
    pub(crate) fn hear(&mut self) -> String {
        let mut lines = (&mut self.output).lines().map(Result::unwrap);
        let said = lines.find_map(|line| Some(line.strip_prefix("> ")?.to_owned()));
        said.expect("the other process has to say something")
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(path: &Path) -> palisade::Result<Wal> {
    small().open(path)
}

/// Attacks: the lock on the folder's lock file, between processes.
#[test]
fn a_second_process_is_refused_and_changes_nothing() {
    guarded(|| {
        let (_dir, path) = folder();
        let wal = open(&path).unwrap();
        wal.commit(&record(0, 100)).unwrap();
        let before = snapshot_at_rest(&path);
        for _ in 0..3 {
            assert_eq!(Other::start(&path).hear(), "Locked");
        }
        // The owner may get space ready meanwhile: what is there stays, zeros may follow.
        let after = snapshot_at_rest(&path);
        for (name, bytes) in before.iter().filter(|(name, _)| !name.starts_with("spare")) {
            assert!(after[name].starts_with(bytes), "{name} was changed");
        }
        wal.commit(&record(1, 100)).unwrap();
        assert_eq!(numbers(wal.records().unwrap()), [0, 1]);
        drop(wal);
        assert_eq!(Other::start(&path).hear(), "open");
    });
}

/// Attacks: the lock dies with its process, and with nothing else.
#[test]
fn a_log_that_another_process_holds_is_refused_until_that_process_dies() {
    guarded(|| {
        let (_dir, path) = folder();
        let mut other = Other::start(&path);
        assert_eq!(other.hear(), "open");
        for _ in 0..2 {
            assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::Locked);
            assert!(Inspector::open(&path).unwrap().has_writer().unwrap());
            let verdict = Inspector::open(&path).unwrap().verify().unwrap();
            assert_eq!((verdict.outcome, verdict.records), (Outcome::Unfinished, 1));
        }
        other.kill();
        let wal = open(&path).unwrap();
        assert!(!wal.recovery_report().clean);
        assert_eq!(numbers(wal.records().unwrap()), [0]);
    });
}
