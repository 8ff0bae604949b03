//! The disk tier with real kernels: a disk hit computes the same and has the options of its key.

use super::{numbers, saxpy};
use crate::support;
use kiln_device::{Device, DiskTier, Feature, KernelCacheOptions, KernelOptions, Origin};
use kiln_gpu::GpuOptions;
use std::path::Path;

fn open(directory: &Path, without: Option<Feature>) -> Device {
    let kernels = KernelCacheOptions::new().disk(DiskTier::new(directory.join("kernels")));
    let options = without.into_iter().fold(GpuOptions::new().kernels(kernels), GpuOptions::without);
    kiln_gpu::open(0, options).unwrap()
}

fn check(device: &Device, options: &KernelOptions) -> Origin {
    let kernel = device.kernel(saxpy().options(options.clone())).unwrap();
    assert_eq!(kernel.key().options(), options);
    let (x, mut y) = (device.buffer_from(&numbers(500)).unwrap(), device.buffer_from(&numbers(500)).unwrap());
    kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 500u32).over(500).unwrap();
    assert_eq!(y.read().unwrap(), numbers(500).iter().map(|x| 3.0 * x).collect::<Vec<_>>());
    kernel.origin()
}

#[test]
fn a_kernel_from_disk_computes_the_same() {
    if support::in_place().is_none() {
        return;
    }
    for without in [None, Some(Feature::PassthroughShaders), Some(Feature::PipelineCache)] {
        let directory = tempfile::tempdir().unwrap();
        let checked = KernelOptions::default();
        let unchecked = KernelOptions { bounds_checks: false, ..KernelOptions::default() };
        for expected in [Origin::Compiled, Origin::Disk] {
            let device = open(directory.path(), without);
            assert_eq!(check(&device, &checked), expected, "{without:?}");
            assert_eq!(check(&device, &unchecked), expected, "{without:?}");
            assert_eq!(check(&device, &checked), expected, "{without:?}");
            let found = device.kernel_cache_stats();
            let counts = (found.compiles, found.disk_hits, found.memory_hits, found.failures);
            assert_eq!(counts, if expected == Origin::Disk { (0, 2, 1, 0) } else { (2, 0, 1, 0) });
            let times = (found.mean_compile.is_some(), found.mean_disk_hit.is_some());
            assert_eq!(times, (expected == Origin::Compiled, expected == Origin::Disk));
        }
    }
}

/// A kernel translated for SPIR-V is not used by a device that takes WGSL, and vice versa.
#[test]
fn devices_with_other_features_do_not_share_kernels() {
    if support::in_place().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for without in [None, Some(Feature::PassthroughShaders), Some(Feature::ShaderF16)] {
        let device = open(directory.path(), without);
        assert_eq!(check(&device, &KernelOptions::default()), Origin::Compiled, "{without:?}");
    }
}
