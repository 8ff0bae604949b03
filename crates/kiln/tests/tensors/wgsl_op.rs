//! User-defined WGSL ops among ordinary ops on every device, and buffers shared between tensors and kernels.

use crate::{data, devices};
use kiln::autograd::{GradientCheck, check_gradients};
use kiln::cache::KernelCacheOptions;
use kiln::device::CpuOptions;
use kiln::ir::graph::TensorType;
use kiln::ir::wgsl::{WgslCall, WgslKernel};
use kiln::kernel::{Grid, KernelOp, KernelSource, WgslOp};
use kiln::{DType, Device, ErrorKind, Tensor, f16};
use kiln_testkit::Array;
use smallvec::SmallVec;
use std::sync::Arc;

/// `scale * x`, with the bits of the scale in the uniform.
const SCALE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> scale: f32;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = scale * x[id.x]; }
}";

/// The sum of each row, by one invocation.
const ROW_SUMS: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
override width: u32;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&y)) { return; }
    var sum = 0.0;
    for (var i = 0u; i < width; i++) { sum += x[id.x * width + i]; }
    y[id.x] = sum;
}";

fn scale(by: f32) -> WgslOp {
    WgslOp::new("scale", SCALE)
        .params(move |_, _| vec![by.to_bits()])
        .gradient(move |_, _, gradient| Ok(vec![Some(gradient.mul_scalar(by)?)]))
}

fn row_sums() -> WgslOp {
    WgslOp::new("row_sums", ROW_SUMS)
        .output(|inputs| Ok(TensorType { shape: inputs[0].shape[0].into(), dtype: inputs[0].dtype }))
        .constants(|inputs| vec![("width".to_string(), inputs[0].shape[1] as f64)])
}

fn numbers(shape: &[usize]) -> Array {
    Array::from_fn(shape, |index| index.iter().fold(0.5, |sum, &i| sum * 3.0 + i as f64) % 7.0 - 3.0)
}

/// Against loops in `f64`: contiguous, transposed, sliced and computed inputs, and ordinary ops before and after.
#[test]
fn ops_of_a_user_run_among_others_on_every_device() {
    let x = numbers(&[6, 10]);
    let transposed = Array::from_fn(&[10, 6], |index| x.at(&[index[1], index[0]]));
    let sums = |x: &Array| x.reduce(&[1], |row| row.iter().map(|x| 2.5 * (x + 1.0)).sum::<f64>()).map(f64::abs);
    for subject in devices::all() {
        let tensor = data::tensor(&x, DType::F32, &subject.device);
        let run = |x: &Tensor| row_sums().call(&[&scale(2.5).call(&[&x.add_scalar(1.0).unwrap()]).unwrap()]);
        let close = data::within(8.0, 0.0);
        data::check(subject.name, &run(&tensor).unwrap().abs().unwrap(), DType::F32, &flat(&sums(&x)), close);
        let turned = run(&tensor.t().unwrap()).unwrap().abs().unwrap();
        data::check(subject.name, &turned, DType::F32, &flat(&sums(&transposed)), close);

        // Views in memory whose elements begin in the middle of a buffer, at offsets that no device can bind.
        let stored = row_sums().call(&[&tensor.slice(0, 1..).unwrap()]).unwrap();
        let rows = Array::from_fn(&[5, 10], |index| x.at(&[index[0] + 1, index[1]]));
        data::check(subject.name, &stored, DType::F32, &flat(&rows.reduce(&[1], |row| row.iter().sum())), close);
        let columns = row_sums().call(&[&tensor.slice(1, 3..5).unwrap()]).unwrap();
        let two = Array::from_fn(&[6, 2], |index| x.at(&[index[0], index[1] + 3]));
        data::check(subject.name, &columns, DType::F32, &flat(&two.reduce(&[1], |row| row.iter().sum())), close);
    }
}

fn flat(array: &Array) -> Array {
    Array::from_fn(&[array.shape()[0]], |index| array.at(&[index[0], 0]))
}

/// The kernel is a fusion boundary: ops on each side fuse with each other, and the report says why not across it.
#[test]
fn neighbours_fuse_up_to_the_border() {
    for subject in devices::all() {
        let x = data::tensor(&numbers(&[4, 8]), DType::F32, &subject.device);
        let y = scale(2.0).call(&[&x.add_scalar(1.0).unwrap().exp().unwrap()]).unwrap().neg().unwrap().relu().unwrap();
        let explanation = y.explain().unwrap();
        assert_eq!(explanation.kernels(), 3, "{explanation}");
        let names: Vec<&str> = explanation.kernel_names().collect();
        assert_eq!(names[1], "scale", "{explanation}");
        assert!(explanation.notes().iter().any(|note| note.contains("`scale`")), "{explanation}");
        assert!(explanation.sources().any(|(name, source)| name == "scale" && source == SCALE), "{explanation}");
    }
}

/// A plan is found again, also if the op is declared again; other uniform words give another plan.
#[test]
fn plans_with_ops_of_a_user_are_found_again() {
    let device = Device::cpu_with(devices::cpu_options().kernels(KernelCacheOptions::new().without_disk())).unwrap();
    let x = Tensor::from_slice(&[1.0f32; 5], 5, &device).unwrap();
    let run = |by: f32| scale(by).call(&[&x]).unwrap().add_scalar(1.0).unwrap().to_vec::<f32>().unwrap();
    assert_eq!((run(2.0), run(2.0), run(3.0)), (vec![3.0; 5], vec![3.0; 5], vec![4.0; 5]));
    let plans = device.plan_cache_stats();
    assert_eq!((plans.hits, plans.misses), (1, 2));
    assert_eq!(device.kernel_cache_stats().compiles, 1, "the uniform is no part of the kernel");
}

#[test]
fn gradients_follow_the_rule() {
    for subject in devices::all() {
        let x = data::tensor(&numbers(&[3, 4]), DType::F32, &subject.device);
        let function = |p: &[Tensor]| scale(2.0).call(&[&p[0].square()?])?.mul(&p[0])?.sum_all();
        let report = check_gradients(function, &[&x], GradientCheck::new());
        assert!(report.is_ok(), "{}: {report:?}", subject.name);
    }
    let device = devices::cpu();
    let x = Tensor::ones((2, 2), DType::F32, device).unwrap().requires_grad().unwrap();
    // The gradient of a gradient goes through the rule twice.
    let cube = |p: &[Tensor]| scale(1.0).call(&[&p[0].square()?.mul(&p[0])?])?.sum_all();
    let second = |p: &[Tensor]| kiln::grad(cube, &[&p[0]])?.remove(0).sum_all();
    assert_eq!(kiln::grad(second, &[&x.detach()]).unwrap()[0].to_vec::<f32>().unwrap(), [6.0; 4]);

    let error = row_sums().call(&[&x]).unwrap().sum_all().unwrap().backward().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("row_sums"), "{error}");
    for wrong in [Vec::new(), vec![Some(Tensor::ones(3, DType::F32, device).unwrap())]] {
        let op = WgslOp::new("odd", SCALE).params(|_, _| vec![0]).gradient(move |_, _, _| Ok(wrong.clone()));
        let error = op.call(&[&x]).unwrap().sum_all().unwrap().backward().unwrap_err().to_string();
        assert!(error.contains("the gradient of `odd`") && error.contains("f32 (2, 2)"), "{error}");
    }
}

#[test]
fn results_are_checked_on_two_devices() {
    for subject in devices::all() {
        let x = data::tensor(&numbers(&[3, 40]), DType::F32, &subject.device);
        let y = row_sums().call(&[&scale(1.5).call(&[&x.tanh().unwrap()]).unwrap()]).unwrap().exp().unwrap();
        let report = y.eval_checked().unwrap();
        assert!(report.ops >= 4 && report.worst <= 1.0, "{}: {report}", subject.name);
    }
}

/// A kernel whose results depend on the order of invocations, and one that reads out of bounds, among ordinary ops.
#[test]
fn the_sanitizer_sees_ops_of_a_user() {
    let device = Device::sanitized().unwrap();
    let x = Tensor::ones(16, DType::F32, &device).unwrap();
    let race = WgslOp::new(
        "race",
        "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(16) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x / 2u] = x[id.x]; }",
    );
    race.call(&[&x.add_scalar(1.0).unwrap()]).unwrap().eval().unwrap();
    let findings = device.take_findings();
    assert!(findings.iter().any(|finding| finding.kind == kiln::kernel::FindingKind::Race), "{findings:?}");
    let beyond = WgslOp::new(
        "beyond",
        "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(16) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = x[id.x + 1u]; }",
    );
    beyond.call(&[&x]).unwrap().eval().unwrap();
    let findings = device.take_findings();
    assert!(findings.iter().any(|finding| finding.kind == kiln::kernel::FindingKind::OutOfBounds), "{findings:?}");
    scale(2.0).call(&[&x]).unwrap().eval().unwrap();
    assert!(device.take_findings().is_empty(), "a sound kernel has no findings");
}

/// 16-bit and 8-bit elements: native `f16` if the device supports it, others as words; odd lengths too.
#[test]
fn packed_dtypes_are_words() {
    let flip = WgslOp::new(
        "flip",
        "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < arrayLength(&y)) { y[id.x] = ~x[id.x]; }
        }",
    )
    .grid(|inputs, _| Grid::over(inputs[0].bytes().div_ceil(4)));
    for subject in devices::all() {
        for length in [1, 3, 4, 7, 64] {
            let bytes: Vec<u8> = (0..length).map(|i: u8| i.wrapping_mul(5)).collect();
            let x = Tensor::from_slice(&bytes, usize::from(length), &subject.device).unwrap();
            let flipped: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
            assert_eq!(flip.call(&[&x]).unwrap().to_vec::<u8>().unwrap(), flipped, "{}", subject.name);
        }
        // Views that start or end inside a word.
        let bytes: Vec<u8> = (0..16).collect();
        let x = Tensor::from_slice(&bytes, 16, &subject.device).unwrap();
        for (start, end) in [(11, 16), (13, 16), (0, 5), (4, 9)] {
            let found = flip.call(&[&x.slice(0, start..end).unwrap()]).unwrap().to_vec::<u8>().unwrap();
            assert_eq!(found, bytes[start..end].iter().map(|byte| !byte).collect::<Vec<_>>(), "{}", subject.name);
        }
        let odd = subject.device.buffer_from(&bytes[..5]).unwrap();
        let odd = Tensor::from_buffer(odd.as_bytes(), 5, DType::U8, &subject.device).unwrap();
        assert_eq!(flip.call(&[&odd]).unwrap().to_vec::<u8>().unwrap(), [255, 254, 253, 252, 251], "{}", subject.name);
        // `f16` as words works without native support.
        let halves = Tensor::ones(3, DType::F16, &subject.device).unwrap();
        let flipped = flip.call(&[&halves]).unwrap().to_vec::<f16>().unwrap();
        assert!(flipped.iter().all(|half| half.to_bits() == !f16::ONE.to_bits()), "{}", subject.name);
        if subject.lacks_f16 {
            continue;
        }
        let double = WgslOp::new(
            "double",
            "enable f16;
            @group(0) @binding(0) var<storage, read> x: array<f16>;
            @group(0) @binding(1) var<storage, read_write> y: array<f16>;
            @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if (id.x < arrayLength(&y)) { y[id.x] = 2h * x[id.x]; }
            }",
        );
        let halves: Vec<f16> = (0..7).map(|i| f16::from_f32(i as f32)).collect();
        let x = Tensor::from_slice(&halves, 7, &subject.device).unwrap();
        let doubled: Vec<f32> = (0..7).map(|i| 2.0 * i as f32).collect();
        assert_eq!(double.call(&[&x]).unwrap().to_vec::<f32>().unwrap(), doubled, "{}", subject.name);
        let checked = double.call(&[&x.add_scalar(0.25).unwrap()]).unwrap().exp().unwrap().eval_checked();
        assert!(checked.is_ok(), "{}: {checked:?}", subject.name);
    }
}

/// A kernel that adds to its output starts from zeros, whatever the memory held before.
#[test]
fn an_output_can_begin_as_zeros() {
    let count = WgslOp::new(
        "count",
        "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < arrayLength(&x)) { atomicAdd(&y[x[id.x]], 1u); }
        }",
    )
    .output(|_| Ok(TensorType { shape: 3.into(), dtype: DType::U32 }))
    .grid(|inputs, _| Grid::over(inputs[0].shape.elem_count()))
    .zeroes_output();
    for subject in devices::all() {
        let x = Tensor::from_slice(&(0..90).map(|i| i % 3).collect::<Vec<u32>>(), 90, &subject.device).unwrap();
        for _ in 0..3 {
            assert_eq!(count.call(&[&x]).unwrap().to_vec::<u32>().unwrap(), [30; 3], "{}", subject.name);
        }
    }
}

#[test]
fn wrong_calls_are_refused_by_the_call() {
    let device = devices::cpu();
    let other = Device::cpu_with(CpuOptions::new()).unwrap();
    let x = Tensor::ones((2, 3), DType::F32, device).unwrap();
    let integers = Tensor::ones((2, 3), DType::I32, device).unwrap();
    let foreign = Tensor::ones((2, 3), DType::F32, &other).unwrap();
    let two_outputs = SCALE.replace("var<storage, read> x", "var<storage, read_write> x");
    let fours = SCALE.replace("array<f32>", "array<vec4<f32>>");
    let many = Tensor::ones(1, DType::F32, device).unwrap();
    let cases: [(WgslOp, Vec<&Tensor>, &[&str]); 12] = [
        (WgslOp::new("fours", fours).params(|_, _| vec![0]), vec![&x], &["multiples of 16", "24 bytes", "f32 (2, 3)"]),
        (row_sums().params(|_, _| vec![0]), vec![&x], &["row_sums", "one `var<uniform>` binding if"]),
        (scale(1.0), vec![&many; 40], &["at most 32 inputs", "found 40"]),
        (scale(1.0), vec![], &["scale", "at least one tensor"]),
        (scale(1.0), vec![&x, &x], &["one `var<storage, read>` binding for each of 2 inputs", "x: array<f32> (read)"]),
        (
            scale(1.0),
            vec![&integers],
            &["scale of i32 (2, 3) on cpu", "x: array<f32>", "elements of f32", "a tensor of i32"],
        ),
        (
            WgslOp::new("both", two_outputs).params(|_, _| vec![0]),
            vec![&x],
            &["both", "one `var<storage, read_write>`"],
        ),
        (WgslOp::new("bare", SCALE), vec![&x], &["scale: f32", "4 bytes from the rule for `params`", "found 0 bytes"]),
        (WgslOp::new("broken", "fn main( {"), vec![&x], &["broken:1:"]),
        (scale(1.0).entry("other"), vec![&x], &["entry point `other`", "`main`"]),
        (WgslOp::new("row_sums", ROW_SUMS), vec![&x], &["expected a value for the constant `width`"]),
        (scale(1.0), vec![&foreign, &x], &["expected tensors on one device"]),
    ];
    for (op, inputs, parts) in cases {
        let error = op.call(&inputs).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "`{part}` in {error}");
        }
    }
    let refused = scale(1.0).output(|_| Err(kiln::Error::new(ErrorKind::ShapeMismatch, "no such shape")));
    assert_eq!(refused.call(&[&x]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

/// Empty tensors run nothing; a tensor that two inputs share is bound twice.
#[test]
fn empty_and_shared_inputs_work() {
    let add = WgslOp::new(
        "add",
        "
        @group(0) @binding(0) var<storage, read> a: array<f32>;
        @group(0) @binding(1) var<storage, read> b: array<f32>;
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < arrayLength(&y)) { y[id.x] = a[id.x] + b[id.x]; }
        }",
    );
    for subject in devices::all() {
        let empty = Tensor::zeros((0, 4), DType::F32, &subject.device).unwrap();
        assert!(scale(1.0).call(&[&empty]).unwrap().to_vec::<f32>().unwrap().is_empty());
        let x = Tensor::ones(5, DType::F32, &subject.device).unwrap();
        assert_eq!(add.call(&[&x, &x]).unwrap().to_vec::<f32>().unwrap(), [2.0; 5], "{}", subject.name);
        let y = x.exp().unwrap();
        assert_eq!(add.call(&[&y, &y]).unwrap().sub(&y).unwrap().sub(&y).unwrap().to_vec::<f32>().unwrap(), [0.0; 5]);
    }
}

/// A kernel writes a buffer that becomes a tensor, whose results become the buffer of another kernel.
#[test]
fn buffers_are_shared_with_kernels() {
    for subject in devices::all() {
        let device = &subject.device;
        let kernel = device.kernel(KernelSource::wgsl(SCALE).named("scale.wgsl")).unwrap();
        let input = device.buffer_from(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let mut doubled = device.buffer_of::<f32>(4).unwrap();
        kernel.launch().bind("x", &input).bind("y", &mut doubled).value("scale", 2.0f32).over(4).unwrap();
        let x = Tensor::from_buffer(doubled.as_bytes(), (2, 2), DType::F32, device).unwrap();
        assert!(x.buffer().unwrap().shares_allocation_with(doubled.as_bytes()), "nothing is copied");
        let sums = x.add_scalar(1.0).unwrap();
        let mut out = device.buffer_of::<f32>(4).unwrap();
        let view = sums.buffer().unwrap();
        kernel.launch().bind("x", &view).bind("y", &mut out).value("scale", 10.0f32).over(4).unwrap();
        assert_eq!(out.read().unwrap(), [30.0, 50.0, 70.0, 90.0], "{}", subject.name);
        // A non-contiguous view is copied, and so is one at an offset that cannot be bound.
        assert_eq!(x.t().unwrap().buffer().unwrap().typed::<f32>().unwrap().read().unwrap(), [2.0, 6.0, 4.0, 8.0]);
        let last = x.reshape(4).unwrap().slice(0, 1..).unwrap().buffer().unwrap();
        kernel.launch().bind("x", &last).bind("y", &mut out).value("scale", 1.0f32).over(3).unwrap();
        assert_eq!(out.read().unwrap()[..3], [4.0, 6.0, 8.0], "{}", subject.name);
    }
}

/// Lengths and offsets that kernels cannot bind give the same elements through a copy.
#[test]
fn buffers_of_any_length_and_place_become_tensors() {
    for subject in devices::all() {
        let device = &subject.device;
        for length in [0usize, 1, 2, 3, 5, 31, 64] {
            let halves: Vec<f16> = (0..length).map(|i| f16::from_f32(i as f32)).collect();
            let buffer = device.buffer_from(&halves).unwrap();
            for start in [0, 1, 2, 16].into_iter().filter(|&start| start <= length) {
                let slice = buffer.as_bytes().slice(2 * start as u64..).unwrap();
                let x = Tensor::from_buffer(&slice, length - start, DType::F16, device).unwrap();
                let wanted: Vec<f32> = (start..length).map(|i| i as f32 + 1.0).collect();
                let what = format!("{} elements from {start} on {}", length, subject.name);
                assert_eq!(x.add_scalar(1.0).unwrap().to_vec::<f32>().unwrap(), wanted, "{what}");
            }
        }
        let buffer = device.buffer(8).unwrap();
        let error = Tensor::from_buffer(&buffer, 3, DType::F32, device).unwrap_err();
        assert!(error.to_string().contains("expected 12 bytes for f32 (3,), found 8 bytes"), "{error}");
    }
    let (one, other) = (devices::cpu(), Device::cpu().unwrap());
    let error = Tensor::from_buffer(&other.buffer(16).unwrap(), 4, DType::F32, one).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// A hand-written kernel without CPU code: the same WGSL on every device, with its epilogue, on views that start anywhere.
#[derive(Debug)]
struct Halve;

impl KernelOp for Halve {
    fn name(&self) -> &str {
        "halve"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        SmallVec::new()
    }

    fn infer(&self, inputs: &[TensorType]) -> kiln::Result<TensorType> {
        Ok(inputs[0].clone())
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        inputs[0].shape.elem_count() as u64
    }

    fn wgsl(&self, call: &WgslCall<'_>) -> kiln::Result<WgslKernel> {
        let mut builder = call.builder();
        let elements = call.output.shape.elem_count() as u32;
        builder.param("elements", elements);
        builder.param("offset", call.operands[0].layout.offset() as u32);
        let main = "
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (4u * id.x >= p_elements()) { return; }
    let four = load4_0(p_offset() + 4u * id.x);
    for (var i = 0u; i < 4u; i++) { if (4u * id.x + i < p_elements()) { finish(4u * id.x + i, 0.5 * four[i]); } }
}";
        Ok(builder.finish(main, [elements.div_ceil(4).div_ceil(64), 1, 1]))
    }
}

#[test]
fn a_kernel_without_cpu_code_runs_on_every_device() {
    for subject in devices::all() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let numbers = Array::from_fn(&[9], |index| index[0] as f64 - 4.0);
            let x = data::tensor(&numbers, dtype, &subject.device);
            for (start, end) in [(0, 9), (3, 8), (6, 8), (1, 2)] {
                let part = x.slice(0, start..end).unwrap();
                let y = Tensor::kernel(Arc::new(Halve), &[&part]).unwrap().add_scalar(1.0).unwrap().relu().unwrap();
                let wanted =
                    Array::from_fn(&[end - start], |index| (numbers.at(&[index[0] + start]) * 0.5 + 1.0).max(0.0));
                data::check(&format!("{start}..{end} on {}", subject.name), &y, dtype, &wanted, data::within(1.0, 0.0));
            }
        }
    }
}

/// Everything that distinguishes two calls is part of the plan key.
#[test]
fn grids_constants_and_zeroing_are_parts_of_the_key() {
    let fill = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        override value: f32 = 1.0;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = value * x[0]; }";
    let device = Device::cpu_with(devices::cpu_options().kernels(KernelCacheOptions::new().without_disk())).unwrap();
    let x = Tensor::from_slice(&[1.0f32; 4], 4, &device).unwrap();
    let run = |op: WgslOp| op.call(&[&x]).unwrap().to_vec::<f32>().unwrap();
    let first = |length: usize| WgslOp::new("fill", fill).zeroes_output().grid(move |_, _| Grid::over(length));
    assert_eq!(run(first(4)), [1.0; 4]);
    assert_eq!(run(first(2)), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(run(first(2).constant("value", 3.0)), [3.0, 3.0, 0.0, 0.0]);
    assert_eq!(device.plan_cache_stats().misses, 3);
}

/// The NaN check, checkpoints and several threads treat such an op like any other.
#[test]
fn ops_of_a_user_work_with_the_nan_check_and_checkpoints() {
    let device = Device::cpu_with(devices::cpu_options()).unwrap();
    let x = Tensor::from_slice(&[1.0f32, 2.0], 2, &device).unwrap().requires_grad().unwrap();
    let y = kiln::checkpoint(|inputs| scale(3.0).call(&[&inputs[0].square()?]), &[&x]).unwrap();
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [6.0, 12.0]);
    let op = scale(2.0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let y = op.call(&[&x.detach().add_scalar(1.0).unwrap()]).unwrap();
                    assert_eq!(y.to_vec::<f32>().unwrap(), [4.0, 6.0]);
                }
            });
        }
    });
    device.set_nan_check(true);
    let error = scale(f32::INFINITY).call(&[&x.detach()]).unwrap().eval().unwrap_err().to_string();
    assert!(error.contains("`scale`"), "{error}");
}

/// A result with an odd number of bytes is bound as whole words.
#[test]
fn buffers_of_packed_tensors_can_be_bound() {
    let words = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < arrayLength(&y)) { y[id.x] = x[id.x]; }
        }";
    for subject in devices::all() {
        let kernel = subject.device.kernel(KernelSource::wgsl(words).named("words")).unwrap();
        let x = Tensor::from_slice(&[1u8, 2, 3, 4, 5], 5, &subject.device).unwrap().add_scalar(1).unwrap();
        let mut out = subject.device.buffer_of::<u32>(2).unwrap();
        kernel.launch().bind("x", &x.buffer().unwrap()).bind("y", &mut out).over(2).unwrap();
        let found: Vec<u8> = out.read().unwrap().iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(found[..5], [2, 3, 4, 5, 6], "{}", subject.name);
    }
}
