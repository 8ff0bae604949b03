//! Results compared with the references, within the declared tolerances.

use super::{Samples, class_of, forms, levels, number, result_class, run, whole};
use crate::op::{ElementOp, all, by_name};
use crate::{Class, DType};

/// Returns the reference result for argument words; integers as their bits.
fn expected(op: &ElementOp, class: Class, args: &[u32]) -> f64 {
    let numbers: Vec<f64> =
        args.iter().enumerate().map(|(index, &arg)| number(class_of(op, class, index), arg)).collect();
    let value = op.reference()(&numbers);
    match result_class(op, class) {
        Class::Float => value,
        _ if !value.is_finite() => 0.0,
        _ => value.trunc().rem_euclid(4_294_967_296.0),
    }
}

/// Panics if a result differs from the reference by more than the op's tolerance.
fn check(op: &ElementOp, class: Class, args: &[Vec<u32>]) {
    let result = result_class(op, class);
    let dtype = whole(result);
    let bound = op.error_bound(dtype);
    for level in levels() {
        let found = run(op, class, level, args);
        for (index, &word) in found.iter().enumerate() {
            let args: Vec<u32> = args.iter().map(|arg| arg[index]).collect();
            let expected = expected(op, class, &args);
            // Integers are compared as bits.
            let found = if result == Class::Float { number(result, word) } else { f64::from(word) };
            assert!(
                bound.allows(dtype, expected, found),
                "{op:?} {class:?} at {level}: of {:?}, expected {expected:e} within {bound:?}, found {found:e}",
                args.iter().enumerate().map(|(arg, &word)| number(class_of(op, class, arg), word)).collect::<Vec<_>>()
            );
        }
    }
}

/// Every op is within its tolerance, for every class and loop, over its test intervals.
#[test]
fn every_op_is_within_its_bound() {
    let mut samples = Samples(1);
    for (op, class) in forms() {
        // An odd length, to cover the tail after whole vectors.
        let args = samples.args(op, class, 20_011);
        check(op, class, &args);
    }
}

/// Lengths around the vector lengths, including 0: no element is skipped, and none is read past the end.
#[test]
fn every_length_is_computed() {
    let mut samples = Samples(2);
    for (op, class) in forms() {
        for length in (0..=17).chain([31, 33, 64]) {
            check(op, class, &samples.args(op, class, length));
        }
    }
}

/// Unary float functions over the whole range of `f32`.
#[test]
fn functions_hold_over_the_whole_range() {
    for name in ["exp", "log", "tanh", "sigmoid", "silu", "gelu", "gelu_erf", "erf", "sin", "cos", "floor", "round"] {
        let op = by_name(name).unwrap();
        // A stride that is coprime to the size of a binade.
        let words = (0..=u32::MAX).step_by(19_937).map(|word| word.rotate_left(3));
        let is_angle = matches!(name, "sin" | "cos");
        let in_range = |&word: &u32| !is_angle || f32::from_bits(word).abs() <= 1_048_576.0;
        check(op, Class::Float, &[words.filter(in_range).collect()]);
    }
}

/// Small angles need no absolute tolerance: results near the zeros of sine and cosine keep their precision.
#[test]
fn small_angles_keep_their_digits_near_zeros() {
    for (name, phase) in [("sin", 0.0), ("cos", std::f64::consts::FRAC_PI_2)] {
        let op = by_name(name).unwrap();
        let zeros: Vec<u32> =
            (1..200).map(|n| ((std::f64::consts::PI * f64::from(n) + phase) as f32).to_bits()).collect();
        let args = [zeros];
        for level in levels() {
            for (&word, found) in args[0].iter().zip(run(op, Class::Float, level, &args)) {
                let x = number(Class::Float, word);
                let (expected, found) = (op.reference()(&[x]), number(Class::Float, found));
                let error = (expected - found).abs();
                assert!(
                    error <= x.abs() * 2f64.powi(-47) + expected.abs() * 1e-7,
                    "{name} {x}: {expected:e} {found:e}"
                );
            }
        }
    }
}

/// Angles above the limit are treated as zero instead of giving arbitrary results.
#[test]
fn angles_that_are_too_large_count_as_zero() {
    for level in levels() {
        for x in [1_048_577.0f32, 1e9, -1e20, f32::MAX] {
            let result = |name| {
                let args = [vec![x.to_bits()]];
                f32::from_bits(run(by_name(name).unwrap(), Class::Float, level, &args)[0])
            };
            assert_eq!((result("sin"), result("cos"), result("tan")), (0.0, 1.0, 0.0), "{x}");
        }
    }
}

/// The loops of different levels agree within the tolerance, so results do not depend on the processor's level.
#[test]
fn levels_agree() {
    let mut samples = Samples(3);
    for (op, class) in forms() {
        let args = samples.args(op, class, 4_099);
        let dtype = whole(result_class(op, class));
        let mut bound = op.error_bound(dtype);
        (bound.ulps, bound.absolute) = (2.0 * bound.ulps, 2.0 * bound.absolute);
        let results: Vec<_> = levels().into_iter().map(|level| run(op, class, level, &args)).collect();
        for (&first, &last) in results[0].iter().zip(&results[results.len() - 1]) {
            let class = result_class(op, class);
            assert!(bound.allows(dtype, number(class, first), number(class, last)), "{op:?} {class:?}");
        }
    }
}

/// The tolerance of a result stored in half precision includes the rounding of the store.
#[test]
fn bounds_follow_the_dtype() {
    for op in all().iter().filter(|op| op.takes(Class::Float)) {
        let [single, half, brain] = [DType::F32, DType::F16, DType::BF16].map(|dtype| op.error_bound(dtype).ulps);
        let exact = single == 0.0;
        assert!(exact || (half > 0.5 && half < 0.502 && brain > 0.5 && brain < 0.51), "{op:?} {half} {brain}");
        assert_eq!(op.error_bound(DType::I32).ulps, 0.0);
    }
}
