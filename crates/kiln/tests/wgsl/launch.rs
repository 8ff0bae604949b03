//! Runs a case on one device; the number of cases and seeds.

use kiln::kernel::{Grid, KernelOptions, KernelSource, Value};
use kiln::{Device, Result};
use kiln_testkit::wgsl::Case;

/// Returns a number from the environment, or a default.
#[allow(dead_code, reason = "some tests have a fixed number")]
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
}

/// Calls a test with seeds from `KILN_FUZZ_SEED` on, `KILN_FUZZ_CASES` of them if that is set, on all cores.
#[allow(dead_code, reason = "some tests have fixed seeds")]
pub(crate) fn for_each_seed(default_cases: u64, test: impl Fn(u64) + Sync) {
    let first = setting("KILN_FUZZ_SEED", 0);
    let last = first + setting("KILN_FUZZ_CASES", default_cases);
    let next = std::sync::atomic::AtomicU64::new(first);
    let take = || Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).filter(|seed| *seed < last);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| std::iter::from_fn(take).for_each(&test));
        }
    });
}

/// Returns the contents of the buffers after a case ran.
pub(crate) fn run(device: &Device, case: &Case, options: KernelOptions) -> Result<Vec<Vec<u8>>> {
    let source = KernelSource::wgsl(case.text.as_str()).options(options);
    let source = case.constants.iter().fold(source, |source, (name, value)| source.constant(name, *value));
    let kernel = device.kernel(source)?;
    let mut buffers = Vec::new();
    for binding in case.bindings.iter().filter(|binding| !binding.is_value) {
        let contents = binding.contents(case.seed);
        let buffer = device.buffer(contents.len() as u64)?;
        buffer.write(&contents)?;
        buffers.push((binding.name.as_str(), buffer));
    }
    let is_used = |name: &str| kernel.reflection().bindings.iter().any(|binding| binding.name == name);
    let mut launch = kernel.launch().grid(Grid::workgroups(case.grid));
    for (name, buffer) in buffers.iter_mut().filter(|(name, _)| is_used(name)) {
        launch = launch.bind(*name, buffer);
    }
    for binding in case.bindings.iter().filter(|binding| binding.is_value && is_used(&binding.name)) {
        launch = launch.value(binding.name.as_str(), Value::slice(&binding.contents(case.seed)));
    }
    launch.submit()?;
    buffers.iter().map(|(_, buffer)| buffer.read()).collect()
}
