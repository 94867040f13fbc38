//! How a folder becomes an open log: look, decide, lock, look again.
//!
//! Nothing is changed before a look has found either nothing at all or a log of a known format;
//! the look is repeated under the lock, because another process may have been at work between.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::store::State;
use palisade_core::{Error, ErrorKind, Lsn, Result, Uuid};

use crate::folder::{Folder, LOCK, META, META_TEMP};
use crate::fs::{Access, Disk, DiskFile, Kind};
use crate::meta::{self, Meta, MetaFile};
use crate::options::{DEFAULT_SEGMENT_BYTES, FileOptions, OpenMode};

/// Tools beside a writer hold the lock for an instant to see whether there is one; trying this
/// often, this long apart, outlasts them: 100 ms in all.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A log that is locked and whose state is known.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) folder: Folder,
    pub(crate) lock: Box<dyn DiskFile>,
    pub(crate) meta: MetaFile,
}

/// Opens the log in `path`, or makes it.
pub(crate) fn open(disk: Arc<dyn Disk>, path: &Path, options: &FileOptions) -> Result<Opened> {
    let folder = find(disk, path, options.mode)?;
    if let Err(error) = look(&folder, options) {
        // A writer may be in the middle of a save; with the lock the second look tells.
        let may_be_busy = error.kind() == ErrorKind::Corrupt
            && folder.open_if_there(LOCK, Access::Read)?.is_some();
        if !may_be_busy {
            return Err(error);
        }
    }
    let checked = folder.disk().check_writable(path);
    checked.map_err(|error| Error::io("write to the log's folder", error).at_path(path))?;
    let lock = take_lock(&folder)?;
    let meta = match look(&folder, options)? {
        Some(meta) => {
            if meta.state.epoch == 0 {
                // Its maker died before the first epoch, perhaps before a sync of these names. A
                // later sync must not keep a spare's name and lose the meta file's.
                sync_parent(&folder)?;
                folder.sync()?;
            }
            MetaFile::open(&folder, meta)?
        }
        None => {
            sync_parent(&folder)?;
            MetaFile::create(&folder, begin_state(&folder, options)?)?
        }
    };
    Ok(Opened { folder, lock, meta })
}

/// Finds a log that is there, for reading beside its writer.
pub(crate) fn find_log(disk: Arc<dyn Disk>, path: &Path) -> Result<(Folder, Meta)> {
    let folder = find(disk, path, OpenMode::MustExist)?;
    let options = FileOptions { mode: OpenMode::MustExist, ..FileOptions::default() };
    let meta = look(&folder, &options)?.ok_or_else(|| no_log(&folder))?;
    Ok((folder, meta))
}

fn find(disk: Arc<dyn Disk>, path: &Path, mode: OpenMode) -> Result<Folder> {
    if path.as_os_str().is_empty() {
        let text = "the path of the log's folder is empty";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    // The working directory may change while the log is open.
    let path = &std::path::absolute(path)
        .map_err(|error| Error::io("find the log's folder", error).at_path(path))?;
    let kind = disk.kind(path);
    let kind = kind.map_err(|error| Error::io("look at the log's folder", error).at_path(path))?;
    match kind {
        Kind::Folder => {}
        Kind::Other => {
            let text = "the log's path names a file; expected a folder";
            return Err(Error::new(ErrorKind::Foreign, text).at_path(path));
        }
        Kind::Missing if mode == OpenMode::MustExist => {
            let text = "the log's folder does not exist";
            return Err(Error::new(ErrorKind::NotFound, text).at_path(path));
        }
        Kind::Missing => create_folder(disk.as_ref(), path)?,
    }
    Ok(Folder::new(disk, path))
}

pub(crate) fn create_folder(disk: &dyn Disk, path: &Path) -> Result<()> {
    let parent = parent_of(path);
    if !matches!(disk.kind(parent), Ok(Kind::Folder)) {
        let text = "the folder does not exist, and neither does the folder to make it in";
        return Err(Error::new(ErrorKind::NotFound, text).at_path(path));
    }
    let made = disk.create_folder(path);
    made.map_err(|error| Error::io("make the log's folder", error).at_path(path))
}

/// Makes the name of the log's folder durable, whichever life made it.
pub(crate) fn sync_parent(folder: &Folder) -> Result<()> {
    let parent = parent_of(folder.path());
    match folder.disk().sync_folder(parent) {
        // Whoever may not even read it has not made the folder in it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other.map_err(|error| {
            Error::io("sync the folder that holds the log's folder", error).at_path(parent)
        }),
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Reads and judges; changes nothing. `None` where a log may be made.
fn look(folder: &Folder, options: &FileOptions) -> Result<Option<Meta>> {
    let Some(meta) = meta::read(folder)? else {
        let names = folder.names()?;
        if names.iter().any(|name| name == META) {
            // Another process has made the log in between.
            return look(folder, options);
        }
        if let Some(name) = names.iter().find(|name| ![LOCK, META_TEMP].contains(&name.as_str())) {
            let text = format!("the folder holds `{name}` and no log");
            return Err(Error::new(ErrorKind::Foreign, text).at_path(folder.path()));
        }
        if options.mode == OpenMode::MustExist {
            return Err(no_log(folder));
        }
        return Ok(None);
    };
    if options.mode == OpenMode::CreateNew {
        let text = "the folder holds a log already";
        return Err(Error::new(ErrorKind::AlreadyExists, text).at_path(folder.path()));
    }
    let found = meta.state.segment_bytes;
    match options.segment_bytes {
        Some(asked) if asked != found => {
            let text = format!("the log has segments of {found} bytes, {asked} were asked for");
            Err(Error::new(ErrorKind::Mismatch, text).at_path(folder.path()))
        }
        _ => Ok(Some(meta)),
    }
}

fn no_log(folder: &Folder) -> Error {
    Error::new(ErrorKind::NotFound, "the folder is empty; expected a log").at_path(folder.path())
}

fn take_lock(folder: &Folder) -> Result<Box<dyn DiskFile>> {
    let lock = folder.open(LOCK, Access::WriteOrCreate)?;
    for attempt in 0..LOCK_TRIES {
        if attempt > 0 {
            folder.disk().pause(LOCK_PAUSE);
        }
        let taken = lock.try_lock(false);
        if taken.map_err(|error| folder.error("lock the log", LOCK, error))? {
            return Ok(lock);
        }
    }
    let text = "the log is open for writing elsewhere";
    Err(Error::new(ErrorKind::Locked, text).at_path(folder.path()))
}

fn begin_state(folder: &Folder, options: &FileOptions) -> Result<State> {
    let mut uuid = [0; 16];
    for half in uuid.chunks_exact_mut(8) {
        let bits = folder.disk().random();
        let bits = bits.map_err(|error| Error::io("draw the log's identity", error))?;
        half.copy_from_slice(&bits.to_le_bytes());
    }
    Ok(State {
        uuid: Uuid(uuid),
        segment_bytes: options.segment_bytes.unwrap_or(DEFAULT_SEGMENT_BYTES),
        buffer_bytes: 0,
        epoch: 0,
        epoch_base: Lsn::ZERO,
        epoch_salt: 0,
        head: Lsn::ZERO,
        checkpoint: Lsn::ZERO,
        clean_end: Lsn::ZERO,
        clean: true,
    })
}
