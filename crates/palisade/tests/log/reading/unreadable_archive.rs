//! One block that the medium cannot read, in each file of an archive: a header that cannot be read
//! is as one that is damaged. It does not end what the archive is there for.

#![expect(clippy::print_stdout, reason = "the counts")]

use crate::prelude::*;

const BLOCK: u64 = 4096;
const SEGMENT: u64 = 4 * BLOCK;

/// A log of two epochs, in `/log`, and its archive, in `/archive`.
struct Archived {
    disk: SimDisk,
    records: Entries,
    /// How many the archive has.
    count: usize,
}

impl Archived {
    fn new() -> Archived {
        let disk = SimDisk::new(7).without_memory();
        let mut records = Entries::new();
        for run in 0..2 {
            let archive = Archive::open_on(disk.as_disk(), "/archive").unwrap();
            let options = Options::new().segment_bytes(SEGMENT).buffer_bytes(SEGMENT as usize);
            let wal = Wal::with_store(&disk, options.on_release(archive)).unwrap();
            records.extend(append_bytes(&wal, run * 30..run * 30 + 30, 3000));
            wal.truncate_before(records[records.len() - 2].0).unwrap();
            wal.close().unwrap();
        }
        let (found, error) = read(&disk.as_disk());
        assert!(error.is_none() && found.len() > 45 && found == records[..found.len()]);
        Archived { disk, records, count: found.len() }
    }

    /// The blocks of the archive's files: which file, and where they begin.
    fn blocks(&self) -> Vec<(String, u64)> {
        let names = self.disk.files_in("/archive").into_iter();
        let segments = names.filter(|name| name.starts_with("segment-"));
        let blocks = |name: String| {
            let len = self.disk.file(&format!("/archive/{name}")).unwrap().len() as u64;
            (0..len.div_ceil(BLOCK)).map(move |block| (name.clone(), block * BLOCK))
        };
        segments.flat_map(blocks).collect()
    }

    /// The disk without the block `bad` of the files of that name.
    fn without(&self, (file, from): &(String, u64)) -> Arc<dyn Disk> {
        let faulty = FaultDisk::new(self.disk.as_disk());
        let (file, from) = (file.clone(), *from);
        faulty.watch(move |call| {
            let meets = call.offset < from + BLOCK && from < call.offset + call.len;
            match call.kind == CallKind::Read && call.name.ends_with(&file) && meets {
                true => Err(FaultKind::Eio.error()),
                false => Ok(()),
            }
        });
        Arc::new(faulty)
    }
}

/// The records of the archive, and the error that ends them.
fn read(disk: &Arc<dyn Disk>) -> (Entries, Option<Error>) {
    let archive = ArchiveReader::open_on(Arc::clone(disk), "/archive").unwrap();
    match archive.records(None) {
        Ok(records) => read_until_error(records),
        Err(error) => (Entries::new(), Some(error)),
    }
}

fn restored(disk: &Arc<dyn Disk>, from: RestoreFrom, to: Option<Lsn>) -> palisade::Result<Entries> {
    let restore = Restore::plan_on(Arc::clone(disk), from, to, &mut |_| {})?;
    let into = SimDisk::new(0);
    restore.write_on(into.as_disk(), "/log", &mut |_| {})?;
    let options = Options::new().segment_bytes(SEGMENT).buffer_bytes(SEGMENT as usize);
    Ok(contents(&Wal::with_store(&into, options).unwrap()))
}

/// Protection: an archive with one unreadable block gives what its other blocks hold.
#[test]
fn an_unreadable_block_is_named_and_the_rest_is_restored() {
    let archived = Archived::new();
    let alone = RestoreFrom::archive("/archive");
    let sources = [
        (alone.clone(), &archived.records[..archived.count]),
        (alone.with_log("/log"), &archived.records[..]),
    ];
    let blocks = archived.blocks();
    assert!(blocks.len() > 40, "{blocks:?}");
    let (mut whole, mut named) = (0, 0);
    for bad in &blocks {
        let disk = archived.without(bad);
        let (found, error) = read(&disk);
        assert!(found == archived.records[..found.len()], "{bad:?}");
        assert!(error.is_some() || found.len() == archived.count, "{bad:?}: {}", found.len());
        for (from, records) in &sources {
            let error = match restored(&disk, from.clone(), None) {
                Ok(found) => {
                    assert!(found == *records, "{bad:?}, {from:?}: {} records", found.len());
                    whole += 1;
                    continue;
                }
                Err(error) => error,
            };
            let text = error.to_string();
            assert!(text.contains(&bad.0), "{bad:?}, {from:?}: {text}");
            let to = error.lsn().unwrap_or_else(|| panic!("{bad:?}, {from:?}: {text}"));
            named += 1;
            // Without that header nothing tells which records below were truncated.
            if !text.contains("first segment of epoch") {
                let below = records.iter().take_while(|(lsn, _)| *lsn < to).count();
                let kept = restored(&disk, from.clone(), Some(to)).unwrap();
                assert!(kept == records[..below], "{bad:?}, {from:?}: {} records", kept.len());
            }
        }
    }
    println!("{whole} whole, {named} named");
    let headers = blocks.iter().filter(|(_, from)| *from == 0).count();
    assert!(whole > headers && named > headers, "{whole} whole, {named} named");
}

/// An archive of which no header can be read says what the medium said.
#[test]
fn an_archive_of_unreadable_headers_names_the_first() {
    let archived = Archived::new();
    let first = archived.blocks()[0].clone();
    for (name, from) in archived.blocks() {
        if from == 0 && name != first.0 {
            archived.disk.remove_file(&format!("/archive/{name}"));
        }
    }
    let error = ArchiveReader::open_on(archived.without(&first), "/archive").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.path().unwrap().ends_with(&first.0), "{error}");
}
