//! Publishes Kiln's metrics to the recorder of the `metrics` crate.

use super::{Metric, MetricKind, Sample};
use metrics::{Key, Label, Level, Metadata, Recorder, Unit, with_recorder};

static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Sends the metrics to the local recorder of this thread, or to the global one if the thread has none.
pub(super) fn publish(metrics: &[Metric]) {
    with_recorder(|recorder| metrics.iter().for_each(|metric| record(recorder, metric)));
}

fn record(recorder: &dyn Recorder, metric: &Metric) {
    let unit = unit(metric.name);
    // Counters of the `metrics` crate are integers, so sums of seconds become gauges.
    let is_counter = metric.kind == MetricKind::Counter && unit != Some(Unit::Seconds);
    if is_counter {
        recorder.describe_counter(metric.name.into(), unit, metric.help.into());
    } else {
        recorder.describe_gauge(metric.name.into(), unit, metric.help.into());
    }
    for Sample { labels, value } in &metric.samples {
        let labels: Vec<Label> = labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
        let key = Key::from_parts(metric.name, labels);
        if is_counter {
            // `absolute`, because samples are totals since the start and not increments.
            recorder.register_counter(&key, &METADATA).absolute(*value as u64);
        } else {
            recorder.register_gauge(&key, &METADATA).set(*value);
        }
    }
}

/// Returns the unit of a metric: the last word of its name, ignoring `total`.
fn unit(name: &str) -> Option<Unit> {
    match name.strip_suffix("_total").unwrap_or(name).rsplit('_').next() {
        Some("seconds") => Some(Unit::Seconds),
        Some("bytes") => Some(Unit::Bytes),
        _ => None,
    }
}
