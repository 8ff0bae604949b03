//! Softmax and log-softmax along the last axis.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use crate::indices::inputs;
use crate::kernel_code;
use crate::rows::{check_rows, has_whole_rows};
use kiln_ir::gradient::{Expr, Gradients, each};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, KernelOp, Layout, Result, op};
use smallvec::{SmallVec, smallvec};

/// Computes `exp(x) / sum(exp(x))` along the last axis, or its logarithm, of floats of any shape.
///
/// All elements of a row are NaN if it has a NaN or a positive infinity, or only negative infinities.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Whether the result is the logarithm.
    pub log: bool,
}

impl KernelOp for Softmax {
    fn name(&self) -> &str {
        if self.log { "log_softmax" } else { "softmax" }
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![u64::from(self.log)]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x] = inputs(self.name(), types)?;
        check_rows(self.name(), x)?;
        Ok(x.clone())
    }

    fn takes(&self, _operand: usize, layout: &Layout) -> bool {
        has_whole_rows(layout)
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn error_bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
        let ([x, ..], &[largest, ..]) = (inputs, largest) else { return 0.0 };
        // Results are at most 1. A logarithm is at most the difference of two elements plus the logarithm of their number.
        let n = x.shape.last().copied().unwrap_or(0) as f64;
        let size = if self.log { 2.0 * largest + n.max(1.0).ln() } else { 1.0 };
        (16.0 + n.sqrt() + 2.0 * largest) * crate::UNIT_ROUNDOFF * size
    }

    fn gradient<'a>(&self, _: &[Expr<'a>], output: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let last = [output.shape().rank() - 1];
        // In `f32`, because sums of many small numbers and cancellation lose too much in 16 bits.
        let (y, g) = (output.cast(DType::F32), gradient.cast(DType::F32));
        let x = if self.log { g - y.apply(&op::EXP, &[]) * g.sum(&last) } else { (g - (g * y).sum(&last)) * y };
        Some(each([x.cast(output.dtype())]))
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        // Maximum, difference, exponential, sum, quotient.
        5 * inputs[0].shape.elem_count() as u64
    }

    kernel_code!(cpu::run, gpu::wgsl);
}
