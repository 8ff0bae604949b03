//! Fused attention with online softmax: scores are computed block by block and never stored as a whole.
//!
//! On the CPU everything is computed transposed, with a query in each lane of a vector: the scores of a block of keys are the product of the keys and
//! the transposed queries, and the results are the product of the transposed values and the weights. So keys and values of `f32` are read in place,
//! and maxima and sums need no horizontal reductions.

mod cpu;
mod gpu;
mod gradient;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::indices::invalid;
use crate::kernel_code;
use kiln_ir::gradient::{Expr, Gradients};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, Error, ErrorKind, KernelOp, Layout, Result};
use smallvec::{SmallVec, smallvec};

/// Scaled dot-product attention: `softmax(q kᵀ scale) v`, of queries `(b, h, m, d)`, keys `(b, h, n, d)` and values `(b, h, n, e)` of one float
/// dtype: `(b, h, m, e)` in that dtype. A query that attends to no key gives zeros.
///
/// Everything is computed in `f32`, in an order that does not depend on the number of threads: results are bitwise identical on any number
/// of them.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// The factor of the scores, usually `1 / sqrt(d)`.
    pub scale: f32,
    /// Whether query `i` attends only to keys up to `i + (n - m)`. The last query attends to all keys.
    pub causal: bool,
    /// Whether there is a fourth input, `U8` of shape `(b, h, m, n)`: 0 where a query does not attend to a key.
    pub has_mask: bool,
}

impl KernelOp for Attention {
    fn name(&self) -> &str {
        "attention"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![u64::from(self.scale.to_bits()), u64::from(self.causal), u64::from(self.has_mask)]
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType> {
        let expected = 3 + usize::from(self.has_mask);
        if inputs.len() != expected {
            return Err(invalid(format!("attention expected {expected} inputs, found {}", inputs.len())));
        }
        let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
        if q.dtype != k.dtype || q.dtype != v.dtype || !q.dtype.is_float() {
            let message = format!(
                "attention expected queries, keys and values of one float dtype, found {}, {} and {}; convert with to_dtype",
                q.dtype, k.dtype, v.dtype
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let (&[b, h, m, d], &[kb, kh, n, kd], &[vb, vh, vn, e]) = (&*q.shape, &*k.shape, &*v.shape) else {
            return Err(mismatch(inputs));
        };
        if [kb, kh, kd] != [b, h, d] || [vb, vh, vn] != [b, h, n] {
            return Err(mismatch(inputs));
        }
        if let Some(mask) = inputs.get(3) {
            if mask.dtype != DType::U8 {
                let message = format!("attention expected a mask of u8, found {}", mask.dtype);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            if mask.shape[..] != [b, h, m, n] {
                return Err(mismatch(inputs));
            }
        }
        let shape = q.shape.with(3, e).checked().map_err(|error| error.context("attention"))?;
        Ok(TensorType { shape, dtype: q.dtype })
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn error_bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
        let ([q, k, ..], &[query, key, value, ..]) = (inputs, largest) else { return 0.0 };
        let (d, n) = (q.shape.last().copied().unwrap_or(0) as f64, k.shape.get(2).copied().unwrap_or(0) as f64);
        // Absolute errors of scores become relative errors of weights. Summing the weighted values adds its own error.
        let scores = (8.0 + d.sqrt()) * d * query * key * f64::from(self.scale).abs();
        (16.0 + n.sqrt() + scores) * crate::UNIT_ROUNDOFF * value
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        gradient::gradients(self, inputs, gradient)
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        let [q, k, v, ..] = inputs else { return 0 };
        let lengths = |ty: &TensorType| (ty.shape.elem_count() as u64, ty.shape.last().copied().unwrap_or(0) as u64);
        let ((queries, d), (_, e)) = (lengths(q), lengths(v));
        let n = k.shape.get(2).copied().unwrap_or(0) as u64;
        2 * queries.checked_div(d).unwrap_or(0) * n * (d + e)
    }

    kernel_code!(cpu::run, gpu::render);
}

fn mismatch(inputs: &[TensorType]) -> Error {
    let shapes: Vec<String> = inputs.iter().map(|input| input.shape.to_string()).collect();
    let mask = if inputs.len() > 3 { " and (b, h, m, n)" } else { "" };
    let message = format!(
        "attention expected shapes (b, h, m, d), (b, h, n, d), (b, h, n, e){mask}, found {}",
        shapes.join(", ")
    );
    Error::new(ErrorKind::ShapeMismatch, message)
}
