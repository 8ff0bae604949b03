//! What a device is: identity, limits, features, memory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Everything that can be known about a device without using it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// The name that `Device::by_name` takes: `cpu`, `gpu:0`, `null`.
    pub id: String,
    /// What the vendor calls it.
    pub name: String,
    /// What sort of device it is.
    pub kind: DeviceKind,
    /// What runs it: `native`, or the driver behind wgpu, with the interface used to reach it (`vulkan llvmpipe`).
    pub driver: String,
    /// The version of the driver, as the driver writes it.
    pub driver_version: String,
    /// What translates kernels for the device, with versions; `None` where it runs no kernels in WGSL.
    pub compiler: Option<String>,
    /// A stable hash of everything above and of what the kernels compiled for it depend on. It changes when the driver
    /// is updated, and is the same in every process until then.
    pub fingerprint: String,
    /// What the device cannot exceed.
    pub limits: DeviceLimits,
    /// What the device can do beyond the ordinary, in alphabetical order.
    pub features: BTreeSet<Feature>,
    /// The memory that its buffers live in.
    pub memory: DeviceMemory,
}

/// The sort of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeviceKind {
    /// Kiln's own CPU device.
    Cpu,
    /// A GPU with memory of its own.
    DiscreteGpu,
    /// A GPU that shares the system's memory.
    IntegratedGpu,
    /// A GPU behind a virtual machine.
    VirtualGpu,
    /// A GPU driver that runs on the CPU (llvmpipe, SwiftShader, WARP): slower than [`Cpu`](Self::Cpu), only for tests.
    SoftwareGpu,
    /// A GPU whose driver does not say.
    OtherGpu,
    /// The device of the tests.
    Null,
}

impl DeviceKind {
    /// Whether this is a GPU of silicon.
    pub fn is_real_gpu(self) -> bool {
        matches!(self, Self::DiscreteGpu | Self::IntegratedGpu | Self::VirtualGpu | Self::OtherGpu)
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::DiscreteGpu => "discrete GPU",
            Self::IntegratedGpu => "integrated GPU",
            Self::VirtualGpu => "virtual GPU",
            Self::SoftwareGpu => "software GPU",
            Self::OtherGpu => "GPU",
            Self::Null => "null",
        })
    }
}

/// What a device cannot exceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceLimits {
    /// The largest buffer.
    pub max_buffer_bytes: u64,
    /// The largest part of a buffer that one kernel argument can see.
    pub max_binding_bytes: u64,
    /// Buffers that kernels work on begin at multiples of this.
    pub binding_alignment_bytes: u64,
    /// The most workgroups along one axis of a dispatch.
    pub max_workgroups_per_axis: u32,
    /// The largest value that a launch gives to a kernel.
    pub max_value_bytes: u64,
    /// The most invocations in one workgroup along each axis.
    pub max_workgroup_size: [u32; 3],
    /// The most invocations in one workgroup.
    pub max_workgroup_invocations: u32,
    /// Memory that a workgroup shares.
    pub max_workgroup_bytes: u32,
    /// Smallest and largest subgroup, where the device has subgroups; on the CPU, invocations that run together.
    pub subgroup_size: Option<(u32, u32)>,
    /// Threads that run kernels: the threads of the CPU device, unknown on a GPU.
    pub threads: Option<u32>,
}

/// What a device can do beyond the ordinary. Kiln works without each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Feature {
    /// AVX2, FMA and F16C of x86-64.
    Avx2,
    /// AVX-512 F, BW and VL of x86-64.
    Avx512,
    /// Small values handed to a kernel without a buffer.
    Immediates,
    /// Storage buffers that the host maps.
    MappableStorage,
    /// NEON of Arm.
    Neon,
    /// Half-precision arithmetic of Arm.
    NeonF16,
    /// Shaders handed to the driver as they are, without translation.
    PassthroughShaders,
    /// The driver's own store of compiled pipelines.
    PipelineCache,
    /// `f16` in kernels.
    ShaderF16,
    /// Operations among the invocations of a subgroup.
    Subgroups,
    /// Device time at points of a command list.
    Timestamps,
}

/// The name in reports and on the command line, such as `mappable-storage`.
impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The memory that a device's buffers live in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// How much there is, where the system or driver tells.
    pub total_bytes: Option<u64>,
    /// What the pool may reserve unless its settings say otherwise.
    pub default_budget_bytes: u64,
    /// Whether host and device share it, so that data is written and read in place.
    pub shared_with_host: bool,
}

/// A stable hash over `parts`, as 32 hexadecimal digits: the same in every process, on every system, and another one
/// when any part changes or moves. It identifies a device; it does not protect against a forger.
pub fn fingerprint(parts: &[&str]) -> String {
    // FNV-1a with 128 bits. The length in front of each part keeps ["ab", "c"] apart from ["a", "bc"].
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash = OFFSET;
    for part in parts {
        let length = part.len() as u64;
        for byte in length.to_le_bytes().iter().chain(part.as_bytes()) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_stable_and_every_part_counts() {
        assert_eq!(fingerprint(&[]), "6c62272e07bb014262b821756295c58d");
        let base = fingerprint(&["ab", "c", ""]);
        assert_eq!(base, "5e15d5f59b80054b698f4388a4dc6c8e");
        for other in [&["a", "bc", ""][..], &["ab", "c"], &["c", "ab", ""], &["ab", "", "c"], &["ab", "d", ""]] {
            assert_ne!(fingerprint(other), base, "{other:?}");
        }
    }
}
