//! Matrix multiplication.
//!
//! On the CPU, operands of any strides and float dtype are packed into panels of `f32`, or read in place if their layout allows. Blocks of panels
//! stay in the caches while tiles of 6 by 16 accumulate in registers. See [`Matmul`] for the numerics.

pub(crate) mod cpu;
mod gpu;
pub(crate) mod matrix;
pub(crate) mod microkernel;
pub(crate) mod panels;
pub(crate) mod scratch;
pub(crate) mod skinny;
pub(crate) mod vector;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::indices::{inputs, mismatch};
use crate::kernel_code;
use kiln_ir::gradient::{Expr, Gradients, each};
use kiln_ir::graph::TensorType;
use kiln_ir::{Error, ErrorKind, KernelOp, Layout, Result};
use smallvec::SmallVec;

/// Computes the product of matrices `(.., m, k)` and `(.., k, n)` of one float dtype: `(.., m, n)` in that dtype. The batch axes must be equal;
/// broadcast them first. If `k` is 0, the result is 0.
///
/// Products accumulate in `f32`, in an order that depends on the shapes and strides of the operands, but not on the number of
/// threads: results are bitwise identical on any number of them.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matmul;

impl KernelOp for Matmul {
    fn name(&self) -> &str {
        "matmul"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        SmallVec::new()
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [a, b] = inputs(self.name(), types)?;
        if a.dtype != b.dtype || !a.dtype.is_float() {
            let message = format!(
                "matmul expected two tensors of one float dtype, found {} and {}; convert with to_dtype",
                a.dtype, b.dtype
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let rank = a.shape.rank();
        let fits = rank >= 2 && b.shape.rank() == rank && a.shape[..rank - 2] == b.shape[..rank - 2];
        if !fits || a.shape[rank - 1] != b.shape[rank - 2] {
            return Err(mismatch(format!(
                "matmul expected shapes (.., m, k) and (.., k, n), found {} and {}",
                a.shape, b.shape
            )));
        }
        let shape = a.shape.with(rank - 1, b.shape[rank - 1]).checked().map_err(|error| error.context("matmul"))?;
        Ok(TensorType { shape, dtype: a.dtype })
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn fuses_epilogue(&self) -> bool {
        true
    }

    fn error_bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
        let ([a, ..], &[one, other]) = (inputs, largest) else { return 0.0 };
        // A sum of k products, each at most `one * other`. Rounding errors have random signs, so they grow with the square root of the term count.
        let k = a.shape.last().copied().unwrap_or(0) as f64;
        (8.0 + k.sqrt()) * crate::UNIT_ROUNDOFF * k * one * other
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let &[a, b] = inputs else { return None };
        Some(each([gradient.kernel(Self, &[b.transpose()]), a.transpose().kernel(Self, &[gradient])]))
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        let [a, b] = inputs else { return 0 };
        2 * a.shape.elem_count() as u64 * b.shape.last().copied().unwrap_or(0) as u64
    }

    kernel_code!(cpu::run, gpu::render);
}
