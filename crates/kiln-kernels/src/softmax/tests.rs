//! Softmax and log_softmax against `f64`.

use super::Softmax;
use crate::offsets::checks::{assert_valid, rendered};
use crate::rows::assert_close;
use crate::testing::{Numbers, Operand, Threads, layouts, run_direct, run_stored, run_with};
use kiln_ir::graph::TensorType;
use kiln_ir::op::reference;
use kiln_ir::wgsl::WgslFeatures;
use kiln_ir::{DType, KernelOp, Layout, Shape, SimdLevel};

const FLOATS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

/// Relative error of the difference from the maximum, the exponential and the sum; for a logarithm, relative to 1 at least.
const ERROR: f64 = 2e-6;

fn random(seed: u64, dtype: DType, layout: Layout) -> Operand {
    let mut numbers = Numbers::new(seed);
    Operand::new(dtype, layout, || 12.0 * numbers.unit())
}

fn softmax(x: &Operand, log: bool) -> Vec<f64> {
    let length = x.layout.shape()[x.layout.shape().len() - 1];
    x.values().chunks(length.max(1)).flat_map(|row| reference::softmax(row, log)).collect()
}

fn check(x: &Operand, log: bool, threads: Threads, context: &str) {
    let expected = softmax(x, log);
    let found = run_stored(&Softmax { log }, std::slice::from_ref(x), threads);
    let direct = run_direct(&Softmax { log }, std::slice::from_ref(x), threads);
    assert_eq!(direct.bytes(), found.bytes(), "log {log} {:?} {threads:?} {context}", x.ty());
    assert_close(
        &found,
        &expected,
        ERROR,
        if log { 1.0 } else { 0.0 },
        &format!("log {log} {:?} {threads:?} {context}", x.ty()),
    );
}

#[test]
fn rows_of_every_length_and_dtype() {
    for length in [0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 1000, 1025, 5000] {
        for dtype in FLOATS {
            let x = random(length as u64, dtype, Layout::contiguous(Shape::from((3, length))));
            for threads in Threads::all() {
                check(&x, false, threads, "");
                check(&x, true, threads, "");
            }
        }
    }
}

#[test]
fn layouts_with_whole_rows_are_taken_as_they_are() {
    let shapes: [&[usize]; 6] = [&[9], &[1], &[5, 40], &[2, 3, 33], &[2, 3, 4, 5], &[4, 1, 6, 1]];
    let threads = Threads { count: 8, simd: SimdLevel::detect() };
    let (mut taken, mut refused) = (0, 0);
    for layout in shapes.iter().flat_map(|&shape| layouts(&Shape::new(shape))) {
        if !(Softmax { log: false }).takes(0, &layout) {
            refused += 1;
            continue;
        }
        taken += 1;
        for dtype in FLOATS {
            let x = random(7, dtype, layout.clone());
            check(&x, false, threads, &format!("{layout:?}"));
            check(&x, true, threads, &format!("{layout:?}"));
        }
    }
    assert!(taken >= 18 && refused >= 12, "{taken} taken, {refused} refused");
}

/// Rows that threads share block by block; some blocks are masked completely.
#[test]
fn long_rows() {
    for (rows, length) in [(1, (1 << 16) + 1), (2, 70_003), (1, 100_000)] {
        for dtype in FLOATS {
            let (mut numbers, mut count) = (Numbers::new(length as u64), 0);
            let x = Operand::new(dtype, Layout::contiguous(Shape::from((rows, length))), || {
                count += 1;
                if count < 40_000 { f64::NEG_INFINITY } else { 12.0 * numbers.unit() }
            });
            for threads in Threads::all() {
                check(&x, false, threads, "");
                check(&x, true, threads, "");
            }
        }
    }
    let mut count = 0;
    let x = Operand::new(DType::F32, Layout::contiguous(Shape::from((2, 70_000))), || {
        count += 1;
        if count == 69_000 { f64::NAN } else { 0.0 }
    });
    for threads in Threads::all() {
        let found = run_stored(&Softmax { log: false }, std::slice::from_ref(&x), threads);
        assert!((0..140_000).all(|index| found.get(index).is_nan() == (index < 70_000)), "{threads:?}");
    }
}

/// Matches NumPy and PyTorch.
#[test]
fn poison_makes_a_row_nan_and_masked_elements_are_0() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows = [
        ([1.0, 2.0, -inf, 3.0, -inf], false),
        ([-inf, -inf, -inf, -inf, -inf], true),
        ([0.0, inf, 0.0, 1.0, 2.0], true),
        ([0.0, nan, 0.0, 1.0, 2.0], true),
        ([nan, nan, nan, nan, nan], true),
        ([3e4, -3e4, 3e4, 0.0, 3e4], false),
        ([-3e4, -3e4, -3e4, -3e4, -inf], false),
    ];
    for (row, is_nan) in rows {
        for (dtype, repeats) in FLOATS.into_iter().flat_map(|dtype| [1, 9].map(|repeats| (dtype, repeats))) {
            let mut numbers = row.into_iter().cycle();
            let layout = Layout::contiguous(Shape::from(row.len() * repeats));
            let x = Operand::new(dtype, layout, || numbers.next().unwrap());
            for threads in Threads::all() {
                check(&x, false, threads, &format!("{row:?}"));
                check(&x, true, threads, &format!("{row:?}"));
                let found = run_stored(&Softmax { log: false }, std::slice::from_ref(&x), threads);
                for (index, &number) in row.iter().enumerate() {
                    assert_eq!(found.get(index).is_nan(), is_nan, "{row:?} {threads:?}");
                    assert!(is_nan || (number > -inf) || found.get(index) == 0.0, "{row:?} {threads:?}");
                }
            }
        }
    }
}

/// NaNs of every bit pattern propagate: their bits must not reach an exponent.
#[test]
fn nans_of_any_bits_stay() {
    for bits in [0x7fc0_0001u32, 0x7f80_0001, 0xffff_ffff, 0xffbf_ffff, 0x7fff_ffff] {
        let mut numbers = [f64::from(f32::from_bits(bits)), 1.0, -100.0].into_iter().cycle();
        let x = Operand::new(DType::F32, Layout::contiguous(Shape::from(3)), || numbers.next().unwrap());
        for threads in Threads::all() {
            let found = run_stored(&Softmax { log: false }, std::slice::from_ref(&x), threads);
            assert!((0..3).all(|index| found.get(index).is_nan()), "{bits:x}");
        }
    }
}

#[test]
fn threads_do_not_change_results_and_an_epilogue_is_applied() {
    for (dtype, log) in FLOATS.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        let x = random(3, dtype, Layout::contiguous(Shape::from((211, 515))));
        let long = random(4, dtype, Layout::contiguous(Shape::from((1, 100_003))));
        for simd in [SimdLevel::Scalar, SimdLevel::detect()] {
            for x in [&x, &long] {
                let run = |count| run_stored(&Softmax { log }, std::slice::from_ref(x), Threads { count, simd });
                assert_eq!(run(1).bytes(), run(8).bytes(), "{dtype} {simd}");
            }
        }
        let threads = Threads { count: 2, simd: SimdLevel::detect() };
        let found = run_with(&Softmax { log }, std::slice::from_ref(&x), threads, |index, value| {
            value * (1 + index % 7) as f32
        });
        let mut expected = softmax(&x, log);
        expected.iter_mut().enumerate().for_each(|(index, value)| *value *= (1 + index % 7) as f64);
        assert_close(&found, &expected, ERROR, if log { 7.0 } else { 0.0 }, "epilogue");
    }
}

#[test]
fn what_has_no_rows_is_refused() {
    let infer = |shape: &[usize], dtype| Softmax { log: true }.infer(&[TensorType { shape: Shape::new(shape), dtype }]);
    assert_eq!(
        infer(&[], DType::F32).unwrap_err().to_string(),
        "log_softmax expected floats along at least one axis, found f32 ()"
    );
    assert_eq!(
        infer(&[2, 3], DType::U8).unwrap_err().to_string(),
        "log_softmax expected floats along at least one axis, found u8 (2, 3)"
    );
    assert_eq!(Softmax { log: false }.infer(&[]).unwrap_err().to_string(), "softmax expected 1 inputs, found 0");
}

#[test]
fn the_wgsl_is_valid_and_new_shapes_need_no_other() {
    for (dtype, log) in FLOATS.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        let shapes: [&[usize]; 5] = [&[9], &[1], &[5, 400], &[2, 3, 4, 5], &[2, 0]];
        for layout in shapes.iter().flat_map(|&shape| layouts(&Shape::new(shape))) {
            if (Softmax { log }).takes(0, &layout) {
                assert_valid(&Softmax { log }, &[(dtype, layout)]);
            }
        }
    }
    let kernel = |rows: usize, length: usize| {
        let operands = [(DType::F32, Layout::contiguous(Shape::from((rows, length))))];
        rendered(&Softmax { log: false }, &operands, WgslFeatures::default())
    };
    assert_eq!(kernel(3, 100).source, kernel(70_000, 7).source);
    let [x, y, _] = kernel(70_000, 7).workgroups;
    assert!(x <= 65_535 && x * y >= 70_000, "a workgroup for each row: {x} {y}");
}
