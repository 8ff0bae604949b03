//! Kernels that are prepared before they are needed.

use crate::{numbered, on_disk, translations};
use kiln_device::{KernelSource, NullDevice};
use std::num::NonZeroUsize;

#[test]
fn a_list_is_compiled_once_each_on_any_number_of_threads() {
    for threads in [None, NonZeroUsize::new(1), NonZeroUsize::new(7), NonZeroUsize::new(100)] {
        let null = NullDevice::new();
        let device = null.clone().into_device().unwrap();
        device.kernel(numbered(3)).unwrap();
        let mut sources: Vec<KernelSource> = (0..20).map(numbered).collect();
        sources.push(KernelSource::wgsl("not a kernel").named("bad"));
        let report = device.warm_kernels(&sources, threads);
        assert_eq!((report.compiled, report.loaded, report.present, report.cancelled), (19, 0, 1, 0));
        assert_eq!(report.failed.len(), 1);
        assert_eq!(report.failed[0].kernel, "bad");
        assert_eq!(translations(&null), 20);
        assert_eq!(device.kernel_cache_stats().entries, 20);
    }
    let device = NullDevice::new().into_device().unwrap();
    let nothing = device.warm_kernels(&[], None);
    assert_eq!((nothing.compiled, nothing.failed.len()), (0, 0));
}

/// Only the kernels of this device are preloaded, the most used first.
#[test]
fn the_most_used_kernels_are_preloaded() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    for round in 0..4 {
        let device = on_disk(&null, directory.path());
        for number in 0..4 {
            if number >= round {
                device.kernel(numbered(number)).unwrap();
            }
        }
    }
    let other = NullDevice::new().with_info(|info| info.driver_version = "other".into());
    for _ in 0..9 {
        on_disk(&other, directory.path()).kernel(numbered(0)).unwrap();
    }
    let device = on_disk(&null, directory.path());
    let report = device.preload_kernels(2).unwrap().wait().unwrap();
    assert_eq!((report.loaded, report.compiled, report.failed.len()), (2, 0, 0));
    assert_eq!(device.kernel_cache_stats().disk_hits, 2);
    for number in [2, 3] {
        device.kernel(numbered(number)).unwrap();
    }
    let found = device.kernel_cache_stats();
    assert_eq!((found.memory_hits, found.disk_hits), (2, 2), "the third and fourth were used most");
    let all = device.preload_kernels(100).unwrap().wait().unwrap();
    assert_eq!((all.loaded, all.present), (2, 2));
    assert_eq!(NullDevice::new().into_device().unwrap().preload_kernels(5).unwrap().wait().unwrap().loaded, 0);
}

/// Dropping a preload cancels the kernels that have not started, and joins its thread.
#[test]
fn a_dropped_preload_is_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let null = NullDevice::new();
    let sources: Vec<KernelSource> = (0..300).map(numbered).collect();
    on_disk(&null, directory.path()).warm_kernels(&sources, None);
    let device = on_disk(&null, directory.path());
    let preload = device.preload_kernels(300).unwrap();
    drop(preload);
    let loaded = device.kernel_cache_stats().disk_hits;
    assert!(loaded < 300, "cancelled before the end: {loaded}");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(device.kernel_cache_stats().disk_hits, loaded, "nothing goes on in the background");
}
