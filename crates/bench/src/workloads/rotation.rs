//! Appends across the borders of segments, on one thread, each one timed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use palisade::Lsn;

use super::burst::{Round, Worker};
use crate::{Form, Measurement, Moment, Plan, lock};

/// Segments of several sizes. A burst does not fill the largest one.
pub(super) const FORMS: [Form; 4] = [
    Form { segment_bytes: 1 << 30, ..Form::named("no rotation") },
    Form { segment_bytes: 64 << 20, ..Form::named("64 MiB segments") },
    Form { segment_bytes: 4 << 20, ..Form::named("4 MiB segments") },
    Form { segment_bytes: 4 << 20, zero_fill: false, ..Form::named("4 MiB, no zeros") },
];

/// The timeline's grain.
const MOMENT: Duration = Duration::from_millis(10);

/// Appends for one round to a log with the form's segments.
pub(super) fn measure(plan: &Plan) -> Result<Measurement> {
    let (mut log, segment_bytes) = (plan.create()?, plan.form.segment_bytes);
    let seen = Mutex::new(Seen::new(segment_bytes));
    let work = |worker: &mut Worker<'_>| append(worker, &mut lock(&seen));
    let round = Round { plan, records_a_turn: 1, work: &work };
    round.warm_up(&mut *log)?;
    *lock(&seen) = Seen::new(segment_bytes);
    let outcome = round.measure(log)?;
    let seen = std::mem::take(&mut *lock(&seen));
    let to_tenths = |us: f64| (us * 10.0).round() / 10.0;
    let rotation_us = seen.rotation_us();
    let timeline = seen.moments.into_iter().map(|(ms, us, count)| (ms, to_tenths(us), count));
    Ok(Measurement { rotation_us, timeline: timeline.collect(), ..outcome })
}

fn append(worker: &mut Worker<'_>, seen: &mut Seen) -> Result<()> {
    let wal = worker.log.wal()?;
    while worker.next_turn().is_some() {
        let begin = Instant::now();
        let lsn = wal.append(worker.record)?.lsn();
        let time = begin.elapsed();
        worker.latencies.record(time);
        seen.note(begin.saturating_duration_since(worker.begin()), time, lsn);
        worker.records += 1;
    }
    seen.earlier += worker.begin().elapsed();
    Ok(())
}

/// Rotations and latencies of a round.
#[derive(Default)]
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
        Seen { segment_bytes, ..Seen::default() }
    }

    /// Notes an append that began `at` after the burst did, took `time` and got `lsn`.
    fn note(&mut self, at: Duration, time: Duration, lsn: Lsn) {
        let index = ((self.earlier + at).as_nanos() / MOMENT.as_nanos()) as usize;
        while self.moments.len() <= index {
            let at_ms = self.moments.len() as f64 * MOMENT.as_secs_f64() * 1e3;
            self.moments.push((at_ms, 0.0, 0));
        }
        let (_, longest_us, rotations) = &mut self.moments[index];
        *longest_us = longest_us.max(time.as_secs_f64() * 1e6);
        let segment = lsn.segment(self.segment_bytes);
        if self.segment.replace(segment).is_some_and(|before| before != segment) {
            *rotations += 1;
            self.rotations += 1;
            self.rotating += time;
        }
    }

    /// Returns how long an append took on average that came first in its segment.
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
        assert_eq!(seen.moments, [(0.0, 7.0, 1), (10.0, 0.0, 0), (20.0, 3.0, 1)]);
    }
}
