//! Metrics of a pool.

use super::{Metric, label, to_prometheus};
use crate::pool::{ClassStatistics, PoolStatistics};

impl PoolStatistics {
    /// Formats the metrics in the Prometheus text format, with a `device` label.
    pub fn to_prometheus(&self, device: &str) -> String {
        let mut metrics = self.metrics();
        label(&mut metrics, "device", device);
        to_prometheus(&metrics)
    }

    /// Returns the metrics of the pool.
    pub fn metrics(&self) -> Vec<Metric> {
        [self.byte_metrics(), self.request_metrics(), self.class_metrics()].concat()
    }

    fn byte_metrics(&self) -> Vec<Metric> {
        let gauge = |name, help, value: u64| Metric::gauge(name, help).sample(&[], value as f64);
        let driver = Metric::gauge("kiln_pool_driver_bytes", "Bytes in use, as reported by the driver.");
        vec![
            Metric::gauge("kiln_pool_bytes", "Bytes of the pool, by state.").by(
                "state",
                &[
                    ("in_use", self.bytes_in_use),
                    ("cached", self.bytes_cached - self.bytes_pending),
                    ("pending", self.bytes_pending),
                    ("unused_slots", self.bytes_unused_slots),
                ],
            ),
            gauge(
                "kiln_pool_reserved_bytes",
                "Bytes allocated from the driver: the sum of kiln_pool_bytes.",
                self.bytes_reserved,
            ),
            gauge("kiln_pool_padding_bytes", "Bytes in use beyond the requested ones.", self.padding_bytes),
            Metric::gauge("kiln_pool_peak_bytes", "Peak bytes, by state.")
                .by("state", &[("in_use", self.peak_bytes), ("reserved", self.peak_reserved_bytes)]),
            gauge("kiln_pool_budget_bytes", "The maximum of reserved bytes.", self.budget_bytes),
            match self.driver_bytes {
                Some(bytes) => driver.sample(&[], bytes as f64),
                None => driver,
            },
            Metric::gauge("kiln_pool_pressure_ratio", "Reserved share of the budget, 0 to 1.")
                .sample(&[], self.pressure),
            Metric::gauge("kiln_pool_fragmentation_ratio", "Fragmentation of the free bytes, 0 to 1.")
                .sample(&[], self.fragmentation_percent / 100.0),
            gauge("kiln_pool_live_buffers", "Live buffers.", self.live_buffers),
        ]
    }

    fn request_metrics(&self) -> Vec<Metric> {
        let counter = |name, help, value: u64| Metric::counter(name, help).sample(&[], value as f64);
        vec![
            Metric::counter("kiln_pool_requests_total", "Requests, by source.").by(
                "source",
                &[("reused", self.reuse_count), ("carved", self.carved_count), ("driver", self.driver_request_count)],
            ),
            Metric::counter("kiln_pool_driver_operations_total", "Driver calls, by operation.").by(
                "operation",
                &[
                    ("allocate", self.driver_allocation_count),
                    ("release", self.driver_release_count),
                    ("refuse", self.driver_failure_count),
                ],
            ),
            counter(
                "kiln_pool_out_of_memory_total",
                "Requests that failed for lack of memory.",
                self.out_of_memory_count,
            ),
            counter(
                "kiln_pool_pressure_cleanups_total",
                "Cleanups under memory pressure.",
                self.pressure_cleanup_count,
            ),
            counter("kiln_pool_violations_total", "Violations found by debug checks.", self.violation_count),
            Metric::gauge("kiln_pool_request_seconds", "Mean time of a request, by source.")
                .sample(&[("source", "reused")], self.mean_hit_nanos * 1e-9)
                .sample(&[("source", "missed")], self.mean_miss_nanos * 1e-9),
        ]
    }

    fn class_metrics(&self) -> Vec<Metric> {
        let by_class = |metric: Metric, value: fn(&ClassStatistics) -> u64| {
            self.classes.iter().fold(metric, |metric, class| {
                let size = if class.direct { "direct".to_owned() } else { class.class_bytes.to_string() };
                metric.sample(&[("class", &size), ("usage", &class.usage.to_string())], value(class) as f64)
            })
        };
        vec![
            by_class(Metric::counter("kiln_pool_class_requests_total", "Requests, by class."), |class| {
                class.allocation_count
            }),
            by_class(
                Metric::counter("kiln_pool_class_reused_total", "Requests served by a free block, by class."),
                |class| class.reuse_count,
            ),
            by_class(Metric::gauge("kiln_pool_class_cached_blocks", "Free blocks, by class."), |class| {
                class.cached_blocks
            }),
        ]
    }
}
