//! The folder that the doctor works in: made in the folder that the user named, and removed again.
//!
//! A process of its own waits until the doctor has ended, and removes what it left. So Ctrl-C or a
//! kill leaves nothing behind. That process has a process group of its own: the terminal sends the
//! signal of Ctrl-C to the doctor alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use palisade::inspect::{BufferPlace, Inspector};
use palisade::{Error, ErrorKind};

use crate::exit::Failure;

/// No workload appends more than this between two truncations.
pub(super) const MAX_BYTES: usize = 256 << 20;
/// The folder's name.
const NAME: &str = "palisade-doctor";
/// What must be free: all records between two truncations, and as much for segments that are
/// prepared, files of raw syncs, and the file system itself. The help names this number.
const NEEDED_BYTES: u64 = 4 * MAX_BYTES as u64;
/// How long a killed doctor may take to give up its lock.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
const LOCK_TICK: Duration = Duration::from_millis(20);

/// The folder of the doctor. It is gone when this value is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    guard: Guard,
}

impl Place {
    /// Makes the folder in `dir`.
    ///
    /// # Errors
    /// `Usage`: `dir` is no folder. `Log` with `Locked`: a process has the log in `dir` open, or
    /// another doctor runs there. With `NoSpace`: it lacks space. With `InvalidArgument`: something
    /// of the folder's name is there. `Io`: the folder, or the process that guards it, cannot be
    /// made.
    pub(super) fn make(dir: &Path) -> Result<Place, Failure> {
        if !dir.is_dir() {
            let error = Error::new(ErrorKind::InvalidArgument, "the path is no folder");
            let error = error.at_path(dir).with_advice("name a folder on the disk in question");
            return Err(error.into());
        }
        if is_open(dir) {
            let text = "a process has the log in this folder open, and measurements would slow it";
            return Err(Error::new(ErrorKind::Locked, text).at_path(dir).into());
        }
        has_room(dir, free_bytes(dir)?)?;
        let path = dir.join(NAME);
        fs::create_dir(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(&path),
            _ => Failure::at("make", &path)(error),
        })?;
        let guard = Guard::start(&path).map_err(|error| {
            // Empty, and made just now.
            let _ = fs::remove_dir(&path);
            Failure::io("start the process that cleans up")(error)
        })?;
        Ok(Place { path, guard })
    }

    /// Removes the folder.
    ///
    /// # Errors
    /// `Io`: it cannot be removed.
    pub(super) fn remove(self) -> Result<(), Failure> {
        remove(&self.path).map_err(Failure::at("remove", &self.path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If this fails, the guard tries again.
        let _ = remove(&self.path);
        self.guard.end();
    }
}

/// Returns the folder of the log in the folder of the doctor.
pub(super) fn log_in(path: &Path) -> PathBuf {
    path.join("log")
}

fn is_open(dir: &Path) -> bool {
    Inspector::open(dir).and_then(|log| log.has_writer()).unwrap_or(false)
}

fn taken(path: &Path) -> Failure {
    if is_open(&log_in(path)) {
        let error = Error::new(ErrorKind::Locked, "another `palisade doctor` runs in this folder");
        return error.at_path(path).with_advice("wait until it has ended").into();
    }
    let text = "the measurements need this name, and something has it";
    let error = Error::new(ErrorKind::InvalidArgument, text).at_path(path);
    error.with_advice("if a doctor left it that was killed, remove it").into()
}

/// Refuses a disk with too little space; `free` is `None` where the system does not say.
fn has_room(dir: &Path, free: Option<u64>) -> Result<(), Failure> {
    match free {
        Some(free) if free < NEEDED_BYTES => {
            let (needed, free) = (NEEDED_BYTES >> 20, free >> 20);
            let text =
                format!("the measurements need {needed} MiB of free space, and {free} are there");
            let error = Error::new(ErrorKind::NoSpace, text).at_path(dir);
            Err(error.with_advice("free space, or name a folder on another disk").into())
        }
        _ => Ok(()),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn free_bytes(dir: &Path) -> Result<Option<u64>, Failure> {
    let failed = Failure::at("look at the disk of", dir);
    let disk = rustix::fs::statvfs(dir).map_err(|errno| failed(errno.into()))?;
    Ok(Some(disk.f_bavail.saturating_mul(disk.f_frsize)))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn free_bytes(_dir: &Path) -> Result<Option<u64>, Failure> {
    Ok(None)
}

/// Removes the doctor's folder, if it is there, and the file of the log buffer.
fn remove(path: &Path) -> io::Result<()> {
    let buffer = Inspector::open(log_in(path)).and_then(|log| log.buffer());
    if let Ok(BufferPlace::Memory(file) | BufferPlace::Marks(file)) = buffer {
        // It is memory, not disk, and the next start of the system frees it at the latest.
        let _ = fs::remove_file(file);
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The process that removes the folder when this one has ended. The end of its standard input says
/// so.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn start(path: &Path) -> io::Result<Guard> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("doctor-guard").arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Guard(command.spawn()?))
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        // It fails only if the process is gone.
        let _ = self.0.wait();
    }
}

#[derive(Args, Debug)]
pub(crate) struct GuardArgs {
    dir: PathBuf,
}

/// Waits for the end of standard input, and removes what a doctor left in its folder.
///
/// # Errors
/// `Usage`: the folder does not have the name of a doctor's. `Io`: it cannot be removed.
pub(crate) fn guard(args: &GuardArgs) -> Result<(), Failure> {
    if args.dir.file_name().is_none_or(|name| name != NAME) {
        return Err(Failure::usage(format!("not a folder of a doctor: {}", args.dir.display())));
    }
    // An input that fails has no writer any more, either.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let ended = Instant::now();
    while is_open(&log_in(&args.dir)) && ended.elapsed() < LOCK_LIMIT {
        thread::sleep(LOCK_TICK);
    }
    remove(&args.dir).map_err(Failure::at("remove", &args.dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn too_little_free_space_is_refused_and_unknown_space_accepted() {
        let dir = Path::new("./disk");
        let refused = has_room(dir, Some(NEEDED_BYTES - 1)).unwrap_err().text(false);
        for part in ["need 1024 MiB", "1023 are there", "./disk", "free space, or name"] {
            assert!(refused.contains(part), "{part} is not in {refused}");
        }
        assert!(has_room(dir, Some(NEEDED_BYTES)).is_ok() && has_room(dir, None).is_ok());
    }

    #[test]
    fn the_guard_removes_nothing_but_a_folder_of_a_doctor() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let refused = guard(&GuardArgs { dir: folder.path().to_owned() });
        assert!(refused.is_err_and(|failure| failure.exit() == Exit::Usage));
        assert!(folder.path().is_dir());
    }

    #[test]
    fn what_has_the_name_of_the_folder_stays() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mine = folder.path().join(NAME).join("mine");
        fs::create_dir_all(&mine).unwrap();
        let refused = Place::make(folder.path()).unwrap_err();
        assert!(refused.to_string().contains("need this name"), "{refused}");
        assert!(mine.is_dir());
    }
}
