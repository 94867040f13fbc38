//! How a folder becomes an open log: look, decide, lock, look again.
//!
//! An open changes nothing before it has found nothing at all or a log of a known format. It looks
//! again under the lock, because another process may have acted between.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::State;
use crate::disk::DEFAULT_FILE_MODE;
use crate::disk::{Access, Disk, DiskFile, DiskFolder, Kind};
use crate::folder::{
    Folder, LOCK, META, META_TEMP, META_UNSYNCED, check_file_size, is_segment_name,
};
use crate::meta::rebuilt;
use crate::meta::{self, Meta, MetaFile, Origin};
use crate::options::{FileOptions, OpenMode};
use crate::segment::COPY_AGAIN;
use crate::segment::header::LogOf;
use crate::segment::segment_file::LOG_AT;
use crate::{Error, ErrorKind, Result, Uuid, check_codec};

/// Tools beside a writer hold the lock for an instant, less than these 100 ms in all.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// How often an open looks for a meta file that is only listed.
const MOST_LOOKS: usize = 3;
const SYNC_PARENT: &str = "sync the folder that holds the log's or the archive's";

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) folder: Folder,
    pub(crate) lock: Lock,
    pub(crate) meta: MetaFile,
}

/// The locks of an open log. No thread of the store uses their descriptors, so that a forked child
/// closes them with this value.
#[derive(Debug)]
pub(crate) struct Lock {
    file: Box<dyn DiskFile>,
    folder: Arc<dyn DiskFolder>,
}

impl Lock {
    /// Frees the locks, also for a child that has inherited the descriptors; closing would not.
    pub(crate) fn unlock(self) {
        self.folder.unlock();
        let _ = self.file.unlock();
    }
}

pub(crate) fn open(disk: Arc<dyn Disk>, path: &Path, options: &FileOptions) -> Result<Opened> {
    let Place { path, is_there } = find(disk.as_ref(), path, options.open_mode)?;
    let (path, file_mode) = (path.as_path(), options.file_mode);
    // Its error counts where a log is made.
    let fresh = fresh_state(disk.as_ref(), options);
    let folder = if is_there {
        let folder = Folder::at(&disk, path, file_mode)?;
        check_synced(&folder)?;
        look_before_the_lock(&folder, options)?;
        folder
    } else {
        check_size_of_a_new_log(disk.as_ref(), path, options)?;
        make_folder(&disk, path, file_mode)?
    };
    let checked = folder.handle().check_writable();
    checked.map_err(|error| Error::io("write to the log's folder", error).at_path(path))?;
    let lock = take_lock(&folder)?;
    let origin = Origin { home: folder.handle().identity(), ..Origin::default() };
    let meta = match look(&folder, options)? {
        Some(meta) => {
            check_codec_of(&folder, &meta, options)?;
            if meta.state.epoch == 0 {
                // Its maker died before the first epoch, perhaps before a sync of these names. A
                // later sync must not keep a spare's name and lose the meta file's.
                sync_parent(&folder)?;
                folder.sync()?;
            }
            MetaFile::open(&folder, meta, origin)
        }
        None => {
            // The folder that this open has made is synced.
            if is_there {
                sync_parent(&folder)?;
            }
            MetaFile::create(&folder, fresh?, origin)?
        }
    };
    Ok(Opened { folder, lock, meta })
}

/// Refuses a new log whose files would be too long or exceed its limit.
fn check_size_of_a_new_log(disk: &dyn Disk, path: &Path, options: &FileOptions) -> Result<()> {
    options.check_limit(options.new_segment_bytes())?;
    check_file_size(disk, path, LOG_AT + options.new_segment_bytes())
}

/// Looks without the lock. Accepts a damaged state beside a lock file, because a writer may be
/// saving.
fn look_before_the_lock(folder: &Folder, options: &FileOptions) -> Result<()> {
    match look(folder, options) {
        Ok(Some(meta)) => check_codec_of(folder, &meta, options),
        Ok(None) => check_size_of_a_new_log(folder.disk(), folder.path(), options),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            let may_be_busy = folder.open_if_there(LOCK, Access::Read)?.is_some();
            if may_be_busy { Ok(()) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// Refuses a copy in which a sync failed, even if its state was copied again: the segments may be
/// the same files.
pub(crate) fn check_synced(folder: &Folder) -> Result<()> {
    if folder.open_if_there(META_UNSYNCED, Access::Read)?.is_none() {
        return Ok(());
    }
    let text = "the folder is a copy of a log, or lies on another device than before, and an open \
                could not sync it; its bytes may be in the page cache only";
    let error = Error::new(ErrorKind::Foreign, text).at_path(folder.path());
    Err(error.with_advice(COPY_AGAIN))
}

fn check_codec_of(folder: &Folder, meta: &Meta, options: &FileOptions) -> Result<()> {
    let checked = check_codec(meta.state.codec.as_ref(), options.codec.as_ref());
    checked.map_err(|error| error.at_path(folder.path()))
}

/// Finds a log for reading beside its writer. The last part of the result is true for a rebuilt
/// state.
pub(crate) fn find_log(disk: Arc<dyn Disk>, path: &Path) -> Result<(Folder, State, bool)> {
    let options = FileOptions { open_mode: OpenMode::MustExist, ..FileOptions::default() };
    let Place { path, .. } = find(disk.as_ref(), path, options.open_mode)?;
    let folder = Folder::at(&disk, &path, options.file_mode)?;
    let error = match look(&folder, &options) {
        Ok(Some(meta)) => return Ok((folder, meta.state, false)),
        Ok(None) => no_log(&folder),
        Err(error) if [ErrorKind::Corrupt, ErrorKind::Foreign].contains(&error.kind()) => error,
        Err(error) => return Err(error),
    };
    let state = rebuilt::state_of(&folder)?.ok_or(error)?;
    Ok((folder, state, true))
}

pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) is_there: bool,
}

/// Finds the folder in `path`, or refuses a path where none can be.
pub(crate) fn find(disk: &dyn Disk, path: &Path, mode: OpenMode) -> Result<Place> {
    if path.as_os_str().is_empty() {
        let text = "the folder's path is empty";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    // The working directory may change while the log is open.
    let path = std::path::absolute(path)
        .map_err(|error| Error::io("find the folder", error).at_path(path))?;
    let kind = disk.kind(&path);
    let kind = kind.map_err(|error| Error::io("look at the folder", error).at_path(&path))?;
    match kind {
        Kind::Folder => {}
        Kind::Other => {
            let text = "the path names a file; expected a folder";
            return Err(Error::new(ErrorKind::Foreign, text).at_path(path));
        }
        Kind::Missing if mode == OpenMode::MustExist => {
            let text = "the log's folder does not exist";
            return Err(Error::new(ErrorKind::NotFound, text).at_path(path));
        }
        Kind::Missing => check_parent(disk, &path)?,
    }
    Ok(Place { path, is_there: kind == Kind::Folder })
}

/// Opens the folder in `path`, or makes it, with a durable name.
///
/// # Errors
/// As [`FileStore::open`](crate::FileStore::open), those of the folder.
pub fn find_or_make(disk: &Arc<dyn Disk>, path: &Path, file_mode: u32) -> Result<Folder> {
    let Place { path, is_there } = find(disk.as_ref(), path, OpenMode::CreateIfMissing)?;
    if !is_there {
        return make_folder(disk, &path, file_mode);
    }
    let folder = Folder::at(disk, &path, file_mode)?;
    sync_parent(&folder)?;
    Ok(folder)
}

fn check_parent(disk: &dyn Disk, path: &Path) -> Result<()> {
    if matches!(disk.kind(parent_of(path)), Ok(Kind::Folder)) {
        return Ok(());
    }
    let text = "the folder does not exist, and neither does the folder to make it in";
    Err(Error::new(ErrorKind::NotFound, text).at_path(path))
}

/// Makes the folder at `path` with a durable name. First refuses a parent that cannot be synced:
/// power loss would take the folder.
pub(crate) fn make_folder(disk: &Arc<dyn Disk>, path: &Path, file_mode: u32) -> Result<Folder> {
    let parent = open_parent(disk, path).map_err(|error| {
        let what = "open the folder in which to make the log's or the archive's, to sync it then";
        Error::io(what, error).at_path(parent_of(path))
    })?;
    let made = disk.create_folder(path, file_mode);
    made.map_err(|error| Error::io("make the folder", error).at_path(path))?;
    let folder = Folder::at(disk, path, file_mode)?;
    sync(parent.as_ref(), path)?;
    Ok(folder)
}

/// Makes the name of `folder` durable, in the folder that holds it and in the parent of its path,
/// which differ after a link or `..`. Ignores a parent that this process may not read: another user
/// made the folder there, and synced its name or not.
pub(crate) fn sync_parent(folder: &Folder) -> Result<()> {
    let path = folder.path();
    for parent in [open_parent(folder.shared_disk(), path).map(Some), folder.handle().parent()] {
        match parent {
            Ok(parent) => parent.map_or(Ok(()), |parent| sync(parent.as_ref(), path))?,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(Error::io(SYNC_PARENT, error).at_path(parent_of(path))),
        }
    }
    Ok(())
}

fn open_parent(disk: &Arc<dyn Disk>, path: &Path) -> io::Result<Arc<dyn DiskFolder>> {
    disk.open_folder(parent_of(path), DEFAULT_FILE_MODE)
}

fn sync(parent: &dyn DiskFolder, path: &Path) -> Result<()> {
    match parent.sync() {
        // Its file system can sync no folder, as a read-only image under a mount point. If the
        // log's folder were on it, too, the sync of that would fail next.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(|error| Error::io(SYNC_PARENT, error).at_path(parent_of(path))),
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn find_meta(folder: &Folder) -> Result<(Option<Meta>, Vec<String>)> {
    for _ in 0..MOST_LOOKS {
        if let Some(meta) = meta::read(folder)? {
            return Ok((Some(meta), Vec::new()));
        }
        let names = folder.names()?;
        if names.iter().all(|name| name != META) {
            return Ok((None, names));
        }
        // Another process has made the log in between.
    }
    let error =
        io::Error::new(io::ErrorKind::NotFound, "the folder lists a file that is not there");
    Err(folder.error("open the meta file", META, error))
}

/// Reads and judges. Returns `None` where a log may be made.
fn look(folder: &Folder, options: &FileOptions) -> Result<Option<Meta>> {
    let (found, names) = find_meta(folder)?;
    let Some(meta) = found else {
        if let Some(name) = names.iter().find(|name| ![LOCK, META_TEMP].contains(&name.as_str())) {
            let refuse = |text| Error::new(ErrorKind::Foreign, text).at_path(folder.path());
            let Some(segment) = names.iter().find(|name| is_segment_name(name)) else {
                return Err(refuse(format!("the folder holds `{name}` and no log")));
            };
            let text = format!(
                "the folder holds `{segment}` and no `{META}`: a log that has lost its state, an \
                 archive, or a copy that is not complete"
            );
            return Err(refuse(text).with_advice(meta::LOST_META));
        }
        if options.open_mode == OpenMode::MustExist {
            return Err(no_log(folder));
        }
        // The log is made with it: what it is shows before anything is changed.
        folder.open_if_there(META_TEMP, Access::Read)?;
        return Ok(None);
    };
    if options.open_mode == OpenMode::CreateNew {
        let text = "the folder holds a log already";
        return Err(Error::new(ErrorKind::AlreadyExists, text).at_path(folder.path()));
    }
    let found = meta.state.segment_bytes;
    match options.segment_bytes {
        Some(asked) if asked != found => {
            let text = format!("the log has segments of {found} bytes, {asked} were asked for");
            Err(Error::new(ErrorKind::Mismatch, text).at_path(folder.path()))
        }
        _ => options.check_limit(found).map(|()| Some(meta)),
    }
}

fn no_log(folder: &Folder) -> Error {
    Error::new(ErrorKind::NotFound, "the folder is empty; expected a log").at_path(folder.path())
}

/// Locks the file `lock` and the folder, whose lock holds even without the file.
fn take_lock(folder: &Folder) -> Result<Lock> {
    let file = folder.open(LOCK, Access::WriteOrCreate)?;
    let lock = Lock { file, folder: folder.open_again()? };
    for attempt in 0..LOCK_TRIES {
        if attempt > 0 {
            folder.disk().host().pause(LOCK_PAUSE);
        }
        let taken = lock.file.try_lock(false);
        let taken = taken.map_err(|error| folder.error("lock the log", LOCK, error))?;
        if taken && lock.folder.try_lock(false) {
            return Ok(lock);
        }
    }
    let text = "the log is open for writing elsewhere";
    Err(Error::new(ErrorKind::Locked, text).at_path(folder.path()))
}

fn fresh_state(disk: &dyn Disk, options: &FileOptions) -> Result<State> {
    let mut uuid = [0; 16];
    for half in uuid.chunks_exact_mut(8) {
        let bits = disk.host().random();
        let bits = bits.map_err(|error| Error::io("draw the log's identity", error))?;
        half.copy_from_slice(&bits.to_le_bytes());
    }
    let (segment_bytes, begin) = (options.new_segment_bytes(), options.begin());
    let log = LogOf { uuid: Uuid(uuid), segment_bytes, codec: options.codec };
    let state = meta::bare_state(&log, begin);
    Ok(State { epoch_base: begin, checkpoint: begin, clean_end: begin, clean: true, ..state })
}
