//! Kernels in WGSL compute the same whether they are optimised or not, without the checks that are proven needless, and whether invocations run
//! together or one by one. A debug build looks at the indices of those checks all the same: a proof that is wrong is an error here, whatever it
//! would have done. `KILN_FUZZ_CASES` says how many programs run, `KILN_FUZZ_SEED` with which seed they begin.

#[path = "wgsl/launch.rs"]
mod launch;

use kiln::Device;
use kiln::cache::KernelCacheOptions;
use kiln::device::{CpuOptions, SimdLevel};
use kiln::kernel::{KernelOptions, Optimisation};
use kiln_testkit::wgsl::{Case, Features, generate};

/// Random programs, to the last bit.
#[test]
fn random_programs_compute_the_same_however_they_are_compiled() {
    let options = || CpuOptions::new().kernels(KernelCacheOptions::new().without_disk().max_entries(16));
    let device = Device::cpu_with(options()).unwrap();
    let single = Device::cpu_with(options().simd(SimdLevel::Scalar)).unwrap();
    // What is joined into one rounding is the compiler's choice.
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
