//! A disk of your own: passes each call on, and counts writes and syncs.
//!
//! `cargo run -p palisade --example counting_disk`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use palisade::disk::{Access, Disk, DiskFile, DiskFolder, MemDisk, conformance};
use palisade::{Options, Result};

#[derive(Debug, Default)]
struct Counts {
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

/// The thing below, and where its calls are counted: a disk, a folder or a file.
#[derive(Clone, Debug)]
struct Counting<T>(T, Arc<Counts>);

impl Disk for Counting<MemDisk> {
    fn create_folder(&self, path: &Path, file_mode: u32) -> io::Result<()> {
        self.0.create_folder(path, file_mode)
    }
    fn open_folder(&self, path: &Path, file_mode: u32) -> io::Result<Arc<dyn DiskFolder>> {
        Ok(Arc::new(Counting(self.0.open_folder(path, file_mode)?, Arc::clone(&self.1))))
    }
}

impl DiskFolder for Counting<Arc<dyn DiskFolder>> {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(Counting(self.0.open(name, access)?, Arc::clone(&self.1))))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.syncs.fetch_add(1, Ordering::Relaxed);
        self.0.sync()
    }
}

impl DiskFile for Counting<Box<dyn DiskFile>> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.0.write_at(offset, pieces)?;
        self.1.written_bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.syncs.fetch_add(1, Ordering::Relaxed);
        self.0.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        self.0.try_lock(shared)
    }
}

fn main() -> Result<()> {
    let disk = Counting(MemDisk::new(), Arc::default());
    conformance::check(&(Arc::new(disk.clone()) as _), Path::new("/checked"))?;
    let wal = Options::new().open_on(Arc::new(disk.clone()), "/log")?;
    let before = disk.1.syncs.load(Ordering::Relaxed);
    (0..100).try_for_each(|_| wal.commit(b"record").map(drop))?;
    println!("100 commits: {} syncs", disk.1.syncs.load(Ordering::Relaxed) - before);
    println!("in all: {} bytes written", disk.1.written_bytes.load(Ordering::Relaxed));
    wal.close()
}

#[test]
fn the_disk_passes() {
    main().unwrap();
}
