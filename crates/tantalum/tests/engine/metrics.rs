//! The statistics as metrics: their names, kinds and values, and the page that lists them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use tantalum::{Db, StoreKind};

use crate::support::put;

/// Metrics by name and labels: the kind, and the value that was recorded last.
type Recorded = BTreeMap<(String, Vec<String>), (&'static str, f64)>;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Recorded>>);

/// One metric.
struct Cell {
    memory: Memory,
    key: (String, Vec<String>),
    kind: &'static str,
}

impl Cell {
    fn record(&self, value: f64) {
        self.memory.0.lock().unwrap().insert(self.key.clone(), (self.kind, value));
    }
}

impl CounterFn for Cell {
    fn increment(&self, _value: u64) {
        panic!("counts are absolute");
    }

    fn absolute(&self, value: u64) {
        self.record(value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _value: f64) {
        panic!("gauges are set");
    }

    fn decrement(&self, _value: f64) {
        panic!("gauges are set");
    }

    fn set(&self, value: f64) {
        self.record(value);
    }
}

impl Memory {
    fn cell(&self, key: &Key, kind: &'static str) -> Arc<Cell> {
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell { memory: self.clone(), key: (key.name().to_owned(), labels), kind })
    }

    fn of(db: &Db) -> Recorded {
        let memory = Self::default();
        with_local_recorder(&memory, || db.stats().unwrap().record_metrics("orders").unwrap());
        let recorded = memory.0.lock().unwrap();
        recorded.clone()
    }
}

impl Recorder for Memory {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key, "gauge"))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("there are no histograms");
    }
}

#[test]
fn statistics_are_recorded_as_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(4 << 20).log_devices(["a", "b"]).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    put(&db, &table, &[("a", "1")]);
    let stats = db.stats().unwrap();
    let recorded = Memory::of(&db);
    let get = |name: &str, more: &[String]| {
        let labels: Vec<String> = ["database=orders".to_owned()].into_iter().chain(more.iter().cloned()).collect();
        recorded[&(name.to_owned(), labels)]
    };
    assert_eq!(get("tantalum_transactions_commits", &[]), ("counter", stats.transactions.commits as f64));
    assert_eq!(get("tantalum_pool_hits", &[]).0, "counter");
    assert_eq!(get("tantalum_pool_frames", &[]), ("gauge", stats.pool.frames as f64));
    assert_eq!(get("tantalum_log_hides", &[]).0, "gauge");
    for device in &stats.log.devices {
        let (kind, writes) = get("tantalum_log_devices_writes", &[format!("name={}", device.name)]);
        assert!(kind == "counter" && writes >= device.writes as f64, "{recorded:?}");
    }
    assert!(!recorded.keys().any(|(name, _)| name == "tantalum_page_store"), "a text is no metric");
}

const HEAD: &str = "\
# Metrics and spans

With the feature `metrics`, `db.stats()?.record_metrics(\"orders\")?` gives every number of the statistics to the recorder of the crate
[metrics](https://docs.rs/metrics): to Prometheus, StatsD or another, by an exporter of your choice. Call it whenever the exporter is
asked, or every few seconds. It takes no locks of commits, and nothing is recorded between calls.

With the feature `spans`, opening a database, commits, flushes of the log and checkpoints are spans of
[tracing](https://docs.rs/tracing), of the level `DEBUG` and the target `tantalum`: `open`, `commit`, `flush` within it, `checkpoint`.
Without it, only events are there: what happens rarely, and what goes wrong.

Each metric bears a label `database`, and those of a log device a label `name` with its path. Their meanings are
those of [the fields of `db stat`](json.md#stats), whose names are joined by `_`: `tantalum_log_devices_busy_us` is `busy_us` of an element
of `devices` of `log`. A unit stands at the end of a name. Counters begin at 0 when the database is opened.

This table is generated: `WRITE_DOCS=1 cargo test -p tantalum --test engine metrics`.

| metric | kind |
|---|---|
";

#[test]
fn the_page_on_metrics_lists_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut found = BTreeMap::new();
    for (number, store) in StoreKind::ALL.into_iter().enumerate() {
        let path = dir.path().join(number.to_string());
        let mut builder = Db::builder().log_bytes(4 << 20).page_store(store);
        if store != StoreKind::InPageLogging {
            builder = builder.log_archive(path.join("archive"));
        }
        let db = builder.open(&path).unwrap();
        for ((name, _), (kind, _)) in Memory::of(&db) {
            let before = found.insert(name.clone(), kind);
            assert!(before.is_none_or(|before| before == kind), "{name} is of one kind");
        }
    }
    let rows: String = found.iter().map(|(name, kind)| format!("| `{name}` | {kind} |\n")).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/metrics.md");
    if std::env::var_os("WRITE_DOCS").is_some() {
        fs::write(&page, format!("{HEAD}{rows}")).unwrap();
    }
    let is_same = fs::read_to_string(&page).is_ok_and(|text| text == format!("{HEAD}{rows}"));
    assert!(is_same, "docs/use/metrics.md is old: WRITE_DOCS=1 cargo test -p tantalum --test engine metrics");
}
