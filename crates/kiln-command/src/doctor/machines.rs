//! Made-up machines for tests of the doctor.

use super::report::{DefaultDevice, DeviceFacts, Facts, RejectedDevice};
use super::smoke::SmokeTest;
use super::system::{Distribution, GpuVendor, RenderNode, System, Vulkan};
use crate::cache_dir::{CacheDir, CacheDirState, Contents};
use kiln::device::{DeviceLimits, DeviceMemory, Feature};
use kiln::{DeviceInfo, DeviceKind};

/// An Apple laptop: one integrated GPU with Metal.
pub(super) fn mac() -> Facts {
    let mut gpu = gpu(0, "Apple M3 Pro", DeviceKind::IntegratedGpu, "metal", "macOS 15.3");
    gpu.info.memory = DeviceMemory { total_bytes: None, default_budget_bytes: 20 << 30, shared_with_host: true };
    gpu.info.features.insert(Feature::MappableStorage);
    let mut cpu = cpu("Apple M3 Pro", 11);
    cpu.info.features = [Feature::Neon, Feature::NeonF16].into();
    let system = System { os: "macos".into(), arch: "aarch64".into(), name: None, ..linux(None) };
    Facts {
        system: System { vulkan: None, ..system },
        default: default(
            "gpu:0",
            "integrated GPUs come before the CPU device",
            &[("cpu", "integrated GPUs come before the CPU device")],
        ),
        devices: vec![cpu, gpu],
        simd: "neon-f16".into(),
        simd_setting: None,
        threads: Some(11),
        cache_directory: private(
            "/Users/ada/Library/Caches/kiln",
            Contents { files: 41, bytes: 1_300_000, complete: true },
        ),
        ..nothing()
    }
}

/// A desktop with a discrete and an integrated GPU, and all drivers installed.
pub(super) fn nvidia() -> Facts {
    let why_cpu = "discrete GPUs come before the CPU device";
    let why_intel = "discrete GPUs come before integrated GPUs";
    Facts {
        system: System {
            gpus_on_bus: vec![GpuVendor::Intel, GpuVendor::Nvidia],
            vulkan: Some(vulkan(&["intel_icd.x86_64", "lvp_icd.x86_64", "nvidia_icd"], Some(true))),
            ..linux(Some(Distribution::Ubuntu))
        },
        default: default("gpu:0", why_cpu, &[("cpu", why_cpu), ("gpu:1", why_intel)]),
        devices: vec![
            cpu("Intel(R) Core(TM) i7-13700K", 24),
            gpu(0, "NVIDIA GeForce RTX 4080", DeviceKind::DiscreteGpu, "vulkan NVIDIA", "550.120"),
            gpu(
                1,
                "Intel(R) UHD Graphics 770",
                DeviceKind::IntegratedGpu,
                "vulkan Intel open-source Mesa driver",
                "24.0.9",
            ),
        ],
        threads: Some(24),
        cache_directory: private("/home/ada/.cache/kiln", Contents { files: 1, bytes: 900, complete: true }),
        ..nothing()
    }
}

/// A discrete GPU without its driver; only the software driver is installed.
pub(super) fn nvidia_without_driver() -> Facts {
    Facts {
        system: System {
            gpus_on_bus: vec![GpuVendor::Nvidia],
            vulkan: Some(vulkan(&["lvp_icd.x86_64"], Some(true))),
            ..linux(Some(Distribution::Debian))
        },
        ..lavapipe()
    }
}

/// A machine without a GPU, with the software driver, as in CI.
pub(super) fn lavapipe() -> Facts {
    let why = "software GPUs are slower than the CPU device; open it by name";
    let name = "llvmpipe (LLVM 15.0.6, 256 bits)";
    Facts {
        system: System { vulkan: Some(vulkan(&["lvp_icd.x86_64"], None)), ..linux(Some(Distribution::Debian)) },
        default: default("cpu", "no real GPU was found", &[("gpu:0", why)]),
        devices: vec![
            cpu("AMD EPYC 7713", 2),
            gpu(0, name, DeviceKind::SoftwareGpu, "vulkan llvmpipe", "Mesa 22.3.6 (LLVM 15.0.6)"),
        ],
        ..nothing()
    }
}

/// A minimal container with a compiler.
pub(super) fn nothing() -> Facts {
    Facts {
        version: "0.1.0".into(),
        system: linux(Some(Distribution::Debian)),
        gpu_support: true,
        default: default("cpu", "no GPU was found", &[]),
        devices: vec![cpu("AMD EPYC 7713", 2)],
        simd: "avx2".into(),
        simd_setting: None,
        threads: Some(2),
        cache_directory: CacheDir {
            free_bytes: Some(70 << 30),
            ..cache_dir("/home/ada/.cache/kiln", CacheDirState::NotCreated)
        },
    }
}

/// A cache directory that everybody can write.
pub(super) fn refused() -> Facts {
    Facts {
        cache_directory: CacheDir {
            source: crate::cache_dir::VARIABLE,
            fault: Some("expected a directory that only its owner can write, found mode 777".into()),
            fix: Some("chmod 700 /srv/shared".into()),
            ..cache_dir("/srv/shared", CacheDirState::Refused)
        },
        ..lavapipe()
    }
}

/// A discrete GPU that fails to open, and a CPU device that returns corrupted data.
pub(super) fn broken() -> Facts {
    let mut facts = nvidia();
    facts.devices.truncate(2);
    facts.system.gpus_on_bus = vec![GpuVendor::Nvidia];
    let lost = "device lost: expected a device, found that the driver reset it";
    for (device, error) in
        facts.devices.iter_mut().zip(["test data: expected 0x00000001 back at word 0, found 0x00000000", lost])
    {
        device.test = SmokeTest { works: false, error: Some(error.into()), open_us: None, round_trip_us: None };
    }
    facts.default = default("cpu", "no real GPU can be opened", &[("gpu:0", &format!("cannot be opened: {lost}"))]);
    facts
}

pub(super) fn linux(distribution: Option<Distribution>) -> System {
    System {
        os: "linux".into(),
        arch: "x86_64".into(),
        name: distribution.map(|distribution| format!("{distribution:?} 1")),
        distribution,
        is_root: false,
        gpus_on_bus: Vec::new(),
        vulkan: Some(Vulkan::default()),
    }
}

/// Vulkan with its loader, and one render node if `is_accessible` is given.
pub(super) fn vulkan(drivers: &[&str], is_accessible: Option<bool>) -> Vulkan {
    let node = |is_accessible| RenderNode { path: "/dev/dri/renderD128".into(), is_accessible };
    Vulkan {
        has_loader: true,
        drivers: drivers.iter().map(ToString::to_string).collect(),
        drivers_named_by: None,
        render_nodes: is_accessible.map(node).into_iter().collect(),
    }
}

fn default(id: &str, reason: &str, rejected: &[(&str, &str)]) -> DefaultDevice {
    let rejected =
        rejected.iter().map(|(id, reason)| RejectedDevice { id: id.to_string(), reason: reason.to_string() });
    DefaultDevice { id: Some(id.into()), reason: reason.into(), rejected: rejected.collect() }
}

fn cpu(name: &str, threads: u32) -> DeviceFacts {
    let mut device = gpu(0, name, DeviceKind::Cpu, "native", "0.1.0");
    device.info.id = "cpu".into();
    device.info.limits.threads = Some(threads);
    device.info.features = [Feature::Avx2].into();
    device.info.memory =
        DeviceMemory { total_bytes: Some(32 << 30), default_budget_bytes: 16 << 30, shared_with_host: true };
    device.test.open_us = Some(412);
    device
}

fn gpu(index: usize, name: &str, kind: DeviceKind, driver: &str, driver_version: &str) -> DeviceFacts {
    let info = DeviceInfo {
        id: format!("gpu:{index}"),
        name: name.into(),
        kind,
        driver: driver.into(),
        driver_version: driver_version.into(),
        compiler: None,
        fingerprint: "0123456789abcdef".into(),
        limits: DeviceLimits {
            max_buffer_bytes: 1 << 31,
            max_binding_bytes: 1 << 27,
            binding_alignment_bytes: 256,
            max_workgroups_per_axis: 65_535,
            max_value_bytes: 64 << 10,
            max_workgroup_size: [1024, 1024, 64],
            max_workgroup_invocations: 1024,
            max_workgroup_bytes: 32 << 10,
            subgroup_size: Some((8, 32)),
            threads: None,
        },
        features: [Feature::ShaderF16, Feature::Subgroups, Feature::Timestamps].into(),
        memory: DeviceMemory { total_bytes: Some(16 << 30), default_budget_bytes: 12 << 30, shared_with_host: false },
    };
    let test = SmokeTest { works: true, error: None, open_us: Some(31_400), round_trip_us: Some(1_250) };
    DeviceFacts { info, test }
}

fn cache_dir(path: &str, state: CacheDirState) -> CacheDir {
    CacheDir {
        path: Some(path.into()),
        source: "default",
        state,
        fault: None,
        fix: None,
        others_can_read: None,
        contents: None,
        free_bytes: None,
    }
}

fn private(path: &str, contents: Contents) -> CacheDir {
    CacheDir {
        others_can_read: Some(false),
        contents: Some(contents),
        free_bytes: Some(300 << 30),
        ..cache_dir(path, CacheDirState::Ready)
    }
}
