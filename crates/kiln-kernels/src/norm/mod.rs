//! Layer normalization and RMS normalization.

mod cpu;
mod gpu;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::indices::{inputs, mismatch, text};
use crate::rows::{check_rows, has_whole_rows};
use kiln_ir::gradient::{Expr, Gradients};
use kiln_ir::graph::{Reduce, TensorType};
use kiln_ir::host::HostCall;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{DType, KernelOp, Layout, Result, op};
use smallvec::{SmallVec, smallvec};

/// Computes `(x - mean) / sqrt(variance + eps)` along the last axis, if affine times `weight` plus `bias`.
///
/// Inputs: `x`, floats of any shape; if affine also `weight` and `bias`, floats of one axis, as long as the last axis of `x`. The
/// variance is the biased one: the mean of the squared deviations.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f32,
    /// Whether there are `weight` and `bias`.
    pub affine: bool,
}

/// Computes `x / sqrt(mean of squares + eps)` along the last axis, if affine times `weight`.
///
/// Inputs: `x`, floats of any shape; if affine also `weight`, floats of one axis, as long as the last axis of `x`.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct RmsNorm {
    /// Added to the mean of the squares.
    pub eps: f32,
    /// Whether there is a `weight`.
    pub affine: bool,
}

macro_rules! norm_op {
    ($op:ident, $name:literal, $vectors:literal, $flops:literal, $centred:literal) => {
        impl KernelOp for $op {
            fn name(&self) -> &str {
                $name
            }

            fn attributes(&self) -> SmallVec<[u64; 4]> {
                smallvec![u64::from(self.eps.to_bits()), u64::from(self.affine)]
            }

            fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
                if self.affine {
                    let [x, vectors @ ..] = inputs::<{ 1 + $vectors }>($name, types)?;
                    infer($name, x, vectors)
                } else {
                    let [x] = inputs($name, types)?;
                    infer($name, x, &[])
                }
            }

            fn takes(&self, operand: usize, layout: &Layout) -> bool {
                // Weight and bias may be strided: the CPU copies them to contiguous `f32`, and WGSL computes their offsets.
                operand > 0 || has_whole_rows(layout)
            }

            fn fuses_epilogue(&self) -> bool {
                true
            }

            fn error_bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
                let ([x, ..], &[largest, ref affine @ ..]) = (inputs, largest) else { return 0.0 };
                let n = x.shape.last().copied().unwrap_or(0) as f64;
                let (weight, bias) = (affine.first().copied().unwrap_or(1.0), affine.get(1).copied().unwrap_or(0.0));
                // Normalized values are at most sqrt(n). The rounding error of the mean is divided by the smallest deviation.
                let deviation = f64::from(self.eps).sqrt().max(1e-6 * largest).max(f64::MIN_POSITIVE);
                let size = n.sqrt() * weight + bias;
                ((16.0 + n.sqrt()) * size + 8.0 * largest / deviation * weight) * crate::UNIT_ROUNDOFF
            }

            fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
                Some(gradients(inputs, gradient, self.eps, $centred))
            }

            fn flops(&self, inputs: &[TensorType]) -> u64 {
                ($flops + if self.affine { $vectors } else { 0 }) * inputs[0].shape.elem_count() as u64
            }

            fn has_host_code(&self) -> bool {
                true
            }

            fn run(&self, call: &HostCall<'_>) -> Result<()> {
                cpu::run(self.eps, $centred, call)
            }

            fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel> {
                gpu::render($name, call, self.eps, $centred)
            }
        }
    };
}

norm_op!(LayerNorm, "layer_norm", 2, 5, true);
norm_op!(RmsNorm, "rms_norm", 1, 3, false);

/// Returns the gradients of `x`, and of the weight and the bias.
fn gradients<'a>(inputs: &[Expr<'a>], gradient: Expr<'a>, eps: f32, is_centred: bool) -> Gradients<'a> {
    let (x, vectors) = (inputs[0].cast(DType::F32), &inputs[1..]);
    let last = [x.shape().rank() - 1];
    let mean = |x: Expr<'a>| x.reduce(Reduce::Mean, &last);
    let x = if is_centred { x - mean(x) } else { x };
    let scale = (mean(x * x) + f64::from(eps)).apply(&op::RSQRT, &[]);
    let (normed, g) = (x * scale, gradient.cast(DType::F32));
    let weighted = vectors.first().map_or(g, |weight| g * weight.cast(DType::F32));
    // Normalization removes the components along the mean and along the row itself, so they have no gradient.
    let own = weighted - normed * mean(weighted * normed);
    let own = if is_centred { own - mean(weighted) } else { own };
    let of_vectors = [g * normed, g].into_iter().zip(vectors);
    let of_vectors = of_vectors.map(|(all, vector)| Some(all.sum_to(&vector.shape()).cast(vector.dtype())));
    [Some((own * scale).cast(inputs[0].dtype()))].into_iter().chain(of_vectors).collect()
}

fn infer(name: &str, x: &TensorType, vectors: &[TensorType]) -> Result<TensorType> {
    check_rows(name, x)?;
    let length = x.shape[x.shape.rank() - 1];
    for (vector, role) in vectors.iter().zip(["weight", "bias"]) {
        if !vector.dtype.is_float() || vector.shape[..] != [length] {
            let message = format!(
                "{name} of {} expected a {role} of floats and shape ({length},), found {}",
                text(x),
                text(vector)
            );
            return Err(mismatch(message));
        }
    }
    Ok(x.clone())
}
