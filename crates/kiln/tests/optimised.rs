//! Kernels in WGSL compute the same whether they are optimised or not, and without the checks that are proven needless. A debug build looks at
//! the indices of those all the same: a proof that is wrong is an error here, whatever it would have done.

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
        let run = |options: KernelOptions| {
            launch::run(&device, &case, options).unwrap_or_else(|error| panic!("{seed}: {error}\n{}", case.text))
        };
        let expected = run(KernelOptions { optimisation: Optimisation::None, ..KernelOptions::default() });
        for bounds_checks in [true, false] {
            let options = KernelOptions { bounds_checks, ..KernelOptions::default() };
            assert!(run(options) == expected, "{seed}, bounds_checks {bounds_checks}:\n{}", case.text);
        }
    }
}
