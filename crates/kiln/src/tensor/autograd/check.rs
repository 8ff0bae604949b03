//! Gradient checks against finite differences.

use super::backward::Tape;
use super::mode;
use crate::tensor::Tensor;
use crate::tensor::check::{Name, invalid, unsupported};
use crate::{DType, Result, Shape};
use std::fmt;

/// Options of [`check_gradients`].
///
/// ```
/// let options = kiln::autograd::GradientCheck::new().step(1e-3).rtol(1e-2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct GradientCheck {
    step: f64,
    rtol: f64,
    atol: f64,
    max_elements: usize,
}

impl Default for GradientCheck {
    fn default() -> Self {
        Self { step: 1e-2, rtol: 2e-3, atol: 1e-4, max_elements: 64 }
    }
}

impl GradientCheck {
    /// Creates the defaults: a step of 0.01, tolerances of 0.2 % relative and 0.0001 absolute, up to 64 elements of
    /// each input.
    ///
    /// See [`GradientCheck`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the step, relative to the magnitude of the element if that is above 1.
    ///
    /// See [`GradientCheck`] for an example.
    pub fn step(mut self, step: f64) -> Self {
        self.step = step;
        self
    }

    /// Sets the tolerance relative to the larger of gradient and difference quotient.
    ///
    /// See [`GradientCheck`] for an example.
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.rtol = rtol;
        self
    }

    /// Sets the absolute tolerance, which is added to the relative one.
    ///
    /// See [`GradientCheck`] for an example.
    pub fn atol(mut self, atol: f64) -> Self {
        self.atol = atol;
        self
    }

    /// Sets the maximum number of elements checked per input, evenly spaced.
    ///
    /// See [`GradientCheck`] for an example.
    pub fn max_elements(mut self, max_elements: usize) -> Self {
        self.max_elements = max_elements;
        self
    }
}

/// The result of [`check_gradients`]. Its text has a line for each input.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::Tensor;
/// use kiln::autograd::{GradientCheck, check_gradients};
///
/// let x = Tensor::from_slice(&[0.5f32, -1.5], 2, &device)?;
/// let report = check_gradients(|p| p[0].exp(), &[&x], GradientCheck::new())?;
/// assert!(report.passed(), "{report}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GradientReport {
    inputs: Vec<InputReport>,
}

#[derive(Clone, Debug, PartialEq)]
struct InputReport {
    shape: Shape,
    checked: usize,
    failed: usize,
    /// The element with the largest error relative to its tolerance.
    worst: Option<Element>,
}

/// One element of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Element {
    number: usize,
    gradient: f64,
    difference: f64,
    allowed: f64,
}

impl Element {
    /// Returns the error as a fraction of the tolerance. NaN counts as infinite.
    fn error_ratio(&self) -> f64 {
        let off = (self.gradient - self.difference).abs() / self.allowed;
        if off.is_nan() { f64::INFINITY } else { off }
    }
}

impl GradientReport {
    /// Returns whether all checked gradients are within tolerance.
    ///
    /// See [`GradientReport`] for an example.
    pub fn passed(&self) -> bool {
        self.failed() == 0
    }

    /// Returns the number of elements out of tolerance.
    ///
    /// See [`GradientReport`] for an example.
    pub fn failed(&self) -> usize {
        self.inputs.iter().map(|input| input.failed).sum()
    }

    /// Returns the number of checked elements.
    ///
    /// See [`GradientReport`] for an example.
    pub fn checked(&self) -> usize {
        self.inputs.iter().map(|input| input.checked).sum()
    }
}

impl fmt::Display for GradientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, InputReport { shape, checked, failed, worst }) in self.inputs.iter().enumerate() {
            let verdict = match (checked, failed) {
                (0, _) => "no elements".to_string(),
                (_, 0) => format!("all {checked} elements passed"),
                _ => format!("{failed} of {checked} elements failed"),
            };
            write!(f, "input {number} {shape}: {verdict}")?;
            if let Some(worst) = worst {
                let Element { number, gradient, difference, allowed } = worst;
                let off = (gradient - difference).abs();
                let index = multi_index(shape, *number);
                write!(f, "; largest error at {index:?}: gradient {gradient:.6}, finite difference {difference:.6}, ")?;
                write!(f, "error {off:.2e}, tolerance {allowed:.2e}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Converts a row-major element number to indices.
fn multi_index(shape: &Shape, mut number: usize) -> Vec<usize> {
    let mut index: Vec<usize> = shape.iter().rev().map(|&length| (number % length, number /= length).0).collect();
    index.reverse();
    index
}

/// Compares the gradients of a function with finite differences: perturbs each element of each input in both
/// directions.
///
/// The inputs are `f32`. The result may have any shape: it is reduced to a weighted sum, with distinct weights so
/// that no two elements are interchangeable. The tolerance includes the rounding error of `f32` differences. The
/// check is invalid if the function is not smooth within twice the step.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::Tensor;
/// use kiln::autograd::{GradientCheck, check_gradients};
///
/// let a = Tensor::from_slice(&[0.5f32, 1.0, 1.5, 2.0], (2, 2), &device)?;
/// let report = check_gradients(|p| p[0].matmul(&p[0])?.tanh(), &[&a], GradientCheck::new())?;
/// assert!(report.passed(), "{report}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the errors of the function and of [`Tensor::backward`], `Unsupported` if an input or the result is not
/// `f32`, and `InvalidArgument` if the step or a tolerance is not positive.
pub fn check_gradients(
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    options: GradientCheck,
) -> Result<GradientReport> {
    let is_sane = options.step > 0.0 && options.rtol >= 0.0 && options.atol > 0.0 && options.max_elements > 0;
    if !is_sane {
        let message = format!("check_gradients expected a step, tolerances and elements above 0, found {options:?}");
        return Err(invalid(message));
    }
    let only_f32 = |tensor: &Tensor| {
        let found = Name(tensor);
        let message = format!(
            "check_gradients expected f32 tensors, found {found}; finite differences of other dtypes are too inexact"
        );
        if tensor.dtype() == DType::F32 { Ok(()) } else { Err(unsupported(message)) }
    };
    inputs.iter().try_for_each(|input| only_f32(input))?;
    let leaves = inputs.iter().map(|input| input.requires_grad()).collect::<Result<Vec<_>>>()?;
    let result = mode::tracking(true, || function(&leaves))?;
    only_f32(&result)?;
    let weights = weights(result.elem_count());
    let seed = Tensor::from_slice(&weights, result.shape(), result.device())?;
    // Not `backward`: captured tensors keep their current gradients.
    let graph = Tape::of(&result, leaves.clone())?;
    let found = mode::tracking(false, || graph.gradients(seed))?;
    let differences = Differences { function, inputs, weights, step: options.step };
    let report = |(number, leaf): (usize, &Tensor)| {
        let gradient = found.iter().find(|(end, _)| end.is_same(leaf));
        let gradients = gradient.map_or_else(|| Ok(vec![0.0; leaf.elem_count()]), |(_, gradient)| gradient.to_vec())?;
        differences.report(number, &gradients, options)
    };
    Ok(GradientReport { inputs: leaves.iter().enumerate().map(report).collect::<Result<_>>()? })
}

/// Returns weights of both signs with magnitudes from 0.5 to 1.5, no two in a simple ratio.
fn weights(count: usize) -> Vec<f32> {
    // Multiples of the golden ratio modulo 1 are spread evenly and are reproducible. With such weights, errors in
    // different elements of the result do not cancel in the weighted sum.
    let golden = 0.618_033_988_749_894_9;
    let weight = |number: usize| {
        let part = (number as f64 + 1.0) * golden % 1.0;
        let sign = if (number * 7 + 3) % 5 < 3 { 1.0 } else { -1.0 };
        (sign * (0.5 + part)) as f32
    };
    (0..count).map(weight).collect()
}

struct Differences<'a, F> {
    function: F,
    inputs: &'a [&'a Tensor],
    weights: Vec<f32>,
    step: f64,
}

impl<F: Fn(&[Tensor]) -> Result<Tensor>> Differences<'_, F> {
    fn report(&self, number: usize, gradients: &[f32], options: GradientCheck) -> Result<InputReport> {
        let elements: Vec<f32> = self.inputs[number].to_vec()?;
        let checked = elements.len().min(options.max_elements);
        let mut report = InputReport { shape: self.inputs[number].shape().clone(), checked, failed: 0, worst: None };
        for check in 0..checked {
            // Spreads the checked elements evenly over the tensor.
            let at = check * elements.len() / checked;
            let (difference, noise) = self.at(number, &elements, at)?;
            let gradient = f64::from(gradients[at]);
            let allowed = options.atol + options.rtol * gradient.abs().max(difference.abs()) + noise;
            let element = Element { number: at, gradient, difference, allowed };
            report.failed += usize::from(element.error_ratio() > 1.0);
            if report.worst.as_ref().is_none_or(|worst| element.error_ratio() > worst.error_ratio()) {
                report.worst = Some(element);
            }
        }
        Ok(report)
    }

    /// Returns the derivative along one element, from two step sizes in both directions, and a bound on its rounding
    /// error.
    fn at(&self, number: usize, elements: &[f32], at: usize) -> Result<(f64, f64)> {
        // Relative for large elements: an absolute step would vanish in the rounding of `f32`.
        let step = self.step * f64::from(elements[at]).abs().max(1.0);
        let mut sums = [0.0; 2];
        let mut noise = 0.0;
        for (sum, steps) in sums.iter_mut().zip([1.0, 2.0]) {
            let [forth, back] = [steps * step, -steps * step].map(|by| self.perturbed(number, elements, at, by));
            for ((&weight, forth), back) in self.weights.iter().zip(forth?).zip(back?) {
                let (weight, forth, back) = (f64::from(weight), f64::from(forth), f64::from(back));
                // Elements of the result that do not depend on the input add neither a difference nor rounding noise.
                if forth != back {
                    *sum += weight * (forth - back);
                    noise += weight.abs() * (forth.abs() + back.abs()) * f64::from(f32::EPSILON);
                }
            }
        }
        // Richardson extrapolation: the error of a central difference is quadratic in the step, and cancels between
        // two step sizes.
        Ok(((8.0 * sums[0] - sums[1]) / (12.0 * step), 4.0 * noise / step))
    }

    /// Returns the result with one element perturbed.
    fn perturbed(&self, number: usize, elements: &[f32], at: usize, by: f64) -> Result<Vec<f32>> {
        let mut elements = elements.to_vec();
        elements[at] = (f64::from(elements[at]) + by) as f32;
        let perturbed = Tensor::from_slice(&elements, self.inputs[number].shape(), self.inputs[number].device())?;
        let mut inputs: Vec<Tensor> = self.inputs.iter().map(|input| input.detach()).collect();
        inputs[number] = perturbed;
        (self.function)(&inputs)?.to_vec()
    }
}
