//! Every option changes the compiled code, and f16 and subgroups work if the adapter has them.

use super::targets;
use crate::support;
use kiln_device::{DeviceKind, Feature, KernelFlag, KernelOptions, KernelSource, Optimisation};
use kiln_gpu::GpuOptions;
use kiln_ir::ErrorKind;

/// An index out of bounds is clamped in function memory, which no driver checks; in buffers it stays in bounds in any
/// case.
#[test]
fn bounds_checks_keep_indices_inside() {
    const SOURCE: &str = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        var<private> own: array<u32, 4> = array<u32, 4>(1u, 2u, 3u, 4u);
        @compute @workgroup_size(1) fn main() {
            y[0] = x[min(x[0], 1000000u)]; y[5000u + x[0]] = 9u; own[x[0] - 7u] = 5u; y[1] = own[x[0] * 100u];
        }";
    for device in targets() {
        let (x, mut y) = (device.buffer_from(&[7u32, 7, 7, 7]).unwrap(), device.buffer_from(&[0u32; 4]).unwrap());
        let kernel = device.kernel(KernelSource::wgsl(SOURCE)).unwrap();
        kernel.launch().bind("x", &x).bind("y", &mut y).over(1).unwrap();
        let read = y.read().unwrap();
        assert!(read[0] == 7 || read[0] == 0, "a value of the array or zero: {read:?}");
        assert_eq!(read[1], 4, "the last element");
        assert_eq!(x.read().unwrap(), [7; 4]);
    }
}

/// Without `fast_math` a product is rounded before the addition, bit for bit as separate operations.
#[test]
fn without_fast_math_products_are_rounded() {
    const SOURCE: &str = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let i = id.x * 3u;
            y[id.x] = x[i] * x[i + 1u] + x[i + 2u];
        }";
    let count = 640;
    let mut state = 1u32;
    let inputs: Vec<f32> = (0..count * 3)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(0x3f80_0000 | state >> 9) - 1.5
        })
        .collect();
    let separate: Vec<f32> = inputs.chunks(3).map(|v| v[0] * v[1] + v[2]).collect();
    let joined: Vec<f32> = inputs.chunks(3).map(|v| v[0].mul_add(v[1], v[2])).collect();
    assert_ne!(separate, joined, "the inputs show a difference");
    let options = KernelOptions { fast_math: false, ..KernelOptions::default() };
    for device in targets() {
        let kernel = device.kernel(KernelSource::wgsl(SOURCE).options(options.clone()));
        let info = device.info();
        if info.kind != DeviceKind::Cpu && !info.features.contains(&Feature::PassthroughShaders) {
            let error = kernel.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("expected `fast_math`"), "{error}");
            continue;
        }
        let (x, mut y) = (device.buffer_from(&inputs).unwrap(), device.buffer_of::<f32>(count).unwrap());
        kernel.unwrap().launch().bind("x", &x).bind("y", &mut y).over(count).unwrap();
        assert_eq!(y.read().unwrap(), separate);
    }
}

#[test]
fn workgroup_memory_begins_as_zeros_and_loops_run_as_written() {
    const SOURCE: &str = "
        var<workgroup> shared_words: array<u32, 64>;
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
            var sum = shared_words[i];
            for (var k = 0u; k < i; k++) { sum += k; }
            workgroupBarrier();
            shared_words[i] = sum;
            y[i] = sum;
        }";
    let expected: Vec<u32> = (0..64).map(|i| (0..i).sum()).collect();
    for device in targets() {
        let flags = [KernelFlag::UnboundedLoops].into();
        for options in [KernelOptions::default(), KernelOptions { flags, ..KernelOptions::default() }] {
            let kernel = device.kernel(KernelSource::wgsl(SOURCE).options(options)).unwrap();
            for _ in 0..2 {
                let mut y = device.buffer_of::<u32>(64).unwrap();
                kernel.launch().bind("y", &mut y).over(64).unwrap();
                assert_eq!(y.read().unwrap(), expected);
            }
        }
    }
}

/// Every option has an effect: it changes the stored code.
#[test]
fn every_option_changes_the_translated_code() {
    const SOURCE: &str = "
        var<workgroup> shared_words: array<u32, 4>;
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;
        fn unused(x: f32) -> f32 { return sin(x) * 3.0; }
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
            shared_words[i] += 1u;
            for (var k = 0u; k < i; k++) { y[i] = y[i] * 2.0 + 1.0; }
        }";
    let device = match support::in_place() {
        Some(device) if device.info().features.contains(&Feature::PassthroughShaders) => device,
        _ => return,
    };
    let api = device.api();
    let translate = |options: KernelOptions| {
        let source = KernelSource::wgsl(SOURCE).options(options);
        let key = kiln_device::KernelKey::new(&source, device.info()).unwrap();
        api.translate(&kiln_device::KernelModule::new(&key, device.info()).unwrap()).unwrap().code
    };
    let default = KernelOptions::default;
    let codes = [
        translate(default()),
        translate(KernelOptions { optimisation: Optimisation::None, ..default() }),
        translate(KernelOptions { debug_info: true, ..default() }),
        translate(KernelOptions { fast_math: false, ..default() }),
        translate(KernelOptions { bounds_checks: false, ..default() }),
        translate(KernelOptions { flags: [KernelFlag::UnboundedLoops].into(), ..default() }),
        translate(KernelOptions { flags: [KernelFlag::UninitialisedWorkgroup].into(), ..default() }),
    ];
    for (index, code) in codes.iter().enumerate() {
        assert!(codes[index + 1..].iter().all(|other| other != code), "option {index}");
    }
    assert!(translate(default()) == codes[0], "the same in, the same out");
}

#[test]
fn half_precision_and_subgroups_work_where_the_adapter_has_them() {
    const HALF: &str = "enable f16;
        @group(0) @binding(0) var<storage, read_write> y: array<f16>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = y[id.x] * 2.0h; }";
    const SUBGROUP: &str = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = subgroupAdd(1u); }";
    for device in targets() {
        let numbers: Vec<half::f16> = (0..8).map(|i| half::f16::from_f32(i as f32 * 0.5)).collect();
        let mut y = device.buffer_from(&numbers).unwrap();
        device.kernel(KernelSource::wgsl(HALF)).unwrap().launch().bind("y", &mut y).over(8).unwrap();
        assert_eq!(y.read().unwrap(), numbers.iter().map(|x| *x * half::f16::from_f32(2.0)).collect::<Vec<_>>());
        let mut y = device.buffer_of::<u32>(8).unwrap();
        device.kernel(KernelSource::wgsl(SUBGROUP)).unwrap().launch().bind("y", &mut y).over(8).unwrap();
        let size = device.info().limits.subgroup_size.unwrap().1.min(8);
        assert_eq!(y.read().unwrap(), vec![size; 8]);
    }
    if support::in_place().is_some() {
        let options = GpuOptions::new().without(Feature::ShaderF16).without(Feature::Subgroups);
        let plain = kiln_gpu::open(0, options).unwrap();
        for source in [HALF, SUBGROUP] {
            let error = plain.kernel(KernelSource::wgsl(source)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CompileFailed, "{error}");
        }
    }
}
