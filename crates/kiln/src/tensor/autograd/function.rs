//! Functional gradients.

use super::backward::{Tape, seed};
use super::mode;
use crate::Result;
use crate::tensor::Tensor;

/// Computes the gradients of a scalar function with respect to each parameter. Calls can be nested for higher-order
/// gradients.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, grad};
///
/// let x = Tensor::from_slice(&[2.0f32], 1, &device)?;
/// let cube = |p: &[Tensor]| p[0].mul(&p[0])?.mul(&p[0]);
/// assert_eq!(grad(cube, &[&x])?[0].to_vec::<f32>()?, [12.0]);
/// let slope = |p: &[Tensor]| Ok(grad(cube, &[&p[0]])?.remove(0));
/// assert_eq!(grad(slope, &[&x])?[0].to_vec::<f32>()?, [12.0]); // 6 x
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the errors of the function and of [`Tensor::backward`], and `Unsupported` if a parameter has no float
/// dtype.
pub fn grad(function: impl FnOnce(&[Tensor]) -> Result<Tensor>, parameters: &[&Tensor]) -> Result<Vec<Tensor>> {
    value_and_grad(function, parameters).map(|(_, gradients)| gradients)
}

/// Computes the gradients as [`grad`] does, and also returns the value of the function.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, value_and_grad};
///
/// let x = Tensor::from_slice(&[3.0f32], 1, &device)?;
/// let (value, gradients) = value_and_grad(|p| p[0].square(), &[&x])?;
/// assert_eq!((value.to_scalar::<f32>()?, gradients[0].to_scalar::<f32>()?), (9.0, 6.0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`grad`].
pub fn value_and_grad(
    function: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    parameters: &[&Tensor],
) -> Result<(Tensor, Vec<Tensor>)> {
    // A tracked parameter stays tracked through its alias, so that an enclosing gradient reaches it.
    let own = |&parameter: &&Tensor| {
        if parameter.is_tracked() && mode::is_tracking() {
            Ok(parameter.passed_through())
        } else {
            parameter.requires_grad()
        }
    };
    let inputs = parameters.iter().map(own).collect::<Result<Vec<_>>>()?;
    let value = mode::tracking(true, || function(&inputs))?;
    let tape = Tape::of(&value, inputs.clone())?;
    // The gradients are themselves differentiable only if an enclosing gradient can reach this call, through a
    // parameter or through a tensor that the function captured.
    let is_nested =
        mode::is_tracking() && (parameters.iter().any(|parameter| parameter.is_tracked()) || tape.has_other_ends());
    let seed = seed(&value, None)?;
    let found = mode::tracking(is_nested, || tape.gradients(seed))?;
    let gradient = |input: &Tensor| {
        let found = found.iter().find(|(end, _)| end.is_same(input));
        found.map_or_else(|| input.detach().like(0.0), |(_, gradient)| Ok(gradient.clone()))
    };
    let gradients = inputs.iter().map(gradient).collect::<Result<Vec<_>>>()?;
    Ok((if is_nested { value } else { value.detach() }, gradients))
}
