//! Functions that are called again instead of keeping what they computed.

use super::backward::Tape;
use super::mode;
use super::record::{Record, Source};
use crate::Result;
use crate::tensor::Tensor;
use std::sync::Arc;

type Call = dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync;

/// A function and what it was called with.
pub(super) struct Function {
    call: Box<Call>,
    inputs: Vec<Tensor>,
}

/// The result of a function, of which only the inputs are kept for gradients: `backward` calls it once more. That takes the time of another call,
/// and saves the memory of everything that is computed on the way.
///
/// The function has to give the same result each time: one that calls layers in a [`Mode`](crate::nn::Mode) clones it in each call, so that both
/// draw the same random numbers. Layers leave their statistics alone in the second call. Tensors of [`requires_grad`](Tensor::requires_grad) that it uses beside its inputs have
/// their gradients too.
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
/// Those of the function.
pub fn checkpoint(
    function: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    if !mode::is_tracking() {
        return function(&inputs);
    }
    let result = mode::tracking(false, || function(&inputs))?;
    if !result.dtype().is_float() {
        return Ok(result);
    }
    // Before anything is computed from it: what is on the way goes when it has run, not with the backward pass.
    result.eval()?;
    let function = Function { call: Box::new(function), inputs };
    Ok(result.with_record(Some(Record::new(Source::Function(Arc::new(function))))))
}

/// Tensors with their gradients.
type Found = Vec<(Tensor, Tensor)>;

impl Function {
    pub(super) fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    pub(super) fn into_inputs(self) -> Vec<Tensor> {
        self.inputs
    }

    /// Calls it again: the gradients of its inputs, and of leaves and `ends` that it uses beside them.
    pub(super) fn gradients(&self, gradient: Tensor, ends: &[Tensor]) -> Result<(Found, Found)> {
        let keeps = mode::is_tracking();
        let again = |input: &Tensor| match input.0.record {
            Some(_) if keeps => input.passed_through(),
            Some(_) => input.with_record(Some(Record::new(Source::Leaf))),
            None => input.clone(),
        };
        let inputs: Vec<Tensor> = mode::tracking(true, || self.inputs.iter().map(again).collect());
        let result = mode::again(|| (self.call)(&inputs))?;
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
