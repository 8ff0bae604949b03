//! Scatter: writes elements to a tensor by index along an axis.
//!
//! An index out of range, including a negative one, is an error on the CPU. A GPU kernel cannot return an error and skips the
//! write.

mod cpu;
mod gpu;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::gather::Gather;
use crate::indices::{check_axis, check_dtype, check_extent, inputs, invalid, mismatch, text};
use crate::kernel_code;
use kiln_ir::gradient::{Expr, Gradients};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, Error, ErrorKind, KernelOp, Layout, Result, op};
use smallvec::{SmallVec, smallvec};

/// Replaces some elements of a tensor, or adds to them.
///
/// Inputs: `x`; indices of the same rank that are longer than `x` along no axis but this one; and `source`, of the dtype of `x` and the
/// shape of the indices. The result is `x` with `out[a, index[a, i, b], b]` set to `source[a, i, b]`, or increased by it. If an index
/// occurs twice, the last one along the axis wins, or they are added in order: in `f32` for floats, and rounded once.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// The axis.
    pub axis: usize,
    /// Whether to add to elements instead of replacing them.
    pub add: bool,
}

impl KernelOp for Scatter {
    fn name(&self) -> &str {
        if self.add { "scatter_add" } else { "scatter" }
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.axis as u64, u64::from(self.add)]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x, index, source] = inputs(self.name(), types)?;
        check_axis(self.name(), self.axis, x)?;
        check_dtype(self.name(), index)?;
        check_extent(self.name(), self.axis, x, index)?;
        if source.dtype != x.dtype {
            let message = format!("{} expected a source of {}, found {}", self.name(), x.dtype, text(source));
            return Err(invalid(message));
        }
        if self.add && (x.dtype == DType::Bool || x.dtype.is_wide()) {
            let message = format!(
                "{} expected numbers of at most 32 bits, found {}; convert with to_dtype",
                self.name(),
                text(x)
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if source.shape != index.shape {
            let message = format!(
                "{} expected a source with the shape of the indices, {}, found {}",
                self.name(),
                index.shape,
                text(source)
            );
            return Err(mismatch(message));
        }
        Ok(x.clone())
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn takes_wide(&self) -> bool {
        !self.add
    }

    fn error_bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
        let ([_, index, _], &[own, _, source]) = (inputs, largest) else { return 0.0 };
        if !self.add {
            return 0.0;
        }
        let terms = index.shape.get(self.axis).copied().unwrap_or(0) as f64;
        (8.0 + terms.sqrt()) * crate::UNIT_ROUNDOFF * (own + terms * source)
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let &[_, index, source] = inputs else { return None };
        let axis = self.axis;
        let taken = gradient.kernel(Gather { axis }, &[index]);
        if self.add {
            return Some(smallvec![Some(gradient), None, Some(taken)]);
        }
        // If an index occurs twice, only the element written last gets the gradient. Scattering the element numbers finds it.
        let number = source.iota(source.shape());
        let none = number.filled(0.0, TensorType { shape: gradient.shape(), dtype: DType::U32 });
        let last = none.kernel(*self, &[index, number]).kernel(Gather { axis }, &[index]);
        let taken = taken.only_where(last.apply(&op::EQ, &[number]));
        let left = gradient.kernel(*self, &[index, source.like(0.0)]);
        Some(smallvec![Some(left), None, Some(taken)])
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        if self.add { inputs[2].shape.elem_count() as u64 } else { 0 }
    }

    kernel_code!(cpu::run, gpu::wgsl);
}
