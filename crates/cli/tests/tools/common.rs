//! What the tests of the command share.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use palisade::{Lsn, Options, Wal};
use serde_json::Value;
use tempfile::TempDir;

/// The records of a log that [`write`] makes.
pub(crate) const RECORDS: usize = 100;
/// Bytes of a segment in a log with [`small`] options.
pub(crate) const SEGMENT: u64 = 64 << 10;
/// How long a process may take for what a test waits for.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// A segment's header lies before its log bytes.
const SEGMENT_HEADER_BYTES: u64 = 4096;

/// On the disk of the build: a sync on tmpfs says nothing.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn out(output: &Output) -> String {
    text(&output.stdout)
}

pub(crate) fn err(output: &Output) -> String {
    text(&output.stderr)
}

/// Expects each part in the text.
pub(crate) fn has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in {text}"));
}

/// Waits for what a process of a test does, for far longer than it takes.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The program with these words.
pub(crate) fn words(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(words);
    command
}

/// The program with a command, the folder, and the other arguments of the command.
pub(crate) fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = words(&args[..1]);
    command.arg(dir).args(&args[1..]);
    command
}

pub(crate) fn palisade(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

pub(crate) fn help(tool: &str) -> String {
    out(&words(&[tool, "--help"]).output().unwrap())
}

/// The exit code and the one object that a command prints with `--json`.
pub(crate) fn json(dir: &Path, args: &[&str]) -> (i32, Value) {
    let output = palisade(dir, &[args, &["--json"]].concat());
    assert_eq!(out(&output).lines().count(), 1, "{output:?}");
    (code(&output), serde_json::from_slice(&output.stdout).unwrap())
}

/// Each name in the objects must be in the help: that is where it is documented.
pub(crate) fn is_documented<'a>(tool: &str, objects: impl IntoIterator<Item = &'a Value>) {
    let help = help(tool);
    for object in objects {
        let names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        has(&help, &names);
    }
}

pub(crate) fn options() -> Options {
    Options::new().segment_bytes(1 << 20).buffer_bytes(1 << 20)
}

/// A log with these options has several segments soon.
pub(crate) fn small() -> Options {
    Options::new().segment_bytes(SEGMENT).buffer_bytes(16 << 10)
}

/// A log in a folder of its own.
pub(crate) fn open_log(options: &Options) -> (TempDir, Wal) {
    let folder = folder();
    let wal = options.open(folder.path()).unwrap();
    (folder, wal)
}

/// A log that [`write`] has made in a folder of its own.
pub(crate) fn written() -> (TempDir, Vec<Lsn>) {
    let folder = folder();
    let lsns = write(folder.path());
    (folder, lsns)
}

/// Makes a log of `RECORDS` commits and closes it.
pub(crate) fn write(dir: &Path) -> Vec<Lsn> {
    let wal: Wal = options().open(dir).unwrap();
    let commit = |number| wal.commit(format!("record {number}\n").as_bytes()).unwrap();
    let lsns = (0..RECORDS).map(commit).collect();
    wal.close().unwrap();
    lsns
}

/// Changes the byte at `at` in the first segment.
pub(crate) fn damage(dir: &Path, at: Lsn) {
    damage_in(dir, 0, at);
}

/// Damages the record at `at` in a log with [`small`] options; a second call changes it back.
pub(crate) fn damage_record(dir: &Path, at: Lsn) {
    damage_in(dir, at.segment(SEGMENT), Lsn::new(at.as_u64() % SEGMENT + 50));
}

/// Changes the byte at `at` of the log bytes in a segment; a second call changes it back.
pub(crate) fn damage_in(dir: &Path, segment: u64, at: Lsn) {
    let path = dir.join(format!("segment-{segment:020}"));
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let offset = SeekFrom::Start(SEGMENT_HEADER_BYTES + at.as_u64());
    let mut byte = [0];
    file.seek(offset).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(offset).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
}

/// The names and bytes of all files in a folder.
pub(crate) fn content(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

/// Runs a command that may not write long files.
#[cfg(unix)]
pub(crate) fn with_short_files(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_palisade");
    let script = format!("ulimit -c 0; ulimit -f 40; exec {program} {}", args.join(" "));
    Command::new("sh").args(["-c", &script]).output().unwrap()
}
