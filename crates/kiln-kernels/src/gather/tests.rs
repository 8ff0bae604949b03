//! Gather and index_select against loops over coordinates.

use super::reference;
use super::{Gather, IndexSelect};
use crate::offsets::checks::assert_valid;
use crate::testing::{INDEXED, Indexed, Memory, Operand, Threads, indexed, layouts, run_moved};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape, SimdLevel};

const THREADS: Threads = Threads { count: 8, simd: SimdLevel::Scalar };

#[test]
fn gathers_every_dtype_from_every_layout() {
    indexed(&INDEXED, 200, |Indexed { x, index, axis, context, .. }| {
        let expected = reference::gather(&x, &index, axis);
        let found = run_moved(&Gather { axis }, &[x, index], THREADS).unwrap();
        assert_eq!(found.values(expected.len()), expected, "{context}");
    });
}

#[test]
fn selects_every_dtype_from_every_layout() {
    let cases: [(&[usize], &[usize], usize); 9] = [
        (&[9], &[5], 0),
        (&[4, 7], &[0], 1),
        (&[4, 7], &[3], 1),
        (&[4, 7], &[9], 0),
        (&[3, 4, 5], &[6], 1),
        (&[3, 4, 0], &[6], 1),
        (&[2, 3, 4, 5], &[7], 0),
        (&[2, 3, 4, 5], &[2], 2),
        (&[1, 3, 1, 2], &[4], 1),
    ];
    indexed(&cases, 200, |Indexed { x, index, axis, context, .. }| {
        let expected = reference::index_select(&x, &index, axis);
        let found = run_moved(&IndexSelect { axis }, &[x, index], THREADS).unwrap();
        assert_eq!(found.values(expected.len()), expected, "{context}");
    });
}

/// Large enough that the work is shared between threads.
#[test]
fn threads_change_nothing() {
    let table = Operand::whole(1, DType::F16, Layout::contiguous(Shape::from((300, 257))), 200);
    let tokens = Operand::whole(2, DType::U32, Layout::contiguous(Shape::from(2000)), 300);
    let lines = Operand::whole(3, DType::I32, Layout::contiguous(Shape::from((300, 900))), 257);
    let run = |op: &dyn KernelOp, index: &Operand, count| {
        run_moved(op, &[table.clone(), index.clone()], Threads { count, ..THREADS }).unwrap()
    };
    let select = IndexSelect { axis: 0 };
    let expected = reference::index_select(&table, &tokens, 0);
    for count in [1, 8] {
        assert!(run(&select, &tokens, count).values(expected.len()) == expected, "select on {count} threads");
    }
    let expected = reference::gather(&table, &lines, 1);
    for count in [1, 8] {
        assert!(run(&Gather { axis: 1 }, &lines, count).values(expected.len()) == expected, "{count} threads");
    }
}

/// Elements are moved bit for bit, NaN payloads included.
#[test]
fn bits_are_kept() {
    let mut x = Operand::whole(1, DType::F32, Layout::contiguous(Shape::from(4)), 200);
    x.memory.set(2, f64::from(f32::from_bits(0x7fc0_1234)));
    let index = Operand::whole(1, DType::U32, Layout::contiguous(Shape::from(64)), 4);
    let found = run_moved(&IndexSelect { axis: 0 }, &[x.clone(), index.clone()], THREADS).unwrap();
    for (position, index) in index.values().into_iter().enumerate() {
        let element = |memory: &Memory, index: usize| memory.bytes()[4 * index..4 * index + 4].to_vec();
        assert_eq!(element(&found, position), element(&x.memory, index as usize));
    }
}

/// The error names the first index out of range, whichever thread finds one first.
#[test]
fn indices_out_of_range_are_named() {
    let x = Operand::whole(1, DType::F32, Layout::contiguous(Shape::from((300, 7))), 200);
    for count in [1, 8] {
        let threads = Threads { count, ..THREADS };
        let mut index = Operand::whole(2, DType::I32, Layout::contiguous(Shape::from((300, 400))), 7);
        for (place, value) in [(119_000, 7.0), (70_001, -3.0), (90_000, 1e9)] {
            index.memory.set(place, value);
        }
        let error = run_moved(&Gather { axis: 1 }, &[x.clone(), index], threads).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.to_string(), "gather along axis 1 expected indices below its length 7, found -3 at (175, 1)");
        let mut index = Operand::whole(2, DType::U32, Layout::contiguous(Shape::from(40_000)), 300);
        index.memory.set(39_000, 300.0);
        index.memory.set(33_000, 4e9);
        let error = run_moved(&IndexSelect { axis: 0 }, &[x.clone(), index], threads).unwrap_err();
        assert_eq!(
            error.to_string(),
            "index_select along axis 0 expected indices below its length 300, found 4000000000 at (33000,)"
        );
    }
}

/// Selecting from an axis of length 0 is an error, but not from another axis of an empty tensor.
#[test]
fn empty_tensors() {
    let x = Operand::whole(1, DType::U8, Layout::contiguous(Shape::from((0, 3))), 200);
    let index = Operand::whole(1, DType::U32, Layout::contiguous(Shape::from(2)), 1);
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
            "gather along axis 1 expected indices with the rank of f16 (2, 3) and at most its lengths along other axes, found u32 {}",
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

/// Only the selected rows of a table are read, and never more than there are.
#[test]
fn read_bytes_count_only_selected_rows() {
    let ty = |shape: &[usize], dtype| TensorType { shape: Shape::new(shape), dtype };
    let (table, few, many) = (ty(&[1000, 64], DType::F16), ty(&[10], DType::U32), ty(&[2000], DType::I32));
    let select = |index: &TensorType| {
        let inputs = [table.clone(), index.clone()];
        [0, 1].map(|operand| IndexSelect { axis: 0 }.read_bytes(operand, &inputs))
    };
    assert_eq!(select(&few), [10 * 64 * 2, 10 * 4]);
    assert_eq!(select(&many), [1000 * 64 * 2, 2000 * 4]);
    let lines = [table.clone(), ty(&[1000, 3], DType::U32)];
    assert_eq!([0, 1].map(|operand| Gather { axis: 1 }.read_bytes(operand, &lines)), [1000 * 3 * 2, 1000 * 3 * 4]);
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
