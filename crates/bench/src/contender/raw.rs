//! Floors: the least that each workload asks of the machine, without a log around it.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use palisade::crc32c_append;

use super::filled::{End, Filled, Opening, Tally};
use super::positioned::{read_at, write_all_at};
use super::{Log, Profile, lacks_reading};
use crate::plan::Plan;
use crate::workload::Workload;

pub(super) const PROFILE: Profile = Profile {
    name: "raw",
    version: None,
    lacks: |workload| match workload {
        Workload::Scan => None,
        Workload::OpenLoop => Some("its one file position would make threads wait in turn"),
        other => lacks_reading(other),
    },
    create: |workload, plan| {
        Ok(match workload {
            Workload::Append => Box::new(MemoryFloor::new(plan)),
            _ => Box::new(FileFloor::create(plan)?),
        })
    },
    lacks_form: |_| None,
    fill: |_, plan| Ok(Box::new(ReadFloor::create(plan)?)),
};

/// More than a piece and the longest record together.
const FILE_BYTES: u64 = 16 << 20;
const PIECE_BYTES: usize = 1 << 20;
const RING_BYTES: usize = 16 << 20;
const LEAST_RING_BYTES: usize = 1 << 20;

/// `append`: each record is checksummed and copied into a ring of the thread's own.
#[derive(Debug)]
struct MemoryFloor {
    rings: Vec<Mutex<Ring>>,
}

#[derive(Debug)]
struct Ring {
    bytes: Vec<u8>,
    at: usize,
}

impl MemoryFloor {
    fn new(plan: &Plan) -> MemoryFloor {
        let bytes = (RING_BYTES / plan.threads).max(LEAST_RING_BYTES).max(plan.record_bytes);
        // Ones: their pages are there before the first record is.
        let ring = || Mutex::new(Ring { bytes: vec![1; bytes], at: 0 });
        MemoryFloor { rings: (0..plan.threads).map(|_| ring()).collect() }
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
    fn append(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        let mut ring = lock(&self.rings[thread]);
        for _ in 0..count {
            ring.append(black_box(record));
        }
        Ok(())
    }

    fn commit(&self, thread: usize, record: &[u8]) -> Result<()> {
        self.append(thread, record, 1)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn trim(&self) -> Result<()> {
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        None
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// `commit` and `batch`: positioned writes over a file that was written once before, then
/// `fdatasync`. What is appended in between is gathered into pieces of 1 MiB.
#[derive(Debug)]
struct FileFloor {
    tail: Mutex<Tail>,
}

#[derive(Debug)]
struct Tail {
    file: File,
    at: u64,
    pending: Vec<u8>,
    syncs: u64,
}

impl FileFloor {
    fn create(plan: &Plan) -> Result<FileFloor> {
        let file = File::create_new(plan.dir.join("raw"))?;
        let zeros = vec![0; PIECE_BYTES];
        for at in (0..FILE_BYTES).step_by(PIECE_BYTES) {
            write_all_at(&file, &zeros, at)?;
        }
        file.sync_all()?;
        let pending = Vec::with_capacity(PIECE_BYTES + plan.record_bytes);
        Ok(FileFloor { tail: Mutex::new(Tail { file, at: 0, pending, syncs: 0 }) })
    }
}

impl Tail {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(record);
        if self.pending.len() >= PIECE_BYTES { self.write_pending() } else { Ok(()) }
    }

    fn write_pending(&mut self) -> Result<()> {
        if self.at + self.pending.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        write_all_at(&self.file, &self.pending, self.at)?;
        self.at += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.write_pending()?;
        self.file.sync_data()?;
        self.syncs += 1;
        Ok(())
    }
}

impl Log for FileFloor {
    fn append(&self, _thread: usize, record: &[u8], count: u32) -> Result<()> {
        let mut tail = lock(&self.tail);
        (0..count).try_for_each(|_| tail.append(record))
    }

    fn commit(&self, _thread: usize, record: &[u8]) -> Result<()> {
        let mut tail = lock(&self.tail);
        tail.append(record)?;
        tail.sync()
    }

    fn atomic(&self, thread: usize, record: &[u8], count: u32) -> Result<()> {
        self.batch(thread, record, count)
    }

    fn sync(&self) -> Result<()> {
        lock(&self.tail).sync()
    }

    fn trim(&self) -> Result<()> {
        Ok(())
    }

    fn syncs(&self) -> Option<u64> {
        Some(lock(&self.tail).syncs)
    }

    fn read_back(self: Box<Self>) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// `scan`: a file of bare records is read in pieces of 1 MiB, each checksummed as a whole.
#[derive(Debug)]
struct ReadFloor {
    file: File,
    record_bytes: u64,
}

impl ReadFloor {
    fn create(plan: &Plan) -> Result<ReadFloor> {
        let path = plan.dir.join("raw");
        write_records(&path, &plan.record(), plan.records)?;
        Ok(ReadFloor { file: File::open(path)?, record_bytes: plan.record_bytes as u64 })
    }
}

impl Filled for ReadFloor {
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        loop {
            match read_at(&self.file, &mut piece, at)? {
                0 => break,
                n => {
                    black_box(crc32c_append(0, &piece[..n]));
                    at += n as u64;
                }
            }
        }
        tally.count(at / self.record_bytes, at);
        Ok(())
    }

    fn get(&self, _number: u64, _tally: &mut Tally<'_>) -> Result<()> {
        bail!("a floor has no records")
    }

    fn log_bytes(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn segments(&self) -> Result<u64> {
        Ok(1)
    }

    fn end(self: Box<Self>, _end: End) -> Result<Opening> {
        bail!("a floor has nothing to open")
    }
}

fn write_records(path: &Path, record: &[u8], records: u64) -> Result<()> {
    use std::io::Write;
    let mut file = std::io::BufWriter::with_capacity(PIECE_BYTES, File::create_new(path)?);
    for _ in 0..records {
        file.write_all(record)?;
    }
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
