//! Metrics sent to a program's recorder of the `metrics` facade.

use crate::{cpu, work};
use kiln::metrics::Watch;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Record {
    described: Mutex<BTreeMap<String, (Option<Unit>, String)>>,
    values: Arc<Mutex<BTreeMap<String, f64>>>,
}

struct Cell(String, Arc<Mutex<BTreeMap<String, f64>>>);

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        *self.1.lock().unwrap().entry(self.0.clone()).or_default() += value as f64;
    }

    fn absolute(&self, value: u64) {
        self.1.lock().unwrap().insert(self.0.clone(), value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        *self.1.lock().unwrap().entry(self.0.clone()).or_default() += value;
    }

    fn decrement(&self, value: f64) {
        *self.1.lock().unwrap().entry(self.0.clone()).or_default() -= value;
    }

    fn set(&self, value: f64) {
        self.1.lock().unwrap().insert(self.0.clone(), value);
    }
}

impl Record {
    fn cell(&self, kind: &str, key: &Key) -> Arc<Cell> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell(format!("{kind} {} {}", key.name(), labels.join(" ")), Arc::clone(&self.values)))
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, help: &SharedString) {
        self.described.lock().unwrap().insert(name.as_str().to_string(), (unit, help.to_string()));
    }
}

impl Recorder for Record {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, unit, &help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, unit, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("expected no histogram, found {name:?}");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell("gauge", key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("expected no histogram, found {key:?}");
    }
}

#[test]
fn a_recorder_gets_what_the_text_says() {
    let device = cpu();
    let watch = Watch::new();
    watch.add(&device);
    work(&device).unwrap();
    work(&device).unwrap();
    let record = Record::default();
    metrics::with_local_recorder(&record, || watch.publish());
    let values = record.values.lock().unwrap();
    let get = |name: &str| values.get(name).copied();
    assert_eq!(get("counter kiln_cache_requests_total device=cpu cache=plans outcome=hit"), Some(1.0));
    assert_eq!(get("gauge kiln_device_open device=cpu"), Some(1.0));
    let seconds = values.iter().find(|(name, _)| name.contains("kiln_kernel_seconds_total")).unwrap();
    assert!(seconds.0.starts_with("gauge ") && *seconds.1 > 0.0 && *seconds.1 < 1.0, "{seconds:?}");
    let described = record.described.lock().unwrap();
    assert_eq!(described["kiln_pool_budget_bytes"].0, Some(Unit::Bytes));
    assert_eq!(described["kiln_kernel_seconds_total"].0, Some(Unit::Seconds));
    assert_eq!(described["kiln_cache_requests_total"], (None, "Lookups, by outcome.".to_string()));
    let series = watch.snapshot().iter().map(|metric| metric.samples.len()).sum::<usize>();
    assert_eq!(values.len(), series, "every sample, and nothing else");
}
