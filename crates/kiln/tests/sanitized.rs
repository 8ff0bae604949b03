//! The sanitizer on programs that are sound: it finds nothing, and changes nothing.

use kiln::{
    CpuOptions, DType, Device, Finding, FindingKind, Grid, KernelOptions, KernelSource, Result, SimdLevel, Tensor,
    Value,
};
use kiln_testkit::wgsl::{Case, Features, compare, generate};

/// R2: the kernels that Kiln renders for tensors are sound: matrix products with tiles, reductions, norms.
#[test]
fn kernels_of_tensors_have_no_faults() {
    let device = Device::cpu_with(CpuOptions::new().sanitized(true).plans_as_wgsl(true)).unwrap();
    let plain = Device::cpu().unwrap();
    let compute = |device: &Device| -> Result<Vec<f32>> {
        device.set_seed(1);
        let a = Tensor::rand([33, 70], DType::F32, device)?;
        let b = Tensor::rand([70, 41], DType::F32, device)?;
        let product = a.matmul(&b)?;
        let soft = product.softmax(1)?.mul_scalar(2.0)?.add_scalar(1.0)?;
        let sums = soft.log()?.sum_axis(0)?;
        let spread = a.transpose(0, 1)?.relu()?.sum_axis(1)?;
        let mut all = sums.to_vec::<f32>()?;
        all.extend(spread.to_vec::<f32>()?);
        Ok(all)
    };
    let (found, expected) = (compute(&device).unwrap(), compute(&plain).unwrap());
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-3 * expected.abs().max(1.0), "{found} {expected}");
    }
    // The tiles of a product reach beyond its operands: indices stay inside, and what comes of it is not written.
    let is_known = |finding: &Finding| finding.kind == FindingKind::OutOfBounds && finding.kernel == "matmul";
    let findings = device.take_findings();
    let faults: Vec<String> = findings.iter().filter(|finding| !is_known(finding)).map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// R4.2: a program computes the same while it is watched. Random ones have no races, and their barriers are for all.
#[test]
fn random_programs_compute_the_same_while_they_are_watched() {
    let device = Device::sanitized().unwrap();
    let plain = Device::cpu_with(CpuOptions::new().simd(SimdLevel::Scalar)).unwrap();
    for seed in 0..40 {
        let case = Case::parse(&generate(seed, Features { f16: true, subgroups: false })).unwrap();
        let (expected, found) = (run(&plain, &case).unwrap(), run(&device, &case).unwrap());
        let buffers = case.bindings.iter().filter(|binding| !binding.is_value);
        for (binding, (expected, found)) in buffers.zip(expected.iter().zip(&found)) {
            let difference = compare(binding, expected, found).map(|difference| difference.to_string());
            assert_eq!(difference, None, "{seed}");
        }
        let faults: Vec<String> = (device.take_findings().iter())
            .filter(|finding| matches!(finding.kind, FindingKind::Race | FindingKind::DivergentBarrier))
            .map(ToString::to_string)
            .collect();
        assert!(faults.is_empty(), "{seed}: {}\n{}", faults.join("\n"), case.text);
    }
}

/// What is in the buffers of a case after it ran.
fn run(device: &Device, case: &Case) -> Result<Vec<Vec<u8>>> {
    let options = KernelOptions { fast_math: false, ..KernelOptions::default() };
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
