//! Metrics of caches: the same metrics for all of them, with a `cache` label.

use super::{Metric, join, label};
use crate::device::Device;
use crate::kernel::{DiskTierState, KernelCache, KernelCacheStatistics};
use kiln_resource_cache::CacheMetrics;
use kiln_resource_cache::store::StoreStatistics;
use std::time::Duration;

/// The numbers that all caches have in common.
struct Numbers<'a> {
    /// Requests by outcome; outcomes that end in `hit` created nothing.
    requests: &'a [(&'a str, u64)],
    evictions: u64,
    entries: u64,
    bytes: u64,
    /// Mean times by outcome.
    times: &'a [(&'a str, Option<Duration>)],
}

/// Returns the metrics of all caches of a device, under the names of [`Device::caches`]. The kernel cache also reports
/// its tiers.
///
/// See [`device_metrics`](crate::metrics::device_metrics) for an example.
pub fn cache_metrics(device: &Device) -> Vec<Metric> {
    let mut all = Vec::new();
    // For the registry a disk hit is a miss, so the kernel cache reports its own outcomes.
    for (name, metrics) in device.caches().metrics_by_name() {
        join(
            &mut all,
            if name == KernelCache::NAME { device.kernel_cache_stats().metrics() } else { metrics_of(name, &metrics) },
        );
    }
    all
}

fn metrics_of(cache: &str, metrics: &CacheMetrics) -> Vec<Metric> {
    let numbers = Numbers {
        requests: &[("hit", metrics.hits), ("miss", metrics.misses)],
        evictions: metrics.evictions,
        entries: metrics.size as u64,
        bytes: metrics.bytes,
        times: &[("hit", metrics.mean_lookup_time), ("miss", metrics.mean_create_time)],
    };
    numbers.labelled(cache)
}

impl KernelCacheStatistics {
    /// Returns the metrics: the memory tier as cache `kernels`, an open disk tier as `kernel_store`.
    pub fn metrics(&self) -> Vec<Metric> {
        let numbers = Numbers {
            requests: &[
                ("memory_hit", self.memory_hits),
                ("disk_hit", self.disk_hits),
                ("compile", self.compiles),
                ("failure", self.failures),
            ],
            evictions: self.evictions,
            entries: self.entries as u64,
            bytes: self.bytes,
            times: &[
                ("memory_hit", self.mean_memory_hit),
                ("disk_hit", self.mean_disk_hit),
                ("compile", self.mean_compile),
            ],
        };
        let mut metrics = numbers.labelled(KernelCache::NAME);
        if let DiskTierState::Open { statistics } = &self.disk {
            join(&mut metrics, store_metrics("kernel_store", statistics, self.disk_entries_unusable));
        }
        metrics
    }
}

fn store_metrics(cache: &str, store: &StoreStatistics, unusable: u64) -> Vec<Metric> {
    let some = |time: Duration| (!time.is_zero()).then_some(time);
    let numbers = Numbers {
        requests: &[
            ("hit", store.hits),
            ("miss", store.misses),
            ("rejected", store.rejected_total()),
            ("unreadable", store.unreadable),
        ],
        evictions: store.evictions,
        entries: store.entries,
        bytes: store.bytes,
        times: &[("hit", some(store.mean_hit_time))],
    };
    let mut metrics = numbers.metrics();
    let puts = [("stored", store.puts), ("failed", store.put_failures), ("not_tried", store.puts_not_tried)];
    metrics.extend([
        Metric::counter("kiln_cache_puts_total", "Writes of entries to disk, by outcome.").by("outcome", &puts),
        Metric::counter("kiln_cache_unusable_total", "Valid entries that the device rejected.")
            .sample(&[], unusable as f64),
    ]);
    label(&mut metrics, "cache", cache);
    metrics
}

impl Numbers<'_> {
    fn metrics(&self) -> Vec<Metric> {
        let seconds = Metric::gauge("kiln_cache_request_seconds", "Mean time of a lookup, by outcome.");
        vec![
            Metric::counter("kiln_cache_requests_total", "Lookups, by outcome.").by("outcome", self.requests),
            self.times.iter().fold(seconds, |metric, (outcome, time)| match time {
                Some(time) => metric.sample(&[("outcome", outcome)], time.as_secs_f64()),
                None => metric,
            }),
            Metric::gauge("kiln_cache_entries", "Entries in the cache.").sample(&[], self.entries as f64),
            Metric::gauge("kiln_cache_bytes", "Bytes of all entries.").sample(&[], self.bytes as f64),
            Metric::counter("kiln_cache_evictions_total", "Evicted entries.").sample(&[], self.evictions as f64),
        ]
    }

    fn labelled(&self, cache: &str) -> Vec<Metric> {
        let mut metrics = self.metrics();
        label(&mut metrics, "cache", cache);
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_resource_cache::store::Writing;
    use std::collections::BTreeMap;

    /// Every number is exported once, under the right name.
    #[test]
    fn cache_metrics_are_exported() {
        let mut plans = CacheMetrics::default();
        (plans.size, plans.bytes, plans.hits, plans.misses, plans.evictions) = (1, 2, 3, 4, 5);
        plans.mean_create_time = Some(Duration::from_millis(6));
        let store = StoreStatistics {
            hits: 10,
            misses: 11,
            rejected: BTreeMap::new(),
            unreadable: 12,
            puts: 13,
            put_failures: 14,
            puts_not_tried: 15,
            evictions: 16,
            entries: 17,
            bytes: 18,
            mean_hit_time: Duration::from_millis(19),
            mean_put_time: Duration::ZERO,
            writing: Writing::On,
        };
        let kernels = KernelCacheStatistics {
            memory_hits: 20,
            disk_hits: 21,
            compiles: 22,
            failures: 23,
            disk_entries_unusable: 24,
            mean_memory_hit: None,
            mean_disk_hit: Some(Duration::from_millis(25)),
            mean_compile: Some(Duration::from_millis(26)),
            entries: 27,
            bytes: 28,
            evictions: 29,
            disk: DiskTierState::Open { statistics: store },
        };
        let mut metrics = metrics_of("plans", &plans);
        join(&mut metrics, kernels.metrics());
        insta::assert_snapshot!(super::super::to_prometheus(&metrics));
    }
}
