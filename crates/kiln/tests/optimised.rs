//! WGSL kernels compute the same with and without optimisation, without the bounds checks that are proven redundant, and whether invocations run
//! in SIMD lanes or one at a time. A debug build still verifies the indices of those checks: a wrong proof is an error here, whatever it
//! would have caused. `KILN_FUZZ_CASES` sets the number of programs, `KILN_FUZZ_SEED` the first seed.

#[path = "wgsl/launch.rs"]
mod launch;

use kiln::Device;
use kiln::cache::KernelCacheOptions;
use kiln::device::{CpuOptions, SimdLevel};
use kiln::kernel::{KernelOptions, Optimisation};
use kiln_testkit::wgsl::{Case, Features, generate};

/// Random programs give bit-identical results.
#[test]
fn random_programs_compute_the_same_however_they_are_compiled() {
    let options = || CpuOptions::new().kernels(KernelCacheOptions::new().without_disk().max_entries(16));
    let device = Device::cpu_with(options()).unwrap();
    let single = Device::cpu_with(options().simd(SimdLevel::Scalar)).unwrap();
    // Contraction into fused multiply-add is up to the compiler.
    let exact = || KernelOptions { fast_math: false, ..KernelOptions::default() };
    launch::for_each_seed(30, |seed| {
        let features = Features { f16: true, subgroups: seed % 3 == 0, pointers_to_parts: seed % 2 == 0 };
        let case = Case::parse(&generate(seed, features)).unwrap();
        let run = |device: &Device, options: KernelOptions| {
            launch::run(device, &case, options).unwrap_or_else(|error| panic!("{seed}: {error}\n{}", case.text))
        };
        let expected = run(&device, exact());
        let others = [
            ("not optimised", &device, KernelOptions { optimisation: Optimisation::None, ..exact() }),
            ("without needless checks", &device, KernelOptions { bounds_checks: false, ..exact() }),
            ("one by one", &single, exact()),
        ];
        for (name, device, options) in others {
            assert!(run(device, options) == expected, "{seed}, {name}:\n{}", case.text);
        }
    });
}
