//! The sanitizer on correct programs: it reports nothing and does not change results.

#![cfg(feature = "wgsl")]

#[path = "wgsl/launch.rs"]
mod launch;

use kiln::device::{CpuOptions, SimdLevel};
use kiln::kernel::{FindingKind, KernelOptions};
use kiln::nn::AttentionOptions;
use kiln::{DType, Device, Result, Tensor};
use kiln_testkit::wgsl::{Case, Features, compare, generate};

/// Generated tensor kernels are free of findings: tiled matmul and attention, reductions, norms.
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
        let sums = soft.log()?.sum(0)?;
        let spread = a.transpose(0, 1)?.relu()?.sum(1)?;
        // No length is a multiple of the tile size: rows, columns, inner length, queries, keys, elements.
        let (left, right) =
            (Tensor::rand([2, 3, 5, 17], DType::F32, device)?, Tensor::rand([2, 3, 17, 65], DType::F32, device)?);
        let batches = left.matmul(&right)?;
        let q = Tensor::rand([1, 2, 19, 18], DType::F32, device)?;
        let (k, v) =
            (Tensor::rand([1, 2, 37, 18], DType::F32, device)?, Tensor::rand([1, 2, 37, 10], DType::F32, device)?);
        let seen: Vec<u8> = (0..19 * 37).map(|place| u8::from(place % 3 != 0)).collect();
        let mask = Tensor::from_slice(&seen, [19, 37], device)?;
        let attended = Tensor::attention(&q, &k, &v, AttentionOptions::new().mask(&mask))?;
        let mut all = sums.to_vec::<f32>()?;
        all.extend(spread.to_vec::<f32>()?);
        all.extend(batches.to_vec::<f32>()?);
        all.extend(attended.to_vec::<f32>()?);
        Ok(all)
    };
    let (found, expected) = (compute(&device).unwrap(), compute(&plain).unwrap());
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-3 * expected.abs().max(1.0), "{found} {expected}");
    }
    let faults: Vec<String> = device.take_findings().iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A program computes the same under the sanitizer. Random programs have no races, and all invocations reach their barriers.
#[test]
fn random_programs_compute_the_same_while_they_are_watched() {
    let device = Device::sanitized().unwrap();
    for seed in 0..launch::setting("KILN_FUZZ_CASES", 20) {
        let features = Features { f16: true, subgroups: seed % 4 == 0, pointers_to_parts: seed % 2 == 1 };
        // Subgroups are compared with the SIMD vectors of invocations that implement them.
        let simd = if features.subgroups { SimdLevel::detect() } else { SimdLevel::Scalar };
        let plain = Device::cpu_with(CpuOptions::new().simd(simd)).unwrap();
        let case = Case::parse(&generate(seed, features)).unwrap();
        let run = |device| {
            let options = KernelOptions { fast_math: false, ..KernelOptions::default() };
            launch::run(device, &case, options).unwrap()
        };
        let (expected, found) = (run(&plain), run(&device));
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
