//! Appends across the borders of segments, on one thread, each one timed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use palisade::{Lsn, Options};

use super::burst::{Round, Turns};
use super::variant::Variant;
use super::{Moment, Outcome};
use crate::contender::palisade::PalisadeLog;
use crate::contender::{Contender, Log};
use crate::latency::Latencies;
use crate::plan::Plan;

/// The timeline's grain.
const MOMENT: Duration = Duration::from_millis(10);
const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;

/// Appends for one round to a log with the variant's segments.
pub(super) fn measure(contender: Contender, plan: &Plan) -> Result<Outcome> {
    let (segment_bytes, zero_fill) = match plan.variant {
        Variant::RawSegment(bytes) => (bytes, false),
        Variant::Segment(bytes) => (bytes, true),
        _ => (DEFAULT_SEGMENT_BYTES, true),
    };
    let options = Options::new().segment_bytes(segment_bytes).zero_fill(zero_fill);
    let log: Box<dyn Log> = Box::new(PalisadeLog::with(contender, &plan.dir, options)?);
    let seen = Mutex::new(Seen::new(segment_bytes));
    let work = |turns: &Turns<'_>,
                log: &dyn Log,
                _thread: usize,
                record: &[u8],
                latencies: &mut Latencies| {
        append(turns, log, record, latencies, &mut lock(&seen))
    };
    let round = Round { plan, records_a_turn: 1, work: &work };
    round.warm_up(&*log)?;
    *lock(&seen) = Seen::new(segment_bytes);
    let outcome = round.measure(log)?;
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Outcome { rotation_us: seen.rotation_us(), timeline: seen.moments, ..outcome })
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn append(
    turns: &Turns<'_>,
    log: &dyn Log,
    record: &[u8],
    latencies: &mut Latencies,
    seen: &mut Seen,
) -> Result<u64> {
    let wal = log.wal().context("the contender has no segments")?;
    let mut records = 0;
    while turns.next().is_some() {
        let begin = Instant::now();
        let lsn = wal.append(record)?.lsn();
        let time = begin.elapsed();
        latencies.record(time);
        seen.note(begin.saturating_duration_since(turns.begin()), time, lsn);
        records += 1;
    }
    seen.earlier += turns.begin().elapsed();
    Ok(records)
}

/// What the appends of a round have met.
#[derive(Debug)]
struct Seen {
    segment_bytes: u64,
    segment: Option<u64>,
    rotations: u32,
    rotating: Duration,
    moments: Vec<Moment>,
    /// How long the bursts before this one took.
    earlier: Duration,
}

impl Seen {
    fn new(segment_bytes: u64) -> Seen {
        Seen {
            segment_bytes,
            segment: None,
            rotations: 0,
            rotating: Duration::ZERO,
            moments: Vec::new(),
            earlier: Duration::ZERO,
        }
    }

    /// An append that began `at` in its burst, took so long and got this LSN.
    fn note(&mut self, at: Duration, time: Duration, lsn: Lsn) {
        let index = ((self.earlier + at).as_nanos() / MOMENT.as_nanos()) as usize;
        while self.moments.len() <= index {
            let at_ms = self.moments.len() as f64 * MOMENT.as_secs_f64() * 1e3;
            self.moments.push(Moment { at_ms, ..Moment::default() });
        }
        let moment = &mut self.moments[index];
        moment.worst_us = moment.worst_us.max(time.as_secs_f64() * 1e6);
        let segment = lsn.segment(self.segment_bytes);
        if self.segment.replace(segment).is_some_and(|before| before != segment) {
            moment.rotations += 1;
            self.rotations += 1;
            self.rotating += time;
        }
    }

    /// How long an append took on average that came first in its segment.
    fn rotation_us(&self) -> Option<f64> {
        (self.rotations > 0).then(|| self.rotating.as_secs_f64() * 1e6 / f64::from(self.rotations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_append_of_a_segment_is_a_rotation() {
        let mut seen = Seen::new(4096);
        let us = Duration::from_micros;
        seen.note(us(0), us(1), Lsn::new(0));
        seen.note(us(10), us(2), Lsn::new(2048));
        assert_eq!(seen.rotation_us(), None);
        seen.note(us(20), us(7), Lsn::new(4096));
        seen.note(us(25_000), us(3), Lsn::new(8192));
        assert_eq!(seen.rotation_us(), Some(5.0));
        let rotations: Vec<u32> = seen.moments.iter().map(|moment| moment.rotations).collect();
        assert_eq!(rotations, [1, 0, 1]);
        assert_eq!(seen.moments[0].worst_us, 7.0);
        assert_eq!(seen.moments[2].at_ms, 20.0);
    }
}
