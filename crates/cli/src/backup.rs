//! A copy of a log's folder: complete, on the medium, and compared before anybody relies on it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::exit::Failure;

const PIECE_BYTES: usize = 1 << 20;
/// The log's state, without which a folder is no log (docs/format.md).
const META: &str = "meta";

/// Copies the folder `from`, in which nothing is at work, to `to`, which is missing or empty.
///
/// When this returns, the copy survives power loss and has been read back and compared byte for
/// byte. After a failure, lack of space included, what was copied is removed again. What a kill
/// leaves has no `meta` until all else is on the medium: nobody opens half a copy as a log.
///
/// # Errors
/// `Usage` if `to` holds something, is no folder, or lies in `from`; `Io`.
pub(crate) fn make(from: &Path, to: &Path) -> Result<Figures, Failure> {
    let place = Place::check(from, to)?;
    let copied = place.fill(from);
    if copied.is_err() {
        place.remove();
    }
    copied
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Where a copy goes.
struct Place {
    path: PathBuf,
    parent: PathBuf,
    was_there: bool,
}

impl Place {
    fn check(from: &Path, to: &Path) -> Result<Place, Failure> {
        let named = |what: &str, path: &Path| {
            format!("could not {what} {}; nothing was changed", path.display())
        };
        let real_from =
            fs::canonicalize(from).map_err(|error| Failure::io(named("find", from), error))?;
        let was_there = match fs::symlink_metadata(to) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(Failure::io(named("look at", to), error)),
        };
        let path = if was_there {
            fs::canonicalize(to).map_err(|error| Failure::io(named("find", to), error))?
        } else {
            let absolute = std::path::absolute(to);
            let absolute = absolute.map_err(|error| Failure::io(named("find", to), error))?;
            let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(Failure::Usage(format!("{} names no folder", to.display())));
            };
            let parent = fs::canonicalize(parent)
                .map_err(|error| Failure::io(named("find the folder to make", to), error))?;
            parent.join(name)
        };
        if path.starts_with(&real_from) {
            let text = format!(
                "the backup {} lies in the log's own folder: name another one; nothing was changed",
                to.display()
            );
            return Err(Failure::Usage(text));
        }
        if was_there {
            let mut entries = fs::read_dir(&path)
                .map_err(|error| Failure::io(named("list the backup", to), error))?;
            if entries.next().is_some() {
                return Err(Failure::Usage(format!(
                    "the backup {} is not empty: name a new folder; nothing was changed",
                    to.display()
                )));
            }
        }
        let parent = path.parent().unwrap_or(&path).to_path_buf();
        Ok(Place { path, parent, was_there })
    }

    fn fill(&self, from: &Path) -> Result<Figures, Failure> {
        if !self.was_there {
            at(&self.path, "make", fs::create_dir(&self.path))?;
        }
        let mut figures = Figures::default();
        copy_folder(from, &self.path, &mut figures)?;
        at(&self.parent, "sync", sync_folder(&self.parent))?;
        compare_folder(from, &self.path)?;
        Ok(figures)
    }

    /// Removes an unfinished copy. What cannot be removed stays: the failure that matters was
    /// before.
    fn remove(&self) {
        if !self.was_there {
            let _ = fs::remove_dir_all(&self.path);
            return;
        }
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

fn copy_folder(from: &Path, to: &Path, figures: &mut Figures) -> Result<(), Failure> {
    let mut entries = entries(from)?;
    entries.sort_by_key(|(name, _)| name == META);
    for (name, kind) in entries {
        let (source, target) = (from.join(&name), to.join(&name));
        if name == META {
            at(to, "sync", sync_folder(to))?;
        }
        if kind.is_dir() {
            at(&target, "make", fs::create_dir(&target))?;
            copy_folder(&source, &target, figures)?;
        } else if kind.is_file() {
            figures.files += 1;
            figures.bytes += at(&target, "write", copy_file(&source, &target))?;
        } else {
            let text = format!(
                "{} is neither a file nor a folder: take it out of the log's folder; the log was \
                 not changed",
                source.display()
            );
            return Err(Failure::Usage(text));
        }
    }
    at(to, "sync", sync_folder(to))
}

/// Copies through memory: a clone that shares blocks with the original would share their rot.
fn copy_file(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = File::open(from)?;
    let mut target = File::options().write(true).create_new(true).open(to)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        let len = read_piece(&mut source, &mut piece)?;
        if len == 0 {
            break;
        }
        target.write_all(&piece[..len])?;
        bytes += len as u64;
    }
    target.sync_all()?;
    Ok(bytes)
}

fn compare_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    let (sources, targets) = (entries(from)?, entries(to)?);
    let is_same = |((name, _), (other, _)): (&Entry, &Entry)| name == other;
    if sources.len() != targets.len() || !sources.iter().zip(&targets).all(is_same) {
        return Err(differs(from));
    }
    for (name, kind) in sources {
        let (source, target) = (from.join(&name), to.join(&name));
        if kind.is_dir() {
            compare_folder(&source, &target)?;
        } else if !at(&target, "read", are_equal(&source, &target))? {
            return Err(differs(&source));
        }
    }
    Ok(())
}

fn are_equal(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut left, mut right) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    loop {
        let len = read_piece(&mut one, &mut left)?;
        if read_piece(&mut other, &mut right)? != len || left[..len] != right[..len] {
            return Ok(false);
        }
        if len == 0 {
            return Ok(true);
        }
    }
}

/// Fills `piece`, or reads up to the end of the file.
fn read_piece(file: &mut File, piece: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < piece.len() {
        match file.read(&mut piece[len..]) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

type Entry = (std::ffi::OsString, fs::FileType);

/// What a folder holds, by name.
fn entries(folder: &Path) -> Result<Vec<Entry>, Failure> {
    let read = || {
        let entries = fs::read_dir(folder)?.map(|entry| {
            let entry = entry?;
            Ok((entry.file_name(), entry.file_type()?))
        });
        entries.collect::<io::Result<Vec<Entry>>>()
    };
    let mut entries = at(folder, "list", read())?;
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Folders cannot be opened to be synced here; their entries are durable with the files.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

fn at<T>(path: &Path, what: &str, result: io::Result<T>) -> Result<T, Failure> {
    let text = || {
        format!(
            "could not {what} {}; the log was not changed, and the unfinished backup is removed",
            path.display()
        )
    };
    result.map_err(|error| Failure::io(text(), error))
}

fn differs(path: &Path) -> Failure {
    let text = format!("the backup of {} differs from it; the log was not changed", path.display());
    Failure::io(text, io::ErrorKind::InvalidData.into())
}
