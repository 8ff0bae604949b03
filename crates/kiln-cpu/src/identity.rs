//! The device info of the CPU: model, limits, memory.

use crate::SimdLevel;
use crate::kernel::Kernels;
use kiln_device::{DeviceInfo, DeviceKind, DeviceLimits, DeviceMemory, Feature, Usage, fingerprint};
use std::env::consts::{ARCH, OS};

/// Properties of WGSL kernels, for devices that run them.
#[derive(Debug)]
pub(crate) struct KernelInfo {
    /// The compiler, with everything that affects its code.
    pub(crate) compiler: String,
    pub(crate) subgroup_size: u32,
    pub(crate) max_binding_bytes: u64,
}

/// The driver name of the CPU device. It is part of its kernels' cache keys, because those are machine code.
///
/// See [`CpuDevice`](crate::CpuDevice) for an example.
pub const NATIVE_DRIVER: &str = "native";

/// The budget if the system does not report how much memory it has.
const FALLBACK_BUDGET_BYTES: u64 = 4 << 30;

/// Describes a device with `threads` threads and kernels for `simd`, without starting any thread.
pub(crate) fn describe(threads: usize, simd: SimdLevel, default_usage: Usage, kernels: &Kernels) -> DeviceInfo {
    let kernels = kernels.describe();
    let name = model().unwrap_or_else(|| ARCH.into());
    let total_bytes = kiln_device::memory_bytes();
    let driver_version = env!("CARGO_PKG_VERSION");
    let of_wgsl = kernels.iter().flat_map(|_| [Feature::ShaderF16, Feature::Subgroups]);
    DeviceInfo {
        id: "cpu".into(),
        fingerprint: fingerprint(&["cpu", NATIVE_DRIVER, driver_version, ARCH, OS, &name, simd.name()]),
        name,
        kind: DeviceKind::Cpu,
        driver: NATIVE_DRIVER.into(),
        driver_version: driver_version.into(),
        limits: limits(threads, kernels.as_ref(), total_bytes),
        features: crate::simd::features(simd).iter().copied().chain(of_wgsl).collect(),
        compiler: kernels.map(|kernels| kernels.compiler),
        memory: DeviceMemory {
            total_bytes,
            // Leaves the rest to the program itself and to other processes.
            default_budget_bytes: total_bytes.map_or(FALLBACK_BUDGET_BYTES, |total| total / 4 * 3),
            shared_with_host: default_usage == Usage::Shared,
        },
    }
}

/// Returns the limits. Memory and threads set the real ones. Workgroup limits are those common among WebGPU adapters,
/// so that a kernel written for one runs here unchanged.
fn limits(threads: usize, kernels: Option<&KernelInfo>, total_bytes: Option<u64>) -> DeviceLimits {
    // No slice is longer than `isize::MAX`, and a buffer larger than the system's memory can never be filled.
    let max_buffer_bytes = total_bytes.unwrap_or(u64::MAX).min(isize::MAX as u64);
    DeviceLimits {
        max_buffer_bytes,
        max_binding_bytes: kernels.map_or(u64::MAX, |kernels| kernels.max_binding_bytes).min(max_buffer_bytes),
        // The largest alignment of a WGSL type.
        binding_alignment_bytes: 16,
        max_workgroups_per_axis: 65_535,
        max_value_bytes: 64 << 10,
        max_workgroup_size: [1024, 1024, 64],
        max_workgroup_invocations: 1024,
        max_workgroup_bytes: 32 << 10,
        subgroup_size: kernels.map(|kernels| (kernels.subgroup_size, kernels.subgroup_size)),
        threads: Some(u32::try_from(threads).unwrap_or(u32::MAX)),
    }
}

/// Returns the vendor's name of the processor, read with CPUID: the system's list of cores takes milliseconds to read
/// if there are many.
#[cfg(target_arch = "x86_64")]
fn model() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const FIRST: u32 = 0x8000_0002;
    const LAST: u32 = 0x8000_0004;
    if __cpuid(0x8000_0000).eax < LAST {
        return None;
    }
    let registers = (FIRST..=LAST).map(__cpuid).flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
    let bytes: Vec<u8> = registers.flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
    one_line(&String::from_utf8_lossy(&bytes))
}

#[cfg(not(target_arch = "x86_64"))]
fn model() -> Option<String> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
    one_line(system.cpus().first()?.brand())
}

/// Collapses whitespace; vendors pad the name with spaces.
fn one_line(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits are those of the kernel compiler, so that the launch rejects what kernels cannot take. Without kernels
    /// there is no limit.
    #[test]
    fn limits_of_kernels_are_those_of_their_compiler() {
        let kernels = KernelInfo { compiler: String::new(), subgroup_size: 8, max_binding_bytes: 1 << 31 };
        let of = |kernels, total| {
            let limits = limits(1, kernels, Some(total));
            (limits.subgroup_size, limits.max_binding_bytes, limits.max_buffer_bytes)
        };
        assert_eq!(of(Some(&kernels), 1 << 33), (Some((8, 8)), 1 << 31, 1 << 33));
        assert_eq!(of(Some(&kernels), 1 << 30), (Some((8, 8)), 1 << 30, 1 << 30));
        assert_eq!(of(None, 1 << 33), (None, 1 << 33, 1 << 33));
    }

    #[cfg(target_os = "linux")]
    fn described() -> DeviceInfo {
        let simd = SimdLevel::detect();
        describe(1, simd, Usage::Shared, &Kernels::new(simd, false))
    }

    #[test]
    fn the_words_of_a_model_are_one_line() {
        assert_eq!(one_line("  AMD  EPYC 7B13\tProcessor   ").as_deref(), Some("AMD EPYC 7B13 Processor"));
        assert_eq!(one_line(" \n"), None);
    }

    /// Compares the model with `/proc/cpuinfo`, an independent source.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn the_model_is_the_one_that_linux_shows() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap();
        let expected = one_line(line.trim_start_matches([' ', '\t', ':'])).unwrap();
        assert_eq!(described().name, expected);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_budget_is_three_quarters_of_at_most_the_systems_memory() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let total: u64 = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
        let memory = described().memory;
        let found = memory.total_bytes.unwrap();
        assert!(found > 0 && found <= total, "{found} of {total}");
        assert_eq!(memory.default_budget_bytes, found / 4 * 3);
    }

    #[test]
    fn no_buffer_is_longer_than_memory_or_than_a_slice() {
        let max = |total| limits(1, None, total).max_buffer_bytes;
        assert_eq!(max(Some(1 << 30)), 1 << 30);
        assert_eq!(max(Some(u64::MAX)), isize::MAX as u64);
        assert_eq!(max(None), isize::MAX as u64);
    }
}
