//! A case on two devices.

use crate::launch::run;
use kiln::cache::KernelCacheOptions;
use kiln::device::{CpuOptions, Feature, GpuOptions};
use kiln::kernel::{KernelOptions, KernelSource, Optimisation};
use kiln::{Device, ErrorKind};
use kiln_testkit::wgsl::{Case, compare};
use std::sync::OnceLock;

/// A GPU and the device that is compared with it.
pub(crate) struct Pair {
    gpu: Device,
    other: Device,
    other_options: KernelOptions,
    pub(crate) has_f16: bool,
    pub(crate) has_subgroups: bool,
}

/// A failure of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Finding {
    /// The results differ, as described.
    Differs(String),
    /// A device rejects the program, with this message.
    Refused(String),
}

impl Finding {
    /// Returns whether two failures may have the same cause.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Differs(_), Self::Differs(_)) => true,
            (Self::Refused(one), Self::Refused(other)) => one.get(..40) == other.get(..40),
            _ => false,
        }
    }
}

/// The GPU and the CPU device; if that runs no WGSL, the GPU with other options. `None` if there is no GPU.
pub(crate) fn pair() -> Option<&'static Pair> {
    static PAIR: OnceLock<Option<Pair>> = OnceLock::new();
    PAIR.get_or_init(open).as_ref()
}

fn open() -> Option<Pair> {
    if Device::list().len() < 2 {
        assert!(std::env::var_os("CI").is_none(), "no GPU although `CI` is set");
        println!("skipped: there is no GPU");
        return None;
    }
    // Each program is new, and kernels cached by an older build must not be used.
    let kernels = KernelCacheOptions::new().without_disk().max_entries(16);
    let gpu = Device::gpu_with(0, GpuOptions::new().kernels(kernels.clone())).unwrap();
    // `KILN_SIMD=scalar` runs one invocation after the other.
    let options = CpuOptions::from_settings(|name| std::env::var(name).ok()).unwrap();
    let cpu = Device::cpu_with(options.kernels(kernels)).unwrap();
    let probe = cpu.kernel(KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}"));
    let is_unsupported = probe.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported);
    // Otherwise everything would pass without comparing the compiler.
    assert!(!(is_unsupported && cfg!(feature = "wgsl")), "the CPU device refuses kernels: {probe:?}");
    let (other, other_options) = if is_unsupported {
        println!("the CPU device runs no WGSL: the GPU is compared with itself, with other options");
        (gpu.clone(), KernelOptions { optimisation: Optimisation::None, ..exact_options() })
    } else {
        (cpu, exact_options())
    };
    let has = |feature| [&gpu, &other].iter().all(|device| device.info().features.contains(&feature));
    // A workgroup of one has a subgroup of one; programs with subgroups need more.
    let of_eight = [&gpu, &other].iter().all(|device| matches!(device.info().limits.subgroup_size, Some((_, 8))));
    let (has_f16, has_subgroups) = (has(Feature::ShaderF16), has(Feature::Subgroups) && of_eight);
    Some(Pair { gpu, other, other_options, has_f16, has_subgroups })
}

/// Every operation is rounded separately. Loops are counted: otherwise lavapipe skips iterations of some.
fn exact_options() -> KernelOptions {
    KernelOptions { fast_math: false, ..KernelOptions::default() }
}

impl Pair {
    /// Runs a case on both devices. Returns `None` if they agree.
    pub(crate) fn check(&self, case: &Case) -> Option<Finding> {
        let refused = |device: &Device| {
            let id = device.info().id.clone();
            move |error| Finding::Refused(format!("{id}: {error}"))
        };
        let expected = run(&self.gpu, case, exact_options()).map_err(refused(&self.gpu));
        let found = run(&self.other, case, self.other_options.clone()).map_err(refused(&self.other));
        // A debug build verifies proven indices: one out of bounds is an error.
        let trusting = KernelOptions { bounds_checks: false, ..self.other_options.clone() };
        let trusted = run(&self.other, case, trusting).map_err(refused(&self.other));
        let (expected, found, trusted) = match (expected, found, trusted) {
            (Ok(expected), Ok(found), Ok(trusted)) => (expected, found, trusted),
            (Err(finding), ..) | (_, Err(finding), _) | (.., Err(finding)) => return Some(finding),
        };
        if found != trusted {
            return Some(Finding::Differs("with and without the checks that are proven needless".into()));
        }
        let buffers = case.bindings.iter().filter(|binding| !binding.is_value);
        let differences = buffers.zip(expected.iter().zip(&found)).filter_map(|(binding, (expected, found))| {
            compare(binding, expected, found).map(|difference| difference.to_string())
        });
        let differences: Vec<String> = differences.collect();
        (!differences.is_empty()).then(|| Finding::Differs(differences.join("\n")))
    }
}
