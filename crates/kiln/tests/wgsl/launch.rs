//! A case on one device, and how many there are.

use kiln::{Device, Grid, KernelOptions, KernelSource, Result, Value};
use kiln_testkit::wgsl::Case;

/// A number that a caller may set in the environment.
#[allow(dead_code, reason = "some tests have a fixed number")]
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
}

/// What is in the buffers of a case after it ran.
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
