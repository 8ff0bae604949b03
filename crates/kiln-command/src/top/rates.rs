//! Rates between two snapshots.

use super::model::{Cache, Device, Kernel, KernelTotals, Snapshot};
use std::cmp::Ordering;
use std::time::Duration;

/// A snapshot with the rates since the previous one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) snapshot: Snapshot,
    /// Time between the two; `None` for the first snapshot, whose numbers are since the process began.
    pub(super) elapsed: Option<Duration>,
    pub(super) devices: Vec<DeviceRates>,
    pub(super) kernels: Vec<KernelRates>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeviceRates {
    pub(super) totals: KernelTotals,
    /// Fraction of the time that kernels ran.
    pub(super) busy: Option<f64>,
    pub(super) launches_per_second: Option<f64>,
    pub(super) pool_requests_per_second: Option<f64>,
    /// One for each cache.
    pub(super) lookups_per_second: Vec<Option<f64>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct KernelRates {
    pub(super) device: String,
    pub(super) name: String,
    pub(super) launches_per_second: Option<f64>,
    /// Launches since the process began.
    pub(super) launches: f64,
    /// Fraction of the time of all kernels of all devices.
    pub(super) share: Option<f64>,
    pub(super) mean_seconds: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) operations_per_second: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Time,
    Launches,
    Bytes,
    Operations,
    Name,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Time, Self::Launches, Self::Bytes, Self::Operations, Self::Name];

    /// Returns the next one, cyclically.
    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Launches => "launches",
            Self::Bytes => "GB/s",
            Self::Operations => "GFLOP/s",
            Self::Name => "name",
        }
    }
}

impl View {
    /// Computes the rates of `now` against an earlier snapshot of the same process.
    pub(super) fn new(now: Snapshot, before: Option<(&Snapshot, Duration)>) -> Self {
        // The counters of another process at the same address are unrelated, and their difference means nothing.
        let before = before.filter(|(earlier, elapsed)| earlier.pid == now.pid && !elapsed.is_zero());
        let (earlier, elapsed) = (before.map(|(earlier, _)| earlier), before.map(|(_, elapsed)| elapsed));
        let earlier_of = |device: &Device| earlier?.devices.iter().find(|known| known.id == device.id);
        let devices = now.devices.iter().map(|device| device_rates(device, earlier_of(device), elapsed)).collect();
        let all: f64 = now
            .devices
            .iter()
            .flat_map(|device| kernel_totals(device, earlier_of(device)))
            .map(|(_, w)| w.seconds)
            .sum();
        let mut kernels = Vec::new();
        for device in &now.devices {
            for (kernel, totals) in kernel_totals(device, earlier_of(device)) {
                kernels.push(kernel_rates(&device.id, kernel, &totals, all, elapsed));
            }
        }
        Self { snapshot: now, elapsed, devices, kernels }
    }

    pub(super) fn sorted(&self, sort: Sort) -> Vec<&KernelRates> {
        let mut kernels: Vec<&KernelRates> = self.kernels.iter().collect();
        let key = |kernel: &KernelRates| match sort {
            Sort::Time => kernel.share.unwrap_or(0.0),
            Sort::Launches => kernel.launches_per_second.unwrap_or(kernel.launches),
            Sort::Bytes => kernel.bytes_per_second.unwrap_or(0.0),
            Sort::Operations => kernel.operations_per_second.unwrap_or(0.0),
            Sort::Name => 0.0,
        };
        kernels.sort_by(|a, b| {
            let by_key = key(b).total_cmp(&key(a));
            // Idle kernels are sorted by their total number of launches.
            let by_past = || if sort == Sort::Name { Ordering::Equal } else { b.launches.total_cmp(&a.launches) };
            by_key.then_with(by_past).then_with(|| (&a.name, &a.device).cmp(&(&b.name, &b.device)))
        });
        kernels
    }
}

/// Returns each kernel with its totals since the earlier snapshot.
fn kernel_totals<'a>(
    device: &'a Device,
    earlier: Option<&'a Device>,
) -> impl Iterator<Item = (&'a Kernel, KernelTotals)> {
    device.kernels.iter().map(move |kernel| {
        let known = earlier.and_then(|device| device.kernels.iter().find(|known| known.name == kernel.name));
        (kernel, known.map_or(kernel.totals, |known| kernel.totals.since(&known.totals)))
    })
}

fn device_rates(now: &Device, earlier: Option<&Device>, elapsed: Option<Duration>) -> DeviceRates {
    let totals = earlier.map_or_else(|| now.totals(), |earlier| now.totals().since(&earlier.totals()));
    let rate = |amount: f64| elapsed.map(|elapsed| amount / elapsed.as_secs_f64());
    // A counter that fell belongs to a device that was opened again, and counts from 0.
    let grown = |now: u64, before: u64| if now < before { now } else { now - before } as f64;
    let lookups = |cache: &Cache| cache.hits.saturating_add(cache.misses);
    let lookups_per_second = now.caches.iter().map(|cache| {
        let known = earlier.and_then(|device| device.caches.iter().find(|known| known.name == cache.name));
        rate(grown(lookups(cache), known.map_or(0, lookups)))
    });
    DeviceRates {
        totals,
        busy: rate(totals.seconds).map(|busy| busy.min(1.0)),
        launches_per_second: rate(totals.launches),
        pool_requests_per_second: rate(grown(now.pool.requests, earlier.map_or(0, |device| device.pool.requests))),
        lookups_per_second: lookups_per_second.collect(),
    }
}

fn kernel_rates(
    device: &str,
    kernel: &Kernel,
    totals: &KernelTotals,
    all: f64,
    elapsed: Option<Duration>,
) -> KernelRates {
    KernelRates {
        device: device.to_string(),
        name: kernel.name.clone(),
        launches_per_second: elapsed.map(|elapsed| totals.launches / elapsed.as_secs_f64()),
        launches: kernel.totals.launches,
        share: (all > 0.0).then(|| totals.seconds / all),
        mean_seconds: totals.mean_seconds(),
        bytes_per_second: totals.per_second(totals.bytes),
        operations_per_second: totals.per_second(totals.operations),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::TEXT;
    use super::*;

    fn kernel(name: &str, launches: f64, seconds: f64) -> Kernel {
        let totals = KernelTotals { launches, timed: launches, seconds, bytes: launches * 1e6, operations: 0.0 };
        Kernel { name: name.to_string(), totals }
    }

    fn snapshot(pid: &str, kernels: Vec<Kernel>, hits: u64) -> Snapshot {
        let cache = Cache { name: "plans".to_string(), hits, ..Cache::default() };
        let device = Device { id: "cpu".to_string(), kernels, caches: vec![cache], ..Device::default() };
        Snapshot { pid: pid.to_string(), devices: vec![device], ..Snapshot::default() }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let before = snapshot("1", vec![kernel("a", 10.0, 1.0)], 5);
        let now = snapshot("1", vec![kernel("a", 30.0, 1.5), kernel("b", 4.0, 0.5)], 25);
        let view = View::new(now, Some((&before, Duration::from_secs(2))));
        assert_eq!(view.devices[0].launches_per_second, Some(12.0));
        assert_eq!(view.devices[0].busy, Some(0.5));
        assert_eq!(view.devices[0].lookups_per_second, [Some(10.0)]);
        let a = &view.kernels[0];
        assert_eq!((a.launches_per_second, a.share, a.launches), (Some(10.0), Some(0.5), 30.0));
        assert_eq!((a.mean_seconds, a.bytes_per_second), (Some(0.025), Some(4e7)));
    }

    /// Another process, or a restarted one, has no earlier numbers.
    #[test]
    fn a_process_that_began_anew_has_no_negative_rates() {
        let before = snapshot("1", vec![kernel("a", 10.0, 1.0)], 50);
        let view = View::new(snapshot("2", vec![kernel("a", 3.0, 0.1)], 2), Some((&before, Duration::from_secs(1))));
        assert_eq!((view.elapsed, view.devices[0].launches_per_second), (None, None));
        let view = View::new(snapshot("1", vec![kernel("a", 3.0, 0.1)], 2), Some((&before, Duration::from_secs(1))));
        assert_eq!(view.devices[0].launches_per_second, Some(3.0));
        assert_eq!(view.devices[0].lookups_per_second, [Some(2.0)]);
    }

    #[test]
    fn kernels_are_sorted_by_what_is_asked_for() {
        let view = View::new(Snapshot::parse(TEXT).unwrap_or_default(), None);
        let mut sort = Sort::default();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let names: Vec<&str> = view.sorted(sort).iter().map(|kernel| kernel.name.as_str()).collect();
            seen.push(format!("{}: {}", sort.name(), names.join(", ")));
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Time);
        insta::assert_snapshot!(seen.join("\n"));
    }
}
