use super::{Matmul, reference};
use crate::testing::{Memory, Numbers, Operand, Threads, layouts, render_checked, run_direct, run_stored, run_with};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape};

/// Rounding error per step of a sum of `k` products, relative to the sum of magnitudes: each step rounds once or twice.
const ERROR_PER_STEP: f64 = f32::EPSILON as f64;

/// Returns the relative error of rounding a result to its dtype: half an ULP.
fn storing_error(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => 0.0,
    }
}

fn check(a: &Operand, b: &Operand, result: &Memory, what: &str) {
    let k = a.layout.shape()[a.layout.shape().rank() - 1] as f64;
    for (index, (expected, size)) in reference::matmul(a, b).into_iter().enumerate() {
        let found = result.get(index);
        let bound = k * ERROR_PER_STEP * size + storing_error(result.dtype) * (expected.abs() + size * 1e-4) + 1e-7;
        assert!((found - expected).abs() <= bound, "{what}: element {index}: {found}, expected {expected} +- {bound}");
    }
}

fn operands(seed: u64, dtype: DType, a: Layout, b: Layout) -> [Operand; 2] {
    [Operand::random(seed, dtype, a), Operand::random(seed + 1, dtype, b)]
}

/// Sizes around the vector, tile and block sizes. One thread and eight give the same bits.
#[test]
fn products_of_any_size_are_those_of_the_reference() {
    let sizes = [1, 2, 3, 5, 6, 7, 15, 16, 17, 33, 64, 65, 129];
    let mut numbers = Numbers::new(1);
    let mut cases: Vec<[usize; 3]> =
        (0..60).map(|_| std::array::from_fn(|_| sizes[numbers.below(sizes.len())])).collect();
    cases.extend([[1, 1, 1], [300, 17, 300], [13, 300, 257], [4, 300, 513], [1, 300, 1000], [300, 1, 300]]);
    cases.extend([[0, 3, 4], [3, 0, 4], [3, 4, 0], [0, 0, 0]]);
    for [m, n, k] in cases {
        let (a, b) = (Layout::contiguous(Shape::from((m, k))), Layout::contiguous(Shape::from((k, n))));
        let operands = operands((m * n + k) as u64, DType::F32, a, b);
        let mut by_level = Vec::new();
        for threads in Threads::all() {
            let result = run_stored(&Matmul, &operands, threads);
            check(&operands[0], &operands[1], &result, &format!("{m} {n} {k} {threads:?}"));
            let direct = run_direct(&Matmul, &operands, threads);
            assert_eq!(direct.bytes(), result.bytes(), "{m} {n} {k} {threads:?}: the same where results are written");
            by_level.push((threads.simd, result.bytes().to_vec()));
        }
        assert!(by_level[0] == by_level[2] && by_level[1] == by_level[3], "{m} {n} {k}: the same bits on any threads");
    }
}

/// Any layout of either operand, in any float dtype.
#[test]
fn operands_lie_in_memory_in_any_way() {
    for (index, [m, n, k]) in [[3, 20, 9], [20, 3, 17], [37, 35, 19], [9, 1, 40], [1, 33, 12]].into_iter().enumerate() {
        let (a, b) = (layouts(&Shape::from((2, m, k))), layouts(&Shape::from((2, k, n))));
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            for a in &a {
                for b in &b {
                    let operands = operands(index as u64, dtype, a.clone(), b.clone());
                    for threads in &Threads::all()[2..] {
                        let result = run_stored(&Matmul, &operands, *threads);
                        check(&operands[0], &operands[1], &result, &format!("{a:?} {b:?} {dtype} {threads:?}"));
                    }
                }
            }
        }
    }
}

/// Large enough to be packed by all threads, in several parts along every axis.
#[test]
fn large_products_are_cut_along_every_axis() {
    let shapes = [[1, 260, 250, 300], [2, 140, 600, 130], [1, 250, 530, 4200], [1, 1100, 40, 4200]];
    for (index, [batch, m, n, k]) in shapes.into_iter().enumerate() {
        let shape = Shape::from((batch, m, k));
        for (dtype, a) in [(DType::F32, 0), (DType::F16, 2), (DType::F32, 5)] {
            let a = layouts(&shape)[a].clone();
            let b = layouts(&Shape::from((batch, k, n)))[if index == 0 { 2 } else { 0 }].clone();
            let operands = operands(7, dtype, a, b);
            let many = Threads::all()[3];
            let result = run_stored(&Matmul, &operands, many);
            // Checks only some elements, because the whole reference would take seconds.
            for (row, column) in [(0, 0), (m - 1, n - 1), (m / 2, n / 3), (5, n - 17), (m - 7, 16)] {
                let part = |operand: &Operand, axis: usize, at: usize| Operand {
                    memory: operand.memory.clone(),
                    layout: operand.layout.sliced(axis, at, 1, 1).sliced(0, batch - 1, 1, 1),
                };
                let (a, b) = (part(&operands[0], 1, row), part(&operands[1], 2, column));
                let mut found = Memory::poisoned(dtype, 1);
                found.set(0, result.get(((batch - 1) * m + row) * n + column));
                check(&a, &b, &found, &format!("{m} {n} {k} {dtype} {row} {column}"));
            }
            let one = run_direct(&Matmul, &operands, Threads { count: 1, ..many });
            assert_eq!(one.bytes(), result.bytes(), "{m} {n} {k} {dtype}: the same bits on any threads");
        }
    }
}

/// A fused epilogue is applied once to each element, with its index.
#[test]
fn an_epilogue_is_applied_to_each_element_once() {
    for [m, n, k] in [[2, 40, 3], [9, 40, 3], [70, 32, 70], [260, 250, 200]] {
        let (a, b) = (Layout::contiguous(Shape::from((m, k))), Layout::contiguous(Shape::from((k, n))));
        let operands = operands(3, DType::F32, a, b);
        for threads in Threads::all() {
            let plain = run_stored(&Matmul, &operands, threads);
            let fused = run_with(&Matmul, &operands, threads, |index, value| 2.0 * value + index as f32);
            for index in 0..m * n {
                assert_eq!(
                    fused.get(index) as f32,
                    2.0 * plain.get(index) as f32 + index as f32,
                    "{m} {n} {k}: {index}"
                );
            }
        }
    }
}

/// Invalid shapes and dtypes are rejected with a message that names what was expected and found.
#[test]
fn shapes_and_dtypes_that_do_not_fit_are_refused() {
    let ty = |shape: &[usize], dtype| TensorType { shape: Shape::new(shape), dtype };
    let infer = |a: &[usize], b: &[usize], dtypes: [DType; 2]| Matmul.infer(&[ty(a, dtypes[0]), ty(b, dtypes[1])]);
    let f32s = [DType::F32; 2];
    assert_eq!(infer(&[5, 2, 3], &[5, 3, 4], [DType::F16; 2]).unwrap(), ty(&[5, 2, 4], DType::F16));
    let shapes: [(&[usize], &[usize]); 5] =
        [(&[2, 3], &[2, 3]), (&[3], &[3]), (&[2, 3], &[3]), (&[2, 2, 3], &[3, 3, 4]), (&[1, 2, 3], &[3, 4])];
    for (a, b) in shapes {
        let error = infer(a, b, f32s).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        let names = format!("found {} and {}", Shape::new(a), Shape::new(b));
        assert!(error.to_string().ends_with(&names), "{error}");
    }
    for dtypes in [[DType::I32; 2], [DType::F32, DType::F16], [DType::U8, DType::F32]] {
        let error = infer(&[2, 3], &[3, 4], dtypes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("to_dtype"), "{error}");
    }
    assert_eq!(infer(&[1 << 17, 1], &[1, 1 << 17], f32s).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(Matmul.infer(&[ty(&[2, 2], DType::F32)]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(Matmul.flops(&[ty(&[5, 2, 3], DType::F32), ty(&[5, 3, 4], DType::F32)]), 2 * 5 * 2 * 3 * 4);
}

/// Valid WGSL for each dtype and number of batch axes. The text depends on the shape only in whether rows are whole groups
/// of four.
#[test]
fn the_text_is_valid_and_hardly_depends_on_the_shape() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for batch in [&[][..], &[3], &[2, 0, 5]] {
            let render = |m: usize, n: usize, k: usize| {
                let shape = |rows, columns| Shape::new(&[batch, &[rows, columns]].concat());
                let layouts = [layouts(&shape(m, k))[2].clone(), Layout::contiguous(shape(k, n))];
                render_checked(&Matmul, &layouts.map(|layout| (dtype, layout))).unwrap()
            };
            let (one, other) = (render(3, 4, 5), render(200, 68, 0));
            assert!(one.source == other.source, "{dtype} {batch:?}");
            assert!(render(3, 5, 5).source == render(200, 65, 0).source, "{dtype} {batch:?}");
            let batches: usize = batch.iter().product();
            assert_eq!((one.workgroups[0], other.workgroups[0]), (batches as u32, 8 * batches as u32), "{batch:?}");
        }
    }
}
