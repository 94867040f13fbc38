//! Reading and opening logs that were filled before. All bytes lie in the page cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use palisade::Wal;

use super::burst::{Burst, read};
use crate::folder::{disk_bytes, settle};
use crate::log::lsns;
use crate::{
    BURST_BYTES, Compression, End, Form, Kept, Latencies, Log, Measurement, Payload, Plan, Random,
    Tally, together,
};

/// Logs that `recover` opens.
pub(super) const LEFT: [Form; 10] = [
    Form::PLAIN,
    Form { torn_bytes: 64 << 10, ..Form::named("64 KiB torn") },
    Form { torn_bytes: 1 << 20, ..Form::named("1024 KiB torn") },
    Form { torn_bytes: 16 << 20, ..Form::named("16384 KiB torn") },
    Form { segments: 2, ..Form::named("2 segments") },
    Form { segments: 5, ..Form::named("5 segments") },
    Form { segments: 10, ..Form::named("10 segments") },
    Form { unsynced_bytes: 1 << 20, ..Form::named("1 MiB unsynced") },
    Form { unsynced_bytes: 56 << 20, ..Form::named("56 MiB unsynced") },
    Form { full_check: true, ..Form::named("full check") },
];

/// Codecs and records that `codec` compares.
pub(super) const CODED: [Form; 6] = [
    coded("none, json", Compression::None, Payload::Json),
    coded("lz4, json", Compression::Lz4, Payload::Json),
    coded("zstd, json", Compression::Zstd, Payload::Json),
    coded("none, random", Compression::None, Payload::Random),
    coded("lz4, random", Compression::Lz4, Payload::Random),
    coded("zstd, random", Compression::Zstd, Payload::Random),
];

const fn coded(name: &'static str, compression: Compression, payload: Payload) -> Form {
    Form { compression, payload, ..Form::named(name) }
}

const RANGE_BUSY: Form = Form::named("range, busy");
const GET_BATCH: Form = Form::named("get_batch, idle");
const GET_BATCH_BUSY: Form = Form::named("get_batch, busy");
/// Calls that `range` compares, alone and beside a thread that appends.
pub(super) const RANGES: [Form; 4] =
    [Form::named("range, idle"), RANGE_BUSY, GET_BATCH, GET_BATCH_BUSY];

/// Records of a call in `range`.
const RANGE_RECORDS: usize = 10;

/// In `codec` this share of the records is appended before the clock starts: files are made,
/// buffers touched.
const WARM_UP: u64 = 10;

/// Fills a log, ends it and opens it.
pub(super) fn open(plan: &Plan, end: End) -> Result<Measurement> {
    let log = plan.fill()?;
    let size = log.size();
    let opening = plan.end(log, end)?;
    // The open should not wait for bytes that making the files has left for the device.
    settle(&plan.dir);
    let begin = Instant::now();
    let opened = opening()?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Measurement {
        records_per_s: plan.records as f64 / seconds,
        open_ms: Some(seconds * 1e3),
        log_bytes: size.map(|(bytes, _)| bytes),
        segments: opened.size().map(|(_, segments)| segments),
        kept: Some(check(&*opened, plan)?),
        ..Measurement::default()
    })
}

/// Reads the log once, untimed, and compares each of its records with what was appended.
pub(super) fn check(log: &dyn Log, plan: &Plan) -> Result<Kept> {
    let records = plan.form.payload.records(plan.record_bytes);
    let tally = read(log, Tally::comparing(&records))?;
    tally.must_have(0, plan.record_bytes)?;
    Ok(Kept { acknowledged: plan.records, read_back: tally.records - tally.others })
}

/// Scans the log over and over until the time is over.
pub(super) fn scan(plan: &Plan, log: Box<dyn Log>) -> Result<Measurement> {
    laps(plan, log, |log, _, _| {
        let mut tally = Tally::default();
        log.scan(&mut tally)?;
        tally.must_have(plan.records, plan.record_bytes)?;
        Ok(tally.records)
    })
}

/// Lets each thread read its part of the log, over and over until the time is over. A lap gets the
/// thread and the time that is left, and returns how many records it has read.
pub(super) fn laps(
    plan: &Plan,
    mut log: Box<dyn Log>,
    lap: impl Fn(&dyn Log, usize, Duration) -> Result<u64> + Sync,
) -> Result<Measurement> {
    // It also brings all bytes into the page cache.
    let kept = check(&*log, plan)?;
    let (mut elapsed, mut records) = (Duration::ZERO, 0);
    while records == 0 || elapsed < plan.time {
        if plan.contender.reads_once {
            log = plan.end(log, End::Dropped)?()?;
        }
        let left = plan.time.saturating_sub(elapsed);
        let (time, counts) = together(plan.threads, |thread| lap(&*log, thread, left))?;
        elapsed += time;
        records += counts.into_iter().sum::<u64>();
    }
    let records_per_s = records as f64 / elapsed.as_secs_f64();
    Ok(Measurement { records_per_s, kept: Some(kept), ..Measurement::default() })
}

/// Appends the plan's records once, without a sync, and scans them until the time is over.
pub(super) fn codec(plan: &Plan) -> Result<Measurement> {
    let log = plan.create()?;
    let records = plan.form.payload.records(plan.record_bytes);
    let mut records = records.iter().cycle();
    let mut append = |count: u64| {
        records.by_ref().take(count as usize).try_for_each(|record| log.append(0, record))
    };
    let warm_up = plan.records / WARM_UP;
    append(warm_up)?;
    let begin = Instant::now();
    append(plan.records - warm_up)?;
    let seconds = begin.elapsed().as_secs_f64();
    // Palisade's files are larger than the log; the others have no call for its bytes.
    settle(&plan.dir);
    let stored = match log.size() {
        Some((bytes, _)) => bytes,
        None => disk_bytes(&plan.dir)?,
    };
    let scan = scan(plan, log)?;
    Ok(Measurement {
        records_per_s: (plan.records - warm_up) as f64 / seconds,
        scan_records_per_s: Some(scan.records_per_s),
        stored_ratio: Some(stored as f64 / (plan.records * plan.record_bytes as u64) as f64),
        ..scan
    })
}

/// Reads single records in random order.
pub(super) fn get(plan: &Plan) -> Result<Measurement> {
    let mut log = plan.fill()?;
    log.index()?;
    let kept = check(&*log, plan)?;
    let get = |random: &mut Random, tally: &mut Tally<'_>| {
        log.get(random.next_u64() % plan.records, tally)
    };
    Ok(Measurement { kept: Some(kept), ..reads(plan, 1, &AtomicBool::new(false), get)? })
}

/// Reads a few records by one call, alone or beside a thread that appends. The reads end also when
/// that thread has appended [`BURST_BYTES`]: all of them are to be beside it.
pub(super) fn range(plan: &Plan) -> Result<Measurement> {
    let log = plan.fill()?;
    let kept = check(&*log, plan)?;
    let wal = log.wal()?;
    let lsns = lsns(wal)?;
    let is_enough = lsns.len() > RANGE_RECORDS;
    ensure!(is_enough, "a call reads {RANGE_RECORDS} records: give more --records");
    let is_batch = [GET_BATCH, GET_BATCH_BUSY].contains(&plan.form);
    let call = |random: &mut Random, tally: &mut Tally<'_>| {
        if is_batch {
            let asked = [(); RANGE_RECORDS].map(|()| lsns[random.below(lsns.len())]);
            wal.get_batch(&asked)?.iter().for_each(|record| tally.take(record.data()));
            return Ok(());
        }
        let first = random.below(lsns.len() - RANGE_RECORDS);
        let mut records = wal.range(lsns[first]..lsns[first + RANGE_RECORDS])?;
        while let Some(record) = records.next()? {
            tally.take(record.data());
        }
        Ok(())
    };
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        let is_busy = [RANGE_BUSY, GET_BATCH_BUSY].contains(&plan.form);
        let append = || append_until(wal, plan, &is_over);
        let appender = is_busy.then(|| scope.spawn(append));
        let outcome = reads(plan, RANGE_RECORDS as u64, &is_over, call);
        is_over.store(true, Ordering::Relaxed);
        appender.map_or(Ok(()), |appender| appender.join().expect("the appender panicked"))?;
        outcome
    })?;
    Ok(Measurement { kept: Some(kept), ..outcome })
}

fn append_until(wal: &Wal, plan: &Plan, is_over: &AtomicBool) -> Result<()> {
    let record = plan.record();
    let mut left = BURST_BYTES / record.len().max(1) as u64;
    // Relaxed: the flag orders nothing.
    while left > 0 && !is_over.load(Ordering::Relaxed) {
        wal.append(&record)?;
        left -= 1;
    }
    is_over.store(true, Ordering::Relaxed);
    Ok(())
}

/// Makes calls that read `records_a_call` records, over and over until the time or something else
/// is over.
fn reads(
    plan: &Plan,
    records_a_call: u64,
    is_over: &AtomicBool,
    call: impl Fn(&mut Random, &mut Tally<'_>) -> Result<()> + Sync,
) -> Result<Measurement> {
    let burst = Burst::of(plan.threads, |thread| {
        let begin = Instant::now();
        let mut latencies = Latencies::default();
        let mut random = Random::new(thread as u64 + 1);
        let mut tally = Tally::default();
        // Relaxed: the flag orders nothing.
        let goes_on = || begin.elapsed() < plan.time && !is_over.load(Ordering::Relaxed);
        while latencies.calls() == 0 || goes_on() {
            latencies.time(|| call(&mut random, &mut tally))?;
        }
        tally.must_have(latencies.calls() * records_a_call, plan.record_bytes)?;
        Ok((tally.records, latencies))
    })?;
    Ok(burst.outcome())
}
