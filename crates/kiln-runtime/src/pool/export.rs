//! The numbers of a pool as Prometheus text.

use super::statistics::PoolStatistics;
use std::fmt::Write as _;

impl PoolStatistics {
    /// The numbers in the Prometheus text format, each line with a `device` label.
    pub fn to_prometheus(&self, device: &str) -> String {
        let device = escape(device);
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, lines: &[(String, f64)]| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in lines {
                let _ = writeln!(text, "{name}{{device=\"{device}\"{labels}}} {value}");
            }
        };
        let by = |label: &str, rows: &[(&str, u64)]| -> Vec<(String, f64)> {
            rows.iter().map(|(value, number)| (format!(",{label}=\"{value}\""), *number as f64)).collect()
        };
        let one = |value: f64| vec![(String::new(), value)];

        metric(
            "kiln_pool_bytes",
            "gauge",
            "Bytes by what they are used for.",
            &by(
                "state",
                &[
                    ("in_use", self.bytes_in_use),
                    ("cached", self.bytes_cached - self.bytes_pending),
                    ("pending", self.bytes_pending),
                    ("unused_slots", self.bytes_unused_slots),
                ],
            ),
        );
        let reserved = self.bytes_reserved as f64;
        metric(
            "kiln_pool_reserved_bytes",
            "gauge",
            "Bytes held from the driver: the sum of kiln_pool_bytes.",
            &one(reserved),
        );
        let padding = self.padding_bytes as f64;
        metric("kiln_pool_padding_bytes", "gauge", "Bytes in use that nobody asked for.", &one(padding));
        metric(
            "kiln_pool_peak_bytes",
            "gauge",
            "The most bytes at once.",
            &by("state", &[("in_use", self.peak_bytes), ("reserved", self.peak_reserved_bytes)]),
        );
        metric(
            "kiln_pool_budget_bytes",
            "gauge",
            "The most bytes the pool may reserve.",
            &one(self.budget_bytes as f64),
        );
        if let Some(bytes) = self.driver_bytes {
            metric("kiln_pool_driver_bytes", "gauge", "Bytes that the driver counts itself.", &one(bytes as f64));
        }
        metric("kiln_pool_pressure_ratio", "gauge", "Share of the budget that is reserved.", &one(self.pressure));
        let scattered = self.fragmentation_percent / 100.0;
        metric("kiln_pool_fragmentation_ratio", "gauge", "How scattered the free bytes are.", &one(scattered));
        metric("kiln_pool_live_buffers", "gauge", "Buffers that are held.", &one(self.live_buffers as f64));
        metric(
            "kiln_pool_requests_total",
            "counter",
            "Requests by what served them.",
            &by(
                "source",
                &[("reused", self.reuse_count), ("carved", self.carved_count), ("driver", self.driver_request_count)],
            ),
        );
        metric(
            "kiln_pool_driver_operations_total",
            "counter",
            "Calls of the driver.",
            &by(
                "operation",
                &[
                    ("allocate", self.driver_allocation_count),
                    ("release", self.driver_release_count),
                    ("refuse", self.driver_failure_count),
                ],
            ),
        );
        let failed = self.out_of_memory_count as f64;
        metric("kiln_pool_out_of_memory_total", "counter", "Requests that failed for lack of memory.", &one(failed));
        let cleanups = self.pressure_cleanup_count as f64;
        metric("kiln_pool_pressure_cleanups_total", "counter", "Cleanups because of pressure.", &one(cleanups));
        let violations = self.violation_count as f64;
        metric("kiln_pool_violations_total", "counter", "Findings of the debug mode.", &one(violations));
        metric(
            "kiln_pool_request_seconds",
            "gauge",
            "Mean time of a request.",
            &[
                (",source=\"reused\"".into(), self.mean_hit_nanos * 1e-9),
                (",source=\"missed\"".into(), self.mean_miss_nanos * 1e-9),
            ],
        );
        let rows = |value: fn(&super::ClassStatistics) -> f64| -> Vec<(String, f64)> {
            let labels = |class: &super::ClassStatistics| {
                let size = if class.direct { "direct".to_owned() } else { class.class_bytes.to_string() };
                format!(",class=\"{size}\",usage=\"{}\"", class.usage)
            };
            self.classes.iter().map(|class| (labels(class), value(class))).collect()
        };
        let requests = rows(|class| class.allocation_count as f64);
        metric("kiln_pool_class_requests_total", "counter", "Requests by class.", &requests);
        let reused = rows(|class| class.reuse_count as f64);
        metric("kiln_pool_class_reused_total", "counter", "Requests served by a free block, by class.", &reused);
        let cached = rows(|class| class.cached_blocks as f64);
        metric("kiln_pool_class_cached_blocks", "gauge", "Free blocks by class.", &cached);
        text
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
