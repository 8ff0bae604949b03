//! The devices that the tests share.

use kiln::cache::KernelCacheOptions;
use kiln::device::{CpuOptions, SimdLevel};
use kiln::{Device, DeviceKind};
use std::sync::LazyLock;

/// A device under test.
pub(crate) struct Subject {
    /// For messages.
    pub(crate) name: &'static str,
    pub(crate) device: Device,
    /// Whether plans run as WGSL: each new kernel is compiled, so tests use fewer of them, and subnormals may be flushed to 0.
    pub(crate) takes_wgsl: bool,
    /// Whether it is a GPU opened without `f16` and subgroup support, which select other kernels.
    pub(crate) lacks_f16: bool,
}

/// The options of the CPU device under test, from the environment: `KILN_SIMD=scalar` runs everything without
/// SIMD.
pub(crate) fn cpu_options() -> CpuOptions {
    CpuOptions::from_settings(|name| std::env::var(name).ok()).unwrap()
}

static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let cpu = |name, options| Subject {
        name,
        device: Device::cpu_with(options).unwrap(),
        takes_wgsl: false,
        lacks_f16: false,
    };
    let mut subjects = vec![
        cpu("cpu", cpu_options().threads(2)),
        cpu("cpu without vectors", CpuOptions::new().threads(2).simd(SimdLevel::Scalar)),
    ];
    if cfg!(feature = "wgsl") {
        // Kernels cached by an older build must not be used instead of those under test.
        let as_wgsl = cpu_options().threads(2).plans_as_wgsl(true).kernels(KernelCacheOptions::new().without_disk());
        subjects.push(Subject { takes_wgsl: true, ..cpu("cpu with plans as WGSL", as_wgsl) });
    }
    subjects.extend(gpus());
    subjects
});

/// All devices: the CPU device natively, without SIMD, and with plans as WGSL; the GPU with and without `f16` and subgroups.
pub(crate) fn all() -> &'static [Subject] {
    &SUBJECTS
}

/// The CPU devices that run plans natively.
pub(crate) fn cpus() -> impl Iterator<Item = &'static Subject> {
    all().iter().filter(|subject| !subject.takes_wgsl)
}

/// The CPU device.
pub(crate) fn cpu() -> &'static Device {
    &all()[0].device
}

/// The first GPU with all its features.
pub(crate) fn gpu() -> Option<&'static Device> {
    all().iter().map(|subject| &subject.device).find(|device| device.info().kind != DeviceKind::Cpu)
}

#[cfg(feature = "gpu")]
fn gpus() -> Vec<Subject> {
    use kiln::device::{Feature, GpuOptions};

    if Device::list().len() < 2 {
        assert!(std::env::var_os("CI").is_none(), "no GPU although `CI` is set");
        println!("skipped on the GPU: there is none");
        return Vec::new();
    }
    let options = || GpuOptions::new().kernels(KernelCacheOptions::new().without_disk());
    let poor = options().without(Feature::ShaderF16).without(Feature::Subgroups);
    let open = |name, options, lacks_f16| {
        let device = Device::gpu_with(0, options).unwrap();
        Subject { name, device, takes_wgsl: true, lacks_f16 }
    };
    vec![open("gpu", options(), false), open("gpu without f16 and subgroups", poor, true)]
}

#[cfg(not(feature = "gpu"))]
fn gpus() -> Vec<Subject> {
    Vec::new()
}
