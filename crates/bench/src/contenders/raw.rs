//! Floors: the least that each workload asks of the machine, without a log around it.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Result;
use palisade::crc32c_append;

use crate::contender::lacks_reading;
use crate::{Contender, Log, Plan, Tally, Workload, lock};

/// The floor: the least that any contender has to do.
pub const RAW: Contender = Contender {
    name: "raw",
    is_floor: true,
    lacks: |workload| match workload {
        Workload::Scan => None,
        Workload::OpenLoop => Some("its one file position would make threads wait in turn"),
        other => lacks_reading(other),
    },
    // The file has one position.
    has_one_thread: |workload| workload != Workload::Append && workload != Workload::Scan,
    open: |plan| {
        Ok(match plan.workload {
            Workload::Append => Box::new(MemoryFloor::new(plan)),
            Workload::Scan => {
                Box::new(ReadFloor { path: plan.folder(), record_bytes: plan.record_bytes })
            }
            _ => Box::new(FileFloor::create(plan)?),
        })
    },
    ..Contender::BASE
};

/// More than the longest record.
const FILE_BYTES: usize = 16 << 20;
const PIECE_BYTES: usize = 1 << 20;
const RING_BYTES: usize = 16 << 20;
const LEAST_RING_BYTES: usize = 1 << 20;

/// `append`: each record is checksummed and copied into a ring of the thread's own.
struct MemoryFloor(Vec<Mutex<Ring>>);

struct Ring {
    bytes: Vec<u8>,
    at: usize,
}

impl MemoryFloor {
    fn new(plan: &Plan) -> MemoryFloor {
        let bytes = (RING_BYTES / plan.threads).max(LEAST_RING_BYTES).max(plan.record_bytes);
        // Ones: their pages are there before the first record is.
        let ring = || Mutex::new(Ring { bytes: vec![1; bytes], at: 0 });
        MemoryFloor((0..plan.threads).map(|_| ring()).collect())
    }
}

impl Ring {
    fn append(&mut self, record: &[u8]) {
        if self.at + record.len() > self.bytes.len() {
            self.at = 0;
        }
        black_box(crc32c_append(0, record));
        self.bytes[self.at..][..record.len()].copy_from_slice(record);
        self.at += record.len();
        black_box(&mut self.bytes);
    }
}

impl Log for MemoryFloor {
    fn appends(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        let mut ring = lock(&self.0[thread]);
        for _ in 0..count {
            ring.append(black_box(record));
        }
        Ok(())
    }
}

/// `commit` and `batch`: overwrites of a file that was written once before, from its beginning to
/// its end and again, then `fdatasync`. Records of a batch are gathered into pieces of 1 MiB.
struct FileFloor(Mutex<RawTail>);

struct RawTail {
    file: BufWriter<File>,
    at: usize,
    syncs: u64,
}

impl FileFloor {
    fn create(plan: &Plan) -> Result<FileFloor> {
        let mut file = File::create_new(plan.dir.join("raw"))?;
        file.write_all(&vec![0; FILE_BYTES])?;
        file.sync_all()?;
        file.rewind()?;
        let file = BufWriter::with_capacity(PIECE_BYTES, file);
        Ok(FileFloor(Mutex::new(RawTail { file, at: 0, syncs: 0 })))
    }
}

impl Log for FileFloor {
    fn appends(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        let RawTail { file, at, .. } = &mut *lock(&self.0);
        for _ in 0..count {
            if *at + record.len() > FILE_BYTES {
                file.rewind()?;
                *at = 0;
            }
            file.write_all(record)?;
            *at += record.len();
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let tail = &mut *lock(&self.0);
        tail.file.flush()?;
        tail.syncs += 1;
        Ok(tail.file.get_ref().sync_data()?)
    }

    fn syncs(&self) -> Option<u64> {
        Some(lock(&self.0).syncs)
    }
}

/// `scan`: a file of bare records is read in pieces of 1 MiB, each checksummed as a whole.
struct ReadFloor {
    path: PathBuf,
    record_bytes: usize,
}

impl Log for ReadFloor {
    fn fill(&self, _streams: usize, record: &[u8], synced: u64, _unsynced: u64) -> Result<()> {
        let mut file = BufWriter::with_capacity(PIECE_BYTES, File::create_new(&self.path)?);
        (0..synced).try_for_each(|_| file.write_all(record))?;
        Ok(file.into_inner()?.sync_all()?)
    }

    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        let mut file = File::open(&self.path)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut bytes = 0;
        while let read @ 1.. = file.read(&mut piece)? {
            black_box(crc32c_append(0, &piece[..read]));
            bytes += read as u64;
        }
        tally.count(bytes / self.record_bytes as u64, bytes);
        Ok(())
    }
}
