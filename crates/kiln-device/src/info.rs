//! The description of a device: identity, limits, features, memory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The properties of a device that are known without using it.
///
/// ```
/// use kiln_device::{DeviceKind, Feature, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let info = device.info();
/// assert_eq!((info.id.as_str(), info.kind), ("null", DeviceKind::Null));
/// assert_eq!(info.limits.max_workgroup_size, [256, 256, 64]);
/// assert!(!info.features.contains(&Feature::ShaderF16));
/// assert!(info.memory.shared_with_host);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceInfo {
    /// The name that `Device::by_name` accepts: `cpu`, `gpu:0`, `null`.
    pub id: String,
    /// The name given by the vendor.
    pub name: String,
    /// The kind of device.
    pub kind: DeviceKind,
    /// The driver: `native`, or the backend and driver below wgpu (`vulkan llvmpipe`).
    pub driver: String,
    /// The version of the driver, as reported by it.
    pub driver_version: String,
    /// The compiler of WGSL kernels, with versions; `None` if the device runs no WGSL kernels.
    pub compiler: Option<String>,
    /// A hash of the name, the driver and all other properties that affect compiled kernels, but not of the id or the
    /// compiler. It is the same in every process and changes when the driver is updated.
    pub fingerprint: String,
    /// The limits of the device.
    pub limits: DeviceLimits,
    /// The optional features of the device, in alphabetical order.
    pub features: BTreeSet<Feature>,
    /// The memory of its buffers.
    pub memory: DeviceMemory,
}

/// The kind of a device.
///
/// See [`DeviceInfo`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeviceKind {
    /// Kiln's native CPU device.
    Cpu,
    /// A GPU with dedicated memory.
    DiscreteGpu,
    /// A GPU that uses system memory.
    IntegratedGpu,
    /// A GPU of a virtual machine.
    VirtualGpu,
    /// A GPU driver that runs on the CPU (llvmpipe, SwiftShader, WARP). Slower than [`Cpu`](Self::Cpu) and only useful
    /// for tests.
    SoftwareGpu,
    /// A GPU of unknown kind.
    OtherGpu,
    /// The null device for tests.
    Null,
}

impl DeviceKind {
    /// Returns whether this is a hardware GPU.
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

/// The limits of a device.
///
/// See [`DeviceInfo`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceLimits {
    /// The largest buffer, in bytes.
    pub max_buffer_bytes: u64,
    /// The largest range of a buffer that can be bound to a kernel, in bytes.
    pub max_binding_bytes: u64,
    /// The alignment of buffers that are bound to kernels, in bytes.
    pub binding_alignment_bytes: u64,
    /// The maximum number of workgroups along one axis of a dispatch.
    pub max_workgroups_per_axis: u32,
    /// The largest value (uniform) of a launch, in bytes.
    pub max_value_bytes: u64,
    /// The maximum workgroup size along each axis.
    pub max_workgroup_size: [u32; 3],
    /// The maximum number of invocations in a workgroup.
    pub max_workgroup_invocations: u32,
    /// The maximum workgroup memory, in bytes.
    pub max_workgroup_bytes: u32,
    /// The smallest and largest subgroup size, if the device has subgroups; on the CPU, the number of invocations that
    /// run together.
    pub subgroup_size: Option<(u32, u32)>,
    /// The number of threads that run kernels on the CPU device; `None` on a GPU.
    pub threads: Option<u32>,
}

/// Optional features of a device. Kiln works without any of them.
///
/// See [`DeviceInfo`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Feature {
    /// AVX2, FMA and F16C on x86-64.
    Avx2,
    /// AVX-512 F, BW and VL on x86-64.
    Avx512,
    /// Immediates (push constants): small values passed to a kernel without a buffer.
    Immediates,
    /// Storage buffers that the host can map.
    MappableStorage,
    /// NEON on Arm.
    Neon,
    /// Half-precision arithmetic on Arm.
    NeonF16,
    /// Code in the driver's format, such as SPIR-V from Kiln's translation, which wgpu passes to the driver unchanged.
    PassthroughShaders,
    /// The driver's pipeline cache.
    PipelineCache,
    /// `f16` in kernels.
    ShaderF16,
    /// Subgroup operations.
    Subgroups,
    /// Timestamp queries.
    Timestamps,
}

/// Formats the name used in reports and on the command line, such as `mappable-storage`.
impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The memory of a device.
///
/// See [`DeviceInfo`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// The total size in bytes, if the system or driver reports it.
    pub total_bytes: Option<u64>,
    /// The default budget of the pool, in bytes.
    pub default_budget_bytes: u64,
    /// Whether host and device share the memory, so that data is accessed in place.
    pub shared_with_host: bool,
}

/// Returns a stable hash of `parts` as 32 hexadecimal digits. It is the same on all systems, and changes if a part
/// changes or moves. It identifies a device and is not cryptographically secure.
///
/// ```
/// use kiln_device::fingerprint;
///
/// assert_eq!(fingerprint(&["ab", "c"]).len(), 32);
/// assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
/// ```
pub fn fingerprint(parts: &[&str]) -> String {
    // FNV-1a with 128 bits. The length before each part distinguishes ["ab", "c"] from ["a", "bc"].
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
