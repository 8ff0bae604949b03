use super::{WideConvert, WideElement, WideReduce};
use crate::offsets::checks::assert_valid;
use crate::testing::{Numbers, Operand, Threads, layouts, run_moved};
use kiln_ir::graph::Reduce;
use kiln_ir::op::{self, ElementOp, Signature};
use kiln_ir::{DType, Layout, Shape, SimdLevel};

const ONE: Threads = Threads { count: 1, simd: SimdLevel::Scalar };
const WIDE: [DType; 2] = [DType::I64, DType::F64];

/// Creates an operand of integers of both signs.
fn operand(seed: u64, dtype: DType, layout: &Layout) -> Operand {
    let mut numbers = Numbers::new(seed);
    Operand::new(dtype, layout.clone(), || numbers.below(9) as f64 - 4.0)
}

/// Each op of the table, in every layout, on one thread and on several.
#[test]
fn ops_compute_what_their_references_do() {
    for op in op::all().iter().copied() {
        // The references of bitwise ops support 32 bits only.
        let is_bits = !op.takes_dtype(DType::F64);
        for dtype in WIDE.into_iter().filter(|&dtype| op.takes_dtype(dtype) && !is_bits) {
            for layout in layouts(&Shape::from((5, 7))) {
                check(op, dtype, &layout);
            }
        }
    }
}

fn check(op: &'static ElementOp, dtype: DType, layout: &Layout) {
    let is_condition = |arg: usize| op.signature == Signature::Select && arg == 0;
    let other = Layout::contiguous(layout.shape().clone());
    let args: Vec<Operand> = (0..op.arity())
        .map(|arg| {
            let dtype = if is_condition(arg) { DType::Bool } else { dtype };
            operand(arg as u64 + 3, dtype, if arg % 2 == 0 { layout } else { &other })
        })
        .collect();
    let values: Vec<Vec<f64>> = args.iter().map(Operand::values).collect();
    for threads in Threads::all() {
        let found = run_moved(&WideElement { op }, &args, threads).unwrap().values(values[0].len());
        for (place, found) in found.into_iter().enumerate() {
            let numbers: Vec<f64> = values.iter().map(|values| values[place]).collect();
            let exact = (op.reference())(&numbers);
            // Integer results are truncated, and 0 where the reference is not finite.
            let expected = match dtype {
                DType::I64 if op.signature != Signature::Compare => {
                    if exact.is_finite() {
                        exact.trunc()
                    } else {
                        0.0
                    }
                }
                _ => exact,
            };
            let is_same = found == expected || found.is_nan() && expected.is_nan();
            assert!(is_same, "{op:?} {dtype} {layout:?} {numbers:?}: {expected} {found}");
        }
    }
}

#[test]
fn integers_beyond_what_floats_hold_are_exact_and_wrap() {
    let x = |value: i64| {
        let mut x = Operand::new(DType::I64, Layout::contiguous(Shape::from(1)), || 0.0);
        x.memory.set_bits(0, value as u64);
        x
    };
    let big = (1i64 << 62) + 1;
    let table: [(&'static ElementOp, i64, i64, i64); 8] = [
        (&op::BIT_AND, -2, big, 1 << 62),
        (&op::BIT_XOR, -1, big, !big),
        (&op::BIT_OR, 1 << 40, big, big | 1 << 40),
        (&op::ADD, big, 1, big + 1),
        (&op::ADD, i64::MAX, 1, i64::MIN),
        (&op::MUL, 3_037_000_500, 3_037_000_500, 9_223_372_037_000_250_000u64 as i64),
        (&op::DIV, big, 0, 0),
        (&op::DIV, i64::MIN, -1, i64::MIN),
    ];
    for (op, a, expected) in [(&op::BIT_NOT, big, !big), (&op::LOGICAL_NOT, 0, 1), (&op::LOGICAL_NOT, big, 0)] {
        assert_eq!(run_moved(&WideElement { op }, &[x(a)], ONE).unwrap().bits(0) as i64, expected, "{op:?} {a}");
    }
    for (op, a, b, expected) in table {
        let found = run_moved(&WideElement { op }, &[x(a), x(b)], ONE).unwrap();
        assert_eq!(found.bits(0) as i64, expected, "{op:?} {a} {b}");
    }
}

type OfRow<'a> = &'a dyn Fn(&[f64]) -> f64;

#[test]
fn rows_are_reduced_as_loops_do() {
    for dtype in WIDE {
        for length in [1, 2, 255, 256, 257, 1500] {
            let mut numbers = Numbers::new(length as u64);
            let layout = Layout::contiguous(Shape::from((3, length)));
            let x = Operand::new(dtype, layout, || numbers.below(100) as f64 - 50.0);
            let rows: Vec<Vec<f64>> = x.values().chunks(length).map(<[f64]>::to_vec).collect();
            let first = |row: &[f64], best: f64| row.iter().position(|&value| value == best).unwrap() as f64;
            let largest = |row: &[f64]| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let smallest = |row: &[f64]| row.iter().copied().fold(f64::INFINITY, f64::min);
            let table: [(Reduce, OfRow<'_>); 5] = [
                (Reduce::Sum, &|row| row.iter().sum()),
                (Reduce::Max, &largest),
                (Reduce::Min, &smallest),
                (Reduce::ArgMax, &|row| first(row, largest(row))),
                (Reduce::ArgMin, &|row| first(row, smallest(row))),
            ];
            for (op, expected) in table {
                for threads in Threads::all() {
                    let found = run_moved(&WideReduce { op }, std::slice::from_ref(&x), threads).unwrap().values(3);
                    let expected: Vec<f64> = rows.iter().map(|row| expected(row)).collect();
                    assert_eq!(found, expected, "{op:?} {dtype} {length}");
                }
            }
        }
    }
}

#[test]
fn a_nan_is_the_result_of_a_reduction() {
    let mut values = [1.0, f64::NAN, 3.0, f64::NAN].into_iter();
    let x = Operand::new(DType::F64, Layout::contiguous(Shape::from((1, 4))), || values.next().unwrap());
    for op in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min] {
        let found = run_moved(&WideReduce { op }, std::slice::from_ref(&x), ONE).unwrap();
        assert!(found.get(0).is_nan(), "{op:?}");
    }
    for op in [Reduce::ArgMax, Reduce::ArgMin] {
        let found = run_moved(&WideReduce { op }, std::slice::from_ref(&x), ONE).unwrap();
        assert_eq!(found.get(0), 1.0, "{op:?}");
    }
}

/// Pairwise summation keeps a long sum of inexact terms accurate.
#[test]
fn long_sums_keep_their_digits() {
    let x = Operand::new(DType::F64, Layout::contiguous(Shape::from((1, 1 << 16))), || 0.1);
    let found = run_moved(&WideReduce { op: Reduce::Sum }, &[x], ONE).unwrap().get(0);
    assert!((found - 6553.6).abs() < 1e-10, "{found}");
}

#[test]
fn conversions_are_valid_wgsl_in_every_layout() {
    for layout in layouts(&Shape::from((3, 4))) {
        for wide in WIDE {
            for other in DType::ALL {
                assert_valid(&WideConvert { to: other, is_index: false }, &[(wide, layout.clone())]);
                assert_valid(&WideConvert { to: wide, is_index: false }, &[(other, layout.clone())]);
            }
        }
        assert_valid(&WideConvert { to: DType::U32, is_index: true }, &[(DType::I64, layout)]);
    }
}
