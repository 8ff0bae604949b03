//! Loss functions. All are computed in `f32` and return a scalar.

use crate::{DType, Error, ErrorKind, Result, Tensor};

/// Computes the mean squared error.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, nn::mse};
///
/// let (x, y) = (Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?, Tensor::from_slice(&[1.0f32, 4.0], 2, &device)?);
/// assert_eq!(mse(&x, &y)?.to_scalar::<f32>()?, 2.0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `ShapeMismatch` if the shapes differ, and `InvalidArgument` if the devices differ.
pub fn mse(output: &Tensor, target: &Tensor) -> Result<Tensor> {
    same_shape("mse", output, target)?;
    let compute = || output.to_dtype(DType::F32)?.sub(&target.to_dtype(DType::F32)?)?.square()?.mean_all();
    compute().map_err(|error| error.context("mse"))
}

/// Computes the mean cross entropy of `logits`, a row of scores per example, and the class indices in `target`.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, nn::cross_entropy};
///
/// let logits = Tensor::from_slice(&[0.0f32, 0.0, 1e4, 0.0], (2, 2), &device)?;
/// let target = Tensor::from_slice(&[1u32, 0], 2, &device)?;
/// assert!((cross_entropy(&logits, &target)?.to_scalar::<f32>()? - 0.5 * 2f32.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `ShapeMismatch` if the numbers of rows and targets differ, and `Unsupported` if targets are not `u32`,
/// `i32` or `i64`. A target out of range makes [`eval`](Tensor::eval) fail on the CPU device.
pub fn cross_entropy(logits: &Tensor, target: &Tensor) -> Result<Tensor> {
    let (&[rows, _], &[targets]) = (&logits.shape()[..], &target.shape()[..]) else {
        return Err(wrong("cross_entropy", "logits (examples, classes) and targets (examples,)", logits, target));
    };
    if rows != targets {
        return Err(wrong("cross_entropy", "as many targets as rows of logits", logits, target));
    }
    let compute = || -> Result<Tensor> {
        // Not the logarithm of `softmax`, which underflows to 0 for unlikely classes and would give an infinite loss.
        let chosen = logits.to_dtype(DType::F32)?.log_softmax(1)?.gather(1, &target.reshape((rows, 1))?)?;
        chosen.mean_all()?.neg()
    };
    compute().map_err(|error| error.context("cross_entropy"))
}

/// Computes the mean binary cross entropy of `logits` and the probabilities in `target`, between 0 and 1.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::{Tensor, nn::bce_with_logits};
///
/// let (x, y) = (Tensor::from_slice(&[0.0f32, 1e4], 2, &device)?, Tensor::from_slice(&[1.0f32, 1.0], 2, &device)?);
/// assert!((bce_with_logits(&x, &y)?.to_scalar::<f32>()? - 0.5 * 2f32.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`mse`].
pub fn bce_with_logits(logits: &Tensor, target: &Tensor) -> Result<Tensor> {
    same_shape("bce_with_logits", logits, target)?;
    let compute = || -> Result<Tensor> {
        let (x, y) = (logits.to_dtype(DType::F32)?, target.to_dtype(DType::F32)?);
        // A log softmax over the logits (0, x) is finite for every x, and smooth at 0.
        let both = Tensor::stack(&[&Tensor::zeros(x.shape(), DType::F32, x.device())?, &x], -1)?.log_softmax(-1)?;
        let last = both.rank() - 1;
        let (no, yes) = (both.select(last, 0)?, both.select(last, 1)?);
        yes.mul(&y)?.add(&no.sub(&no.mul(&y)?)?)?.mean_all()?.neg()
    };
    compute().map_err(|error| error.context("bce_with_logits"))
}

fn same_shape(name: &str, output: &Tensor, target: &Tensor) -> Result<()> {
    if output.shape() == target.shape() {
        Ok(())
    } else {
        Err(wrong(name, "two tensors of the same shape", output, target))
    }
}

fn wrong(name: &str, wanted: &str, output: &Tensor, target: &Tensor) -> Error {
    let describe = |tensor: &Tensor| format!("{} {}", tensor.dtype(), tensor.shape());
    let message = format!("{name} expected {wanted}, found {} and {}", describe(output), describe(target));
    Error::new(ErrorKind::ShapeMismatch, message)
}
