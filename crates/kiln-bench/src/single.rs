//! One op on caller-chosen shapes: its operands and the check of its output.

use crate::check::{OutputError, sampled_indices};
use crate::data::uniform_in;
use crate::formula::Formula;
use kiln::ir::op::reference::wrapped;
use kiln::ir::op::{ElementOp, Interval, Signature, Tolerance};
use kiln::ir::plan::Plan;
use kiln::ir::round_to_odd;
use kiln::{DType, Device, Result, Tensor, bf16, f16};

/// An op whose output can be checked.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SingleOp {
    /// An entry of the op table, which has its own reference and error bound.
    Element(&'static ElementOp),
    /// Any other op. Its kernel states the error bound.
    Formula(Formula),
}

/// A tensor operand as numbers.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Length along each axis.
    pub shape: Vec<usize>,
    /// Element type.
    pub dtype: DType,
    /// The elements in row-major order.
    pub numbers: Vec<f64>,
}

/// The extent of a passed check.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    /// Number of compared elements; all of a small output.
    pub elements: usize,
    /// Tolerance of each element.
    pub allowed: Tolerance,
}

impl SingleOp {
    /// Returns the number of operands.
    pub fn operands(self) -> usize {
        match self {
            Self::Element(op) => op.arity(),
            Self::Formula(formula) => formula.operands(),
        }
    }

    /// Samples operands of these shapes from the op's intervals. `dtype` applies to operands that accept several dtypes.
    pub fn sample(self, shapes: &[Vec<usize>], dtype: DType) -> Vec<Operand> {
        let operand = |(index, shape): (usize, &Vec<usize>)| match self {
            Self::Element(op) => {
                let is_condition = index == 0 && op.signature == Signature::Select;
                Operand::new(index, shape, if is_condition { DType::U8 } else { dtype }, op.intervals()[index])
            }
            Self::Formula(formula) => Operand::new(index, shape, dtype, formula.interval(dtype)),
        };
        shapes.iter().enumerate().map(operand).collect()
    }

    /// Compares an output, computed by this plan, with the reference: all its elements, or a sample of them if that would take long.
    ///
    /// # Errors
    /// Returns the first element that is out of tolerance.
    pub fn check(self, operands: &[Operand], output: &Tensor, plan: Option<&Plan>) -> Result<Checked, crate::Fault> {
        let dtype = output.dtype();
        let found = numbers(output)?;
        let allowed = self.allowed(operands, dtype, plan);
        let steps = if let Self::Formula(formula) = self { formula.steps(operands) } else { 1 };
        let mut elements = 0;
        for index in sampled_indices(found.len(), steps) {
            let expected = self.element(operands, output.shape(), index);
            // References compute in `f64`, which does not wrap as integer ops do.
            let expected = if dtype.is_float() { expected } else { wrapped(expected, dtype) };
            if !allowed.allows(dtype, expected, found[index]) {
                let off = allowed.ulps * kiln::ir::op::ulp(dtype, expected) + allowed.absolute;
                return Err(OutputError::Element { index, expected, allowed: off, found: found[index] }.into());
            }
            elements += 1;
        }
        Ok(Checked { elements, allowed })
    }

    /// Computes one element of an output of this shape.
    fn element(self, operands: &[Operand], shape: &[usize], index: usize) -> f64 {
        match self {
            Self::Element(op) => {
                let number = |operand: &Operand| operand.numbers[broadcast_index(shape, index, &operand.shape)];
                (op.reference())(&operands.iter().map(number).collect::<Vec<_>>())
            }
            Self::Formula(formula) => formula.element(operands, index),
        }
    }

    fn allowed(self, operands: &[Operand], dtype: DType, plan: Option<&Plan>) -> Tolerance {
        match self {
            Self::Element(op) => op.error_bound(dtype),
            Self::Formula(_) if !dtype.is_float() => Tolerance::EXACT,
            Self::Formula(_) => {
                let largest: Vec<f64> = operands.iter().map(Operand::largest).collect();
                let steps = plan.map_or(&[][..], |plan| &plan.steps);
                // An op may be planned as several kernels. Their errors add up.
                let bound: f64 = steps.iter().map(|step| step.kernel.core.error_bound(&largest)).sum();
                // Storing rounds once more, perhaps across a power of two.
                Tolerance { ulps: 1.0, absolute: bound + f64::from(f32::MIN_POSITIVE) }
            }
        }
    }
}

impl Operand {
    fn new(index: usize, shape: &[usize], dtype: DType, interval: Interval) -> Self {
        let elements = shape.iter().product();
        let numbers = uniform_in(index as u64 + 1, elements, interval).map(|number| as_element(number, dtype));
        Self { shape: shape.to_vec(), dtype, numbers: numbers.collect() }
    }

    fn largest(&self) -> f64 {
        self.numbers.iter().fold(0.0, |largest, number| largest.max(number.abs()))
    }

    /// Uploads the operand to a device.
    ///
    /// # Errors
    /// Returns the errors of [`Tensor::from_slice`].
    pub fn tensor(&self, device: &Device) -> Result<Tensor> {
        macro_rules! tensor {
            ($number:ident => $element:expr) => {{
                let elements: Vec<_> = self.numbers.iter().map(|&$number| $element).collect();
                Tensor::from_slice(&elements, &self.shape[..], device)
            }};
        }
        match self.dtype {
            // The numbers are values of the dtype already (`as_element`), so these conversions are exact.
            DType::F16 => tensor!(number => f16::from_f32(round_to_odd::f32_of(number))),
            DType::BF16 => tensor!(number => bf16::from_f32(round_to_odd::f32_of(number))),
            DType::F32 => tensor!(number => number as f32),
            DType::I32 => tensor!(number => number as i32),
            DType::U32 => tensor!(number => number as u32),
            DType::U8 => tensor!(number => number as u8),
            DType::F64 => tensor!(number => number),
            DType::I8 => tensor!(number => number as i8),
            DType::I64 => tensor!(number => number as i64),
            DType::Bool => tensor!(number => number != 0.0),
        }
    }
}

/// Converts a number to a value of the dtype. Integers wrap; unsigned ones take the magnitude.
fn as_element(number: f64, dtype: DType) -> f64 {
    match dtype {
        // Rounded to odd on the way to `f32`: rounding to nearest twice may differ from rounding once.
        DType::F16 => f16::from_f32(round_to_odd::f32_of(number)).to_f64(),
        DType::BF16 => bf16::from_f32(round_to_odd::f32_of(number)).to_f64(),
        DType::F32 => f64::from(number as f32),
        DType::F64 => number,
        DType::I8 | DType::I32 => wrapped(number.round(), dtype),
        DType::I64 => number.round(),
        DType::Bool => f64::from(u8::from(number.round() != 0.0)),
        DType::U32 | DType::U8 => wrapped(number.abs().round(), dtype),
    }
}

/// Returns the index in a broadcast operand for an index in the broadcast shape.
pub(crate) fn broadcast_index(broadcast: &[usize], mut index: usize, shape: &[usize]) -> usize {
    let (mut found, mut stride) = (0, 1);
    // Axes are aligned at the last one. Missing leading axes broadcast like axes of length 1.
    let own = shape.iter().rev().map(Some).chain(std::iter::repeat(None));
    for (&length, own) in broadcast.iter().rev().zip(own) {
        let (along_axis, own) = (index % length, own.copied().unwrap_or(1));
        found += if own == 1 { 0 } else { along_axis * stride };
        (index, stride) = (index / length, stride * own);
    }
    found
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 | DType::F32 => Ok(tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect()),
        DType::F64 => tensor.to_vec(),
        _ => Ok(tensor.to_vec::<i64>()?.into_iter().map(|number| number as f64).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::ir::op;
    use kiln::nn::AttentionOptions;

    /// Calls the op as a user would.
    fn call(formula: Formula, x: &[Tensor]) -> Result<Tensor> {
        match formula {
            Formula::Sum => x[0].sum_all(),
            Formula::Mean => x[0].mean_all(),
            Formula::Max => x[0].max_all(),
            Formula::Min => x[0].min_all(),
            Formula::ArgMax => x[0].argmax_all(),
            Formula::ArgMin => x[0].argmin_all(),
            Formula::Softmax => x[0].softmax(-1),
            Formula::LogSoftmax => x[0].log_softmax(-1),
            Formula::LayerNorm => x[0].layer_norm(None, None, crate::Op::EPS),
            Formula::RmsNorm => x[0].rms_norm(None, crate::Op::EPS),
            Formula::Matmul => x[0].matmul(&x[1]),
            Formula::Attention => Tensor::attention(&x[0], &x[1], &x[2], AttentionOptions::new()),
        }
    }

    /// Checks the result of an op, and that the check detects a result with one wrong element.
    fn check(single: SingleOp, shapes: &[&[usize]], dtype: DType, apply: impl Fn(&[Tensor]) -> Result<Tensor>) {
        let device = Device::cpu().unwrap();
        let operands = single.sample(&shapes.iter().map(|shape| shape.to_vec()).collect::<Vec<_>>(), dtype);
        let tensors: Vec<Tensor> = operands.iter().map(|operand| operand.tensor(&device).unwrap()).collect();
        let output = apply(&tensors).unwrap();
        let explanation = output.explain().unwrap();
        let checked = single.check(&operands, &output, explanation.plan());
        let checked = checked.unwrap_or_else(|wrong| panic!("{single:?} {dtype} {shapes:?}: {wrong}"));
        assert_eq!(checked.elements, output.elem_count(), "{single:?}: small outputs are compared as a whole");
        let last = output.elem_count() as f64 - 1.0;
        let is_last = Tensor::arange(0.0, last + 1.0, 1.0, DType::U32, &device).unwrap().eq(last).unwrap();
        let is_last = is_last.reshape(output.shape().clone()).unwrap();
        let off = is_last.where_(&output.mul(2).unwrap().add(3).unwrap(), &output).unwrap();
        let wrong = single.check(&operands, &off, explanation.plan());
        assert!(wrong.is_err(), "{single:?} {dtype} {shapes:?}: one element is off");
    }

    #[test]
    fn formulas_agree_with_ops_and_notice_one_element_that_is_off() {
        let all = [Formula::Sum, Formula::Max, Formula::Min, Formula::ArgMax, Formula::ArgMin];
        let floats = [Formula::Mean, Formula::Softmax, Formula::LogSoftmax, Formula::LayerNorm, Formula::RmsNorm];
        for formula in all.into_iter().chain(floats) {
            for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32].into_iter() {
                if dtype.is_float() || all.contains(&formula) {
                    check(SingleOp::Formula(formula), &[&[3, 40]], dtype, |x| call(formula, x));
                }
            }
        }
        let matmuls: [[&[usize]; 2]; 5] = [
            [&[3, 40], &[40, 5]],
            [&[40], &[40, 5]],
            [&[3, 40], &[40]],
            [&[2, 1, 3, 7], &[4, 7, 5]],
            [&[4, 3, 7], &[7, 5]],
        ];
        for shapes in matmuls {
            check(SingleOp::Formula(Formula::Matmul), &shapes, DType::F32, |x| call(Formula::Matmul, x));
        }
        let shapes: [&[usize]; 3] = [&[2, 3, 5, 4], &[2, 3, 7, 4], &[2, 3, 7, 6]];
        check(SingleOp::Formula(Formula::Attention), &shapes, DType::F32, |x| call(Formula::Attention, x));
    }

    #[test]
    fn elementwise_ops_are_checked_with_operands_that_spread() {
        check(SingleOp::Element(&op::SUB), &[&[3, 1], &[4, 1, 5]], DType::F32, |x| x[0].sub(&x[1]));
        check(SingleOp::Element(&op::WHERE), &[&[5], &[3, 5], &[]], DType::I32, |x| x[0].where_(&x[1], &x[2]));
        for &op in op::all() {
            let dtype = if op.takes(kiln::ir::Class::Float) { DType::F32 } else { DType::U32 };
            check(SingleOp::Element(op), &vec![&[7usize, 11][..]; op.arity()], dtype, |x| {
                Tensor::apply(op, &x.iter().collect::<Vec<_>>())
            });
        }
    }
}
