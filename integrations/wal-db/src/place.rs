//! How a log is opened: the file at its path decides what happens to the folder beside it.
//!
//! | file at the path | folder | open |
//! |---|---|---|
//! | names the log | has the log | opens it |
//! | names the log | has none, or another one | refuses |
//! | missing or empty | none | makes a log, then the file |
//! | missing or empty | has a log | empties it, then makes the file |
//! | anything else | any | refuses |
//!
//! In row 4 the engine has removed the file, to empty the log. The steps are:
//!
//! 1. Sync the folder that holds the file. The removal survives power loss from now on, and so do
//!    the changes of names that the engine made before, for example of a file with its state. If
//!    the log were emptied first, power loss could take that file and the records.
//! 2. Truncate all records, durably.
//! 3. Write the file under another name, sync it, rename it, and sync the folder.
//!
//! A crash between the steps leaves no file, so the next open begins again. No record was appended
//! since step 2, because the open has not returned.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade::disk::{DEFAULT_FILE_MODE, Disk, DiskFolder, Kind};
use palisade::{ErrorKind, OpenMode, Options, Verify, Wal};

use crate::anchor::{self, Anchor, AtPath};
use crate::log::Log;
use crate::shared::{self, Entry, Found};
use crate::{Result, WalError};

const OPENING: &str = "opening the log";
const EMPTYING: &str = "emptying the log whose file was removed";
/// What the name of a log's folder has more than that of its file.
const SUFFIX: &str = ".palisade";
/// The log buffer of a log without options of its own. Small, because engines open many logs.
const BUFFER_BYTES: usize = 1 << 20;
const SEGMENT_BYTES: u64 = 16 << 20;

/// Where a log is, and how it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) disk: Arc<dyn Disk>,
    /// Whether `disk` is the file system of the operating system.
    pub(crate) is_os: bool,
    /// The folder that holds the log's file, and the log's folder.
    pub(crate) parent: PathBuf,
    pub(crate) options: Option<Options>,
}

impl Place {
    /// Opens the log whose file in `parent` has the name `name`.
    pub(crate) fn open(&self, name: &str, verify: Verify) -> Result<Arc<Log>> {
        let folder = self.parent.join(format!("{name}{SUFFIX}"));
        let parent = self.disk.open_folder(&self.parent, DEFAULT_FILE_MODE);
        let parent = parent.map_err(|error| WalError::io(OPENING, error))?;
        let entry = match self.enter(&folder) {
            Found::Open(log) => return join(&log, parent.as_ref(), name).map(|()| log),
            Found::Vacant(entry) => entry,
        };
        let (wal, origin) = match read(parent.as_ref(), name)? {
            AtPath::Anchor(anchor) => {
                // The process that gave the file its name may have died before it synced the name.
                // Power loss must not take the file when this open has returned.
                parent.sync().map_err(|error| WalError::io(OPENING, error))?;
                self.existing(&folder, &anchor, verify)?
            }
            AtPath::Nothing => self.fresh(&folder, parent.as_ref(), name, verify)?,
            AtPath::Other => return Err(foreign(&self.parent.join(name))),
        };
        let mut log = Log::new(wal);
        log.origin = origin;
        Ok(self.show(log, &folder, entry))
    }

    /// Opens the log in `folder`, which has no file that stands for it.
    pub(crate) fn open_folder(&self, folder: &Path, verify: Verify) -> Result<Arc<Log>> {
        let entry = match self.enter(folder) {
            Found::Open(log) => return Ok(log),
            Found::Vacant(entry) => entry,
        };
        let opened = self.options(true).verify(verify).open_on(Arc::clone(&self.disk), folder);
        let wal = opened.map_err(|error| WalError::of_log(OPENING, 0, error))?;
        let mut log = Log::new(wal);
        log.keeps_prefix = false;
        Ok(self.show(log, folder, entry))
    }

    /// Looks for the log among those that this process has open.
    fn enter(&self, folder: &Path) -> Found {
        if self.is_os { shared::enter(folder) } else { Found::Vacant(None) }
    }

    fn show(&self, mut log: Log, folder: &Path, entry: Option<Entry>) -> Arc<Log> {
        log.folder = self.is_os.then(|| folder.to_path_buf());
        log.entry = entry;
        let log = Arc::new(log);
        if let Some(entry) = &log.entry {
            entry.show(&log);
        }
        log
    }

    fn existing(&self, folder: &Path, anchor: &Anchor, verify: Verify) -> Result<(Wal, u64)> {
        let options = self.options(false).open_mode(OpenMode::MustExist).verify(verify);
        let opened = options.open_on(Arc::clone(&self.disk), folder);
        let wal = opened.map_err(|error| match error.kind() {
            ErrorKind::NotFound => misses(folder, &error.to_string()),
            _ => WalError::of_log(OPENING, anchor.origin, error),
        })?;
        if wal.uuid().to_string() != anchor.uuid {
            return Err(misses(folder, "another log is there"));
        }
        Ok((wal, anchor.origin))
    }

    fn fresh(
        &self,
        folder: &Path,
        parent: &dyn DiskFolder,
        name: &str,
        verify: Verify,
    ) -> Result<(Wal, u64)> {
        let kind = self.disk.kind(folder).map_err(|error| WalError::io(OPENING, error))?;
        let is_new = kind == Kind::Missing;
        if !is_new {
            parent.sync().map_err(|error| WalError::io(EMPTYING, error))?;
        }
        let options = self.options(is_new).verify(verify);
        let opened = options.open_on(Arc::clone(&self.disk), folder);
        let context = if is_new { OPENING } else { EMPTYING };
        let wal = opened.map_err(|error| match error.kind() {
            ErrorKind::Corrupt => unusable(folder, &error.to_string()),
            _ => WalError::io(context, error),
        })?;
        let anchor = Anchor { uuid: wal.uuid().to_string(), origin: wal.reserved_lsn().as_u64() };
        if !is_new {
            refuse_other_name(parent, name, &anchor.uuid)?;
            empty(&wal)?;
        }
        write(parent, name, &anchor)?;
        Ok((wal, anchor.origin))
    }

    /// Returns the options of the log. The size of segments is that which the log has.
    fn options(&self, is_new: bool) -> Options {
        let defaults = || {
            let options = Options::new().buffer_bytes(BUFFER_BYTES);
            if is_new { options.segment_bytes(SEGMENT_BYTES) } else { options }
        };
        self.options.clone().unwrap_or_else(defaults)
    }
}

/// Checks that an open log is the one at the path. If its file was removed, empties it. LSNs go on:
/// the other handles know the old ones.
fn join(log: &Log, parent: &dyn DiskFolder, name: &str) -> Result<()> {
    log.alone(|| {
        let uuid = log.wal.uuid().to_string();
        match read(parent, name)? {
            AtPath::Anchor(anchor) if anchor.uuid == uuid => Ok(()),
            AtPath::Nothing => {
                parent.sync().map_err(|error| WalError::io(EMPTYING, error))?;
                refuse_other_name(parent, name, &uuid)?;
                empty(&log.wal)?;
                write(parent, name, &Anchor { uuid, origin: log.origin })
            }
            _ => Err(WalError::refused(
                OPENING,
                io::ErrorKind::AlreadyExists,
                format!("`{name}` was replaced while its log was open: drop all handles first"),
            )),
        }
    })
}

fn empty(wal: &Wal) -> Result<()> {
    wal.truncate_before(wal.reserved_lsn()).map_err(|error| WalError::io(EMPTYING, error))
}

fn read(parent: &dyn DiskFolder, name: &str) -> Result<AtPath> {
    anchor::read(parent, name).map_err(|error| WalError::io(OPENING, error))
}

fn write(parent: &dyn DiskFolder, name: &str, anchor: &Anchor) -> Result<()> {
    let written = anchor::write(parent, name, anchor);
    written.map_err(|error| WalError::io("writing the log's file", error))
}

/// Refuses to empty a log whose file was renamed, not removed: its records are still wanted.
fn refuse_other_name(parent: &dyn DiskFolder, name: &str, uuid: &str) -> Result<()> {
    let other = anchor::other_name(parent, name, uuid);
    let Some(other) = other.map_err(|error| WalError::io(EMPTYING, error))? else {
        return Ok(());
    };
    let text = format!(
        "`{name}` is missing, and `{other}` is its file under another name. To keep the records, \
         rename the folder `{name}{SUFFIX}` to `{other}{SUFFIX}`; to empty the log, remove \
         `{other}`. Then open the log again"
    );
    Err(WalError::refused(EMPTYING, io::ErrorKind::AlreadyExists, text))
}

fn foreign(path: &Path) -> WalError {
    let text = format!(
        "{} is no file of this crate, or it is damaged. Nothing was changed. If the published \
         wal-db wrote it, copy its records with that crate (see \"Moving a log\" in the README). \
         If it is damaged, restore it from a backup",
        path.display()
    );
    WalError::refused(OPENING, io::ErrorKind::InvalidData, text)
}

fn misses(folder: &Path, why: &str) -> WalError {
    let text = format!(
        "the records belong into the folder {} and are not there ({why}). Nothing was changed. \
         Move or copy that folder together with the file beside it",
        folder.display()
    );
    WalError::refused(OPENING, io::ErrorKind::NotFound, text)
}

fn unusable(folder: &Path, why: &str) -> WalError {
    let text = format!(
        "the log is damaged ({why}). To begin an empty log, remove the folder {}, too",
        folder.display()
    );
    WalError::refused(EMPTYING, io::ErrorKind::InvalidData, text)
}
