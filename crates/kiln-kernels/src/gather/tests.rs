//! Gather and index_select against loops over coordinates.

use super::reference;
use super::{Gather, IndexSelect};
use crate::places::checks::assert_valid;
use crate::testing::{Memory, Numbers, Operand, Threads, layouts, run_moved};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape, SimdLevel};

const THREADS: Threads = Threads { count: 8, simd: SimdLevel::Scalar };

/// Whole numbers, which every dtype holds.
fn whole(seed: u64, dtype: DType, layout: Layout) -> Operand {
    let mut numbers = Numbers::new(seed);
    Operand::new(dtype, layout, || numbers.below(200) as f64)
}

fn indices(seed: u64, dtype: DType, layout: Layout, length: usize) -> Operand {
    let mut numbers = Numbers::new(seed);
    Operand::new(dtype, layout, || numbers.below(length) as f64)
}

fn values(memory: &Memory, elements: usize) -> Vec<f64> {
    (0..elements).map(|index| memory.get(index)).collect()
}

#[test]
fn gathers_every_dtype_from_every_layout() {
    let cases: [(&[usize], &[usize], usize); 8] = [
        (&[9], &[5], 0),
        (&[4], &[0], 0),
        (&[4, 7], &[4, 3], 1),
        (&[4, 7], &[9, 5], 0),
        (&[3, 4, 5], &[2, 6, 5], 1),
        (&[3, 4, 5], &[3, 2, 8], 2),
        (&[2, 3, 4, 5], &[7, 2, 3, 4], 0),
        (&[1, 3, 1, 2], &[1, 5, 1, 2], 1),
    ];
    for (shape, index_shape, axis) in cases {
        let (shape, index_shape) = (Shape::new(shape), Shape::new(index_shape));
        for (number, layout) in layouts(&shape).into_iter().enumerate() {
            for (dtype, index_dtype) in DType::ALL.into_iter().zip([DType::U32, DType::I32].into_iter().cycle()) {
                let x = whole(1, dtype, layout.clone());
                let ways = layouts(&index_shape);
                let index = indices(2, index_dtype, ways[number % ways.len()].clone(), shape[axis]);
                let expected = reference::gather(&x, &index, axis);
                let found = run_moved(&Gather { axis }, &[x, index], THREADS).unwrap();
                assert_eq!(values(&found, expected.len()), expected, "{layout:?} {index_shape} {axis} {dtype}");
            }
        }
    }
}

#[test]
fn selects_every_dtype_from_every_layout() {
    let cases: [(&[usize], usize, usize); 9] = [
        (&[9], 5, 0),
        (&[4, 7], 0, 1),
        (&[4, 7], 3, 1),
        (&[4, 7], 9, 0),
        (&[3, 4, 5], 6, 1),
        (&[3, 4, 0], 6, 1),
        (&[2, 3, 4, 5], 7, 0),
        (&[2, 3, 4, 5], 2, 2),
        (&[1, 3, 1, 2], 4, 1),
    ];
    for (shape, count, axis) in cases {
        let shape = Shape::new(shape);
        for (number, layout) in layouts(&shape).into_iter().enumerate() {
            for (dtype, index_dtype) in DType::ALL.into_iter().zip([DType::U32, DType::I32].into_iter().cycle()) {
                let x = whole(1, dtype, layout.clone());
                let ways = layouts(&Shape::from(count));
                let index = indices(2, index_dtype, ways[number % ways.len()].clone(), shape[axis]);
                let expected = reference::index_select(&x, &index, axis);
                let found = run_moved(&IndexSelect { axis }, &[x, index], THREADS).unwrap();
                assert_eq!(values(&found, expected.len()), expected, "{layout:?} {count} {axis} {dtype}");
            }
        }
    }
}

/// Large enough that the work is shared between threads.
#[test]
fn threads_change_nothing() {
    let table = whole(1, DType::F16, Layout::contiguous(Shape::from((300, 257))));
    let tokens = indices(2, DType::U32, Layout::contiguous(Shape::from(2000)), 300);
    let lines = indices(3, DType::I32, Layout::contiguous(Shape::from((300, 900))), 257);
    let run = |op: &dyn KernelOp, index: &Operand, count| {
        run_moved(op, &[table.clone(), index.clone()], Threads { count, ..THREADS }).unwrap()
    };
    let select = IndexSelect { axis: 0 };
    let expected = reference::index_select(&table, &tokens, 0);
    for count in [1, 8] {
        assert!(values(&run(&select, &tokens, count), expected.len()) == expected, "select on {count} threads");
    }
    let expected = reference::gather(&table, &lines, 1);
    for count in [1, 8] {
        assert!(values(&run(&Gather { axis: 1 }, &lines, count), expected.len()) == expected, "{count} threads");
    }
}

/// Bits move as they are, those of NaNs too.
#[test]
fn bits_are_kept() {
    let mut x = whole(1, DType::F32, Layout::contiguous(Shape::from(4)));
    x.memory.set(2, f64::from(f32::from_bits(0x7fc0_1234)));
    let index = indices(1, DType::U32, Layout::contiguous(Shape::from(64)), 4);
    let found = run_moved(&IndexSelect { axis: 0 }, &[x.clone(), index.clone()], THREADS).unwrap();
    for (position, index) in index.values().into_iter().enumerate() {
        let element = |memory: &Memory, index: usize| memory.bytes()[4 * index..4 * index + 4].to_vec();
        assert_eq!(element(&found, position), element(&x.memory, index as usize));
    }
}

/// The first one that is out of range is named, whichever thread finds one first.
#[test]
fn indices_out_of_range_are_named() {
    let x = whole(1, DType::F32, Layout::contiguous(Shape::from((300, 7))));
    for count in [1, 8] {
        let threads = Threads { count, ..THREADS };
        let mut index = indices(2, DType::I32, Layout::contiguous(Shape::from((300, 400))), 7);
        for (place, value) in [(119_000, 7.0), (70_001, -3.0), (90_000, 1e9)] {
            index.memory.set(place, value);
        }
        let error = run_moved(&Gather { axis: 1 }, &[x.clone(), index], threads).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.to_string(), "gather along axis 1 expected indices below its length 7, found -3 at (175, 1)");
        let mut index = indices(2, DType::U32, Layout::contiguous(Shape::from(40_000)), 300);
        index.memory.set(39_000, 300.0);
        index.memory.set(33_000, 4e9);
        let error = run_moved(&IndexSelect { axis: 0 }, &[x.clone(), index], threads).unwrap_err();
        assert_eq!(
            error.to_string(),
            "index_select along axis 0 expected indices below its length 300, found 4000000000 at (33000,)"
        );
    }
}

/// Nothing can be selected from an axis of length 0, but from one beside it.
#[test]
fn empty_tensors() {
    let x = whole(1, DType::U8, Layout::contiguous(Shape::from((0, 3))));
    let index = indices(1, DType::U32, Layout::contiguous(Shape::from(2)), 1);
    assert!(run_moved(&IndexSelect { axis: 0 }, &[x.clone(), index.clone()], THREADS).is_err());
    assert!(run_moved(&IndexSelect { axis: 1 }, &[x, index], THREADS).is_ok());
}

#[test]
fn what_does_not_fit_is_refused() {
    let ty = |shape: &[usize], dtype| TensorType { shape: Shape::new(shape), dtype };
    let x = ty(&[2, 3], DType::F16);
    let gather = |axis, index| Gather { axis }.infer(&[x.clone(), index]).unwrap_err().to_string();
    assert_eq!(gather(2, ty(&[2, 3], DType::U32)), "gather expected an axis below the rank 2, found 2 for f16 (2, 3)");
    assert_eq!(gather(1, ty(&[2, 3], DType::F32)), "gather expected indices of u32 or i32, found f32 (2, 3)");
    for shape in [&[3, 3][..], &[2], &[2, 3, 1]] {
        let expected = format!(
            "gather along axis 1 expected indices of the rank of f16 (2, 3) and nowhere else longer, found u32 {}",
            Shape::new(shape)
        );
        assert_eq!(gather(1, ty(shape, DType::U32)), expected);
    }
    let select = |index| IndexSelect { axis: 0 }.infer(&[x.clone(), index]).unwrap_err().to_string();
    assert_eq!(select(ty(&[2, 2], DType::I32)), "index_select expected indices of rank 1, found i32 (2, 2)");
    let huge = ty(&[1 << 31, 1], DType::U8);
    let error = IndexSelect { axis: 1 }.infer(&[huge, ty(&[2], DType::U32)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[test]
fn the_wgsl_is_valid() {
    for (dtype, index_dtype) in DType::ALL.into_iter().zip([DType::U32, DType::I32].into_iter().cycle()) {
        let shape = Shape::from((2, 3, 4));
        for (layout, index) in layouts(&shape).into_iter().zip(layouts(&shape.with(1, 5)).into_iter().rev()) {
            assert_valid(&Gather { axis: 1 }, &[(dtype, layout.clone()), (index_dtype, index)]);
            let index = Layout::strided(Shape::from(5), &[-2], 8);
            assert_valid(&IndexSelect { axis: 1 }, &[(dtype, layout), (index_dtype, index)]);
        }
        let line = Layout::contiguous(Shape::from(1));
        assert_valid(&Gather { axis: 0 }, &[(dtype, line.clone()), (index_dtype, line)]);
    }
}
