//! Kernels in WGSL compute the same with every check and without those that are proven needless.

#[path = "wgsl/launch.rs"]
mod launch;

use kiln::{CpuOptions, Device, KernelCacheOptions, KernelOptions, Optimisation};
use kiln_testkit::wgsl::{Case, Features, generate};

/// R2: random programs, to the last bit.
#[test]
fn random_programs_compute_the_same_without_needless_checks() {
    let device = Device::cpu_with(CpuOptions::new().kernels(KernelCacheOptions::new().without_disk())).unwrap();
    for seed in 0..120 {
        let features = Features { f16: true, subgroups: seed % 3 == 0, pointers_to_parts: seed % 2 == 0 };
        let case = Case::parse(&generate(seed, features)).unwrap();
        let run = |optimisation| {
            let options = KernelOptions { optimisation, ..KernelOptions::default() };
            launch::run(&device, &case, options).unwrap()
        };
        assert!(run(Optimisation::None) == run(Optimisation::Full), "{seed}:\n{}", case.text);
    }
}
