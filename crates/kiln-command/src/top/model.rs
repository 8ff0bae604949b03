//! The devices of a process, as data.

use crate::terminal::plain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Snapshot {
    pub(super) version: String,
    pub(super) pid: String,
    pub(super) devices: Vec<Device>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Device {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) driver: String,
    /// Whether it is open; a closed device keeps its last numbers.
    pub(super) open: bool,
    pub(super) pool: Pool,
    pub(super) caches: Vec<Cache>,
    pub(super) kernels: Vec<Kernel>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Pool {
    pub(super) in_use_bytes: u64,
    /// Free and cached for the next request.
    pub(super) cached_bytes: u64,
    /// Free once submitted work has completed.
    pub(super) pending_bytes: u64,
    pub(super) unused_bytes: u64,
    pub(super) reserved_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) budget_bytes: u64,
    pub(super) live_buffers: u64,
    pub(super) requests: u64,
    /// Requests served by a reused block.
    pub(super) reused: u64,
    pub(super) out_of_memory: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Cache {
    pub(super) name: String,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) entries: u64,
    /// Size, if the cache tracks it.
    pub(super) bytes: Option<u64>,
    pub(super) evictions: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Kernel {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) totals: KernelTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct KernelTotals {
    pub(super) launches: f64,
    /// Launches with a known time.
    pub(super) timed: f64,
    pub(super) seconds: f64,
    pub(super) bytes: f64,
    pub(super) operations: f64,
}

/// The displayed part of `kiln::metrics::Watch::to_json`.
#[derive(Deserialize)]
struct Document {
    metrics: Vec<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    name: String,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    labels: BTreeMap<String, String>,
    /// `None` if the number is not finite.
    value: Option<f64>,
}

impl Snapshot {
    /// Parses the JSON of `kiln::metrics`; `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let Document { metrics } = serde_json::from_str(text).ok()?;
        let info = metrics.iter().find(|metric| metric.name == "kiln_info")?.samples.first()?;
        let mut snapshot = Self { version: get(info, "version"), pid: get(info, "pid"), devices: Vec::new() };
        for Metric { name, samples } in &metrics {
            for sample in samples {
                let id = get(sample, "device");
                if !id.is_empty() {
                    entry(&mut snapshot.devices, &id, |device| &device.id, |id| Device { id, ..Device::default() })
                        .take(name, sample);
                }
            }
        }
        Some(snapshot)
    }
}

impl Sample {
    fn number(&self) -> f64 {
        self.value.unwrap_or(0.0)
    }

    fn count(&self) -> u64 {
        self.number() as u64
    }
}

impl Device {
    fn take(&mut self, name: &str, sample: &Sample) {
        let Some(name) = name.strip_prefix("kiln_") else { return };
        match name.split_once('_') {
            Some(("device", "open")) => self.open = sample.number() > 0.0,
            Some(("device", "info")) => {
                (self.name, self.kind) = (get(sample, "name"), get(sample, "kind"));
                self.driver = format!("{} {}", get(sample, "driver"), get(sample, "driver_version"));
            }
            Some(("pool", _)) => self.pool.take(name, sample),
            Some(("cache", _)) => {
                let cache = get(sample, "cache");
                entry(&mut self.caches, &cache, |cache| &cache.name, |name| Cache { name, ..Cache::default() })
                    .take(name, sample);
            }
            Some(("kernel", _)) => {
                let kernel = get(sample, "kernel");
                entry(&mut self.kernels, &kernel, |kernel| &kernel.name, |name| Kernel { name, ..Kernel::default() })
                    .totals
                    .take(name, sample.number());
            }
            _ => {}
        }
    }

    pub(super) fn totals(&self) -> KernelTotals {
        self.kernels.iter().fold(KernelTotals::default(), |sum, kernel| sum.plus(&kernel.totals))
    }
}

impl Pool {
    fn take(&mut self, name: &str, sample: &Sample) {
        let value = sample.count();
        match (name, sample.labels.get("state").or(sample.labels.get("source")).map(String::as_str)) {
            ("pool_bytes", Some("in_use")) => self.in_use_bytes = value,
            ("pool_bytes", Some("cached")) => self.cached_bytes = value,
            ("pool_bytes", Some("pending")) => self.pending_bytes = value,
            ("pool_bytes", Some("unused_slots")) => self.unused_bytes = value,
            ("pool_reserved_bytes", _) => self.reserved_bytes = value,
            ("pool_peak_bytes", Some("reserved")) => self.peak_bytes = value,
            ("pool_budget_bytes", _) => self.budget_bytes = value,
            ("pool_live_buffers", _) => self.live_buffers = value,
            ("pool_requests_total", source) => {
                self.requests = self.requests.saturating_add(value);
                if source == Some("reused") {
                    self.reused = value;
                }
            }
            ("pool_out_of_memory_total", _) => self.out_of_memory = value,
            _ => {}
        }
    }

    /// Returns the fraction of requests that reused a block, since the process began.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        share(self.reused, self.requests)
    }
}

impl Cache {
    fn take(&mut self, name: &str, sample: &Sample) {
        let value = sample.count();
        match name {
            // Added up, because several outcomes end in `hit`.
            "cache_requests_total" if get(sample, "outcome").ends_with("hit") => {
                self.hits = self.hits.saturating_add(value);
            }
            "cache_requests_total" => self.misses = self.misses.saturating_add(value),
            "cache_entries" => self.entries = value,
            "cache_bytes" => self.bytes = Some(value),
            "cache_evictions_total" => self.evictions = value,
            _ => {}
        }
    }

    /// Returns the fraction of lookups that hit, since the process began.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        share(self.hits, self.hits.saturating_add(self.misses))
    }
}

impl KernelTotals {
    fn take(&mut self, name: &str, value: f64) {
        match name {
            "kernel_launches_total" => self.launches = value,
            "kernel_timed_launches_total" => self.timed = value,
            "kernel_seconds_total" => self.seconds = value,
            "kernel_bytes_total" => self.bytes = value,
            "kernel_operations_total" => self.operations = value,
            _ => {}
        }
    }

    fn each(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            launches: of(self.launches, other.launches),
            timed: of(self.timed, other.timed),
            seconds: of(self.seconds, other.seconds),
            bytes: of(self.bytes, other.bytes),
            operations: of(self.operations, other.operations),
        }
    }

    fn plus(&self, other: &Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    /// Returns the difference since `earlier`; everything if the counters were reset in between.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        if self.launches < earlier.launches { *self } else { self.each(earlier, |now, before| (now - before).max(0.0)) }
    }

    /// Returns bytes or operations per second of device time; `None` if no time is known.
    pub(super) fn per_second(&self, amount: f64) -> Option<f64> {
        // The amounts include untimed launches, so they are scaled down.
        let timed = amount * self.timed / self.launches;
        (self.seconds > 0.0 && self.launches > 0.0).then(|| timed / self.seconds)
    }

    /// Returns the mean time of a launch in seconds, if known.
    pub(super) fn mean_seconds(&self) -> Option<f64> {
        (self.timed > 0.0).then(|| self.seconds / self.timed)
    }
}

/// Returns `part` as a fraction of `whole`; `None` if `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn get(sample: &Sample, label: &str) -> String {
    plain(sample.labels.get(label).map_or("", String::as_str))
}

/// Returns the item with this name, inserting it if missing.
fn entry<'a, T>(items: &'a mut Vec<T>, name: &str, of: fn(&T) -> &String, new: impl FnOnce(String) -> T) -> &'a mut T {
    let found = items.iter().position(|item| of(item) == name).unwrap_or(items.len());
    if found == items.len() {
        items.push(new(name.to_string()));
    }
    &mut items[found]
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::rates::View;
    use super::super::text::Page;
    use super::*;
    use crate::terminal::Report as _;
    use proptest::prelude::*;

    /// Two active devices, in the library's JSON format.
    pub(crate) const TEXT: &str = include_str!("../../tests/fixtures/metrics.json");

    #[test]
    fn a_text_becomes_devices_with_pools_caches_and_kernels() {
        let snapshot = Snapshot::parse(TEXT).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&snapshot).unwrap());
        for text in ["", "up 1\n", "{}", "[]", r#"{"metrics":[]}"#, r#"{"metrics":[{"name":"up","samples":[]}]}"#] {
            assert_eq!(Snapshot::parse(text), None, "{text}");
        }
        let cut = &TEXT[..TEXT.len() / 2];
        assert_eq!(Snapshot::parse(cut), None, "a part of a file");
    }

    #[test]
    fn rates_are_those_of_timed_launches_and_counters_may_begin_anew() {
        let totals = KernelTotals { launches: 10.0, timed: 5.0, seconds: 2.0, bytes: 100.0, operations: 40.0 };
        assert_eq!((totals.per_second(totals.bytes), totals.mean_seconds()), (Some(25.0), Some(0.4)));
        assert_eq!(KernelTotals::default().per_second(0.0), None);
        let later = KernelTotals { launches: 12.0, ..totals };
        assert_eq!(later.since(&totals), KernelTotals { launches: 2.0, ..KernelTotals::default() });
        let restarted = KernelTotals { launches: 1.0, ..KernelTotals::default() };
        assert_eq!(restarted.since(&totals), restarted);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "\\PC*", at in 0..TEXT.len(), byte in any::<u8>()) {
            Snapshot::parse(&text);
            let mut damaged = TEXT.as_bytes().to_vec();
            damaged[at] = byte;
            Snapshot::parse(&String::from_utf8_lossy(&damaged));
        }

        #[test]
        fn any_samples_are_survived(samples in proptest::collection::vec(
            (
                "kiln_(device_(open|info)|pool_(bytes|requests_total)|cache_(bytes|requests_total)|kernel_seconds_total)",
                "(cache|kernel|state|outcome)",
                "(\\PC|\x1b)",
                "[ab]",
                "(-?[1-9][0-9]{0,25}|null|1e308)",
            ),
            0..20,
        )) {
            let metric = |(name, label, value, device, number): &(String, String, String, String, String)| {
                let labels = serde_json::json!({ label: value, "device": device });
                format!(r#"{{"name":"{name}","samples":[{{"labels":{labels},"value":{number}}}]}}"#)
            };
            let info = r#"{"name":"kiln_info","samples":[{"labels":{"pid":"1"},"value":1}]}"#.to_string();
            let metrics: Vec<String> = [info].into_iter().chain(samples.iter().map(metric)).collect();
            let snapshot = Snapshot::parse(&format!(r#"{{"metrics":[{}]}}"#, metrics.join(",")));
            prop_assert!(snapshot.is_some());
            let snapshot = snapshot.unwrap_or_default();
            let page = Page(View::new(snapshot, None)).text();
            prop_assert!(!page.contains('\x1b'), "nothing steers the terminal: {page:?}");
        }
    }
}
