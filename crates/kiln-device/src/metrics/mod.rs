//! The numbers of a device as metrics: name, kind, help, labels, value.
//!
//! Every metric is declared once, in the file of its subject: `device`, `pool`, `caches`, `kernels`. [`to_prometheus`]
//! and [`to_json`] format these values. Names are a stable interface: they begin with `kiln_`, counters end in
//! `_total`, and units are part of the name.

mod caches;
mod device;
mod kernels;
mod pool;

pub use caches::cache_metrics;
pub use device::device_metrics;
pub use kernels::KernelLabels;

use serde::{Serialize, Serializer};
use std::fmt::Write as _;

/// A metric with its samples.
///
/// ```
/// use kiln_device::metrics::{Metric, MetricKind, join, label, to_json, to_prometheus};
///
/// let mut metrics = vec![Metric::counter("a_total", "Things.").sample(&[], 1.0)];
/// label(&mut metrics, "device", "cpu");
/// join(&mut metrics, vec![Metric::gauge("b_bytes", "Bytes.").sample(&[], 3.0)]);
/// assert_eq!((metrics[0].kind, metrics[0].samples[0].value), (MetricKind::Counter, 1.0));
/// assert!(to_prometheus(&metrics).contains("a_total{device=\"cpu\"} 1"));
/// assert!(to_json(&metrics).contains(r#""kind":"gauge""#));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[must_use]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// The description, in one sentence.
    pub help: &'static str,
    /// The values, one for each set of labels. A metric without samples is not exported.
    pub samples: Vec<Sample>,
}

/// The kind of a metric.
///
/// See [`Metric`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// Only increases.
    Counter,
    /// Increases and decreases.
    Gauge,
}

/// A value with its labels.
///
/// See [`Metric`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The name and value of each label.
    #[serde(serialize_with = "as_map")]
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

impl Metric {
    /// Creates a counter without samples.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Counter, help, samples: Vec::new() }
    }

    /// Creates a gauge without samples.
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricKind::Gauge, help, samples: Vec::new() }
    }

    /// Adds a sample.
    pub fn sample(mut self, labels: &[(&'static str, &str)], value: f64) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        self.samples.push(Sample { labels, value });
        self
    }

    /// Adds a sample for each value of a label.
    pub fn by(self, label: &'static str, rows: &[(&str, u64)]) -> Self {
        rows.iter().fold(self, |metric, (value, number)| metric.sample(&[(label, value)], *number as f64))
    }
}

/// Prepends a label to those of every sample.
///
/// See [`Metric`] for an example.
pub fn label(metrics: &mut [Metric], name: &'static str, value: &str) {
    for sample in metrics.iter_mut().flat_map(|metric| &mut metric.samples) {
        sample.labels.insert(0, (name, value.to_string()));
    }
}

/// Appends metrics to others. Samples are added to the metric of the same name, in order.
///
/// See [`Metric`] for an example.
pub fn join(all: &mut Vec<Metric>, more: Vec<Metric>) {
    for metric in more {
        match all.iter_mut().find(|known| known.name == metric.name) {
            Some(known) => known.samples.extend(metric.samples),
            None => all.push(metric),
        }
    }
}

/// Formats metrics in the Prometheus text format, version 0.0.4.
///
/// `metrics-exporter-prometheus` is not used: its counters are integers, but seconds are not; its order is that of a
/// hash map; and it adds about twenty crates.
///
/// See [`Metric`] for an example.
pub fn to_prometheus(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for Metric { name, kind, help, samples } in metrics.iter().filter(|metric| !metric.samples.is_empty()) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Sample { labels, value } in samples {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
            let braces = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "{name}{braces} {value}");
        }
    }
    text
}

/// Formats metrics as JSON, which `kiln top` reads.
///
/// `{"format":1,"metrics":[{"name":…,"kind":"counter","help":…,"samples":[{"labels":{"device":"cpu"},"value":3.0}]}]}`.
/// A value that is not finite is `null`. Fields may be added without a new format number.
///
/// See [`Metric`] for an example.
pub fn to_json(metrics: &[Metric]) -> String {
    let metrics: Vec<&Metric> = metrics.iter().filter(|metric| !metric.samples.is_empty()).collect();
    serde_json::json!({ "format": 1, "metrics": metrics }).to_string()
}

fn as_map<S: Serializer>(labels: &[(&'static str, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter().map(|(name, value)| (name, value)))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_are_one_group_and_labels_are_escaped() {
        let of = |device: &str, count: f64| {
            let mut metrics = vec![
                Metric::counter("a_total", "Things.").sample(&[], count),
                Metric::gauge("b_bytes", "Bytes.").by("state", &[("in_use", 3), ("cached", 0)]),
                Metric::gauge("c_bytes", "Without samples."),
            ];
            label(&mut metrics, "device", device);
            metrics
        };
        let mut all = of("cpu", 1.0);
        join(&mut all, of("a \"b\" \\ c\nd", 0.25));
        assert_eq!(
            to_prometheus(&all),
            "# HELP a_total Things.\n# TYPE a_total counter\n\
             a_total{device=\"cpu\"} 1\na_total{device=\"a \\\"b\\\" \\\\ c\\nd\"} 0.25\n\
             # HELP b_bytes Bytes.\n# TYPE b_bytes gauge\n\
             b_bytes{device=\"cpu\",state=\"in_use\"} 3\nb_bytes{device=\"cpu\",state=\"cached\"} 0\n\
             b_bytes{device=\"a \\\"b\\\" \\\\ c\\nd\",state=\"in_use\"} 3\n\
             b_bytes{device=\"a \\\"b\\\" \\\\ c\\nd\",state=\"cached\"} 0\n"
        );
        assert_eq!(
            to_prometheus(&[Metric::gauge("d_ratio", "One.").sample(&[], 1.0)]).lines().last(),
            Some("d_ratio 1")
        );
        let json: serde_json::Value = serde_json::from_str(&to_json(&all)).unwrap();
        let names: Vec<_> = json["metrics"].as_array().unwrap().iter().map(|metric| &metric["name"]).collect();
        assert_eq!(names, ["a_total", "b_bytes"], "without the metric that has no samples");
        assert_eq!(json["metrics"][0]["samples"][1]["labels"]["device"], "a \"b\" \\ c\nd");
        assert_eq!(json["metrics"][0]["samples"][1]["value"], 0.25);
        assert_eq!((&json["format"], &json["metrics"][1]["kind"]), (&1.into(), &"gauge".into()));
        let nan = to_json(&[Metric::gauge("d_ratio", "One.").sample(&[], f64::NAN)]);
        assert!(nan.contains(r#""value":null"#), "{nan}");
    }
}
