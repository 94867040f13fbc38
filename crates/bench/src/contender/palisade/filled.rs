//! Palisade's logs that lie there to be read or opened.

use std::path::Path;

use anyhow::{Context, Result, bail};
use palisade::{Lsn, Options, Verify, Wal, framed_bytes};

use super::{Contender, PalisadeLog, Place, SEGMENT_BYTES};
use crate::contender::filled::{End, Filled, Opening, Tally, write_garbage};
use crate::plan::Plan;
use crate::workload::{Variant, Workload};

const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
/// Sizes of segments are multiples of it; a segment's header takes as much (docs/format.md).
const BLOCK_BYTES: u64 = 4096;

#[derive(Debug)]
struct FilledPalisade {
    log: PalisadeLog,
    segment_bytes: u64,
    /// Where each record is, if they are to be read one by one.
    lsns: Vec<Lsn>,
}

/// A log of the plan's records, all of them durable unless its form says otherwise.
pub(super) fn fill(
    contender: Contender,
    workload: Workload,
    plan: &Plan,
) -> Result<Box<dyn Filled>> {
    let segment_bytes = plan
        .segment_bytes(workload, framed_bytes(plan.record_bytes))
        .map_or(SEGMENT_BYTES, |bytes| {
            bytes.next_multiple_of(BLOCK_BYTES).max(LEAST_SEGMENT_BYTES)
        });
    let verify = if plan.variant == Variant::FullCheck { Verify::Full } else { Verify::Tail };
    let options = Options::new().segment_bytes(segment_bytes).verify(verify);
    let log = PalisadeLog::at(Place::of(contender, &plan.dir, segment_bytes, options))?;
    let record = plan.record();
    log.fill(&record, plan.records - plan.unsynced_records())?;
    for _ in 0..plan.unsynced_records() {
        let _ticket = log.wal.append(&record)?;
    }
    let lsns = if workload == Workload::Get { lsns(&log.wal)? } else { Vec::new() };
    Ok(Box::new(FilledPalisade { log, segment_bytes, lsns }))
}

fn lsns(wal: &Wal) -> Result<Vec<Lsn>> {
    let mut records = wal.iter()?;
    let mut lsns = Vec::new();
    while let Some(record) = records.next()? {
        lsns.push(record.lsn());
    }
    Ok(lsns)
}

impl Filled for FilledPalisade {
    fn scan(&self, tally: &mut Tally<'_>) -> Result<()> {
        self.log.scan(tally)
    }

    fn get(&self, number: u64, tally: &mut Tally<'_>) -> Result<()> {
        let lsn = self.lsns.get(number as usize).context("the log was not filled to be read")?;
        tally.take(self.log.wal.get(*lsn)?.data());
        Ok(())
    }

    fn log_bytes(&self) -> Result<u64> {
        Ok(self.log.wal.reserved_lsn().bytes_since(self.log.wal.head_lsn()))
    }

    fn segments(&self) -> Result<u64> {
        Ok(self.log.wal.recovery_report().segments)
    }

    fn end(self: Box<Self>, end: End) -> Result<Opening> {
        let FilledPalisade { log: PalisadeLog { wal, place }, segment_bytes, lsns } = *self;
        let place = match (end, place) {
            (End::Closed, place) => {
                wal.close()?;
                place
            }
            // A copy of the folder has no log buffer, so a kill is shown by the drop: it leaves the
            // log unclean, what was appended in its segments, and the buffer's marks.
            (End::Killed { torn_bytes }, Place::Folder(folder, options)) => {
                let end = wal.reserved_lsn();
                drop(wal);
                if torn_bytes > 0 {
                    tear(&folder, end, segment_bytes, torn_bytes)?;
                }
                Place::Folder(folder, options)
            }
            (End::Killed { .. }, memory @ Place::Memory(..)) => {
                drop(wal);
                memory
            }
        };
        Ok(Box::new(move || {
            let log = PalisadeLog::at(place)?;
            Ok(Box::new(FilledPalisade { log, segment_bytes, lsns }))
        }))
    }
}

fn tear(folder: &Path, end: Lsn, segment_bytes: u64, bytes: u64) -> Result<()> {
    let in_segment = end.as_u64() % segment_bytes;
    if in_segment + bytes > segment_bytes {
        bail!("{bytes} bytes of garbage do not fit behind the log: give fewer --records");
    }
    let name = format!("segment-{:020}", end.segment(segment_bytes));
    write_garbage(&folder.join(name), BLOCK_BYTES + in_segment, bytes)
}
