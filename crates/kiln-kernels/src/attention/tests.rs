use super::{Attention, reference};
use crate::matmul::vector::{self, LANES, Vector, Work, exp2};
use crate::testing::{Memory, Numbers, Operand, Threads, layouts, render_checked, run_direct, run_stored, run_with};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape, SimdLevel};

/// Tolerance against the `f64` reference, for values between -1 and 1 and scores below 10: rounding errors of the scores, which are sums of at
/// most 100 products, of the exponential and of the sums of weights.
const ERROR: f64 = 2e-5;

/// Returns the error of rounding a result of at most 1 to its dtype.
fn storing_error(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => 0.0,
    }
}

const PLAIN: Attention = Attention { scale: 0.5, causal: false, has_mask: false };

fn check(op: &Attention, operands: &[Operand], result: &Memory, what: &str) {
    for (index, expected) in reference::attention(op, operands).into_iter().enumerate() {
        let (found, bound) = (result.get(index), ERROR + storing_error(result.dtype));
        assert!((found - expected).abs() <= bound, "{what}: element {index}: {found}, expected {expected}");
    }
}

/// Creates queries, keys and values of two by three heads, and a mask with about a third zeros.
fn operands(dtype: DType, [m, n, d, e]: [usize; 4], pick: impl Fn(usize, &[Layout]) -> Layout) -> Vec<Operand> {
    let shapes = [[2, 3, m, d], [2, 3, n, d], [2, 3, n, e], [2, 3, m, n]].map(Shape::from);
    let mut numbers = Numbers::new((m * 1000 + n) as u64);
    let operand = |(index, shape): (usize, &Shape)| {
        let layout = pick(index, &layouts(shape));
        if index < 3 {
            Operand::random(index as u64, dtype, layout)
        } else {
            Operand::new(DType::U8, layout, || f64::from(u8::from(numbers.below(3) > 0)))
        }
    };
    shapes.iter().enumerate().map(operand).collect()
}

/// Sizes around the vector, tile and block sizes, with and without masks. One thread and eight give the same bits.
#[test]
fn attention_of_any_size_is_that_of_the_reference() {
    let sizes = [
        [1, 1, 1, 1],
        [5, 7, 3, 2],
        [16, 96, 8, 8],
        [17, 97, 16, 15],
        [64, 65, 20, 6],
        [70, 200, 33, 17],
        [1, 300, 64, 64],
        [200, 400, 9, 5],
        [3, 0, 2, 2],
        [0, 3, 2, 2],
        [3, 4, 0, 2],
        [3, 4, 2, 0],
    ];
    for (size, dtype) in sizes.into_iter().flat_map(|size| [(size, DType::F32), (size, DType::F16)]) {
        for (causal, has_mask) in [(false, false), (true, false), (false, true), (true, true)] {
            let op = Attention { causal, has_mask, ..PLAIN };
            let mut operands = operands(dtype, size, |_, layouts| layouts[0].clone());
            operands.truncate(3 + usize::from(has_mask));
            let mut by_level = Vec::new();
            for threads in Threads::all() {
                let result = run_stored(&op, &operands, threads);
                check(&op, &operands, &result, &format!("{op:?} {size:?} {threads:?}"));
                let direct = run_direct(&op, &operands, threads);
                assert_eq!(direct.bytes(), result.bytes(), "{op:?} {size:?}: the same where results are written");
                by_level.push(result.bytes().to_vec());
            }
            assert!(by_level[0] == by_level[2] && by_level[1] == by_level[3], "{size:?}: the same bits on any threads");
        }
    }
}

/// Any layout of each operand, in any float dtype.
#[test]
fn operands_lie_in_memory_in_any_way() {
    let op = Attention { causal: true, has_mask: true, ..PLAIN };
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for moved in 0..4 {
            for way in 0..7 {
                let pick = |index: usize, layouts: &[Layout]| layouts[if index == moved { way } else { 0 }].clone();
                let operands = operands(dtype, [19, 21, 9, 11], pick);
                for threads in &Threads::all()[2..] {
                    let result = run_stored(&op, &operands, *threads);
                    check(&op, &operands, &result, &format!("{dtype} {:?} {threads:?}", operands[moved].layout));
                }
            }
        }
    }
}

/// One mask for all queries, and queries before the first key.
#[test]
fn a_query_that_attends_to_nothing_gives_zeros() {
    let row = Layout::contiguous(Shape::from((2, 3, 1, 100))).broadcast_to(&Shape::from((2, 3, 20, 100)));
    let mut numbers = Numbers::new(5);
    for threads in Threads::all() {
        let mut operands = operands(DType::F32, [20, 100, 4, 3], |_, layouts| layouts[0].clone());
        operands[3] = Operand::new(DType::U8, row.clone(), || f64::from(u8::from(numbers.below(2) > 0)));
        let masked = Attention { has_mask: true, ..PLAIN };
        check(&masked, &operands, &run_stored(&masked, &operands, threads), "one mask for all queries");
        operands[3] = Operand::new(DType::U8, row.clone(), || 0.0);
        let nothing = run_stored(&masked, &operands, threads);
        assert!((0..nothing.bytes().len() / 4).all(|index| nothing.get(index) == 0.0));
    }
    let causal = Attention { causal: true, ..PLAIN };
    for threads in Threads::all() {
        let mut operands = operands(DType::F32, [9, 4, 5, 2], |_, layouts| layouts[0].clone());
        operands.truncate(3);
        let result = run_stored(&causal, &operands, threads);
        check(&causal, &operands, &result, "fewer keys than queries");
        assert!((0..10).all(|index| result.get(index) == 0.0) && result.get(10) != 0.0, "five of nine see no key");
    }
}

/// Scores whose exponential overflows, and weights that vanish.
#[test]
fn large_scores_do_not_overflow() {
    for scale in [1024.0, -1024.0, 2f32.powi(100)] {
        let op = Attention { scale, ..PLAIN };
        for threads in Threads::all() {
            let mut operands = operands(DType::F32, [7, 110, 16, 5], |_, layouts| layouts[0].clone());
            operands.truncate(3);
            // Integers and power-of-two scales: scores are exact, so that the reference ranks them alike.
            let mut numbers = Numbers::new(8);
            for operand in &mut operands[..2] {
                *operand = Operand::new(DType::F32, operand.layout.clone(), || numbers.below(7) as f64 - 3.0);
            }
            check(&op, &operands, &run_stored(&op, &operands, threads), &format!("scale {scale}"));
        }
    }
}

/// A NaN among the scores propagates, and a fused epilogue is applied once to each element, with its index.
#[test]
fn nan_propagates_and_an_epilogue_is_applied_once() {
    for threads in Threads::all() {
        let mut operands = operands(DType::F32, [67, 101, 8, 9], |_, layouts| layouts[0].clone());
        operands.truncate(3);
        let plain = run_stored(&PLAIN, &operands, threads);
        let fused = run_with(&PLAIN, &operands, threads, |index, value| 2.0 * value + index as f32);
        for index in 0..6 * 67 * 9 {
            assert_eq!(fused.get(index) as f32, 2.0 * plain.get(index) as f32 + index as f32, "{index}");
        }
        operands[0].memory.set(8 * 3 + 2, f64::NAN);
        let result = run_stored(&PLAIN, &operands, threads);
        for index in 0..6 * 67 * 9 {
            assert_eq!(result.get(index).is_nan(), index / 9 == 3, "{index}");
        }
    }
}

struct PowersOfTwo<'a>(&'a mut [[f32; LANES]]);

impl Work for PowersOfTwo<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        for lanes in self.0 {
            // SAFETY: there are as many lanes as a vector has.
            *lanes = exp2(unsafe { V::load(lanes.as_ptr()) }).lanes();
        }
    }
}

/// The exponential that turns scores into weights.
#[test]
fn powers_of_two_are_those_of_the_reference() {
    let exponents: Vec<f32> = (0..200_000).map(|index| index as f32 * -130.0 / 200_000.0).collect();
    for level in [SimdLevel::Scalar, SimdLevel::detect()] {
        let mut found = exponents.clone();
        vector::at(level, PowersOfTwo(found.as_chunks_mut().0));
        for (&x, &found) in exponents.iter().zip(&found) {
            let expected = f64::from(x).exp2();
            let bound = expected * 2.0 * f64::from(f32::EPSILON) + if x < -126.0 { 2f64.powi(-126) } else { 0.0 };
            assert!((f64::from(found) - expected).abs() <= bound, "2^{x}: {found:e}, expected {expected:e}, {level}");
        }
        let mut special = [[f32::NEG_INFINITY, f32::NAN, 0.0, -1.0, -127.0, -1e30, -126.0, -0.0]];
        vector::at(level, PowersOfTwo(&mut special));
        let [nothing, nan, rest @ ..] = special[0];
        assert!(nothing == 0.0 && nan.is_nan() && rest == [1.0, 0.5, 0.0, 0.0, f32::MIN_POSITIVE, 1.0], "{special:?}");
    }
}

/// Invalid shapes and dtypes are rejected with a message that names what was expected and found.
#[test]
fn shapes_and_dtypes_that_do_not_fit_are_refused() {
    let ty = |shape: [usize; 4], dtype| TensorType { shape: Shape::from(shape), dtype };
    let f32s = |shapes: &[[usize; 4]]| shapes.iter().map(|&shape| ty(shape, DType::F32)).collect::<Vec<_>>();
    let good = f32s(&[[1, 2, 3, 4], [1, 2, 5, 4], [1, 2, 5, 6]]);
    assert_eq!(PLAIN.infer(&good).unwrap(), ty([1, 2, 3, 6], DType::F32));
    assert_eq!(PLAIN.flops(&good), 2 * 2 * 3 * 5 * (4 + 6));
    for shapes in [
        [[1, 2, 3, 4], [1, 2, 5, 3], [1, 2, 5, 6]],
        [[1, 2, 3, 4], [1, 2, 5, 4], [1, 2, 4, 6]],
        [[1, 2, 3, 4], [2, 1, 5, 4], [2, 1, 5, 6]],
    ] {
        let error = PLAIN.infer(&f32s(&shapes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        assert!(error.to_string().contains("(1, 2, 3, 4), ("), "{error}");
    }
    let masked = Attention { has_mask: true, ..PLAIN };
    assert_eq!(masked.infer(&good).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for (mask, kind) in [
        (ty([1, 2, 3, 5], DType::F32), ErrorKind::Unsupported),
        (ty([1, 2, 3, 4], DType::U8), ErrorKind::ShapeMismatch),
    ] {
        assert_eq!(masked.infer(&[&good[..], &[mask]].concat()).unwrap_err().kind(), kind);
    }
    let mut mixed = good;
    mixed[1].dtype = DType::F16;
    assert_eq!(PLAIN.infer(&mixed).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_ne!(PLAIN.attributes(), Attention { scale: 0.25, ..PLAIN }.attributes());
    assert_ne!(PLAIN.attributes(), Attention { causal: true, ..PLAIN }.attributes());
}

/// Valid WGSL for each dtype, with and without a mask. Shapes of a class share their text, and too large values are rejected.
#[test]
fn the_text_is_valid_and_depends_on_shapes_by_classes() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for (causal, has_mask) in [(false, false), (true, true)] {
            let op = Attention { causal, has_mask, ..PLAIN };
            let render = |size: [usize; 4]| {
                let mut all: Vec<(DType, Layout)> = operands(dtype, size, |_, layouts| layouts[2].clone())
                    .into_iter()
                    .map(|operand| (operand.memory.dtype, operand.layout))
                    .collect();
                all.truncate(3 + usize::from(has_mask));
                render_checked(&op, &all)
            };
            let (one, other) = (render([3, 4, 5, 8]).unwrap(), render([65, 20, 40, 64]).unwrap());
            assert!(one.source == other.source, "{op:?} {dtype}: the texts differ");
            assert_eq!((one.workgroups[0], other.workgroups[0]), (6, 12));
            for [elements, tiles] in [[64, 1], [65, 2], [256, 4]] {
                let text = render([3, 4, 5, elements]).unwrap().source;
                assert!(text.contains(&format!("result{}_0_0", tiles - 1)), "{elements}");
                assert!(!text.contains(&format!("result{tiles}_0_0")), "{elements}");
                assert_eq!(text.contains("finish4(number"), elements % 4 == 0, "{elements}");
            }
            // Many keys: loops are unrolled. Too many: rejected.
            assert!(one.source.contains("at < STEPS"));
            let long = |keys: usize| {
                let layout = |lengths: [usize; 2]| Layout::contiguous(Shape::from((1, 1, lengths[0], lengths[1])));
                let mut all = vec![(dtype, layout([1, 64])), (dtype, layout([keys, 64])), (dtype, layout([keys, 8]))];
                all.extend(has_mask.then(|| (DType::U8, layout([1, keys]))));
                render_checked(&op, &all)
            };
            assert!(!long(50_000).unwrap().source.contains("at < STEPS"));
            assert_eq!(long(300_000).unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(render([1, 1, 1, 257]).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}
