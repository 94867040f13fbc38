//! How a log is opened: the file at its path decides what happens to the folder beside it.
//!
//! | file at the path | folder | open |
//! |---|---|---|
//! | names the log | has the log | opens it |
//! | names the log | has none, or another one | refuses |
//! | missing or empty | none | makes a log, then the file |
//! | missing or empty | has a log whose file was removed | empties it, then makes the file |
//! | missing or empty | has a log whose file was renamed or moved | refuses |
//! | missing or empty | has a log that had a file, and nothing says that it was removed | refuses |
//! | missing or empty | has a log that never had a file | keeps its records, and makes the file |
//! | anything else | any | refuses |
//!
//! [`second_name`](crate::second_name) tells rows 4 to 7 apart. In row 7 the folder is a backup, or
//! its first open has not returned, and there are no records.
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
use crate::second_name::{Missing, Names, SECOND_NAME};
use crate::shared::{self, Entry, Found};
use crate::{Result, WalError};

const OPENING: &str = "opening the log";
const WRITING: &str = "writing the log's file";
const EMPTYING: &str = "emptying the log whose file was removed";
/// What the name of a log's folder has more than that of its file.
const SUFFIX: &str = ".palisade";
/// The log buffer of a log without options of its own. An open takes longer with a larger one, and
/// engines open many logs.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
const SEGMENT_BYTES: u64 = 16 << 20;

/// Where a log is, and how it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) disk: Arc<dyn Disk>,
    /// Whether `disk` is the file system of the operating system: files can have hard links.
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
        let site = Site { place: self, name, parent, folder };
        let entry = match shared::enter(&self.disk, &site.folder) {
            Found::Open(log) => {
                self.check_segments(&log, &site.folder)?;
                site.join(&log)?;
                return verified(log, verify);
            }
            Found::Vacant(entry) => entry,
        };
        let (wal, origin) = site.open(verify)?;
        let mut log = Log::new(wal, self.home(&site.folder)?);
        log.origin = origin;
        Ok(self.show(log, &site.folder, entry))
    }

    /// Opens the log in `folder`, which has no file that stands for it.
    pub(crate) fn open_folder(&self, folder: &Path, verify: Verify) -> Result<Arc<Log>> {
        let entry = match shared::enter(&self.disk, folder) {
            Found::Open(log) => {
                self.check_segments(&log, folder)?;
                check_open(&log, folder)?;
                return verified(log, verify);
            }
            Found::Vacant(entry) => entry,
        };
        let opened = self.options(true).verify(verify).open_on(Arc::clone(&self.disk), folder);
        let wal = opened.map_err(|error| WalError::of_log(OPENING, 0, error))?;
        let mut log = Log::new(wal, self.home(folder)?);
        log.keeps_prefix = false;
        Ok(self.show(log, folder, entry))
    }

    fn has_no(&self, folder: &Path) -> Result<bool> {
        let kind = self.disk.kind(folder).map_err(|error| WalError::io(OPENING, error))?;
        Ok(kind == Kind::Missing)
    }

    /// Opens the folder of a log.
    fn home(&self, folder: &Path) -> Result<Arc<dyn DiskFolder>> {
        let home = self.disk.open_folder(folder, DEFAULT_FILE_MODE);
        home.map_err(|error| WalError::io(OPENING, error))
    }

    fn show(&self, mut log: Log, folder: &Path, entry: Entry) -> Arc<Log> {
        log.folder = self.is_os.then(|| folder.to_path_buf());
        log.entry = Some(entry);
        let files = self.options.as_ref().map(Options::files);
        let limit = files.filter(|files| files.codec.is_none()).and_then(|files| files.max_bytes);
        log.limit = limit;
        let log = Arc::new(log);
        if let Some(entry) = &log.entry {
            entry.show(&log);
        }
        log
    }

    /// Refuses an open log whose segments have another size than the caller asks for.
    fn check_segments(&self, log: &Log, folder: &Path) -> Result<()> {
        let found = log.wal.segment_bytes();
        match self.options.as_ref().and_then(|options| options.files().segment_bytes) {
            Some(asked) if asked != found => {
                let text = format!("the log has segments of {found} bytes, {asked} were asked for");
                let error = palisade::Error::new(ErrorKind::Mismatch, text);
                Err(WalError::io(OPENING, error.at_path(folder)))
            }
            _ => Ok(()),
        }
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

/// What an open does with a log.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// Opens the log that the file names.
    Named(Anchor),
    /// Keeps the records, if there are any, and makes the file.
    Unnamed,
    /// Empties the log, and makes the file.
    Removed,
}

/// A log that has a file: where both are.
#[derive(Debug)]
struct Site<'a> {
    place: &'a Place,
    name: &'a str,
    parent: Arc<dyn DiskFolder>,
    folder: PathBuf,
}

impl Site<'_> {
    fn path(&self) -> PathBuf {
        self.place.parent.join(self.name)
    }

    fn read(&self) -> Result<AtPath> {
        anchor::read(self.parent.as_ref(), self.name).map_err(|error| WalError::io(OPENING, error))
    }

    /// Opens the log, or makes it.
    fn open(&self, verify: Verify) -> Result<(Wal, u64)> {
        let is_new = self.place.has_no(&self.folder)?;
        // Refuses what it can before the open changes anything.
        let before = self.find(None)?;
        let options = self.place.options(is_new).verify(verify);
        let options = match before {
            Content::Named(_) => options.open_mode(OpenMode::MustExist),
            _ => options,
        };
        let opened = options.open_on(Arc::clone(&self.place.disk), &self.folder);
        let wal = opened.map_err(|error| self.not_opened(&before, error))?;
        let home = self.place.home(&self.folder)?;
        // Another process may have had the log since. The lock keeps it away from now on.
        let origin = match self.find(Some(&wal.uuid().to_string()))? {
            Content::Named(anchor) => {
                // The head is below if the log was emptied, and then its folder replaced with a
                // backup.
                let origin = anchor.origin.min(wal.head_lsn().as_u64());
                self.adopt(&*home, anchor, origin)?;
                origin
            }
            content => {
                if content == Content::Removed {
                    self.parent.sync().map_err(|error| WalError::io(EMPTYING, error))?;
                }
                let is_empty = content == Content::Removed
                    || wal.is_empty().map_err(|error| WalError::of_call(OPENING, error))?;
                let origin = if is_empty { wal.reserved_lsn() } else { wal.head_lsn() };
                if is_empty {
                    empty(&wal)?;
                }
                let anchor = Anchor { uuid: wal.uuid().to_string(), origin: origin.as_u64() };
                self.make_file(&*home, &anchor)?;
                anchor.origin
            }
        };
        Ok((wal, origin))
    }

    fn not_opened(&self, content: &Content, error: palisade::Error) -> WalError {
        match (content, error.kind()) {
            (Content::Named(_), ErrorKind::NotFound) => misses(&self.folder, &error.to_string()),
            (Content::Named(anchor), _) => WalError::of_log(OPENING, anchor.origin, error),
            (Content::Removed, ErrorKind::Corrupt) => unusable(&self.folder, &error.to_string()),
            (Content::Removed, _) => WalError::of_log(EMPTYING, 0, error),
            (Content::Unnamed, _) => WalError::of_log(OPENING, 0, error),
        }
    }

    /// Checks that an open log is the one at the path. If its file was removed, empties it. LSNs
    /// go on: the other handles know the old ones.
    fn join(&self, log: &Log) -> Result<()> {
        let mut has_ended = false;
        let joined = log.alone(|| {
            let uuid = log.wal.uuid().to_string();
            let at_path = self.read()?;
            // After the read: if the folder is still here, the file went on its own.
            check_open(log, &self.folder)?;
            match at_path {
                AtPath::Anchor(anchor) if anchor.uuid == uuid => {
                    self.adopt(log.home.as_ref(), anchor, log.origin)
                }
                AtPath::Nothing => {
                    let content = self.find_without_file(log.home.as_ref(), Some(&uuid))?;
                    let anchor = Anchor { uuid, origin: log.origin };
                    if content != Content::Removed {
                        return self.make_file(log.home.as_ref(), &anchor);
                    }
                    let synced = self.parent.sync();
                    let emptied = synced.map_err(|error| WalError::io(EMPTYING, error));
                    let emptied = emptied.and_then(|()| empty(&log.wal));
                    emptied.and_then(|()| self.make_file(log.home.as_ref(), &anchor)).map_err(
                        |error| {
                            // While the file counts as removed, the next open empties the log. So
                            // the other handles must append nothing more.
                            log.refuse_appends();
                            has_ended = true;
                            not_emptied(&error)
                        },
                    )
                }
                _ => {
                    let path = self.path();
                    let path = path.display();
                    let text = format!("{path} was replaced while its log was open: drop the log");
                    Err(WalError::refused(OPENING, io::ErrorKind::AlreadyExists, text))
                }
            }
        });
        if has_ended {
            // Not in `alone`: this waits for callbacks, which may append.
            log.wal.clone().abandon();
        }
        joined
    }

    /// Finds out what an open does with the log. Refuses one that is not `uuid`, if that is known.
    fn find(&self, uuid: Option<&str>) -> Result<Content> {
        match self.read()? {
            AtPath::Anchor(anchor) if uuid.is_some_and(|uuid| uuid != anchor.uuid) => {
                Err(misses(&self.folder, "another log is there"))
            }
            AtPath::Anchor(anchor) => Ok(Content::Named(anchor)),
            AtPath::Other => Err(foreign(&self.path())),
            AtPath::Nothing if self.place.has_no(&self.folder)? => Ok(Content::Unnamed),
            AtPath::Nothing => self.find_without_file(&*self.place.home(&self.folder)?, uuid),
        }
    }

    /// As [`find`](Site::find), for a log without a file.
    fn find_without_file(&self, home: &dyn DiskFolder, uuid: Option<&str>) -> Result<Content> {
        let why = self.names(home).why_missing(uuid);
        match why.map_err(|error| WalError::io(OPENING, error))? {
            Missing::Never => Ok(Content::Unnamed),
            Missing::Removed => Ok(Content::Removed),
            Missing::Moved => Err(moved(&self.path(), &self.folder)),
            Missing::Unknown => Err(unknown(&self.path(), &self.folder)),
        }
    }

    fn names<'a>(&'a self, home: &'a dyn DiskFolder) -> Names<'a> {
        let has_links = self.place.is_os && cfg!(unix);
        Names { parent: self.parent.as_ref(), name: self.name, home, has_links }
    }

    /// Makes the file at the path, which says `anchor`, that of the log whose LSN 0 is at `origin`.
    fn adopt(&self, home: &dyn DiskFolder, anchor: Anchor, origin: u64) -> Result<()> {
        // The process that gave the file its name may have died before it synced the name. Power
        // loss must not take the file when the open has returned.
        self.parent.sync().map_err(|error| WalError::io(OPENING, error))?;
        let is_copy = anchor::is_copy(self.parent.as_ref(), self.name);
        if is_copy.map_err(|error| WalError::io(OPENING, error))? || origin != anchor.origin {
            self.make_file(home, &Anchor { origin, ..anchor })
        } else {
            // It is missing after a crash in the first open.
            self.link(home, &anchor)
        }
    }

    /// Makes the file, with both its names.
    fn make_file(&self, home: &dyn DiskFolder, anchor: &Anchor) -> Result<()> {
        let written = anchor::write(self.parent.as_ref(), self.name, anchor, None);
        written.map_err(|error| WalError::io(WRITING, error))?;
        self.link(home, anchor)
    }

    /// Gives the file its second name, unless it has that name.
    fn link(&self, home: &dyn DiskFolder, anchor: &Anchor) -> Result<()> {
        let linked = self.names(home).link(anchor, &self.path(), &self.folder);
        linked.map_err(|error| WalError::io(WRITING, error))
    }
}

/// Truncates all records.
fn empty(wal: &Wal) -> Result<()> {
    wal.truncate_before(wal.reserved_lsn()).map_err(|error| WalError::of_call(EMPTYING, error))
}

/// Does for a log that is open what an open with `verify` does.
fn verified(log: Arc<Log>, verify: Verify) -> Result<Arc<Log>> {
    if verify == Verify::Full {
        log.verify().map_err(|error| WalError::of_log(OPENING, log.origin, error))?;
    }
    Ok(log)
}

/// Refuses an open log that was poisoned or closed, or whose folder is no longer at its path. Then
/// the file at the path says nothing about the log, and what the log commits may be gone when the
/// process ends.
fn check_open(log: &Log, folder: &Path) -> Result<()> {
    let found = log.home.identity_of(folder).map_err(|error| WalError::io(OPENING, error))?;
    let (kind, what) = match found {
        Some(found) if found == log.home.identity() => {
            return log.end().map_or(Ok(()), |cause| Err(ended(folder, &cause)));
        }
        Some(_) => (io::ErrorKind::AlreadyExists, "replaced"),
        None => (io::ErrorKind::NotFound, "moved or removed"),
    };
    let text = format!(
        "the folder {} was {what} while its log was open. Nothing was changed. To keep the \
         records, drop all handles of the log, and open it where its folder is now, with the file \
         beside it. For another log at this path, drop all handles, too, then open the path again",
        folder.display()
    );
    Err(WalError::refused(OPENING, kind, text))
}

/// Returns the error for a log whose file has a name elsewhere: its records may be wanted.
fn moved(path: &Path, folder: &Path) -> WalError {
    let text = format!(
        "the file {} was renamed or moved, or another hard link to it exists, so this is no \
         removal. Nothing was changed. To keep the records, move the folder {} to the file's new \
         place, too, and give it the file's name with `{SUFFIX}` added. To begin an empty log, \
         remove the folder. Then open the log again",
        path.display(),
        folder.display()
    );
    WalError::refused(OPENING, io::ErrorKind::AlreadyExists, text)
}

/// Returns the error for a log of which nothing says whether its file was removed.
fn unknown(path: &Path, folder: &Path) -> WalError {
    let text = format!(
        "the file {} is missing or empty, and nothing says that it was removed: the folder {} was \
         copied or put together without the file, or the file system has no hard links. No record \
         was changed. To keep the records, copy the file `{SECOND_NAME}` from the folder to the \
         path of the file; if that file belongs to another log, remove it from the folder instead. \
         To begin an empty log, remove the folder. Then open the log again",
        path.display(),
        folder.display()
    );
    WalError::refused(OPENING, io::ErrorKind::NotFound, text)
}

/// Returns the error of an open that could not empty the log for another handle, too.
fn not_emptied(error: &WalError) -> WalError {
    let text = format!("{error}. The log accepts nothing more: drop all its handles, then open it");
    WalError::refused(EMPTYING, io::ErrorKind::Other, text)
}

fn ended(folder: &Path, cause: &palisade::Error) -> WalError {
    let cause = format!("{:?} {}", cause.kind(), cause.finding());
    let text = format!(
        "the log in the folder {} is open, and it accepts nothing more ({}). Nothing was changed. \
         Drop all handles of the log, also those of `Wal::log`, then open it again",
        folder.display(),
        cause.trim_end()
    );
    WalError::refused(OPENING, io::ErrorKind::ResourceBusy, text)
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
