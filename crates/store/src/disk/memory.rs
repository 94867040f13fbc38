//! A disk in memory.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::os::{OsFile, memory_file};
use super::{
    Access, Background, Disk, DiskFile, DiskFolder, FileIdentity, FolderIdentity, Host, Kind,
    read_full,
};
use crate::Memory;
use crate::sync::{AtomicU64, Mutex, Ordering, RwLock, RwLockWriteGuard};

const BUFFERS: &str = "/buffers";

/// A disk in memory, for logs that need not outlive the process (`Options::open_on`). Clones share
/// their content.
///
/// Nothing fails, and a sync costs nothing. The simulated disk (feature `sim`) has faults and every
/// outcome of a power loss.
#[derive(Clone)]
pub struct MemDisk {
    shared: Arc<DiskContent>,
    has_buffers: bool,
    background: Background,
}

struct DiskContent {
    folders: Mutex<BTreeMap<PathBuf, Arc<MemFolder>>>,
    buffers: Arc<MemFolder>,
    numbers: AtomicU64,
    process: AtomicU64,
}

impl MemDisk {
    /// Makes an empty disk.
    #[must_use]
    pub fn new() -> MemDisk {
        let buffers = Arc::new(MemFolder { number: 0, is_buffers: true, files: Mutex::default() });
        let shared = DiskContent {
            folders: Mutex::default(),
            buffers,
            numbers: AtomicU64::new(1),
            process: AtomicU64::new(0),
        };
        MemDisk { shared: Arc::new(shared), has_buffers: true, background: Background::Thread }
    }

    /// Puts log buffers on the heap.
    #[doc(hidden)]
    #[must_use]
    pub fn without_buffers(mut self) -> MemDisk {
        self.has_buffers = false;
        self
    }

    /// Lets the thread that needs space make it, so that each run makes the same calls.
    #[doc(hidden)]
    #[must_use]
    pub fn without_threads(mut self) -> MemDisk {
        self.background = Background::Later;
        self
    }

    /// Lets the thread that asks for background work do it.
    #[doc(hidden)]
    #[must_use]
    pub fn with_work_at_once(mut self) -> MemDisk {
        self.background = Background::Now;
        self
    }

    /// Frees all locks, as the death of the process does. Open files and folders can only be read
    /// then.
    pub fn kill(&self) {
        // Release: a change checks it under the lock of what it changes; pairs with `process`.
        self.shared.process.fetch_add(1, Ordering::Release);
        let folders = self.shared.folders.lock();
        for folder in folders.values().chain([&self.shared.buffers]) {
            for file in folder.files.lock().values() {
                // Waits for a change in progress.
                drop(file.content.write());
                *file.holders.lock() = Holders::default();
            }
        }
    }

    /// Zeroes all bytes that no sync has covered, and removes all log buffers. Keeps names and
    /// lengths. Drop the logs on the disk before.
    pub fn lose_power(&self) {
        self.kill();
        self.shared.buffers.files.lock().clear();
        for folder in self.shared.folders.lock().values() {
            folder.files.lock().values().for_each(|file| file.content.write().lose_unsynced());
        }
    }

    fn process(&self) -> u64 {
        // Acquire: as in `kill`.
        self.shared.process.load(Ordering::Acquire)
    }

    fn check_process(&self, process: u64) -> io::Result<()> {
        if self.process() == process {
            return Ok(());
        }
        Err(io::Error::other("the process was killed"))
    }

    fn open(&self, folder: Arc<MemFolder>) -> Arc<dyn DiskFolder> {
        Arc::new(OpenFolder { disk: self.clone(), process: self.process(), folder })
    }

    fn number(&self) -> u64 {
        // Relaxed: each caller gets another number, and nothing more is needed.
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

impl Default for MemDisk {
    fn default() -> MemDisk {
        MemDisk::new()
    }
}

impl fmt::Debug for MemDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders = self.shared.folders.lock();
        f.debug_struct("MemDisk").field("folders", &folders.keys()).finish_non_exhaustive()
    }
}

impl Disk for MemDisk {
    fn create_folder(&self, path: &Path, _file_mode: u32) -> io::Result<()> {
        let number = self.number();
        let mut folders = self.shared.folders.lock();
        let is_root_or_in =
            |parent: &Path| parent.parent().is_none() || folders.contains_key(parent);
        if !path.parent().is_none_or(is_root_or_in) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let new = || Arc::new(MemFolder { number, is_buffers: false, files: Mutex::default() });
        folders.entry(path.to_path_buf()).or_insert_with(new);
        Ok(())
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        if path.parent().is_none() {
            self.create_folder(path, file_mode)?;
        }
        let folder = self.shared.folders.lock().get(path).map(Arc::clone);
        Ok(self.open(folder.ok_or(io::ErrorKind::NotFound)?))
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        let is_there = path.parent().is_none() || self.shared.folders.lock().contains_key(path);
        Ok(if is_there { Kind::Folder } else { Kind::Missing })
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        let open = || (PathBuf::from(BUFFERS), self.open(Arc::clone(&self.shared.buffers)));
        Ok(self.has_buffers.then(open))
    }

    fn host(&self) -> &dyn Host {
        self
    }
}

impl Host for MemDisk {
    fn writes_behind(&self) -> bool {
        self.background == Background::Thread
    }

    fn background(&self) -> Background {
        self.background
    }
}

struct MemFolder {
    number: u64,
    is_buffers: bool,
    files: Mutex<BTreeMap<String, Arc<File>>>,
}

#[derive(Debug)]
struct OpenFolder {
    disk: MemDisk,
    process: u64,
    folder: Arc<MemFolder>,
}

impl fmt::Debug for MemFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.files.lock().keys()).finish()
    }
}

impl DiskFolder for OpenFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.folder.files.lock().keys().cloned().collect())
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        if access != Access::Read {
            self.disk.check_process(self.process)?;
        }
        let makes = matches!(access, Access::WriteOrCreate | Access::Fresh | Access::New);
        let file = match self.folder.files.lock().entry(name.to_owned()) {
            Entry::Occupied(_) if access == Access::New => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Entry::Occupied(found) => Arc::clone(found.get()),
            Entry::Vacant(_) if !makes => return Err(io::ErrorKind::NotFound.into()),
            Entry::Vacant(free) => {
                let number = self.disk.number();
                Arc::clone(free.insert(Arc::new(File::new(number, !self.folder.is_buffers))))
            }
        };
        if access == Access::Fresh {
            file.content.write().clear();
        }
        let (disk, process) = (self.disk.clone(), self.process);
        let can_write = access != Access::Read;
        Ok(Box::new(OpenFile { disk, process, can_write, handle: self.disk.number(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.folder.files.lock();
        self.disk.check_process(self.process)?;
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut files = self.folder.files.lock();
        self.disk.check_process(self.process)?;
        files.remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn overwrites_in_place(&self) -> bool {
        // Recycled files have their memory already.
        true
    }

    fn identity(&self) -> FolderIdentity {
        FolderIdentity { inode: self.folder.number, ..FolderIdentity::default() }
    }

    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        let folders = self.disk.shared.folders.lock();
        let found = folders.get(path).map(|folder| folder.number);
        Ok(found.map(|inode| FolderIdentity { inode, ..FolderIdentity::default() }))
    }
}

struct File {
    number: u64,
    content: RwLock<Content>,
    holders: Mutex<Holders>,
}

impl File {
    fn new(number: u64, can_lose: bool) -> File {
        let content = Content { can_lose, ..Content::default() };
        File { number, content: RwLock::new(content), holders: Mutex::default() }
    }
}

#[derive(Default)]
struct Holders {
    exclusive: Option<u64>,
    shared: BTreeSet<u64>,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    /// Above `bytes` the file reads as zeros.
    len: usize,
    /// Disjoint, ascending ranges written since the last sync.
    unsynced: Vec<Range<usize>>,
    can_lose: bool,
    mapped: Option<Mapped>,
}

/// A mapped range, in a file of the operating system, which can copy bytes while a thread writes
/// them.
struct Mapped {
    at: usize,
    len: usize,
    file: OsFile,
}

impl Content {
    fn clear(&mut self) {
        *self = Content { can_lose: self.can_lose, ..Content::default() };
    }

    fn write(&mut self, offset: usize, from: &[u8]) {
        if self.bytes.len() < offset {
            self.bytes.resize(offset, 0);
        }
        let there = from.len().min(self.bytes.len() - offset);
        let (over, behind) = from.split_at(there);
        self.bytes[offset..offset + there].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
        self.len = self.len.max(self.bytes.len());
        if self.can_lose {
            self.note_unsynced(offset..offset + from.len());
        }
    }

    fn note_unsynced(&mut self, mut range: Range<usize>) {
        match self.unsynced.last_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => {
                self.unsynced.retain(|other| {
                    let touches = other.start <= range.end && range.start <= other.end;
                    if touches {
                        range = range.start.min(other.start)..range.end.max(other.end);
                    }
                    !touches
                });
                let at = self.unsynced.partition_point(|other| other.start < range.start);
                self.unsynced.insert(at, range);
            }
        }
    }

    fn lose_unsynced(&mut self) {
        for range in std::mem::take(&mut self.unsynced) {
            self.bytes[range].fill(0);
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.len.saturating_sub(offset));
        let there = self.bytes.get(offset..).unwrap_or(&[]);
        let (from_bytes, zeros) = into[..len].split_at_mut(there.len().min(len));
        from_bytes.copy_from_slice(&there[..from_bytes.len()]);
        zeros.fill(0);
        if let Some(Mapped { at, len: mapped, file }) = &self.mapped {
            let (from, to) = (offset.max(*at), (offset + len).min(at + mapped));
            if from < to {
                read_full(file, (from - at) as u64, &mut into[from - offset..to - offset])?;
            }
        }
        Ok(len)
    }
}

struct OpenFile {
    disk: MemDisk,
    process: u64,
    can_write: bool,
    handle: u64,
    file: Arc<File>,
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("number", &self.file.number).finish_non_exhaustive()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.give_lock_back();
    }
}

impl OpenFile {
    /// Locks the content. Checks the process under this lock, because `kill` waits for it.
    fn change(&self) -> io::Result<RwLockWriteGuard<'_, Content>> {
        if !self.can_write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let content = self.file.content.write();
        self.disk.check_process(self.process)?;
        Ok(content)
    }

    fn give_lock_back(&self) {
        let mut holders = self.file.holders.lock();
        holders.exclusive.take_if(|holder| *holder == self.handle);
        holders.shared.remove(&self.handle);
    }
}

/// Returns `position` as an index. Memory cannot hold more, which is a lack of space.
fn index(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::ErrorKind::StorageFull.into())
}

impl DiskFile for OpenFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.content.read().read(index(offset)?, into)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let start = index(offset)?;
        let mut content = self.change()?;
        let mut end = start;
        for piece in pieces {
            content.write(end, piece);
            end += piece.len();
        }
        Ok(end - start)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut content = self.file.content.write();
        self.disk.check_process(self.process)?;
        content.unsynced.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.content.read().len as u64)
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        let mut holders = self.file.holders.lock();
        self.disk.check_process(self.process)?;
        let own = self.handle;
        let is_exclusive = holders.exclusive.is_some_and(|holder| holder != own);
        let is_shared = holders.shared.iter().any(|holder| *holder != own);
        let is_free = !is_exclusive && (shared || !is_shared);
        if is_free {
            holders.exclusive = (!shared).then_some(own);
            holders.shared.remove(&own);
            holders.shared.extend(shared.then_some(own));
        }
        Ok(is_free)
    }

    fn unlock(&self) -> io::Result<()> {
        self.give_lock_back();
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut content = self.change()?;
        content.len = content.len.max(index(len)?);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut content = self.change()?;
        let (start, end) = (index(offset)?, index(offset.saturating_add(len))?);
        content.mapped.take_if(|mapped| mapped.at == start);
        let there = content.bytes.len();
        content.bytes[start.min(there)..end.min(there)].fill(0);
        Ok(())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity { inode: self.file.number, ..FileIdentity::default() })
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        let mut content = self.change()?;
        if content.len < offset.saturating_add(len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if content.mapped.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = memory_file(len)?;
        let memory = file.map(0, len)?;
        content.mapped = Some(Mapped { at: offset, len, file });
        Ok(memory)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
