//! Scatter and scatter_add against loops over coordinates.

use super::Scatter;
use super::reference::scatter;
use crate::offsets::checks::assert_valid;
use crate::testing::{INDEXED, Indexed, Operand, Threads, indexed, layouts, run_moved};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape, SimdLevel};

const THREADS: Threads = Threads { count: 8, simd: SimdLevel::Scalar };

/// Returns whether scatter_add supports a dtype.
fn adds(dtype: DType) -> bool {
    dtype != DType::Bool && !dtype.is_wide()
}

#[test]
fn scatters_every_dtype_in_every_layout() {
    // Small numbers, whose sums are exact in every dtype.
    indexed(&INDEXED, 12, |Indexed { x, index, axis, other, context }| {
        let source = Operand::whole(3, x.memory.dtype, other, 12);
        for add in [false, true].into_iter().filter(|add| !add || adds(x.memory.dtype)) {
            let expected = scatter(&x, &index, &source, axis, add);
            let operands = [x.clone(), index.clone(), source.clone()];
            let found = run_moved(&Scatter { axis, add }, &operands, THREADS).unwrap();
            assert_eq!(found.values(expected.len()), expected, "{context} add {add}");
        }
    });
}

/// Large enough that the work is shared between threads; floats, whose sums depend on the order.
#[test]
fn threads_change_nothing() {
    for (axis, shape, index_shape) in [(0, (50, 300), (900, 290)), (1, (300, 50), (290, 900))] {
        let x = Operand::random(1, DType::F32, Layout::contiguous(Shape::from(shape)));
        let index = Operand::whole(2, DType::U32, Layout::contiguous(Shape::from(index_shape)), 50);
        let source = Operand::random(3, DType::F32, Layout::contiguous(Shape::from(index_shape)));
        for add in [false, true] {
            let operands = [x.clone(), index.clone(), source.clone()];
            let [one, eight] =
                [1, 8].map(|count| run_moved(&Scatter { axis, add }, &operands, Threads { count, ..THREADS }).unwrap());
            assert_eq!(one.bytes(), eight.bytes(), "axis {axis} add {add}");
            let expected = scatter(&x, &index, &source, axis, add);
            for (found, expected) in one.values(expected.len()).into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "axis {axis} add {add}: {expected}, found {found}");
            }
        }
    }
}

/// In half precision a sum of ones stops growing at 2048, and in bfloat16 at 256; integers wrap.
#[test]
fn sums_are_rounded_once_and_integers_wrap() {
    for (dtype, count, expected) in [
        (DType::F16, 5000, 5000.0),
        (DType::BF16, 1024, 1024.0),
        (DType::U8, 300, 44.0),
        (DType::I8, 300, 44.0),
        (DType::U32, 300, 300.0),
    ] {
        let one = |shape: usize| Operand::new(dtype, Layout::contiguous(Shape::from(shape)), || 1.0);
        let zero = Operand::new(dtype, Layout::contiguous(Shape::from(1)), || 0.0);
        let index = Operand::whole(1, DType::U32, Layout::contiguous(Shape::from(count)), 1);
        let found = run_moved(&Scatter { axis: 0, add: true }, &[zero, index, one(count)], THREADS).unwrap();
        assert_eq!(found.get(0), expected, "{dtype}");
    }
    let numbers = |values: [f64; 2]| {
        let mut values = values.into_iter();
        Operand::new(DType::I32, Layout::contiguous(Shape::from(2)), move || values.next().unwrap())
    };
    let index = Operand::whole(1, DType::U32, Layout::contiguous(Shape::from(2)), 1);
    let operands = [numbers([f64::from(i32::MAX), 5.0]), index, numbers([1.0, 1.0])];
    let found = run_moved(&Scatter { axis: 0, add: true }, &operands, THREADS).unwrap();
    assert_eq!(found.values(2), [f64::from(i32::MIN + 1), 5.0]);
}

/// The error names the first index out of range, whichever thread finds one first.
#[test]
fn indices_out_of_range_are_named() {
    let x = Operand::whole(1, DType::F32, Layout::contiguous(Shape::from((7, 300))), 12);
    let source = Operand::whole(1, DType::F32, Layout::contiguous(Shape::from((400, 300))), 12);
    for count in [1, 8] {
        let mut index = Operand::whole(2, DType::I32, Layout::contiguous(Shape::from((400, 300))), 7);
        for (place, value) in [(119_000, 7.0), (70_001, -3.0), (90_000, 1e9)] {
            index.memory.set(place, value);
        }
        let operands = [x.clone(), index, source.clone()];
        let threads = Threads { count, ..THREADS };
        for (add, name) in [(false, "scatter"), (true, "scatter_add")] {
            let error = run_moved(&Scatter { axis: 0, add }, &operands, threads).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let expected = format!("{name} along axis 0 expected indices below its length 7, found -3 at (233, 101)");
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let ty = |shape: &[usize], dtype| TensorType { shape: Shape::new(shape), dtype };
    let infer = |index, source| {
        let types = [ty(&[2, 3], DType::F16), index, source];
        Scatter { axis: 1, add: false }.infer(&types).unwrap_err().to_string()
    };
    let index = ty(&[2, 5], DType::U32);
    assert_eq!(
        infer(index.clone(), ty(&[2, 4], DType::F16)),
        "scatter expected a source with the shape of the indices, (2, 5), found f16 (2, 4)"
    );
    assert_eq!(infer(index.clone(), ty(&[2, 5], DType::F32)), "scatter expected a source of f16, found f32 (2, 5)");
    assert_eq!(
        infer(ty(&[3, 5], DType::I32), ty(&[3, 5], DType::F16)),
        "scatter along axis 1 expected indices with the rank of f16 (2, 3) and at most its lengths along other axes, found i32 (3, 5)"
    );
    let add = Scatter { axis: 2, add: true };
    let types = [ty(&[2, 3], DType::F16), index, ty(&[2, 5], DType::F16)];
    assert_eq!(
        add.infer(&types).unwrap_err().to_string(),
        "scatter_add expected an axis below the rank 2, found 2 for f16 (2, 3)"
    );
}

#[test]
fn the_wgsl_is_valid() {
    for (dtype, index_dtype) in DType::ALL.into_iter().zip([DType::U32, DType::I32].into_iter().cycle()) {
        let shape = Shape::from((2, 3, 4));
        for (layout, index) in layouts(&shape).into_iter().zip(layouts(&shape.with(1, 5)).into_iter().rev()) {
            for add in [false, true].into_iter().filter(|add| !add || adds(dtype)) {
                let operands = [(dtype, layout.clone()), (index_dtype, index.clone()), (dtype, index.clone())];
                assert_valid(&Scatter { axis: 1, add }, &operands);
            }
        }
    }
}
