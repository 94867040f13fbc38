//! A stream of a few records that nobody truncates, beside streams that are appended to and
//! truncated: how many segments it keeps in the end, and what was moved to release the others. The
//! log takes most during the appends.

use anyhow::{Context, Result};
use palisade_streams::Streams;

use crate::contender::Contender;
use crate::log::Log;
use crate::measurement::{Kept, Measurement};
use crate::plan::Plan;
use crate::team::together;
use crate::workload::Workload;
use crate::workloads::burst::read_back;

/// Records of the stream that nobody truncates.
const SLOW_RECORDS: u64 = 10;
/// A thread truncates its stream after so many appends.
const APPENDS_A_TRUNCATION: u64 = 1024;

/// Appends the plan's records, each thread to a stream of its own.
pub(in crate::workloads) fn measure(contender: &Contender, plan: &Plan) -> Result<Measurement> {
    let slow = plan.threads;
    let with_slow = Plan { streams: plan.threads + 1, ..plan.clone() };
    let log = contender.create(Workload::StreamsSlow, &with_slow)?;
    let record = plan.record();
    (0..SLOW_RECORDS).try_for_each(|_| log.commit(slow, &record))?;
    let streams = log.streams().context("the contender moves nothing")?;
    let records = plan.records / plan.threads as u64;
    let (elapsed, most) =
        together(plan.threads, |thread| churn(&*log, streams, &record, thread, records));
    let most = most.into_iter().collect::<Result<Vec<_>>>()?.into_iter().max();
    // What the keeper has begun counts, too.
    while streams.maintain()? {}
    let (segment_bytes, left) = (streams.log().segment_bytes(), segments(streams));
    let stats = streams.stats();
    let moved = 100.0 * stats.moved_bytes as f64 / stats.released_bytes.max(1) as f64;
    // All other streams are empty.
    let read_back = read_back(log)?.context("it keeps nothing to open")?;
    Ok(Measurement {
        records_per_s: (records * plan.threads as u64) as f64 / elapsed.as_secs_f64(),
        log_bytes: most.map(|segments| segments * segment_bytes),
        segments: Some(left),
        moved_percent: Some(moved),
        kept: Some(Kept { acknowledged: SLOW_RECORDS, read_back }),
        ..Measurement::default()
    })
}

/// Appends to a stream and truncates it. Returns the most segments that the log had.
fn churn(
    log: &dyn Log,
    streams: &Streams,
    record: &[u8],
    stream: usize,
    records: u64,
) -> Result<u64> {
    let mut most = 0;
    let mut left = records;
    while left > 0 {
        let count = left.min(APPENDS_A_TRUNCATION);
        log.append(stream, record, count as u32)?;
        left -= count;
        log.truncate(stream)?;
        most = most.max(segments(streams));
    }
    Ok(most)
}

/// Returns how many segments the log has, from that of the head to that of the tail.
fn segments(streams: &Streams) -> u64 {
    let log = streams.log();
    let segment_of = |lsn: palisade::Lsn| lsn.segment(log.segment_bytes());
    // The head first: it may move meanwhile.
    let head = segment_of(log.head_lsn());
    segment_of(log.reserved_lsn()) - head + 1
}
