//! Layer_norm and rms_norm against `f64`.

use super::reference;
use super::{LayerNorm, RmsNorm};
use crate::offsets::checks::assert_valid;
use crate::rows::assert_close;
use crate::testing::{Memory, Numbers, Operand, Threads, layouts, run_direct, run_stored, run_with};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, KernelOp, Layout, Shape, SimdLevel};

const FLOATS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

/// Error of sums and square roots, relative to the larger of the number and 1, the scale of the results.
const ERROR: f64 = 1e-6;

const EPS: f32 = 1e-5;

fn random(seed: u64, dtype: DType, layout: Layout, middle: f64) -> Operand {
    let mut numbers = Numbers::new(seed);
    Operand::new(dtype, layout, || middle + 1.7 * numbers.unit())
}

/// Creates weight and bias: one contiguous, the other with a stride of -2, of dtypes that may differ from that of `x`.
fn vectors(length: usize, dtypes: [DType; 2]) -> [Operand; 2] {
    let shape = Shape::from(length);
    let bias = Layout::strided(shape.clone(), &[-2], 2 * length);
    [random(1, dtypes[0], Layout::contiguous(shape), 1.0), random(2, dtypes[1], bias, 0.0)]
}

/// Runs both norms, affine and not, and compares them with the reference.
fn check(x: &Operand, vectors: &[Operand; 2], threads: Threads) -> [Memory; 4] {
    let length = *x.layout.shape().last().unwrap();
    let (weight, bias) = (vectors[0].values(), vectors[1].values());
    let (ones, zeros, eps) = (vec![1.0; length], vec![0.0; length], f64::from(EPS));
    let operands = [x.clone(), vectors[0].clone(), vectors[1].clone()];
    let (layer, rms) = (|affine| LayerNorm { eps: EPS, affine }, |affine| RmsNorm { eps: EPS, affine });
    let cases: [(&dyn KernelOp, &[Operand], Vec<f64>); 4] = [
        (&layer(false), &operands[..1], reference::layer_norm(&x.values(), length, eps, &ones, &zeros)),
        (&layer(true), &operands, reference::layer_norm(&x.values(), length, eps, &weight, &bias)),
        (&rms(false), &operands[..1], reference::rms_norm(&x.values(), length, eps, &ones)),
        (&rms(true), &operands[..2], reference::rms_norm(&x.values(), length, eps, &weight)),
    ];
    cases.map(|(op, operands, expected)| {
        let found = run_stored(op, operands, threads);
        assert_eq!(run_direct(op, operands, threads).bytes(), found.bytes(), "{op:?} {:?} {threads:?}", x.ty());
        assert_close(&found, &expected, ERROR, 1.0, &format!("{op:?} {:?} {:?} {threads:?}", x.ty(), x.layout));
        found
    })
}

#[test]
fn rows_of_every_length_and_dtype() {
    for length in [0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 1000, 1025, 5000] {
        for (dtype, other) in FLOATS.into_iter().zip([DType::F32, DType::F16, DType::BF16]) {
            let x = random(length as u64, dtype, Layout::contiguous(Shape::from((3, length))), 0.25);
            for threads in Threads::all() {
                check(&x, &vectors(length, [dtype, other]), threads);
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
        if !(LayerNorm { eps: EPS, affine: false }).takes(0, &layout) {
            refused += 1;
            continue;
        }
        taken += 1;
        for dtype in FLOATS {
            let x = random(7, dtype, layout.clone(), 0.25);
            check(&x, &vectors(*layout.shape().last().unwrap(), [dtype; 2]), threads);
        }
    }
    assert!(taken >= 18 && refused >= 12, "{taken} taken, {refused} refused");
}

/// A mean rounded to `f32` is off by half a thousandth here, and uncentred squares lose all digits.
#[test]
fn small_deviations_from_a_large_mean_are_kept() {
    for (length, middle) in [(64, 1e4), (1000, 1e4), (1000, -3e6), (100_003, 1e4)] {
        let x = random(5, DType::F32, Layout::contiguous(Shape::from((2, length))), middle);
        let (ones, zeros) = (vec![1.0; length], vec![0.0; length]);
        let expected = reference::layer_norm(&x.values(), length, f64::from(EPS), &ones, &zeros);
        for threads in Threads::all() {
            let found = run_stored(&LayerNorm { eps: EPS, affine: false }, std::slice::from_ref(&x), threads);
            assert_close(&found, &expected, ERROR, 1.0, &format!("{length} around {middle}"));
        }
    }
}

/// If the first elements are far from the others, deviations from them say little about the variance.
#[test]
fn first_numbers_far_from_the_mean_do_no_harm() {
    for (length, first) in [(9, 1e3), (31, -1e4), (40, 3e2), (1000, 1e2), (100_003, 1e2)] {
        let (mut numbers, mut count) = (Numbers::new(6), 0);
        let x = Operand::new(DType::F32, Layout::contiguous(Shape::from(length)), || {
            count += 1;
            if count <= 32.min(length / 2) { first } else { numbers.unit() }
        });
        let (ones, zeros) = (vec![1.0; length], vec![0.0; length]);
        let expected = reference::layer_norm(&x.values(), length, f64::from(EPS), &ones, &zeros);
        for threads in Threads::all() {
            let found = run_stored(&LayerNorm { eps: EPS, affine: false }, std::slice::from_ref(&x), threads);
            assert_close(&found, &expected, ERROR, 1.0, &format!("{length} after {first}"));
        }
    }
}

#[test]
fn poison_stays_in_its_row() {
    for poison in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for dtype in FLOATS {
            let mut numbers = Numbers::new(4);
            let mut count = 0;
            let x = Operand::new(dtype, Layout::contiguous(Shape::from((3, 41))), || {
                count += 1;
                if count == 60 { poison } else { numbers.unit() }
            });
            for threads in Threads::all() {
                let found = run_stored(&LayerNorm { eps: EPS, affine: false }, std::slice::from_ref(&x), threads);
                for index in 0..3 * 41 {
                    assert_eq!(found.get(index).is_nan(), index / 41 == 1, "{poison} {dtype} {index}");
                }
                let found = run_stored(&RmsNorm { eps: EPS, affine: false }, std::slice::from_ref(&x), threads);
                assert!((0..41).all(|index| found.get(index).is_finite()), "{poison} {dtype}");
                assert!(found.get(59).is_nan(), "{poison} {dtype}");
            }
        }
    }
}

#[test]
fn threads_do_not_change_results_and_an_epilogue_is_applied() {
    for dtype in FLOATS {
        let x = random(3, dtype, Layout::contiguous(Shape::from((211, 515))), 0.25);
        let vectors = vectors(515, [DType::F32; 2]);
        for simd in [SimdLevel::Scalar, SimdLevel::detect()] {
            let [one, eight] = [1, 8].map(|count| check(&x, &vectors, Threads { count, simd }));
            assert!(one.iter().zip(&eight).all(|(one, eight)| one.bytes() == eight.bytes()), "{dtype} {simd}");
        }
        let threads = Threads { count: 2, simd: SimdLevel::detect() };
        let op = LayerNorm { eps: EPS, affine: false };
        let found = run_with(&op, std::slice::from_ref(&x), threads, |index, value| value * (1 + index % 7) as f32);
        let (ones, zeros) = (vec![1.0; 515], vec![0.0; 515]);
        let mut expected = reference::layer_norm(&x.values(), 515, f64::from(EPS), &ones, &zeros);
        expected.iter_mut().enumerate().for_each(|(index, value)| *value *= (1 + index % 7) as f64);
        assert_close(&found, &expected, ERROR, 7.0, "epilogue");
    }
}

#[test]
fn vectors_that_do_not_fit_are_refused() {
    let ty = |shape: &[usize], dtype| TensorType { shape: Shape::new(shape), dtype };
    let x = ty(&[2, 3], DType::F16);
    let layer = |types: &[TensorType]| LayerNorm { eps: EPS, affine: true }.infer(types).unwrap_err().to_string();
    let good = ty(&[3], DType::F32);
    assert_eq!(
        layer(&[x.clone(), good.clone(), ty(&[1, 3], DType::F32)]),
        "layer_norm of f16 (2, 3) expected a bias of floats and shape (3,), found f32 (1, 3)"
    );
    assert_eq!(
        layer(&[x.clone(), ty(&[3], DType::I32), good.clone()]),
        "layer_norm of f16 (2, 3) expected a weight of floats and shape (3,), found i32 (3,)"
    );
    assert_eq!(layer(&[x.clone(), good.clone()]), "layer_norm expected 3 inputs, found 2");
    let rms = RmsNorm { eps: EPS, affine: true };
    assert_eq!(rms.infer(&[x, good.clone(), good]).unwrap_err().to_string(), "rms_norm expected 2 inputs, found 3");
    assert_eq!(
        RmsNorm { eps: EPS, affine: false }.infer(&[ty(&[], DType::F32)]).unwrap_err().to_string(),
        "rms_norm expected floats along at least one axis, found f32 ()"
    );
}

#[test]
fn the_wgsl_is_valid() {
    for dtype in FLOATS {
        let shapes: [&[usize]; 5] = [&[9], &[1], &[5, 400], &[2, 3, 4, 5], &[2, 0]];
        for layout in shapes.iter().flat_map(|&shape| layouts(&Shape::new(shape))) {
            if !(RmsNorm { eps: EPS, affine: false }).takes(0, &layout) {
                continue;
            }
            let length = *layout.shape().last().unwrap();
            let [weight, bias] =
                vectors(length, [dtype, DType::F32]).map(|vector| (vector.memory.dtype, vector.layout));
            let operands = [(dtype, layout), weight, bias];
            assert_valid(&LayerNorm { eps: EPS, affine: false }, &operands[..1]);
            assert_valid(&LayerNorm { eps: EPS, affine: true }, &operands);
            assert_valid(&RmsNorm { eps: EPS, affine: false }, &operands[..1]);
            assert_valid(&RmsNorm { eps: EPS, affine: true }, &operands[..2]);
        }
    }
}
