//! Failing sinks: lookups continue, every failure is counted, and the first is logged.

use crate::record::{Plans, Recorder, ask, quiet_cache};
use kiln_resource_cache::CacheRegistry;
use kiln_resource_cache::events::{CacheEvent, EventSink};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Returns an error every time.
struct Broken;

impl EventSink for Broken {
    fn record(&self, _: &CacheEvent) -> io::Result<()> {
        Err(io::Error::other("out of order"))
    }
}

/// Panics every time.
struct PanickingSink;

impl EventSink for PanickingSink {
    fn record(&self, _: &CacheEvent) -> io::Result<()> {
        panic!("the sink's own bug")
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_fails_no_lookup_is_counted_and_reported_once() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let sink = kiln_resource_cache::events::JsonlSink::new(full);
    assert_failures_are_counted_and_reported_once(sink, "No space left on device");
}

#[test]
fn a_sink_that_returns_errors_fails_no_lookup_is_counted_and_reported_once() {
    assert_failures_are_counted_and_reported_once(Broken, "out of order");
}

#[test]
fn a_sink_that_panics_fails_no_lookup_is_counted_and_reported_once() {
    assert_failures_are_counted_and_reported_once(PanickingSink, "the sink panicked");
}

#[test]
fn a_failing_sink_takes_nothing_from_the_others() {
    let recorders = [Recorder::default(), Recorder::default()];
    let registry = CacheRegistry::builder()
        .sink(recorders[0].clone())
        .sink(Broken)
        .sink(PanickingSink)
        .sink(recorders[1].clone())
        .build()
        .unwrap();
    let log = log_of(|| {
        for _ in 0..5 {
            registry.get_or_create::<Plans>(&1, None).unwrap();
        }
    });
    assert_eq!(recorders.map(|recorder| recorder.take().len()), [5, 5]);
    assert_eq!(registry.report().sink_failures, 10);
    assert_eq!(log.len(), 2, "each failing sink is reported: {log:?}");
}

/// Ten lookups and an eviction with this sink: eleven events.
fn assert_failures_are_counted_and_reported_once(sink: impl EventSink, expected: &str) {
    let cache = quiet_cache(sink);
    let log = log_of(|| {
        for failures in 1..=10 {
            ask(&cache, [1 + failures % 3]);
            assert_eq!(cache.sink_failures(), failures);
        }
        assert_eq!(cache.trim(0), 3);
    });
    assert_eq!(cache.sink_failures(), 11);
    let metrics = cache.metrics();
    assert_eq!((metrics.size, metrics.hits, metrics.misses), (0, 7, 3));
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!((log[0].level.as_str(), log[0].target.as_str()), ("WARN", "kiln_resource_cache::events"));
    assert_eq!(log[0].fields["message"], "an event sink of a cache failed; further failures are only counted");
    let error = log[0].fields["error"].as_str().unwrap();
    assert!(error.contains(expected), "{error}");
}

/// One `tracing` event.
#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) level: String,
    pub(crate) target: String,
    pub(crate) fields: Map<String, Value>,
}

/// Returns the `tracing` events of this thread while `work` runs.
pub(crate) fn log_of(work: impl FnOnce()) -> Vec<LogEntry> {
    let log = Arc::<Mutex<Vec<LogEntry>>>::default();
    tracing::subscriber::with_default(Collector(Arc::clone(&log)), work);
    std::mem::take(&mut log.lock().unwrap())
}

/// A `tracing` subscriber that collects events and ignores spans.
struct Collector(Arc<Mutex<Vec<LogEntry>>>);

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let (level, target) = (metadata.level().to_string(), metadata.target().to_owned());
        self.0.lock().unwrap().push(LogEntry { level, target, fields: fields.0 });
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Fields as JSON, so that a number recorded as text is visible.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn keep(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.keep(field, format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value);
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, value);
    }
}
