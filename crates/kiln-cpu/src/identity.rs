//! What the CPU device says about itself: model, limits, memory.

use crate::SimdLevel;
use crate::kernel::Mode;
use kiln_jit::Compiler;
use kiln_runtime::{DeviceInfo, DeviceKind, DeviceLimits, DeviceMemory, Feature, Usage, fingerprint};
use std::env::consts::{ARCH, OS};

/// The version of naga, which changes the programs that are compiled. A test compares it with the lock file.
const NAGA_VERSION: &str = "30.0.1";

/// The budget where the system does not tell how much memory it has.
const FALLBACK_BUDGET_BYTES: u64 = 4 << 30;

/// Describes a device with `threads` threads, without starting any, and with kernels for `simd`.
pub(crate) fn describe(
    threads: usize,
    simd: SimdLevel,
    default_usage: Usage,
    compiler: Option<&Compiler>,
    mode: Mode,
) -> DeviceInfo {
    let name = model().unwrap_or_else(|| ARCH.into());
    let total_bytes = kiln_runtime::memory_bytes();
    let driver_version = env!("CARGO_PKG_VERSION");
    DeviceInfo {
        id: "cpu".into(),
        fingerprint: fingerprint(&["cpu", "native", driver_version, ARCH, OS, &name, simd.name()]),
        name,
        kind: DeviceKind::Cpu,
        driver: "native".into(),
        driver_version: driver_version.into(),
        compiler: compiler.map(|compiler| compiler_name(compiler, mode)),
        limits: limits(threads, compiler.map(|_| if mode.one_by_one { SimdLevel::Scalar } else { simd }), total_bytes),
        features: crate::simd::features(simd).iter().copied().chain(wgsl_features(compiler)).collect(),
        memory: DeviceMemory {
            total_bytes,
            // The rest is for the program itself and for its neighbours.
            default_budget_bytes: total_bytes.map_or(FALLBACK_BUDGET_BYTES, |total| total / 4 * 3),
            shared_with_host: default_usage == Usage::Shared,
        },
    }
}

/// What compiles kernels, with everything that changes their code.
fn compiler_name(compiler: &Compiler, mode: Mode) -> String {
    let lanes = match mode {
        Mode { sanitize: true, .. } => "watched",
        Mode { one_by_one: true, .. } => "one by one",
        _ => "in vectors",
    };
    format!("naga {NAGA_VERSION}, {}, invocations {lanes}", compiler.name())
}

/// How kernels run: one invocation after the other where vectors are not wanted, or where each of them is watched.
pub(crate) fn mode(simd: SimdLevel, sanitize: bool) -> Mode {
    Mode { one_by_one: sanitize || simd == SimdLevel::Scalar, sanitize }
}

/// What kernels in WGSL can use here.
fn wgsl_features(compiler: Option<&Compiler>) -> impl Iterator<Item = Feature> {
    compiler.into_iter().flat_map(|_| [Feature::ShaderF16, Feature::Subgroups])
}

/// Memory and threads set the real limits. The limits of a workgroup are those that WebGPU adapters commonly have, so
/// that a kernel written for one runs here as it is. `kernels` is the level of those in WGSL, where there can be some.
fn limits(threads: usize, kernels: Option<SimdLevel>, total_bytes: Option<u64>) -> DeviceLimits {
    // No slice is longer than `isize::MAX`, and a buffer beyond the system's memory can never be filled.
    let max_buffer_bytes = total_bytes.unwrap_or(u64::MAX).min(isize::MAX as u64);
    DeviceLimits {
        max_buffer_bytes,
        max_binding_bytes: max_buffer_bytes,
        // What any type of WGSL is aligned to.
        binding_alignment_bytes: 16,
        max_workgroups_per_axis: 65_535,
        max_value_bytes: 64 << 10,
        max_workgroup_size: [1024, 1024, 64],
        max_workgroup_invocations: 1024,
        max_workgroup_bytes: 32 << 10,
        // A vector of invocations; a work-group of one has no more.
        subgroup_size: kernels.map(|simd| (1, if simd == SimdLevel::Scalar { 1 } else { kiln_jit::LANES as u32 })),
        threads: Some(u32::try_from(threads).unwrap_or(u32::MAX)),
    }
}

/// What the vendor calls the processor, from the processor itself: the list of cores that a system keeps takes
/// milliseconds to read where there are many.
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

/// The words of `text`; vendors pad theirs with spaces.
fn one_line(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R2.2: the version in the key is the one that is built in.
    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("name = \"naga\"\nversion = \"{NAGA_VERSION}\"\n")), "{NAGA_VERSION}");
    }

    /// R4.1: no kernel counts on subgroups that are larger than those it gets.
    #[test]
    fn subgroups_are_vectors_of_invocations() {
        let size = |kernels| limits(1, kernels, None).subgroup_size;
        assert_eq!(size(Some(SimdLevel::Avx512)), Some((1, 8)));
        assert_eq!(size(Some(SimdLevel::Scalar)), Some((1, 1)));
        assert_eq!(size(None), None, "where no kernel runs there are none");
    }

    #[cfg(target_os = "linux")]
    fn described() -> DeviceInfo {
        describe(1, SimdLevel::detect(), Usage::Shared, None, mode(SimdLevel::detect(), false))
    }

    #[test]
    fn the_words_of_a_model_are_one_line() {
        assert_eq!(one_line("  AMD  EPYC 7B13\tProcessor   ").as_deref(), Some("AMD EPYC 7B13 Processor"));
        assert_eq!(one_line(" \n"), None);
    }

    /// The same text by another way than the one used.
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
