//! The exported metrics, and that they change with activity.

use crate::devices::open;
use crate::{cpu, value, work};
use kiln::buffer::BufferOptions;
use kiln::device::CpuOptions;
use kiln::kernel::{Grid, KernelSource};
use kiln::metrics::Watch;
use kiln::pool::{PoolConfig, PoolOptions};
use kiln::{Device, ErrorKind};
use std::collections::{BTreeMap, BTreeSet};

/// Every metric with its labels, without values and machine-specific labels.
fn names(text: &str) -> String {
    let is_of_machine =
        |line: &&str| ["driver_bytes", "request_seconds", "class="].iter().any(|part| line.contains(part));
    let mut seen = BTreeSet::new();
    let lines = text.lines().filter(|line| !is_of_machine(line)).map(|line| match line.strip_prefix('#') {
        Some(_) => line.to_string(),
        None => {
            let series = line.rsplit_once(' ').unwrap().0;
            let words: Vec<&str> = series.split('"').collect();
            let hides = |label: &str| {
                ["{version=", "pid=", "name=", "driver=", "driver_version="].iter().any(|end| label.ends_with(end))
            };
            let hide = |(place, word): (usize, &&str)| match place % 2 {
                1 if hides(words[place - 1]) => "…".to_string(),
                _ => (*word).to_string(),
            };
            words.iter().enumerate().map(hide).collect::<Vec<_>>().join("\"")
        }
    });
    lines.filter(|line| seen.insert(line.clone())).collect::<Vec<_>>().join("\n")
}

/// Metric names are a contract with dashboards.
#[test]
fn the_metrics_of_each_device_are_these() {
    for device in open() {
        let watch = Watch::new();
        watch.add(&device);
        work(&device).unwrap();
        insta::assert_snapshot!(device.info().id.replace(':', ""), names(&watch.to_prometheus()));
    }
}

fn series(watch: &Watch) -> BTreeMap<String, f64> {
    let text = watch.to_prometheus();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

/// Returns the series that change between two snapshots, including new ones.
fn moved(watch: &Watch, what: impl FnOnce()) -> BTreeSet<String> {
    let before = series(watch);
    what();
    let after = series(watch);
    after.into_iter().filter(|(name, value)| before.get(name) != Some(value)).map(|(name, _)| name).collect()
}

fn assert_moves(watch: &Watch, device: &Device, expected: &[&str], what: impl FnOnce()) {
    let moved = moved(watch, what);
    for name in expected {
        let series = name.replace("DEVICE", &format!("device=\"{}\"", device.info().id));
        assert!(moved.contains(&series), "expected {series} to move, found {moved:#?}");
    }
}

/// Each activity changes its metrics.
#[test]
fn every_metric_moves_when_the_thing_happens() {
    for device in open() {
        let watch = Watch::new();
        watch.add(&device);
        let mut held = None;
        let taken = [
            "kiln_pool_bytes{DEVICE,state=\"in_use\"}",
            "kiln_pool_reserved_bytes{DEVICE}",
            "kiln_pool_padding_bytes{DEVICE}",
            "kiln_pool_peak_bytes{DEVICE,state=\"in_use\"}",
            "kiln_pool_peak_bytes{DEVICE,state=\"reserved\"}",
            "kiln_pool_pressure_ratio{DEVICE}",
            "kiln_pool_live_buffers{DEVICE}",
            "kiln_pool_requests_total{DEVICE,source=\"driver\"}",
            "kiln_pool_driver_operations_total{DEVICE,operation=\"allocate\"}",
        ];
        assert_moves(&watch, &device, &taken, || {
            held = Some(device.buffer_with(BufferOptions::new((1 << 20) + 1)).unwrap());
        });
        let given = ["kiln_pool_bytes{DEVICE,state=\"cached\"}", "kiln_pool_live_buffers{DEVICE}"];
        assert_moves(&watch, &device, &given, || drop(held.take()));
        assert_moves(&watch, &device, &["kiln_pool_requests_total{DEVICE,source=\"reused\"}"], || {
            drop(device.buffer_with(BufferOptions::new((1 << 20) + 1)).unwrap());
        });
        let cleared = ["kiln_pool_driver_operations_total{DEVICE,operation=\"release\"}"];
        assert_moves(&watch, &device, &cleared, || drop(device.pool().clear()));
        let planned = [
            "kiln_cache_requests_total{DEVICE,cache=\"plans\",outcome=\"miss\"}",
            "kiln_cache_entries{DEVICE,cache=\"plans\"}",
        ];
        assert_moves(&watch, &device, &planned, || work(&device).unwrap());
        let again = [
            "kiln_cache_requests_total{DEVICE,cache=\"plans\",outcome=\"hit\"}",
            "kiln_kernel_launches_total{DEVICE,kernel=\"add_scalar\"}",
            "kiln_kernel_bytes_total{DEVICE,kernel=\"add_scalar\"}",
            "kiln_kernel_operations_total{DEVICE,kernel=\"add_scalar\"}",
        ];
        let kernel = device.kernel_statistics()[0].name.clone();
        let again = again.map(|name| name.replace("add_scalar", &kernel));
        assert_moves(&watch, &device, &again.each_ref().map(String::as_str), || work(&device).unwrap());
        if device.info().compiler.is_some() {
            kernels_move(&watch, &device);
        }
    }
}

/// Metrics that only a device with WGSL kernels has.
fn kernels_move(watch: &Watch, device: &Device) {
    const GOOD: &str = "@compute @workgroup_size(1) fn main() {}";
    let request =
        |outcome: &str| format!("kiln_cache_requests_total{{DEVICE,cache=\"kernels\",outcome=\"{outcome}\"}}");
    let compiled = [
        &request("compile"),
        "kiln_cache_entries{DEVICE,cache=\"kernels\"}",
        "kiln_cache_bytes{DEVICE,cache=\"kernels\"}",
    ];
    assert_moves(watch, device, &compiled, || drop(device.kernel(KernelSource::wgsl(GOOD)).unwrap()));
    assert_moves(watch, device, &[&request("memory_hit")], || drop(device.kernel(KernelSource::wgsl(GOOD)).unwrap()));
    assert_moves(watch, device, &[&request("failure")], || drop(device.kernel(KernelSource::wgsl("fn")).unwrap_err()));
    let kernel = device.kernel(KernelSource::wgsl(GOOD)).unwrap();
    assert_moves(watch, device, &["kiln_dispatches_total{DEVICE}"], || {
        kernel.launch().grid(Grid::workgroups([1, 1, 1])).submit().unwrap();
    });
}

#[test]
fn a_request_beyond_the_budget_is_counted() {
    let config = PoolConfig { budget_bytes: Some(1 << 20), ..PoolConfig::default() };
    let pool = PoolOptions::new().config(config);
    let device = Device::cpu_with(CpuOptions::new().threads(1).pool(pool)).unwrap();
    let watch = Watch::new();
    watch.add(&device);
    let _held = device.buffer(700 << 10).unwrap();
    assert_moves(&watch, &device, &["kiln_pool_out_of_memory_total{DEVICE}"], || {
        assert_eq!(device.buffer(700 << 10).unwrap_err().kind(), ErrorKind::OutOfMemory);
    });
}

/// A watch keeps no device open: a dropped device closes, and its final metrics stay until another device takes its place.
#[test]
fn a_device_that_goes_leaves_its_last_numbers() {
    let watch = Watch::new();
    let device = cpu();
    watch.add(&device);
    watch.add(&device);
    let open = |label: &str| value(&watch.to_prometheus(), &format!("kiln_device_open{{device=\"{label}\"}}"));
    assert_eq!((open("cpu"), open("cpu#2")), (Some(1.0), None), "one that is there is not added again");
    let second = cpu();
    watch.add(&second);
    assert_eq!((open("cpu"), open("cpu#2")), (Some(1.0), Some(1.0)));
    work(&device).unwrap();
    drop(device);
    assert_eq!((open("cpu"), open("cpu#2")), (Some(0.0), Some(1.0)));
    let misses = "kiln_cache_requests_total{device=\"cpu\",cache=\"plans\",outcome=\"miss\"}";
    assert_eq!(value(&watch.to_prometheus(), misses), Some(1.0), "what it did until the end");
    let third = cpu();
    watch.add(&third);
    assert_eq!((open("cpu"), open("cpu#2"), open("cpu#3")), (Some(1.0), Some(1.0), None));
    assert_eq!(value(&watch.to_prometheus(), misses), Some(0.0));
}

/// Kernels are timed while the watch exists.
#[test]
fn kernels_are_timed_as_long_as_the_watch_lives() {
    let device = cpu();
    let launches = || device.kernel_statistics().iter().map(|kernel| kernel.launches).sum::<u64>();
    let watch = Watch::new();
    watch.add(&device);
    work(&device).unwrap();
    drop(watch);
    work(&device).unwrap();
    assert_eq!(launches(), 1, "counted after its end");
    device.set_profiling(true);
    let watch = Watch::new();
    watch.add(&device);
    work(&device).unwrap();
    drop(watch);
    work(&device).unwrap();
    assert_eq!(launches(), 2, "the end of the watch ended what it did not begin");
}

/// Counting continues until the last of several watches ends, and is not restarted by any.
#[test]
fn kernels_are_timed_until_the_last_watch_ends() {
    let device = cpu();
    let launches = || device.kernel_statistics().iter().map(|kernel| kernel.launches).sum::<u64>();
    let (first, second) = (Watch::new(), Watch::new());
    first.add(&device);
    work(&device).unwrap();
    second.add(&device);
    device.set_profiling(true);
    let profiling = device.profile();
    let holders: [Box<dyn FnOnce()>; 4] = [
        Box::new(|| drop(first)),
        Box::new(|| device.set_profiling(false)),
        Box::new(|| drop(second)),
        Box::new(|| drop(profiling)),
    ];
    for (gone, end) in (1..).zip(holders) {
        assert_eq!(launches(), gone);
        end();
        work(&device).unwrap();
    }
    assert_eq!(launches(), 4, "counted after the last watch ended");
}
