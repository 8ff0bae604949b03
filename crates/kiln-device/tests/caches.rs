//! The registry of a device: all caches by name, one byte budget, and a trim that reaches the pool.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use kiln_device::{Device, KernelSource, NullDevice};
use kiln_ir::Error;
use kiln_resource_cache::{CacheError, CacheRegistrySlot, CacheableKernel};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const THREADS: u64 = 8;

/// Returns a distinct kernel for each number.
fn numbered(number: u64) -> KernelSource {
    KernelSource::wgsl(format!("@compute @workgroup_size(1) fn main() {{ let x = {number}u; }}"))
}

/// Buffers that a user prepares for a number, on the given device.
struct Prepared;

impl CacheableKernel for Prepared {
    type Key = u64;
    type CachedResource = kiln_device::Buffer;
    type Params = u64;
    type Device = Device;
    type Error = CacheError;
    const CACHE_NAME: &'static str = "prepared";

    fn create_cache_key(bytes: &u64) -> u64 {
        *bytes
    }

    fn create_cached_resource(bytes: &u64, device: Option<&Device>) -> Result<kiln_device::Buffer, CacheError> {
        Ok(device.unwrap().buffer(*bytes).unwrap())
    }

    fn resource_bytes(buffer: &kiln_device::Buffer) -> u64 {
        buffer.bytes()
    }
}

/// The key/value cache of a model: a buffer that grows.
#[derive(Default)]
struct KeyValues(Option<kiln_device::Buffer>);

impl CacheRegistrySlot for KeyValues {
    fn clear_slot(&mut self) {
        self.0 = None;
    }

    fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, kiln_device::Buffer::bytes)
    }
}

#[test]
fn every_cache_of_a_device_has_a_name_and_bytes() {
    let device = NullDevice::new().into_device().unwrap();
    device.kernel(numbered(1)).unwrap();
    device.caches().get_or_create::<Prepared>(&4096, Some(&device)).unwrap();
    let caches: Vec<_> = device.caches().metrics_by_name();
    assert_eq!(caches.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["kernels", "prepared"]);
    assert!(caches.iter().all(|(_, metrics)| metrics.size == 1 && metrics.bytes > 0), "{caches:?}");
    assert_eq!(caches[0].1.bytes, device.kernel_cache_stats().bytes);
    assert_eq!(device.caches().bytes(), caches.iter().map(|(_, metrics)| metrics.bytes).sum::<u64>());
    assert!(device.caches().advice().is_empty());
}

#[test]
fn a_trim_reaches_kernels_slots_and_the_pool() {
    let device = NullDevice::new().into_device().unwrap();
    let kernel = device.kernel(numbered(1)).unwrap();
    device.caches().get_or_create::<Prepared>(&4096, Some(&device)).unwrap();
    device.caches().slot_mut(KeyValues::default).0 = Some(device.buffer(1 << 20).unwrap());
    drop(device.buffer(1 << 16).unwrap());
    let cached = device.buffer_pool_stats().bytes_cached;
    assert!(cached >= 1 << 16);
    let report = device.caches().report();
    assert_eq!((report.reserves[0].reserve, report.reserves[0].bytes), ("pool", cached));

    // Releasing the free block is enough.
    let all = device.caches().bytes() + cached;
    let report = device.caches().trim(all - 1);
    assert_eq!((report.bytes_before, report.entries_evicted, report.slots_cleared), (all, 0, 0));
    assert_eq!((device.buffer_pool_stats().bytes_cached, report.reached_target()), (0, true));

    let report = device.caches().trim(0);
    assert_eq!((report.bytes_after, report.entries_evicted, report.slots_cleared), (0, 2, 1));
    let pool = device.buffer_pool_stats();
    assert_eq!((pool.bytes_in_use, pool.bytes_cached), (0, 0), "what entries and slots returned to the pool went too");
    assert_eq!(device.kernel_cache_stats().entries, 0);
    kernel.launch().over(1).unwrap();
}

/// Eight threads compile kernels, prepare buffers, use a slot and the pool, while others trim and change the budget.
#[test]
fn one_budget_holds_for_all_caches_under_eight_threads() {
    const BUDGET: u64 = 256 << 10;
    let device = NullDevice::new().into_device().unwrap();
    device.caches().set_byte_budget(BUDGET).unwrap();
    let (done, highest) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let device = &device;
                scope.spawn(move || work(device, thread).unwrap())
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                highest.fetch_max(device.caches().bytes(), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let highest = highest.into_inner();
    // A thread counts its new entry before it evicts for it. None is larger than 16 KiB.
    assert!(highest <= BUDGET + THREADS * (16 << 10), "{highest} bytes");
    let report = device.caches().report();
    assert!(report.bytes <= BUDGET, "{report}");
    let sum: u64 =
        report.caches.iter().map(|cache| cache.bytes).chain(report.slots.iter().map(|slot| slot.bytes)).sum();
    assert_eq!(report.bytes, sum, "{report}");
    let metrics = device.caches().metrics_by_name();
    assert!(metrics.iter().all(|(_, cache)| cache.evictions > 0 && cache.hits > 0), "{metrics:?}");
    assert_eq!(device.caches().trim(0).bytes_after, 0);
    assert_eq!(device.buffer_pool_stats().bytes_in_use, 0);
}

fn work(device: &Device, thread: u64) -> Result<(), Error> {
    for round in 0..300 {
        let number = (thread * 7 + round * round) % 97;
        device.kernel(numbered(number))?;
        let bytes = 1024 * (1 + number % 16);
        let prepared = device.caches().get_or_create::<Prepared>(&bytes, Some(device)).unwrap();
        assert_eq!(prepared.bytes(), bytes);
        if round % 8 == 0 {
            let buffer = device.buffer(1024 * (1 + thread))?;
            device.caches().slot_mut(KeyValues::default).0 = Some(buffer);
        }
        if round % 64 == 63 {
            device.caches().trim(64 << 10);
        }
    }
    Ok(())
}

/// Cached kernels and buffers do not keep their device open.
#[test]
fn a_device_with_full_caches_closes() {
    let null = NullDevice::new();
    let device = null.clone().into_device().unwrap();
    device.kernel(numbered(1)).unwrap();
    device.caches().get_or_create::<Prepared>(&4096, Some(&device)).unwrap();
    let api = std::sync::Arc::downgrade(device.api());
    drop(device);
    assert!(api.upgrade().is_none(), "something holds the device");
}
