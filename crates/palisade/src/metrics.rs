//! The feature `metrics`.

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};

use crate::{Histogram, Stats, Wal};

/// Publishes the [`Stats`] of one open log through the crate [`metrics`](::metrics): call
/// [`publish`](MetricsPublisher::publish) about every ten seconds. A metric has the unit of its
/// field, the name of the field after `palisade_`, and the label `log` (`docs/observability.md`).
///
/// ```
/// use palisade::{MemStore, MetricsPublisher, Wal};
///
/// let wal = Wal::with_store(MemStore::new(1 << 20), Default::default())?;
/// MetricsPublisher::describe();
/// let mut publisher = MetricsPublisher::new("orders");
/// wal.commit(b"record")?;
/// publisher.publish(&wal); // and again from a timer
/// # Ok::<(), palisade::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MetricsPublisher {
    labels: Vec<Label>,
    last: Option<Stats>,
}

impl MetricsPublisher {
    /// Creates a publisher with this label `log`.
    #[must_use]
    pub fn new(log: impl Into<String>) -> MetricsPublisher {
        MetricsPublisher { labels: vec![Label::new("log", log.into())], last: None }
    }

    /// Describes each metric to the recorder. Call it once, after that is installed.
    pub fn describe() {
        with_recorder(|recorder| {
            for metric in METRICS {
                let (name, help) = (KeyName::from(metric.name), metric.meaning.into());
                match metric.value {
                    Value::Counter(_) => recorder.describe_counter(name, Some(metric.unit), help),
                    Value::Gauge(_) => recorder.describe_gauge(name, Some(metric.unit), help),
                    Value::Histogram(_) => {
                        recorder.describe_histogram(name, Some(metric.unit), help)
                    }
                }
            }
        });
    }

    /// Publishes what came since the last call, at first since the log was opened. A value of a
    /// histogram counts as the largest of its bucket, at most an eighth too large.
    pub fn publish(&mut self, wal: &Wal) {
        let stats = wal.stats();
        with_recorder(|recorder| {
            METRICS.iter().for_each(|metric| self.record(recorder, metric, &stats));
        });
        self.last = Some(stats);
    }

    fn record(&self, recorder: &dyn Recorder, metric: &Metric, stats: &Stats) {
        const METADATA: Metadata<'_> = Metadata::new("palisade", Level::INFO, Some(module_path!()));
        let key = Key::from_parts(metric.name, self.labels.clone());
        match metric.value {
            Value::Counter(read) => {
                let before = self.last.as_ref().map_or(0, read);
                let counter = recorder.register_counter(&key, &METADATA);
                counter.increment(read(stats).saturating_sub(before));
            }
            Value::Gauge(read) => recorder.register_gauge(&key, &METADATA).set(read(stats) as f64),
            Value::Histogram(read) => {
                let histogram = recorder.register_histogram(&key, &METADATA);
                let all = read(stats);
                let new = self.last.as_ref().map_or(all.clone(), |last| all.since(read(last)));
                for (values, count) in new.buckets() {
                    let largest = *values.end().min(&all.max());
                    histogram.record_many(largest as f64, count as usize);
                }
            }
        }
    }
}

struct Metric {
    name: &'static str,
    unit: Unit,
    meaning: &'static str,
    value: Value,
}

#[derive(Clone, Copy)]
enum Value {
    Counter(fn(&Stats) -> u64),
    Gauge(fn(&Stats) -> u64),
    Histogram(fn(&Stats) -> &Histogram),
}

macro_rules! metrics {
    ($($kind:ident $field:ident $unit:ident, $meaning:literal;)*) => {
        &[$(Metric {
            name: concat!("palisade_", stringify!($field)),
            unit: Unit::$unit,
            meaning: $meaning,
            value: metrics!(@ $kind $field),
        }),*]
    };
    (@ histogram $field:ident) => { Value::Histogram(|stats| &stats.$field) };
    (@ counter $field:ident) => { Value::Counter(|stats| stats.$field) };
    (@ lsn $field:ident) => { Value::Gauge(|stats| stats.$field.as_u64()) };
    (@ gauge $field:ident) => { Value::Gauge(|stats| stats.$field.into()) };
}

const METRICS: &[Metric] = metrics! {
    counter appends Count,
        "reservations handed to the operating system: records and batches, with paddings";
    counter appended_bytes Bytes,
        "bytes handed to the operating system, with headers and padding";
    counter writes Count,
        "calls of the store's write";
    counter syncs Count,
        "completed device syncs";
    counter synced_appends Count,
        "reservations that were written before those syncs began";
    gauge sync_ns Nanoseconds,
        "duration of a sync, smoothed over the last few";
    counter waits_for_room Count,
        "waits of appends for room in a full log buffer, those in progress included";
    lsn reserved Bytes,
        "LSN of the end of the last reservation";
    lsn filled Bytes,
        "LSN of the end of the longest prefix seen complete in the log buffer";
    lsn written Bytes,
        "LSN of the end of the prefix handed to the operating system";
    lsn durable Bytes,
        "LSN of the end of the prefix that survives power loss";
    lsn head Bytes,
        "LSN of the head: everything below was truncated";
    gauge waiters Count,
        "futures that wait and threads that sleep at this moment";
    gauge buffer_memory_bytes Bytes,
        "memory held by the log buffer and its slots";
    gauge appends_survive_kill Count,
        "1 if an append that returned survives the death of the process, else 0";
    gauge running_sync_ns Nanoseconds,
        "for how long the sync has been running that runs now; 0 if none runs";
    gauge oldest_not_durable_ns Nanoseconds,
        "least age of the oldest record that is not durable; 0 if all are";
    histogram commit_latency_ns Nanoseconds,
        "times that threads waited for a sync, of about one wait in 16";
    histogram sync_duration_ns Nanoseconds,
        "durations of completed device syncs";
    histogram append_stall_ns Nanoseconds,
        "times that appends waited for room in a full log buffer";
    histogram group_size Count,
        "reservations for each completed sync";
    histogram write_size_bytes Bytes,
        "bytes of each call of the store's write";
};
