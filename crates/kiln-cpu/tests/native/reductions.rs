//! Reductions: every op, class and order of axes.

use crate::reference;
use crate::support::{Random, Tensor, devices, from_bytes, kernel, layouts, run};
use kiln_ir::graph::Reduce;
use kiln_ir::kernel::{Body, Core, Instruction, Kernel, Program};
use kiln_ir::op;
use kiln_ir::{Class, DType, Layout, Shape};
use smallvec::smallvec;

const ALL: [Reduce; 6] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::ArgMax, Reduce::ArgMin];

/// The reduction of a tensor over its axes from `kept` on, with `instructions` before it.
fn reduction(op: Reduce, tensor: &Tensor, kept: usize, instructions: Vec<Instruction>, dtype: DType) -> Kernel {
    let space = tensor.operand.layout.shape().clone();
    let output = Shape::new(&space[..kept]);
    let class = if matches!(op, Reduce::ArgMax | Reduce::ArgMin) { Class::Uint } else { dtype.class() };
    let input = Body { space, operands: vec![tensor.operand.clone()], program: Program { instructions } };
    let body = Body {
        space: output,
        operands: Vec::new(),
        program: Program { instructions: vec![Instruction::Core { class }] },
    };
    kernel(Core::Reduce { op, input, kept }, body, dtype)
}

fn sizes(tensor: &Tensor, kept: usize) -> (usize, usize) {
    let (kept, reduced) = tensor.operand.layout.shape().split_at(kept);
    (kept.iter().product(), reduced.iter().product())
}

/// Runs on all devices, which must agree to the bit, and returns the numbers.
fn on_all(kernel: &Kernel, tensors: &[Tensor], what: &str) -> Vec<f64> {
    let runs: Vec<_> = devices().iter().map(|(name, device)| (name, run(device, kernel, tensors, &[]))).collect();
    for (name, bytes) in &runs[1..] {
        assert!(*bytes == runs[0].1, "{what}: {name} and {} differ", runs[0].0);
    }
    from_bytes(kernel.output.dtype, &runs[0].1)
}

/// Integers, so that every order of additions gives the same sum; all layouts, with each number of reduced axes.
#[test]
fn every_reduction_agrees_with_the_reference() {
    let mut random = Random(3);
    let shapes: [&[usize]; 10] = [
        &[],
        &[1],
        &[100],
        &[5, 7],
        &[67, 61],
        &[300, 40],
        &[3, 500],
        &[2, 3, 4, 5],
        &[7, 1, 9],
        &[2, 1, 2, 3, 2, 2, 3],
    ];
    for shape in shapes.map(Shape::new) {
        for (index, (what, layout)) in layouts(&shape).into_iter().enumerate() {
            for kept in 0..=shape.rank() {
                let dtype = DType::NARROW[(index + kept) % 8];
                let tensor = Tensor::random(dtype, layout.clone(), &mut random);
                let (kept_len, reduced_len) = sizes(&tensor, kept);
                for op in ALL {
                    if op == Reduce::Mean && !dtype.is_float() {
                        continue;
                    }
                    let is_arg = matches!(op, Reduce::ArgMax | Reduce::ArgMin);
                    let output = if is_arg { DType::U32 } else { dtype.computed() };
                    let kernel = reduction(op, &tensor, kept, vec![Instruction::Load { operand: 0 }], output);
                    let expected = reference::reduce(op, dtype.class(), &tensor.numbers(), kept_len, reduced_len);
                    let what = format!("{op:?} of {dtype} {shape} {what}, {kept} kept");
                    let found = on_all(&kernel, std::slice::from_ref(&tensor), &what);
                    let expected: Vec<f64> =
                        expected.iter().map(|&x| reference::cast(x, output.class(), output)).collect();
                    assert_eq!(found, expected, "{what}");
                }
            }
        }
    }
}

/// Reductions along rows and columns, narrow and wide, at sizes around those of batches, tiles and pieces.
#[test]
fn large_reductions_are_whole() {
    let mut random = Random(17);
    for (kept, reduced) in
        [(1, 200_000), (3, 140_000), (1, 131_073), (70_000, 3), (257, 1025), (4097, 31), (9000, 20), (300, 4097)]
    {
        let rows = Layout::contiguous(Shape::from((kept, reduced)));
        let columns = Layout::contiguous(Shape::from((reduced, kept))).permuted(&[1, 0]);
        for (what, layout) in [("rows", rows), ("columns", columns)] {
            for (op, dtype) in [
                (Reduce::Sum, DType::F16),
                (Reduce::Sum, DType::BF16),
                (Reduce::Max, DType::I32),
                (Reduce::Min, DType::F16),
                (Reduce::ArgMax, DType::BF16),
                (Reduce::ArgMin, DType::F32),
            ] {
                let tensor = Tensor::random(dtype, layout.clone(), &mut random);
                let is_arg = matches!(op, Reduce::ArgMax | Reduce::ArgMin);
                let output = if is_arg { DType::U32 } else { dtype.computed() };
                let kernel = reduction(op, &tensor, 1, vec![Instruction::Load { operand: 0 }], output);
                let expected = reference::reduce(op, dtype.class(), &tensor.numbers(), kept, reduced);
                let what = format!("{op:?} of {kept} {what} of {reduced}");
                let found = on_all(&kernel, &[tensor], &what);
                assert!(found == expected, "{what}");
            }
        }
    }
}

/// Sums of any length are close to the exact one, and equal on every device.
#[test]
fn sums_of_fractions_stay_close() {
    let mut random = Random(19);
    for (kept, reduced) in [(1, 100_000), (1, 1 << 20), (40, 30_000), (2000, 70)] {
        let rows = Layout::contiguous(Shape::from((kept, reduced)));
        let columns = Layout::contiguous(Shape::from((reduced, kept))).permuted(&[1, 0]);
        for layout in [rows, columns] {
            let tensor = Tensor::new(DType::F32, layout, |_| f64::from(random.below(1 << 20) as f32 / 1e6));
            let kernel = reduction(Reduce::Sum, &tensor, 1, vec![Instruction::Load { operand: 0 }], DType::F32);
            let expected = reference::reduce(Reduce::Sum, Class::Float, &tensor.numbers(), kept, reduced);
            let found = on_all(&kernel, &[tensor], "sum");
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() <= 1e-6 * expected, "{kept} of {reduced}: {found} and not {expected}");
            }
        }
    }
}

/// Counts that `f16` cannot represent are exact, because sums are not accumulated in `f16`.
#[test]
fn sums_and_means_of_half_precision_ones_are_exact() {
    for dtype in [DType::F16, DType::BF16] {
        for (op, count, expected) in [(Reduce::Sum, 100_000, 100_000.0), (Reduce::Mean, 70_000, 1.0)] {
            let shape = Shape::from((1, count));
            let columns = Layout::contiguous(Shape::from((count, 2))).sliced(1, 0, 1, 1).permuted(&[1, 0]);
            for layout in [Layout::contiguous(shape.clone()), columns] {
                let tensor = Tensor::new(dtype, layout, |_| 1.0);
                let kernel = reduction(op, &tensor, 1, vec![Instruction::Load { operand: 0 }], DType::F32);
                assert_eq!(on_all(&kernel, &[tensor], "ones"), [expected]);
            }
        }
    }
}

/// NaN propagates, arg-reductions return its index, and the first of equal elements wins, including zeros of either sign.
#[test]
fn a_nan_wins_and_the_first_of_equals_is_found() {
    let infinity = f64::INFINITY;
    let rows: [(&[f64], f64, f64); 5] = [
        (&[1.0, 5.0, f64::NAN, 9.0, f64::NAN], f64::NAN, 2.0),
        (&[-infinity, -infinity], -infinity, 0.0),
        (&[0.0, -0.0, 0.0], 0.0, 0.0),
        (&[-0.0, 0.0], 0.0, 0.0),
        (&[3.0, 7.0, 7.0], 7.0, 1.0),
    ];
    for (row, max, place) in rows {
        // The pattern at the end of a long row of low values, and transposed.
        for front in [0, 3, 40, 200_000] {
            let low = if row.contains(&-infinity) { -infinity } else { -1.0 };
            let reduced = front + row.len();
            let value = |r: usize| if r < front { low } else { row[r - front] };
            for is_transposed in [false, true] {
                let kept = if is_transposed { 3 } else { 1 };
                let layout = Layout::contiguous(Shape::from((reduced, kept))).permuted(&[1, 0]);
                let tensor = Tensor::new(DType::F32, layout, |place| value(place / kept));
                let place = if low == -infinity { 0.0 } else { place + front as f64 };
                let code = || vec![Instruction::Load { operand: 0 }];
                let found = on_all(
                    &reduction(Reduce::Max, &tensor, 1, code(), DType::F32),
                    std::slice::from_ref(&tensor),
                    "max",
                );
                assert!(
                    found.iter().all(|&found| found == max || (found.is_nan() && max.is_nan())),
                    "{row:?} {found:?}"
                );
                let found = on_all(
                    &reduction(Reduce::ArgMax, &tensor, 1, code(), DType::U32),
                    std::slice::from_ref(&tensor),
                    "arg",
                );
                assert_eq!(found, vec![place; kept], "{row:?} after {front}");
                let negated = vec![code().remove(0), negate(0)];
                let found = on_all(&reduction(Reduce::ArgMin, &tensor, 1, negated, DType::U32), &[tensor], "arg");
                assert_eq!(found, vec![place; kept], "{row:?} after {front}, negated");
            }
        }
    }
}

fn negate(arg: usize) -> Instruction {
    Instruction::Op { op: &op::NEG, class: Class::Float, args: smallvec![arg] }
}

#[test]
fn integers_wrap_and_nothing_has_a_sum() {
    let tensor = Tensor::new(DType::I32, Layout::contiguous(Shape::from((2, 100_000))), |_| 2_000_000_000.0);
    let kernel = reduction(Reduce::Sum, &tensor, 1, vec![Instruction::Load { operand: 0 }], DType::I32);
    let expected = f64::from((2_000_000_000i64 * 100_000) as i32);
    assert_eq!(on_all(&kernel, &[tensor], "wrap"), [expected, expected]);
    for (dtype, op, expected) in
        [(DType::F32, Reduce::Sum, 0.0), (DType::I32, Reduce::Sum, 0.0), (DType::F32, Reduce::Mean, f64::NAN)]
    {
        let tensor = Tensor::new(dtype, Layout::contiguous(Shape::from((3, 0))), |_| 1.0);
        let kernel = reduction(op, &tensor, 1, vec![Instruction::Load { operand: 0 }], dtype);
        let found = on_all(&kernel, &[tensor], "nothing");
        assert!(
            found.iter().all(|x| *x == expected || (x.is_nan() && expected.is_nan())) && found.len() == 3,
            "{found:?}"
        );
    }
}

/// The prologue and the epilogue of a reduction run, even if the input has no operand that determines the memory order.
#[test]
fn prologues_and_epilogues_run() {
    let mut random = Random(23);
    let shape = Shape::from((50, 60));
    for (what, layout) in layouts(&shape) {
        let tensor = Tensor::random(DType::F16, layout, &mut random);
        let weights = Tensor::random(DType::BF16, Layout::contiguous(Shape::from(50)), &mut random);
        let multiply =
            |args: [usize; 2]| Instruction::Op { op: &op::MUL, class: Class::Float, args: args.into_iter().collect() };
        let input = Body {
            space: shape.clone(),
            operands: vec![tensor.operand.clone()],
            program: Program { instructions: vec![Instruction::Load { operand: 0 }, multiply([0, 0])] },
        };
        let epilogue = vec![
            Instruction::Core { class: Class::Float },
            Instruction::Load { operand: 0 },
            multiply([0, 1]),
            negate(2),
        ];
        let body = Body {
            space: Shape::from(50),
            operands: vec![weights.operand.clone()],
            program: Program { instructions: epilogue.clone() },
        };
        let squares: Vec<f64> = tensor.numbers().iter().map(|x| x * x).collect();
        let sums = reference::reduce(Reduce::Sum, Class::Float, &squares, 50, 60);
        let expected = reference::evaluate(&epilogue, std::slice::from_ref(&weights), &[], &sums, 50);
        for dtype in [DType::F32, DType::F16] {
            let kernel = kernel(Core::Reduce { op: Reduce::Sum, input: input.clone(), kept: 1 }, body.clone(), dtype);
            let expected: Vec<f64> = expected.iter().map(|&x| reference::cast(x, Class::Float, dtype)).collect();
            assert_eq!(on_all(&kernel, &[tensor.clone(), weights.clone()], what), expected, "{what}");
        }
    }
    let input = Body { space: shape, operands: Vec::new(), program: Program { instructions: vec![Instruction::Iota] } };
    let body = Body {
        space: Shape::from(50),
        operands: Vec::new(),
        program: Program { instructions: vec![Instruction::Core { class: Class::Uint }] },
    };
    let kernel = kernel(Core::Reduce { op: Reduce::Max, input, kept: 1 }, body, DType::U32);
    assert_eq!(on_all(&kernel, &[], "iota"), (0..50).map(|row| f64::from(row * 60 + 59)).collect::<Vec<_>>());
}
