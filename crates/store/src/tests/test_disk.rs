//! The machine's disk with controls for tests: it can be full, and it counts.
#![expect(clippy::disallowed_types, reason = "controls of tests are no part of a model")]

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use palisade_core::Memory;
use palisade_core::sync::Mutex;

use crate::disk::DEFAULT_FILE_MODE;
use crate::disk::OsDisk;
use crate::disk::{
    Access, Disk, DiskFile, DiskFolder, FileIdentity, FolderIdentity, Kind, ZeroSteps,
};
use crate::folder::is_segment_name;
use crate::segment::segment_file::LOG_AT;
use tempfile::TempDir;

/// What tests turn and read. All of it is SeqCst: tests want no surprises.
#[derive(Debug)]
pub(crate) struct Controls {
    /// No file may grow.
    is_full: AtomicBool,
    /// A file that is removed makes space.
    frees_by_removal: AtomicBool,
    syncs: AtomicUsize,
    /// Those that were not the preparer's.
    awaited_syncs: AtomicUsize,
    segment_opens: AtomicUsize,
    /// The next sync by the preparer's thread fails, as the one sync that is told of a failed
    /// write-back.
    fails_preparer: AtomicBool,
    /// Zeros that the preparer's thread writes into a segment wait.
    holds_zeros: AtomicBool,
    has_held_zeros: AtomicBool,
    overwrites_in_place: bool,
    memory: TempDir,
    /// No file or folder can be opened: no descriptor is left.
    is_exhausted: AtomicBool,
    /// So many opens are left before one that lacks a descriptor; the ones behind it do not.
    opens_before_a_lack: AtomicU64,
    /// A folder that this process may not read.
    unreadable: Mutex<Option<PathBuf>>,
}

impl Controls {
    /// No file may grow any more, whatever is removed; or there is space again.
    pub(crate) fn fill(&self, full: bool) {
        self.is_full.store(full, Ordering::SeqCst);
        self.frees_by_removal.store(false, Ordering::SeqCst);
    }

    /// From now on a removed file makes space, until the disk is filled again.
    pub(crate) fn free_by_removal(&self) {
        self.frees_by_removal.store(true, Ordering::SeqCst);
    }

    /// From now on no file can be opened, as if the process had no descriptor left; or it can
    /// again.
    pub(crate) fn exhaust(&self, is_exhausted: bool) {
        self.is_exhausted.store(is_exhausted, Ordering::SeqCst);
    }

    /// The open behind the next `opens` ones lacks a descriptor, and no other.
    pub(crate) fn lack_a_descriptor_after(&self, opens: u64) {
        self.opens_before_a_lack.store(opens, Ordering::SeqCst);
    }

    /// Whether that open has come.
    pub(crate) fn has_lacked_a_descriptor(&self) -> bool {
        self.opens_before_a_lack.load(Ordering::SeqCst) == u64::MAX
    }

    fn check_descriptors(&self) -> io::Result<()> {
        let next = |left: u64| (left < u64::MAX).then(|| left.checked_sub(1).unwrap_or(u64::MAX));
        let before =
            self.opens_before_a_lack.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        if before == Ok(0) || self.is_exhausted.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(NO_DESCRIPTOR));
        }
        Ok(())
    }

    /// From now on the folder at `path` may not be read, as if its permissions said so.
    pub(crate) fn forbid(&self, path: &Path) {
        *self.unreadable.lock() = Some(path.to_path_buf());
    }

    pub(crate) fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    /// The syncs that somebody else than the preparer has waited for.
    pub(crate) fn awaited_syncs(&self) -> usize {
        self.awaited_syncs.load(Ordering::SeqCst)
    }

    /// How often a file with a segment's name was opened.
    pub(crate) fn segment_opens(&self) -> usize {
        self.segment_opens.load(Ordering::SeqCst)
    }

    fn check_growth(&self, file: &dyn DiskFile, end: u64) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) && end > file.len()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    pub(crate) fn fail_preparer(&self) {
        self.fails_preparer.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_failed_preparer(&self) -> bool {
        !self.fails_preparer.load(Ordering::SeqCst)
    }

    /// Until the result is dropped, zeros ahead of the tail wait before they are written.
    pub(crate) fn hold_zeros(&self) -> HeldZeros<'_> {
        self.holds_zeros.store(true, Ordering::SeqCst);
        HeldZeros(self)
    }

    /// Whether zeros had to wait.
    pub(crate) fn has_held_zeros(&self) -> bool {
        self.has_held_zeros.load(Ordering::SeqCst)
    }

    /// A spare gets no zeros at or above the end of its first step.
    fn wait_while_zeros_are_held(&self, offset: u64) {
        let is_ahead = offset >= LOG_AT + ZeroSteps::default().first_bytes;
        while is_ahead && is_preparer() && self.holds_zeros.load(Ordering::SeqCst) {
            self.has_held_zeros.store(true, Ordering::SeqCst);
            palisade_core::sync::yield_now();
        }
    }

    fn count_sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.awaited_syncs.fetch_add(usize::from(!is_preparer()), Ordering::SeqCst);
        if is_preparer() && self.fails_preparer.swap(false, Ordering::SeqCst) {
            return Err(io::Error::other("write-back failed"));
        }
        Ok(())
    }
}

/// Zeros that wait.
#[derive(Debug)]
pub(crate) struct HeldZeros<'a>(&'a Controls);

impl Drop for HeldZeros<'_> {
    fn drop(&mut self) {
        self.0.holds_zeros.store(false, Ordering::SeqCst);
    }
}

fn is_preparer() -> bool {
    std::thread::current().name() == Some("palisade-prepare")
}

/// EMFILE.
#[cfg(unix)]
const NO_DESCRIPTOR: i32 = 24;
/// ERROR_TOO_MANY_OPEN_FILES.
#[cfg(windows)]
const NO_DESCRIPTOR: i32 = 4;

/// A disk under control.
#[derive(Clone, Debug)]
pub(crate) struct TestDisk {
    pub(crate) controls: Arc<Controls>,
}

impl TestDisk {
    pub(crate) fn new(overwrites_in_place: bool) -> TestDisk {
        let controls = Controls {
            is_full: AtomicBool::new(false),
            frees_by_removal: AtomicBool::new(false),
            syncs: AtomicUsize::new(0),
            awaited_syncs: AtomicUsize::new(0),
            segment_opens: AtomicUsize::new(0),
            fails_preparer: AtomicBool::new(false),
            holds_zeros: AtomicBool::new(false),
            has_held_zeros: AtomicBool::new(false),
            overwrites_in_place,
            is_exhausted: AtomicBool::new(false),
            opens_before_a_lack: AtomicU64::new(u64::MAX),
            unreadable: Mutex::default(),
            memory: tempfile::tempdir().unwrap(),
        };
        TestDisk { controls: Arc::new(controls) }
    }

    /// The names of the log buffers in memory.
    pub(crate) fn buffers(&self) -> Vec<String> {
        let (_, memory) = self.memory_folder().unwrap().unwrap();
        memory.list().unwrap()
    }
}

impl Disk for TestDisk {
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        OsDisk.kind(path)
    }

    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        OsDisk.create_folder(path, file_mode)
    }

    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        if self.controls.unreadable.lock().as_deref() == Some(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.controls.check_descriptors()?;
        let folder = OsDisk.open_folder(path, file_mode)?;
        let controls = Arc::clone(&self.controls);
        Ok(Arc::new(TestFolder { folder, is_memory: false, controls }))
    }

    fn memory_folder(&self) -> io::Result<Option<(PathBuf, Arc<dyn DiskFolder>)>> {
        self.controls.check_descriptors()?;
        let path = self.controls.memory.path();
        let folder = OsDisk.open_folder(path, DEFAULT_FILE_MODE)?;
        let controls = Arc::clone(&self.controls);
        let folder = TestFolder { folder, is_memory: true, controls };
        Ok(Some((path.to_path_buf(), Arc::new(folder))))
    }
}

#[derive(Debug)]
struct TestFolder {
    folder: Arc<dyn DiskFolder>,
    /// Files in it are never full, and never synced.
    is_memory: bool,
    controls: Arc<Controls>,
}

impl DiskFolder for TestFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        self.folder.list()
    }

    fn check_writable(&self) -> io::Result<()> {
        self.folder.check_writable()
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.controls.check_descriptors()?;
        if self.is_memory {
            return self.folder.open(name, access);
        }
        if is_segment_name(name) {
            self.controls.segment_opens.fetch_add(1, Ordering::SeqCst);
        }
        let file = self.folder.open(name, access)?;
        Ok(Box::new(TestFile { file, controls: Arc::clone(&self.controls) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)?;
        if !self.is_memory && self.controls.frees_by_removal.load(Ordering::SeqCst) {
            self.controls.is_full.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.controls.count_sync()?;
        self.folder.sync()
    }

    fn overwrites_in_place(&self) -> bool {
        self.controls.overwrites_in_place
    }

    fn identity(&self) -> FolderIdentity {
        self.folder.identity()
    }

    fn identity_of(&self, path: &Path) -> io::Result<Option<FolderIdentity>> {
        self.folder.identity_of(path)
    }
}

#[derive(Debug)]
struct TestFile {
    file: Box<dyn DiskFile>,
    controls: Arc<Controls>,
}

impl DiskFile for TestFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        // Short on purpose: callers have to come back for the rest.
        let len = into.len().min(5000);
        self.file.read_at(offset, &mut into[..len])
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(piece) = pieces.iter().find(|piece| !piece.is_empty()) else {
            return Ok(0);
        };
        self.controls.wait_while_zeros_are_held(offset);
        // Short on purpose.
        let len = piece.len().min(60_000);
        self.controls.check_growth(self.file.as_ref(), offset + len as u64)?;
        self.file.write_at(offset, &[IoSlice::new(&piece[..len])])
    }

    fn sync_data(&self) -> io::Result<()> {
        self.controls.count_sync()?;
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.discard(offset, len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.controls.check_growth(self.file.as_ref(), len)?;
        self.file.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.file.identity()
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<Memory> {
        self.file.map(offset, len)
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        self.file.try_lock(shared)
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}
