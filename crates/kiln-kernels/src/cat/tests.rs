//! Cat against loops over coordinates.

use super::Cat;
use super::reference::cat;
use crate::offsets::checks::assert_valid;
use crate::testing::{Operand, Threads, layouts, run_moved};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape, SimdLevel};

const THREADS: Threads = Threads { count: 8, simd: SimdLevel::Scalar };

#[test]
fn joins_every_dtype_in_every_layout() {
    let cases: [(&[usize], usize, &[usize]); 9] = [
        (&[5], 0, &[5]),
        (&[5], 0, &[0, 3, 1, 0, 64, 65]),
        (&[4, 3], 0, &[1, 2]),
        (&[4, 3], 1, &[1, 1, 1]),
        (&[4, 3], 1, &[7, 0, 33]),
        (&[0, 3], 1, &[2, 2]),
        (&[2, 3, 4], 1, &[2, 5]),
        (&[2, 3, 4, 5], 2, &[1, 2, 3, 1, 2, 3, 1, 2]),
        (&[1, 3, 1, 2], 0, &[2, 3]),
    ];
    for (shape, axis, lengths) in cases {
        for way in 0..7 {
            for dtype in DType::ALL {
                let inputs: Vec<Operand> = (0u64..)
                    .zip(lengths)
                    .map(|(number, &length)| {
                        let ways = layouts(&Shape::new(shape).with(axis, length));
                        Operand::whole(number, dtype, ways[(way + number as usize) % ways.len()].clone(), 200)
                    })
                    .collect();
                let expected = cat(&inputs, axis);
                let found = run_moved(&Cat { axis }, &inputs, THREADS).unwrap();
                assert_eq!(found.values(expected.len()), expected, "{shape:?} {axis} {lengths:?} {dtype} way {way}");
            }
        }
    }
}

/// Large enough that the work is shared between threads, whose ranges begin in the middle of inputs.
#[test]
fn threads_change_nothing() {
    for axis in [0, 1] {
        let shape = Shape::from((331, 127));
        let inputs: Vec<Operand> = [90, 1, 211]
            .iter()
            .map(|&length| Operand::whole(length as u64, DType::F16, Layout::contiguous(shape.with(axis, length)), 200))
            .collect();
        let expected = cat(&inputs, axis);
        for count in [1, 8] {
            let found = run_moved(&Cat { axis }, &inputs, Threads { count, ..THREADS }).unwrap();
            assert!(found.values(expected.len()) == expected, "axis {axis}, {count} threads");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let ty = |shape: &[usize], dtype| TensorType { shape: Shape::new(shape), dtype };
    let infer = |axis, types: &[TensorType]| Cat { axis }.infer(types).unwrap_err().to_string();
    let x = ty(&[2, 3], DType::F16);
    assert_eq!(infer(0, &[]), "cat expected at least 1 input, found none");
    assert_eq!(infer(2, std::slice::from_ref(&x)), "cat expected an axis below the rank 2, found 2 for f16 (2, 3)");
    assert_eq!(
        infer(0, &[x.clone(), x.clone(), ty(&[2, 3], DType::F32)]),
        "cat expected inputs of one dtype, found f32 (2, 3) as input 2 after f16 (2, 3)"
    );
    for shape in [&[3, 3][..], &[2], &[2, 3, 1]] {
        let expected = format!(
            "cat along axis 1 expected equal lengths along all others, found f16 {} as input 1 after f16 (2, 3)",
            Shape::new(shape)
        );
        assert_eq!(infer(1, &[x.clone(), ty(shape, DType::F16)]), expected);
    }
    let huge = ty(&[1 << 31], DType::U8);
    assert_eq!(Cat { axis: 0 }.infer(&[huge.clone(), huge]).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn the_wgsl_is_valid() {
    for (dtype, count) in DType::ALL.into_iter().zip([1, 2, 3, 5, 6, 7]) {
        let shape = Shape::from((2, 3, 4));
        for axis in 0..3 {
            let inputs: Vec<(DType, Layout)> =
                layouts(&shape).into_iter().take(count).map(|way| (dtype, way)).collect();
            assert_valid(&Cat { axis }, &inputs);
        }
    }
}
