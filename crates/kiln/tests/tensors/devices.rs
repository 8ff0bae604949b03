//! The devices that the tests share.

use kiln::{CpuOptions, Device, SimdLevel};
use std::sync::LazyLock;

/// A device under test.
pub(crate) struct Subject {
    /// For messages.
    pub(crate) name: &'static str,
    pub(crate) device: Device,
    /// On a GPU every new kernel is compiled, so tests choose fewer of them, and small numbers may become 0.
    pub(crate) is_gpu: bool,
    /// Whether it is a GPU that was opened without what makes kernels of `f16` and of reductions different ones.
    pub(crate) lacks_f16: bool,
}

/// The options of the CPU device under test: those of the environment, so that `KILN_SIMD=scalar` runs everything without
/// vectors.
pub(crate) fn cpu_options() -> CpuOptions {
    CpuOptions::from_settings(|name| std::env::var(name).ok()).unwrap()
}

static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let cpu =
        |name, options| Subject { name, device: Device::cpu_with(options).unwrap(), is_gpu: false, lacks_f16: false };
    let mut subjects = vec![
        cpu("cpu", cpu_options().threads(2)),
        cpu("cpu without vectors", CpuOptions::new().threads(2).simd(SimdLevel::Scalar)),
    ];
    subjects.extend(gpus());
    subjects
});

/// All devices: the CPU device, the CPU device without vector instructions, the GPU, the GPU without `f16` and subgroups.
pub(crate) fn all() -> &'static [Subject] {
    &SUBJECTS
}

/// The CPU devices.
pub(crate) fn cpus() -> impl Iterator<Item = &'static Subject> {
    all().iter().filter(|subject| !subject.is_gpu)
}

/// The CPU device.
pub(crate) fn cpu() -> &'static Device {
    &all()[0].device
}

/// The first GPU as it is.
pub(crate) fn gpu() -> Option<&'static Device> {
    all().iter().find(|subject| subject.is_gpu).map(|subject| &subject.device)
}

#[cfg(feature = "gpu")]
fn gpus() -> Vec<Subject> {
    use kiln::{Feature, GpuOptions, KernelCacheOptions};

    if Device::list().len() < 2 {
        assert!(std::env::var_os("CI").is_none(), "no GPU although `CI` is set");
        println!("skipped on the GPU: there is none");
        return Vec::new();
    }
    // Kernels of an older build must not take the place of those under test.
    let options = || GpuOptions::new().kernels(KernelCacheOptions::new().without_disk());
    let poor = options().without(Feature::ShaderF16).without(Feature::Subgroups);
    let open = |name, options, lacks_f16| {
        let device = Device::gpu_with(0, options).unwrap();
        Subject { name, device, is_gpu: true, lacks_f16 }
    };
    vec![open("gpu", options(), false), open("gpu without f16 and subgroups", poor, true)]
}

#[cfg(not(feature = "gpu"))]
fn gpus() -> Vec<Subject> {
    Vec::new()
}
