//! Tests of every op against its declared properties.

mod accuracy;
mod interpreter;
mod poison;
mod random;
mod shaders;

use super::{ElementOp, Signature, all};
use crate::{Class, DType, SimdLevel};

const CLASSES: [Class; 3] = [Class::Float, Class::Int, Class::Uint];

/// Every op, with each class that it supports.
fn forms() -> impl Iterator<Item = (&'static ElementOp, Class)> {
    all().iter().flat_map(|&op| CLASSES.map(|class| (op, class))).filter(|(op, class)| op.takes(*class))
}

/// The levels of this processor that have different loops.
fn levels() -> Vec<SimdLevel> {
    let best = SimdLevel::detect();
    if best >= SimdLevel::Avx2 { vec![SimdLevel::Scalar, best] } else { vec![best] }
}

/// Runs the loop of an op.
fn run(op: &ElementOp, class: Class, level: SimdLevel, args: &[Vec<u32>]) -> Vec<u32> {
    let tile = op.tile(class, level).unwrap();
    let mut out = vec![0xdead_beef; args[0].len()];
    let arg = |index: usize| args.get(index).map_or(&[][..], |arg| &arg[..]);
    #[expect(unsafe_code, reason = "loops need the instructions that they were compiled for")]
    // SAFETY: the processor supports the level.
    unsafe {
        tile(&mut out, [arg(0), arg(1), arg(2)]);
    }
    out
}

/// Computes a single result of an op.
fn one(op: &ElementOp, class: Class, level: SimdLevel, args: &[u32]) -> u32 {
    run(op, class, level, &args.iter().map(|&arg| vec![arg]).collect::<Vec<_>>())[0]
}

/// The class of an argument.
fn class_of(op: &ElementOp, class: Class, arg: usize) -> Class {
    if op.signature == Signature::Select && arg == 0 { Class::Uint } else { class }
}

/// The class of the result; masks have class `Uint`.
fn result_class(op: &ElementOp, class: Class) -> Class {
    match op.signature {
        Signature::Same { .. } | Signature::Select => class,
        Signature::Compare | Signature::Bits { .. } => Class::Uint,
        Signature::BitsToFloat { .. } => Class::Float,
    }
}

/// The dtype that represents every number of a class.
fn whole(class: Class) -> DType {
    match class {
        Class::Float => DType::F32,
        Class::Int => DType::I32,
        Class::Uint => DType::U32,
        Class::Wide => panic!("two dtypes have 64 bits"),
    }
}

/// Converts a word of this class to a number.
fn number(class: Class, word: u32) -> f64 {
    match class {
        Class::Float => f64::from(f32::from_bits(word)),
        Class::Int => f64::from(word as i32),
        Class::Uint => f64::from(word),
        Class::Wide => panic!("words have 32 bits"),
    }
}

/// A generator of samples, independent of the ops.
struct Samples(u64);

impl Samples {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Returns a word whose number is in the interval.
    fn word(&mut self, class: Class, (low, high): (f64, f64)) -> u32 {
        let value = low + (high - low) * (f64::from(self.next()) / f64::from(u32::MAX));
        match class {
            Class::Float => (value as f32).to_bits(),
            // Rounding to `i32` would saturate for an interval of words, so the word is used as is.
            Class::Int if high > f64::from(i32::MAX) => self.next(),
            Class::Int => value.round() as i32 as u32,
            Class::Uint => value.abs().round() as u32,
            Class::Wide => panic!("words have 32 bits"),
        }
    }

    /// Samples the arguments of an op from its intervals.
    fn args(&mut self, op: &ElementOp, class: Class, count: usize) -> Vec<Vec<u32>> {
        let intervals = op.intervals().iter().enumerate();
        intervals
            .map(|(arg, &interval)| (0..count).map(|_| self.word(class_of(op, class, arg), interval)).collect())
            .collect()
    }
}
