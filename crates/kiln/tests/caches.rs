//! The caches of a device through tensors: plans and kernels under one budget, the same names everywhere.
#![cfg(all(feature = "events", feature = "wgsl"))]
#![expect(clippy::unwrap_used, reason = "a helper that fails panics")]

use kiln::cache::KernelCacheOptions;
use kiln::device::CpuOptions;
use kiln::metrics::Watch;
use kiln::observe::{EventChannel, EventKind};
use kiln::{Device, Tensor};
use kiln_resource_cache::CacheRegistrySlot;
use kiln_resource_cache::events::CacheEvent;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const THREADS: usize = 8;

fn open(as_wgsl: bool) -> Device {
    let kernels = KernelCacheOptions::new().without_disk();
    Device::cpu_with(CpuOptions::new().threads(2).plans_as_wgsl(as_wgsl).kernels(kernels)).unwrap()
}

/// Returns fused elementwise ops over `len` elements: one plan per length.
fn compute(device: &Device, len: usize) {
    let x = Tensor::from_slice(&vec![2.0f32; len], len, device).unwrap();
    let y = x.mul(&x).unwrap().add_scalar(1.0f32).unwrap().sqrt().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), vec![5.0f32.sqrt(); len]);
}

fn names(device: &Device) -> BTreeSet<String> {
    device.caches().metrics_by_name().into_iter().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn plans_and_kernels_are_caches_of_the_device() {
    for as_wgsl in [false, true] {
        let device = open(as_wgsl);
        compute(&device, 10);
        compute(&device, 10);
        let caches = device.caches().metrics_by_name();
        let found: Vec<_> = caches.iter().map(|(name, metrics)| (*name, metrics.size > 0, metrics.bytes > 0)).collect();
        assert_eq!(found, [("kernels", as_wgsl, as_wgsl), ("plans", true, true)]);
        assert_eq!(caches[1].1.hits, device.plan_cache_stats().hits);
        // A kernel of a plan is counted with the plan as well.
        assert!(caches[1].1.bytes > caches[0].1.bytes + 256, "{caches:?}");
        let report = device.caches().trim(0);
        assert_eq!((report.bytes_after, device.caches().bytes()), (0, 0), "{report}");
        assert_eq!(device.buffer_pool_stats().bytes_cached, 0);
        compute(&device, 10);
        assert_eq!(device.plan_cache_stats().size, 1);
    }
}

#[test]
fn metrics_and_events_show_the_names_of_the_registry() {
    let device = open(true);
    let (channel, events) = EventChannel::new(10_000);
    let watch = device.watch(channel).unwrap();
    (10..20).for_each(|len| compute(&device, len));
    device.unwatch(watch).unwrap();
    let accessed = events.iter().filter_map(|event| match event.kind {
        EventKind::Cache(CacheEvent::ResourceCacheAccess { cache_key, .. }) => {
            Some(cache_key.split(':').next().unwrap().to_string())
        }
        _ => None,
    });
    assert_eq!(accessed.collect::<BTreeSet<_>>(), names(&device));
    let watch = Watch::new();
    watch.add(&device);
    for metric in watch.snapshot().iter().filter(|metric| metric.name.starts_with("kiln_cache_bytes")) {
        let labels = metric.samples.iter().map(|sample| sample.labels.iter().find(|(name, _)| *name == "cache"));
        assert_eq!(labels.map(|label| label.unwrap().1.clone()).collect::<BTreeSet<_>>(), names(&device));
    }
}

/// A model's key/value cache.
#[derive(Default)]
struct KeyValues(Vec<u8>);

impl CacheRegistrySlot for KeyValues {
    fn clear_slot(&mut self) {
        self.0 = Vec::new();
    }

    fn bytes(&self) -> u64 {
        self.0.capacity() as u64
    }
}

/// Eight threads plan, compile, use a slot and trim; the budget holds for the sum.
#[test]
fn one_budget_holds_for_plans_kernels_and_slots_under_eight_threads() {
    const BUDGET: u64 = 200 << 10;
    // The size of one plan with its kernel.
    const LARGEST: u64 = 64 << 10;
    for as_wgsl in [false, true] {
        let device = open(as_wgsl);
        device.caches().set_byte_budget(BUDGET).unwrap();
        let (done, highest) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let work = |thread: usize| {
                let device = &device;
                move || {
                    for round in 0..60 {
                        compute(device, 1 + (thread * 5 + round * round) % 40);
                        if round % 10 == 0 {
                            device.caches().slot_mut(KeyValues::default).0 = vec![0; 1024 * (1 + thread)];
                        }
                        if round % 30 == 29 {
                            device.caches().trim(BUDGET / 4);
                        }
                    }
                }
            };
            let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    highest.fetch_max(device.caches().bytes(), Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        let report = device.caches().report();
        assert!(report.bytes <= BUDGET, "{report}");
        let parts = report.caches.iter().map(|cache| cache.bytes).chain(report.slots.iter().map(|slot| slot.bytes));
        assert_eq!(report.bytes, parts.sum::<u64>(), "{report}");
        // A thread adds the size of its new plan before it evicts others.
        assert!(highest.load(Ordering::Relaxed) <= BUDGET + THREADS as u64 * LARGEST, "{highest:?} bytes");
        assert!(device.plan_cache_stats().evictions > 0, "{}", device.plan_cache_stats());
        assert_eq!(device.caches().trim(0).bytes_after, 0);
    }
}

/// A cached plan does not keep its device open, and two handles over one device share the plans.
#[test]
fn a_device_with_cached_plans_closes() {
    for as_wgsl in [false, true] {
        let device = open(as_wgsl);
        compute(&device, 10);
        let api = Arc::downgrade(device.runtime().api());
        let other = Device::from(kiln_device::Device::from(device.clone()));
        compute(&other, 10);
        assert_eq!((other.plan_cache_stats().misses, other.plan_cache_stats().hits), (1, 1));
        drop((device, other));
        assert!(api.upgrade().is_none(), "something holds the device");
    }
}
