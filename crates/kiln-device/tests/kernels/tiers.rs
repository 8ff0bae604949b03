//! The memory tier and the disk tier.

use crate::{numbered, on_disk, scale, translations};
use kiln_device::store::Writing;
use kiln_device::{
    DiskTier, DiskTierState, KernelCacheOptions, KernelCacheStatistics, KernelOptions, NullDevice, Origin, Record,
};
use kiln_ir::ErrorKind;
use kiln_resource_cache::MockClock;
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Memory hits, disk hits, compiles, failures.
fn counts(found: &KernelCacheStatistics) -> (u64, u64, u64, u64) {
    (found.memory_hits, found.disk_hits, found.compiles, found.failures)
}

#[test]
fn each_request_is_counted_by_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    let first = on_disk(&null, directory.path());
    assert!(matches!(first.kernel_cache_stats().disk, DiskTierState::Unopened));
    assert_eq!(first.kernel_cache_stats().hit_rate(), None);
    assert_eq!(first.kernel(scale()).unwrap().origin(), Origin::Compiled);
    assert_eq!(first.kernel(scale()).unwrap().origin(), Origin::Compiled, "the one in memory was compiled");
    assert!(first.kernel(scale().constant("NO", 1.0)).is_err());
    let found = first.kernel_cache_stats();
    assert_eq!(counts(&found), (1, 0, 1, 1));
    assert_eq!(found.hit_rate(), Some(1.0 / 3.0));
    assert!(found.mean_compile.is_some() && found.mean_disk_hit.is_none());
    assert_eq!(found.entries, 1);
    let (code, source) = (crate::SCALE.len() as u64, crate::SCALE.len() as u64);
    assert!((code + source..code + source + 4096).contains(&found.bytes), "{} bytes", found.bytes);
    assert_eq!(first.caches().bytes(), found.bytes);

    let second = on_disk(&null, directory.path());
    let prepared = second.prepare(&scale()).unwrap();
    assert_eq!(prepared.kernel().unwrap().origin(), Origin::Disk);
    for _ in 0..2000 {
        prepared.kernel().unwrap();
    }
    assert_eq!(counts(&second.kernel_cache_stats()), (2000, 1, 0, 0));
    assert!(second.kernel_cache_stats().mean_memory_hit.is_some(), "sampled");
    assert!(second.kernel_cache_stats().mean_disk_hit.is_some());
    assert_eq!(translations(&null), 1, "the lesson of a load that recompiled and counted a hit");

    second.clear_kernels();
    assert_eq!(second.kernel_cache_stats().entries, 0);
    assert_eq!(second.kernel(scale()).unwrap().origin(), Origin::Disk);
}

/// A loaded kernel has the options of its key.
#[test]
fn a_kernel_from_disk_has_the_options_of_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    let unchecked = scale().options(KernelOptions { bounds_checks: false, ..KernelOptions::default() });
    for _ in 0..2 {
        let device = on_disk(&null, directory.path());
        for (source, bounds) in [(scale(), true), (unchecked.clone(), false)] {
            null.clear_records();
            let kernel = device.kernel(source).unwrap();
            assert_eq!(kernel.key().options().bounds_checks, bounds);
            let loads: Vec<bool> = (null.records().iter())
                .filter_map(|record| if let Record::Load { checks, .. } = record { Some(checks.bounds) } else { None })
                .collect();
            assert_eq!(loads, [bounds]);
        }
    }
}

/// Concurrent requests for one kernel compile it once.
#[test]
fn concurrent_requests_compile_once() {
    let null = NullDevice::new();
    let device = null.clone().into_device().unwrap();
    let barrier = Arc::new(Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (device, barrier) = (device.clone(), Arc::clone(&barrier));
            scope.spawn(move || {
                barrier.wait();
                device.kernel(scale()).unwrap();
            });
        }
    });
    assert_eq!(translations(&null), 1);
    assert_eq!(counts(&device.kernel_cache_stats()), (7, 0, 1, 0));
}

#[test]
fn a_failed_compile_is_not_kept() {
    let null = NullDevice::new();
    let device = null.clone().into_device().unwrap();
    for arm in [NullDevice::fail_translation, NullDevice::fail_load] {
        device.clear_kernels();
        arm(&null, 1);
        assert_eq!(device.kernel(scale()).unwrap_err().kind(), ErrorKind::CompileFailed);
        assert!(device.kernel(scale()).is_ok());
    }
    assert_eq!(counts(&device.kernel_cache_stats()), (0, 0, 2, 2));
}

/// A stored kernel that does not load is removed, counted and compiled again.
#[test]
fn a_stored_kernel_that_does_not_load_is_compiled_again() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    on_disk(&null, directory.path()).kernel(scale()).unwrap();
    let device = on_disk(&null, directory.path());
    null.fail_load(1);
    assert_eq!(device.kernel(scale()).unwrap().origin(), Origin::Compiled);
    let found = device.kernel_cache_stats();
    assert_eq!((counts(&found), found.disk_entries_unusable), ((0, 0, 1, 0), 1));
    assert_eq!(on_disk(&null, directory.path()).kernel(scale()).unwrap().origin(), Origin::Disk, "stored again");
}

/// An intact entry with the right key whose payload is not a kernel is not loaded.
#[test]
fn a_payload_that_is_not_a_kernel_is_never_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    let device = on_disk(&null, directory.path());
    let key = device.prepare(&scale()).unwrap().key().encode();
    on_disk(&null, directory.path()).kernel(scale()).unwrap();
    let store = device.kernel_store().unwrap();
    let kiln_device::store::Lookup::Hit(payload) = store.get(&key) else { panic!("stored") };
    let cut = (0..payload.len()).map(|length| payload[..length].to_vec());
    let longer = [&payload[..], &[0]].concat();
    let lengths = (0..4).map(|at| {
        let mut bytes = payload.clone();
        bytes[at] = 0xff;
        bytes
    });
    for (number, bad) in cut.step_by(7).chain([longer, Vec::new()]).chain(lengths).enumerate() {
        store.put(&key, &bad).unwrap();
        device.clear_kernels();
        null.clear_records();
        assert_eq!(device.kernel(scale()).unwrap().origin(), Origin::Compiled, "{} bytes", bad.len());
        let loads = null.records().iter().filter(|record| matches!(record, Record::Load { .. })).count();
        assert_eq!(loads, 1, "only what was compiled reaches the device");
        assert_eq!(device.kernel_cache_stats().disk_entries_unusable, number as u64 + 1);
    }
}

/// The memory tier is bounded, evicts the least recently used kernels in batches, and expires unused ones.
#[test]
fn the_memory_tier_is_bounded() {
    let clock = MockClock::new();
    let options = KernelCacheOptions::new().max_entries(10).eviction_batch(4).max_idle(Duration::from_secs(60));
    let device = NullDevice::new().into_device_with_kernels(options.clock(clock.clone())).unwrap();
    for number in 0..10 {
        device.kernel(numbered(number)).unwrap();
    }
    device.kernel(numbered(0)).unwrap();
    assert_eq!((device.kernel_cache_stats().entries, device.kernel_cache_stats().evictions), (10, 0));
    device.kernel(numbered(10)).unwrap();
    assert_eq!((device.kernel_cache_stats().entries, device.kernel_cache_stats().evictions), (7, 4));
    let before = device.kernel_cache_stats().compiles;
    device.kernel(numbered(0)).unwrap();
    assert_eq!(device.kernel_cache_stats().compiles, before, "used more recently than the four that went");
    device.kernel(numbered(1)).unwrap();
    assert_eq!(device.kernel_cache_stats().compiles, before + 1);

    clock.advance(Duration::from_secs(59));
    device.kernel(numbered(0)).unwrap();
    clock.advance(Duration::from_secs(2));
    assert_eq!(device.kernel_cache_stats().entries, 1, "the others were unused for a minute");
    let defaults = KernelCacheOptions::new();
    let text = format!("{defaults:?}");
    assert!(text.contains("max_entries: 1000") && text.contains("max_idle: 7200s"), "{text}");
}

#[test]
fn a_held_kernel_outlives_its_place_in_the_cache() {
    let device = NullDevice::new().into_device_with_kernels(KernelCacheOptions::new().max_entries(1)).unwrap();
    let held = device.kernel(scale()).unwrap();
    device.kernel(numbered(1)).unwrap();
    let (x, mut y) = (device.buffer_of::<f32>(4).unwrap(), device.buffer_of::<f32>(4).unwrap());
    held.launch().bind("x", &x).bind("y", &mut y).value("n", 4u32).over(4).unwrap();
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let error = NullDevice::new().into_device_with_kernels(KernelCacheOptions::new().max_entries(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// If the directory cannot be used, everything works in memory, and the reason is reported.
#[cfg(unix)]
#[test]
fn without_a_usable_directory_kernels_are_kept_in_memory() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (file, open, link) =
        (directory.path().join("file"), directory.path().join("open"), directory.path().join("link"));
    std::fs::write(&file, "x").unwrap();
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::symlink(&open, &link).unwrap();
    for (path, reason) in [(file, "director"), (open, "777"), (link, "link")] {
        let null = NullDevice::new();
        let options = KernelCacheOptions::new().disk(DiskTier::new(&path));
        let device = null.clone().into_device_with_kernels(options).unwrap();
        for _ in 0..2 {
            device.kernel(scale()).unwrap();
        }
        assert_eq!(counts(&device.kernel_cache_stats()), (1, 0, 1, 0));
        assert!(device.kernel_store().is_none());
        let DiskTierState::Off { reason: found } = device.kernel_cache_stats().disk else { panic!("off") };
        assert!(found.contains(reason), "{found}");
    }
}

#[test]
fn a_full_store_is_not_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let small = kiln_device::store::StoreOptions::new().with_max_bytes(64);
    let options = KernelCacheOptions::new().disk(DiskTier::new(directory.path().join("kernels")).store(small));
    let device = NullDevice::new().into_device_with_kernels(options).unwrap();
    assert_eq!(device.kernel(scale()).unwrap().origin(), Origin::Compiled);
    let DiskTierState::Open { statistics } = device.kernel_cache_stats().disk else { panic!("open") };
    assert_eq!((statistics.entries, statistics.puts, statistics.puts_not_tried), (0, 0, 1));
    assert_eq!(statistics.writing, Writing::On);
}

/// Two devices in one process do not share kernels in memory.
#[test]
fn devices_have_separate_memory_tiers() {
    let (one, other) = (NullDevice::new().into_device().unwrap(), NullDevice::new().into_device().unwrap());
    one.kernel(scale()).unwrap();
    assert_eq!((one.kernel_cache_stats().entries, other.kernel_cache_stats().entries), (1, 0));
    assert!(one.kernel_store().is_none() && matches!(one.kernel_cache_stats().disk, DiskTierState::None));
}
