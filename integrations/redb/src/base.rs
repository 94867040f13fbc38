//! The base file: redb's file as of the last checkpoint.

use std::io::{self, IoSlice};
use std::path::PathBuf;

use palisade::disk::{Access, DiskFile, DiskFolder};
use palisade::{Error, ErrorKind, Result};

use crate::state::{PAGE, PAGE_BYTES, Pages};

pub(crate) const NAME: &str = "base.redb";
/// The most pages that one call writes.
const RUN_PAGES: usize = 256;
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

#[derive(Debug)]
pub(crate) struct Base {
    file: Box<dyn DiskFile>,
    path: PathBuf,
}

impl Base {
    /// Opens the file, if it is there.
    pub(crate) fn open(folder: &dyn DiskFolder, path: PathBuf) -> Result<Option<Base>> {
        match folder.open(NAME, Access::Write) {
            Ok(file) => Ok(Some(Base { file, path })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open the base file", error).at_path(path)),
        }
    }

    /// Makes the file. A sync of the folder makes its name durable.
    pub(crate) fn create(folder: &dyn DiskFolder, path: PathBuf) -> Result<Base> {
        match folder.open(NAME, Access::New) {
            Ok(file) => Ok(Base { file, path }),
            Err(error) => Err(Error::io("make the base file", error).at_path(path)),
        }
    }

    pub(crate) fn len(&self) -> Result<u64> {
        self.file.len().map_err(|error| self.failed("read the length of the base file", error))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.failed("sync the base file", error))
    }

    pub(crate) fn read(&self, mut offset: u64, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            match self.file.read_at(offset, into) {
                Ok(0) => return Err(self.too_short(offset)),
                Ok(read) => (offset, into) = (offset + read as u64, &mut into[read..]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read the base file", error)),
            }
        }
        Ok(())
    }

    /// Refuses the file if its first page, which a checkpoint wrote with the first `len` bytes, is
    /// another one. Each commit of redb changes this page.
    pub(crate) fn check_first_page(&self, written: &[u8; PAGE_BYTES], len: u64) -> Result<()> {
        let len = len.min(PAGE) as usize;
        let mut found = [0; PAGE_BYTES];
        self.read(0, &mut found[..len])?;
        if found[..len] == written[..len] {
            return Ok(());
        }
        let text = "the base file is not the one that the last checkpoint of the log has written";
        let advice = "restore the base file and the log from one backup; if redb itself has \
                      changed the base file, move it out of the folder and go on with it alone";
        Err(Error::new(ErrorKind::Corrupt, text).at_path(&self.path).with_advice(advice))
    }

    /// Writes the pages, and makes the file `len` bytes long at least. Of what lies between
    /// `zeros_from` and `len`, everything else becomes zero.
    pub(crate) fn write(&self, pages: &Pages, zeros_from: u64, len: u64) -> Result<()> {
        let old_len = self.len()?;
        let end = len.div_ceil(PAGE);
        let stale = zeros_from.div_ceil(PAGE)..old_len.min(len).div_ceil(PAGE);
        // A page beyond the end of the file extends it. The zeros between are holes.
        let last = end.checked_sub(1).filter(|_| old_len < end * PAGE);
        let zeroed = stale.chain(last).filter(|number| !pages.contains_key(number));
        let tail = (zeros_from % PAGE) as usize;
        if tail > 0 && !pages.contains_key(&(zeros_from / PAGE)) {
            // The bytes before are not in the log: power loss must not reach them.
            self.write_run(zeros_from, &mut [IoSlice::new(&ZEROS[tail..])])?;
        }
        self.write_runs(zeroed.map(|number| (number, &ZEROS)))?;
        self.write_pages(pages)
    }

    pub(crate) fn write_pages(&self, pages: &Pages) -> Result<()> {
        self.write_runs(pages.iter().map(|(&number, page)| (number, &**page)))
    }

    /// Writes pages with ascending numbers. The memory that it takes does not grow with them.
    fn write_runs<'p>(
        &self,
        pages: impl Iterator<Item = (u64, &'p [u8; PAGE_BYTES])>,
    ) -> Result<()> {
        let mut run: Vec<IoSlice<'_>> = Vec::with_capacity(RUN_PAGES);
        let mut start = 0;
        for (number, page) in pages {
            if run.len() == RUN_PAGES || start + run.len() as u64 != number {
                self.write_run(start * PAGE, &mut run)?;
                start = number;
                run.clear();
            }
            run.push(IoSlice::new(page));
        }
        self.write_run(start * PAGE, &mut run)
    }

    fn write_run(&self, mut offset: u64, mut run: &mut [IoSlice<'_>]) -> Result<()> {
        while !run.is_empty() {
            match self.file.write_at(offset, run) {
                Ok(0) => {
                    return Err(self.failed("write the base file", io::ErrorKind::WriteZero.into()));
                }
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut run, written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("write the base file", error)),
            }
        }
        Ok(())
    }

    /// Gives the space above `len` back, where the disk can. The file keeps its length.
    pub(crate) fn discard_from(&self, len: u64) {
        let from = len.next_multiple_of(PAGE);
        let beyond = self.file.len().unwrap_or(from).saturating_sub(from);
        if beyond > 0 {
            // Only space is lost if it fails, for example on a file system without holes.
            let _ = self.file.discard(from, beyond);
        }
    }

    pub(crate) fn too_short(&self, needed: u64) -> Error {
        let text = format!("the base file ends below byte {needed}, which it had at a checkpoint");
        Error::new(ErrorKind::Corrupt, text)
            .at_path(&self.path)
            .with_advice("restore the base file and the log from a backup")
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        Error::io(what, error).at_path(&self.path)
    }
}
