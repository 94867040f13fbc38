//! docs/observability.md names every field, metric, span and event, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use palisade::disk::MemDisk;
use palisade::sim::{CallKind, Effect, FaultDisk, Target};
use palisade::{MemStore, MetricsPublisher, Options, Wal};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

/// The cells of each row below the heading `section` whose first cell is code.
fn rows(section: &str) -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observability.md");
    let page = fs::read_to_string(page).unwrap();
    let heading = format!("\n## {section}\n");
    let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim_matches('|').replace('`', "");
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    section.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

fn in_memory() -> Wal {
    Wal::with_store(MemStore::new(1 << 20), Options::new().buffer_bytes(1 << 16)).unwrap()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Described {
    kind: &'static str,
    unit: Unit,
    meaning: String,
}

/// Keeps what it is given, by name.
#[derive(Default)]
struct Kept {
    described: Mutex<BTreeMap<String, Described>>,
    published: Mutex<BTreeMap<String, Arc<Values>>>,
}

#[derive(Default)]
struct Values {
    kind: Mutex<&'static str>,
    counter: AtomicU64,
    gauge: Mutex<f64>,
    histogram: Mutex<Vec<f64>>,
}

impl CounterFn for Values {
    fn increment(&self, value: u64) {
        // Relaxed: one thread publishes.
        self.counter.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, _value: u64) {
        panic!("a log that is opened again begins at 0");
    }
}

impl GaugeFn for Values {
    fn increment(&self, _value: f64) {
        panic!("a gauge is set");
    }

    fn decrement(&self, _value: f64) {
        panic!("a gauge is set");
    }

    fn set(&self, value: f64) {
        *self.gauge.lock().unwrap() = value;
    }
}

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.histogram.lock().unwrap().push(value);
    }
}

impl Kept {
    fn describe(&self, kind: &'static str, key: KeyName, unit: Option<Unit>, text: SharedString) {
        let described = Described { kind, unit: unit.unwrap(), meaning: text.into_owned() };
        let before = self.described.lock().unwrap().insert(key.as_str().to_owned(), described);
        assert_eq!(before, None);
    }

    fn values(&self, kind: &'static str, key: &Key) -> Arc<Values> {
        let labels: Vec<_> = key.labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!(labels, [("log", "orders")]);
        let mut published = self.published.lock().unwrap();
        let values = Arc::clone(published.entry(key.name().to_owned()).or_default());
        *values.kind.lock().unwrap() = kind;
        values
    }

    fn get(&self, name: &str) -> Arc<Values> {
        Arc::clone(&self.published.lock().unwrap()[name])
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("counter", key, unit, text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("gauge", key, unit, text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe("histogram", key, unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.values("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.values("gauge", key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::from_arc(self.values("histogram", key))
    }
}

#[test]
fn the_table_has_each_field_of_the_statistics_and_no_other() {
    // The fields of `Stats` are those of its `Debug` form; those of a `Histogram` are further in.
    let shown = format!("{:#?}", in_memory().stats());
    let is_field = |line: &&str| line.starts_with("    ") && !line.starts_with("     ");
    let lines = shown.lines().filter(is_field);
    let fields: BTreeSet<_> =
        lines.filter_map(|line| line.trim().split_once(':')).map(|(name, _)| name).collect();
    let rows = rows("Statistics");
    let names: BTreeSet<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names.len(), rows.len(), "a name has two rows");
    assert_eq!(names, fields);
}

#[test]
fn the_table_is_what_the_metrics_say_of_themselves() {
    let kept = Kept::default();
    let wal = in_memory();
    metrics::with_local_recorder(&kept, || {
        MetricsPublisher::describe();
        MetricsPublisher::new("orders").publish(&wal);
    });
    let unit = |name: &str| match name {
        "count" => Unit::Count,
        "bytes" => Unit::Bytes,
        "nanoseconds" => Unit::Nanoseconds,
        other => panic!("{other} is no unit"),
    };
    let mut rows = rows("Statistics");
    let mut described = kept.described.lock().unwrap().clone();
    for row in rows.drain(..) {
        let [field, kind, unit_name, meaning] = &row[..] else { panic!("{row:?}") };
        let name = format!("palisade_{field}");
        let found = described.remove(&name).unwrap_or_else(|| panic!("no metric {name}"));
        let row = (kind.as_str(), unit(unit_name), meaning.as_str());
        assert_eq!((found.kind, found.unit, found.meaning.as_str()), row, "{name}");
        assert_eq!(*kept.get(&name).kind.lock().unwrap(), found.kind, "{name}");
    }
    assert!(described.is_empty(), "metrics without a row: {described:?}");
    assert_eq!(kept.published.lock().unwrap().len(), kept.described.lock().unwrap().len());
}

#[test]
fn each_publication_adds_what_came_since_the_last_one() {
    let kept = Kept::default();
    let wal = in_memory();
    let mut publisher = MetricsPublisher::new("orders");
    for commits in [3, 0, 4] {
        let before = wal.stats();
        for _ in 0..commits {
            wal.commit(b"record").unwrap();
        }
        metrics::with_local_recorder(&kept, || publisher.publish(&wal));
        let stats = wal.stats();
        // Relaxed: one thread publishes.
        let syncs = kept.get("palisade_syncs").counter.load(Ordering::Relaxed);
        assert_eq!((syncs, stats.syncs), (stats.syncs, before.syncs + commits));
        let durations = kept.get("palisade_sync_duration_ns");
        assert_eq!(durations.histogram.lock().unwrap().len() as u64, stats.syncs);
        let sizes = kept.get("palisade_write_size_bytes");
        let bytes: f64 = sizes.histogram.lock().unwrap().iter().sum();
        let exact = stats.appended_bytes as f64;
        assert!((exact..=exact * 1.125).contains(&bytes), "{bytes} {exact}");
        let durable = *kept.get("palisade_durable").gauge.lock().unwrap();
        assert_eq!(durable, stats.durable.as_u64() as f64);
    }
}

/// The spans and events that came, by name: the kind, and the fields.
type Named = BTreeMap<String, (String, BTreeSet<String>)>;

#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Named>>);

impl Trace {
    fn note(&self, metadata: &tracing::Metadata<'_>, is_span: bool) {
        let level = metadata.level().to_string();
        let kind = if is_span { "span".to_owned() } else { level.clone() };
        assert!(!is_span || level == "INFO");
        let fields = metadata.fields().iter().map(|field| field.name().to_owned());
        let fields = fields.filter(|name| name != "message").collect();
        self.0.lock().unwrap().insert(metadata.name().to_owned(), (kind, fields));
    }
}

impl Subscriber for Trace {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "palisade"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata(), true);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut NotEmpty);
        self.note(event.metadata(), false);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct NotEmpty;

impl Visit for NotEmpty {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        assert_ne!(format!("{value:?}"), "", "{field}");
    }
}

/// Does everything that the table names: the only user of the process's subscriber.
#[test]
fn the_table_has_each_span_and_event_and_no_other() {
    let trace = Trace::default();
    tracing::subscriber::set_global_default(trace.clone()).unwrap();
    let disk = FaultDisk::new(Arc::new(MemDisk::new()));
    let options = Options::new().segment_bytes(1 << 16).buffer_bytes(1 << 16);
    let options = options.soft_limit(1, drop);
    let open = || options.open_on(Arc::new(disk.clone()), "/log").unwrap();
    let wal = open();
    let mut kept = wal.commit(b"first").unwrap();
    for _ in 0..8 {
        kept = wal.commit(&[1; 20_000]).unwrap();
    }
    wal.checkpoint(kept).unwrap();
    wal.truncate_before(kept).unwrap();
    wal.truncate_before_in_background(kept).unwrap().wait().unwrap();
    drop(wal.append(b"overruled").unwrap());
    wal.truncate_after(kept).unwrap();
    let lsn = wal.replace_from(wal.reserved_lsn(), ["replaced"]).unwrap()[0];
    wal.truncate_from(lsn).unwrap();
    wal.close().unwrap();

    let wal = open();
    disk.set((CallKind::Sync, Target::Segment), Effect::Eio);
    wal.commit(b"lost").unwrap_err();
    wal.abandon();

    let seen = trace.0.lock().unwrap().clone();
    let row = |row: &Vec<String>| {
        let fields = row[2].split(' ').map(str::to_owned).collect();
        (row[0].clone(), (row[1].clone(), fields))
    };
    assert_eq!(seen, rows("Spans and events").iter().map(row).collect());
}
