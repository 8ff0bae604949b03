//! Scans against loops in `f64`.

use super::{Scan, ScanOp};
use crate::offsets::checks::{assert_valid, rendered};
use crate::rows::assert_close;
use crate::testing::{Memory, Numbers, Operand, Threads, run_moved};
use kiln_ir::graph::TensorType;
use kiln_ir::wgsl::WgslFeatures;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape, SimdLevel};

const DTYPES: [DType; 5] = [DType::F16, DType::BF16, DType::F32, DType::I32, DType::U32];
const OPS: [ScanOp; 3] = [ScanOp::Sum, ScanOp::Product, ScanOp::Linear];

/// Returns the running results by coordinates, line by line.
fn reference(op: &Scan, inputs: &[Operand]) -> Vec<f64> {
    let shape = inputs[0].layout.shape();
    let (length, inner) = (shape[op.axis], shape[op.axis + 1..].iter().product::<usize>());
    let (x, b) = (inputs[0].values(), inputs[inputs.len() - 1].values());
    let wrap = |number: f64| match inputs[0].memory.dtype {
        DType::I32 => f64::from(number as i64 as i32),
        DType::U32 => f64::from(number as i64 as u32),
        _ => number,
    };
    let mut out = vec![0.0; x.len()];
    for line in 0..x.len() / length.max(1) {
        let at = |k: usize| (line / inner * length + k) * inner + line % inner;
        let mut running = if op.op == ScanOp::Product { 1.0 } else { 0.0 };
        for number in 0..length {
            let k = if op.reverse { length - 1 - number } else { number };
            running = wrap(match op.op {
                ScanOp::Sum => running + x[at(k)],
                ScanOp::Product => running * x[at(k)],
                ScanOp::Linear if op.reverse && k + 1 < length => x[at(k + 1)] * running + b[at(k)],
                ScanOp::Linear => x[at(k)] * running + b[at(k)],
            });
            out[at(k)] = running;
        }
    }
    out
}

/// Factors near 1, so that products of many stay in the range of half precision; integers that wrap.
fn operands(op: ScanOp, dtype: DType, lengths: &[usize]) -> Vec<Operand> {
    let operand = |seed: u64| {
        let mut numbers = Numbers::new(seed);
        let is_factor = op != ScanOp::Sum && seed == 1;
        Operand::new(dtype, Layout::contiguous(Shape::new(lengths)), || match dtype {
            DType::I32 => numbers.below(7) as f64 - 3.0,
            DType::U32 => numbers.below(4) as f64,
            _ if is_factor => 1.0 + numbers.unit() / 16.0,
            _ => numbers.unit(),
        })
    };
    if op == ScanOp::Linear { vec![operand(1), operand(2)] } else { vec![operand(1)] }
}

fn check(op: Scan, dtype: DType, lengths: &[usize], threads: Threads) -> Memory {
    let inputs = operands(op.op, dtype, lengths);
    let wanted = reference(&op, &inputs);
    let found = run_moved(&op, &inputs, threads).unwrap();
    let context = format!("{op:?} {dtype} {lengths:?} {threads:?}");
    if dtype.is_float() {
        assert_close(&found, &wanted, 1e-12, 1.0, &context);
    } else {
        assert_eq!(found.values(wanted.len()), wanted, "{context}");
    }
    found
}

#[test]
fn every_op_dtype_axis_and_direction() {
    let shapes: [&[usize]; 12] =
        [&[1], &[7], &[8], &[9], &[65], &[0], &[3, 0], &[3, 17], &[17, 3], &[2, 5, 3], &[4, 300], &[2, 3, 257]];
    for (op, dtype) in OPS.into_iter().flat_map(|op| DTYPES.map(|dtype| (op, dtype))) {
        for lengths in shapes {
            for (axis, reverse) in (0..lengths.len()).flat_map(|axis| [(axis, false), (axis, true)]) {
                for threads in Threads::all() {
                    check(Scan { op, axis, reverse }, dtype, lengths, threads);
                }
            }
        }
    }
}

/// Rows that threads share block by block, and rows that they do not.
#[test]
fn threads_change_no_bit() {
    let cases: [(&[usize], usize); 5] =
        [(&[1, 70_001], 1), (&[2, 66_000], 1), (&[300, 211], 1), (&[5000, 33], 0), (&[3, 100, 600], 1)];
    for (op, dtype) in OPS.into_iter().flat_map(|op| [DType::F32, DType::F16, DType::U32].map(|dtype| (op, dtype))) {
        for (lengths, axis) in cases {
            if op == ScanOp::Product && lengths[axis] > 1000 {
                continue;
            }
            for reverse in [false, true] {
                let run = |count, simd| check(Scan { op, axis, reverse }, dtype, lengths, Threads { count, simd });
                let one = run(1, SimdLevel::Scalar);
                assert_eq!(one.bytes(), run(8, SimdLevel::detect()).bytes(), "{op:?} {dtype} {lengths:?}");
            }
        }
    }
}

#[test]
fn poison_reaches_what_follows_it_and_nothing_else() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let mut numbers = [1.0, 2.0, inf, 1.0, -inf, 3.0, nan, 1.0, 0.0, 5.0].into_iter();
    let x = Operand::new(DType::F32, Layout::contiguous(Shape::from(10)), || numbers.next().unwrap());
    for threads in Threads::all() {
        for reverse in [false, true] {
            for op in [ScanOp::Sum, ScanOp::Product] {
                let op = Scan { op, axis: 0, reverse };
                let wanted = reference(&op, std::slice::from_ref(&x));
                let found = run_moved(&op, std::slice::from_ref(&x), threads).unwrap();
                assert_close(&found, &wanted, 0.0, 1.0, &format!("{op:?} {threads:?}"));
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let ty = |lengths: &[usize], dtype| TensorType { shape: Shape::new(lengths), dtype };
    let sum = Scan { op: ScanOp::Sum, axis: 1, reverse: false };
    assert_eq!(sum.infer(&[ty(&[2, 3], DType::I32)]).unwrap(), ty(&[2, 3], DType::I32));
    let error = sum.infer(&[ty(&[2], DType::F32)]).unwrap_err();
    assert_eq!(error.to_string(), "cumsum expected an axis below the rank 1, found 1 for f32 (2,)");
    let error = sum.infer(&[ty(&[2, 3], DType::U8)]).unwrap_err();
    assert_eq!(error.to_string(), "cumsum expected floats, i32 or u32, found u8 (2, 3)");
    let linear = Scan { op: ScanOp::Linear, ..sum };
    let error = linear.infer(&[ty(&[2, 3], DType::F32), ty(&[2, 3], DType::F16)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    assert_ne!(sum.attributes(), Scan { reverse: true, ..sum }.attributes());
    assert_ne!(sum.attributes(), linear.attributes());
}

#[test]
fn the_wgsl_is_valid_and_new_shapes_need_no_other() {
    let whole = |lengths: &[usize]| Layout::contiguous(Shape::new(lengths));
    for (op, dtype) in OPS.into_iter().flat_map(|op| DTYPES.map(|dtype| (op, dtype))) {
        for (lengths, axis) in [(&[3, 500][..], 1), (&[500, 3], 0), (&[70, 100], 0), (&[2, 0], 1), (&[5], 0)] {
            for reverse in [false, true] {
                let operand = (dtype, whole(lengths));
                let count = if op == ScanOp::Linear { 2 } else { 1 };
                assert_valid(&Scan { op, axis, reverse }, &vec![operand; count]);
            }
        }
    }
    let kernel = |lengths: &[usize]| {
        let op = Scan { op: ScanOp::Sum, axis: 1, reverse: false };
        rendered(&op, &[(DType::F32, whole(lengths))], WgslFeatures::default())
    };
    assert_eq!(kernel(&[3, 100]).source, kernel(&[70_000, 1000]).source);
    let [x, y, _] = kernel(&[70_000, 1000]).workgroups;
    assert!(x <= 65_535 && x * y >= 70_000, "a workgroup for each row: {x} {y}");
}
