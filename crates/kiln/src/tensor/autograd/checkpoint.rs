//! Gradient checkpointing.

use super::backward::Tape;
use super::mode;
use super::record::{Record, Source};
use crate::Result;
use crate::tensor::Tensor;
use std::sync::Arc;

type Call = dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync;

/// A function and its inputs.
pub(super) struct Function {
    call: Box<Call>,
    inputs: Vec<Tensor>,
}

/// Calls a function and keeps only its inputs for gradients: `backward` calls it again. This costs the time of a
/// second call, and saves the memory of all intermediates.
///
/// The function must be deterministic: one that calls layers with a [`Mode`](crate::nn::Mode) clones it in each call,
/// so that both calls draw the same random numbers. Layers do not update their statistics in the second call. Tensors
/// of [`requires_grad`](Tensor::requires_grad) that it captures get their gradients too.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, checkpoint};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?.requires_grad()?;
/// let y = checkpoint(|inputs| inputs[0].square()?.exp(), &[&x])?;
/// y.sum_all()?.backward()?;
/// let gradient = x.grad().expect("it was computed").to_vec::<f32>()?;
/// assert!((gradient[0] - 2.0 * 1f32.exp()).abs() < 1e-5);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the errors of the function.
pub fn checkpoint(
    function: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    if !mode::is_tracking() {
        return function(&inputs);
    }
    let result = mode::tracking(false, || function(&inputs))?;
    // Results of other dtypes have no gradients.
    if !result.dtype().is_float() {
        return Ok(result);
    }
    // Evaluate now, so that intermediates are freed right after they run, not after the backward pass.
    result.eval()?;
    let function = Function { call: Box::new(function), inputs };
    Ok(result.with_record(Some(Record::new(Source::Function(Arc::new(function))))))
}

/// Pairs of tensor and gradient.
type Found = Vec<(Tensor, Tensor)>;

impl Function {
    pub(super) fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    pub(super) fn into_inputs(self) -> Vec<Tensor> {
        self.inputs
    }

    /// Calls the function again and returns the gradients of its inputs, and of the leaves and `ends` that it
    /// captures.
    pub(super) fn gradients(&self, gradient: Tensor, ends: &[Tensor]) -> Result<(Found, Found)> {
        let keeps = mode::is_tracking();
        // Aliases of the inputs, at which the tape of the second call ends. With `create_graph` they stay connected
        // to the records of the inputs; otherwise they are leaves.
        let again = |input: &Tensor| match input.0.record {
            Some(_) if keeps => input.passed_through(),
            Some(_) => input.with_record(Some(Record::new(Source::Leaf))),
            None => input.clone(),
        };
        let inputs: Vec<Tensor> = mode::tracking(true, || self.inputs.iter().map(again).collect());
        let result = mode::recompute(|| (self.call)(&inputs))?;
        // The function may also capture tracked tensors: the tape ends at the ends of the outer tape too, and their
        // gradients are returned as `others`.
        let tape = Tape::of(&result, [&inputs, ends].concat())?;
        let mut found = tape.gradients(gradient)?;
        let is_input = |tensor: &Tensor| inputs.iter().position(|input| input.is_same(tensor));
        let others = found.extract_if(.., |(tensor, _)| is_input(tensor).is_none()).collect();
        let back = |(tensor, gradient): (Tensor, Tensor)| {
            is_input(&tensor).map(|place| (self.inputs[place].clone(), gradient))
        };
        Ok((found.into_iter().filter_map(back).collect(), others))
    }
}
