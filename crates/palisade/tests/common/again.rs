//! This program once more, in a process of its own that runs one test.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Output, Stdio};
use std::thread;

use crate::folder::folder;
use crate::watchdog::watch;

/// Gives the process the folder of its log.
const FOLDER: &str = "PALISADE_TEST_FOLDER";

/// The folder of the log, in a process that was started here.
pub(crate) fn given_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn command(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(FOLDER, path);
    command
}

/// Runs `body` with the folder of a log in another process, which runs only this test, and which a
/// signal may end.
pub(crate) fn in_a_process(body: impl FnOnce(&Path)) {
    watch();
    if let Some(path) = given_folder() {
        return body(&path);
    }
    let thread = thread::current();
    let test = thread.name().expect("the thread of a test has its name");
    let (_dir, path) = folder();
    assert_passed(&command(test, &path).output().unwrap());
}

/// Runs the test in another process of another user, with the folder of a log.
#[cfg(unix)]
pub(crate) fn run_as(user: u32, test: &str, path: &Path) {
    use std::os::unix::process::CommandExt;
    let mut command = command(test, path);
    assert_passed(&command.uid(user).gid(user).output().unwrap());
}

/// Runs the test in another process, whose mounts no other process sees. False if this user may not
/// make any.
#[cfg(target_os = "linux")]
pub(crate) fn run_with_own_mounts(test: &str, path: &Path) -> bool {
    let unshare = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--"]).args(args);
        command
    };
    if !unshare(&["true"]).output().is_ok_and(|output| output.status.success()) {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let args = [program.to_str().unwrap(), "--exact", test, "--nocapture", "--test-threads=1"];
    assert_passed(&unshare(&args).env(FOLDER, path).output().unwrap());
    true
}

/// Fails with what the process has printed, unless it has run a test that passed.
fn assert_passed(output: &Output) {
    let (text, errors) = (&output.stdout, &output.stderr);
    let text = String::from_utf8_lossy(text) + String::from_utf8_lossy(errors);
    assert!(output.status.success() && text.contains("1 passed"), "{} {text}", output.status);
}

/// What an [`Other`] process calls: its parent gets the text.
pub(crate) fn say(text: &str) {
    std::io::stderr().write_all(format!("\n> {text}\n").as_bytes()).unwrap();
}

/// Another process that talks. It does not outlive this value.
pub(crate) struct Other {
    child: Child,
    output: BufReader<ChildStderr>,
    input: ChildStdin,
}

impl Other {
    pub(crate) fn start(test: &str, path: &Path) -> Other {
        let mut command = command(test, path);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        let input = child.stdin.take().unwrap();
        Other { child, output, input }
    }

    /// What it says next, also before it died; `None` behind the last.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut lines = (&mut self.output).lines().map(Result::unwrap);
        lines.find_map(|line| {
            assert!(!line.contains("panicked"), "{line}");
            Some(line.strip_prefix("> ")?.to_owned())
        })
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Kills it, and waits until the system has freed all that it had. Its children live on.
    pub(crate) fn die(&mut self) {
        self.kill();
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
