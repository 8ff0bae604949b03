//! A snapshot without a screen.

use super::model::{Device, Snapshot};
use super::rates::{Sort, View};
use super::units::{billions, bytes, count, percent, seconds, unknown};
use crate::terminal::{self, Report};
use serde::{Serialize, Serializer};

/// What a process told until now.
pub(super) struct Page(pub(super) View);

impl Serialize for Page {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.snapshot.serialize(serializer)
    }
}

impl Report for Page {
    fn text(&self) -> String {
        let Snapshot { version, pid, devices } = &self.0.snapshot;
        let mut text = format!("kiln {version}, process {pid}, {}\n", terminal::count(devices.len() as u64, "device"));
        for (title, rows) in [
            ("devices", rows(devices, &["device", "name", "kind", "driver", "launches", "kernel time"], device_row)),
            (
                "pools",
                rows(
                    devices,
                    &["device", "in use", "cached", "reserved", "peak", "budget", "requests", "reused"],
                    pool_row,
                ),
            ),
            ("caches", self.caches()),
            ("kernels", self.kernels()),
        ] {
            // The first row has the names of the columns.
            if rows.len() > 1 {
                text += &format!("\n{title}\n{}", terminal::table(&rows));
            }
        }
        text
    }
}

impl Page {
    fn caches(&self) -> Vec<Vec<String>> {
        let head = ["device", "cache", "hits", "misses", "hit rate", "entries", "bytes", "evictions"];
        let mut rows = vec![head.map(str::to_string).to_vec()];
        for device in &self.0.snapshot.devices {
            rows.extend(device.caches.iter().map(|cache| {
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
            }));
        }
        rows
    }

    fn kernels(&self) -> Vec<Vec<String>> {
        let head = ["device", "launches", "time", "mean", "GB/s", "GFLOP/s", "kernel"];
        let mut rows = vec![head.map(str::to_string).to_vec()];
        rows.extend(self.0.sorted(Sort::Time).iter().map(|kernel| {
            vec![
                kernel.device.clone(),
                count(kernel.launches),
                percent(kernel.share),
                seconds(kernel.mean_seconds),
                billions(kernel.bytes_per_second),
                billions(kernel.operations_per_second),
                kernel.name.clone(),
            ]
        }));
        rows
    }
}

fn rows<const N: usize>(devices: &[Device], head: &[&str; N], row: fn(&Device) -> [String; N]) -> Vec<Vec<String>> {
    let head = head.map(str::to_string).to_vec();
    std::iter::once(head).chain(devices.iter().map(|device| row(device).to_vec())).collect()
}

fn device_row(device: &Device) -> [String; 6] {
    let id = if device.open { device.id.clone() } else { format!("{} (closed)", device.id) };
    let work = device.work();
    let time = seconds((work.timed > 0.0).then_some(work.seconds));
    [id, device.name.clone(), device.kind.clone(), device.driver.clone(), count(work.launches), time]
}

fn pool_row(device: &Device) -> [String; 8] {
    let pool = &device.pool;
    [
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

#[cfg(test)]
mod tests {
    use super::super::model::tests::TEXT;
    use super::*;

    #[test]
    fn page() {
        insta::assert_snapshot!(Page(View::new(Snapshot::parse(TEXT).unwrap(), None)).text());
    }

    #[test]
    fn what_a_process_does_not_have_is_left_out() {
        let labels = r#"{"version":"0.1.0","pid":"7"}"#;
        let json = format!(r#"{{"metrics":[{{"name":"kiln_info","samples":[{{"labels":{labels},"value":1.0}}]}}]}}"#);
        let text = Page(View::new(Snapshot::parse(&json).unwrap(), None)).text();
        assert_eq!(text, "kiln 0.1.0, process 7, 0 devices\n");
    }
}
