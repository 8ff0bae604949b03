//! A snapshot as plain text.

use super::model::{Cache, Device, Snapshot};
use super::rates::{KernelRates, Sort, View};
use super::units::{billions, bytes, count, percent, seconds, unknown};
use crate::terminal::{self, Report};
use serde::{Serialize, Serializer};

pub(super) struct Page(pub(super) View);

impl Serialize for Page {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.snapshot.serialize(serializer)
    }
}

impl Report for Page {
    fn text(&self) -> String {
        let Snapshot { version, pid, devices } = &self.0.snapshot;
        let pools = ["device", "in use", "cached", "reserved", "peak", "budget", "requests", "reused"];
        let caches = ["device", "cache", "hits", "misses", "hit rate", "entries", "bytes", "evictions"];
        let cache_rows = devices.iter().flat_map(|device| device.caches.iter().map(move |cache| (device, cache)));
        let kernels = ["device", "launches", "time", "mean", "GB/s", "GFLOP/s", "kernel"];
        let kernel_rows = self.0.sorted(Sort::Time).into_iter().map(kernel_row);
        [
            format!("kiln {version}, process {pid}, {}\n", terminal::count(devices.len() as u64, "device")),
            section(
                "devices",
                &["device", "name", "kind", "driver", "launches", "kernel time"],
                devices.iter().map(device_row),
            ),
            section("pools", &pools, devices.iter().map(pool_row)),
            section("caches", &caches, cache_rows.map(|(device, cache)| cache_row(device, cache))),
            section("kernels", &kernels, kernel_rows),
        ]
        .concat()
    }
}

/// Formats a table below its title; an empty string if it has no rows.
fn section(title: &str, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut rows = rows.peekable();
    if rows.peek().is_none() { String::new() } else { format!("\n{title}\n{}", terminal::table_of(columns, rows)) }
}

fn device_row(device: &Device) -> Vec<String> {
    let id = if device.open { device.id.clone() } else { format!("{} (closed)", device.id) };
    let totals = device.totals();
    let time = seconds((totals.timed > 0.0).then_some(totals.seconds));
    vec![id, device.name.clone(), device.kind.clone(), device.driver.clone(), count(totals.launches), time]
}

fn pool_row(device: &Device) -> Vec<String> {
    let pool = &device.pool;
    vec![
        device.id.clone(),
        bytes(pool.in_use_bytes),
        bytes(pool.cached_bytes.saturating_add(pool.pending_bytes)),
        bytes(pool.reserved_bytes),
        bytes(pool.peak_bytes),
        bytes(pool.budget_bytes),
        count(pool.requests as f64),
        percent(pool.hit_rate()),
    ]
}

fn cache_row(device: &Device, cache: &Cache) -> Vec<String> {
    vec![
        device.id.clone(),
        cache.name.clone(),
        cache.hits.to_string(),
        cache.misses.to_string(),
        percent(cache.hit_rate()),
        cache.entries.to_string(),
        cache.bytes.map_or_else(unknown, bytes),
        cache.evictions.to_string(),
    ]
}

fn kernel_row(kernel: &KernelRates) -> Vec<String> {
    vec![
        kernel.device.clone(),
        count(kernel.launches),
        percent(kernel.share),
        seconds(kernel.mean_seconds),
        billions(kernel.bytes_per_second),
        billions(kernel.operations_per_second),
        kernel.name.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::TEXT;
    use super::*;

    #[test]
    fn page() {
        insta::assert_snapshot!(Page(View::new(Snapshot::parse(TEXT).unwrap(), None)).text());
    }

    #[test]
    fn missing_metrics_are_left_out() {
        let labels = r#"{"version":"0.1.0","pid":"7"}"#;
        let json = format!(r#"{{"metrics":[{{"name":"kiln_info","samples":[{{"labels":{labels},"value":1.0}}]}}]}}"#);
        let text = Page(View::new(Snapshot::parse(&json).unwrap(), None)).text();
        assert_eq!(text, "kiln 0.1.0, process 7, 0 devices\n");
    }
}
