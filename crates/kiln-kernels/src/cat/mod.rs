//! Concatenation along an axis.

mod cpu;
mod gpu;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use crate::indices::{check_axis, invalid, mismatch, text};
use crate::kernel_code;
use kiln_ir::gradient::{Expr, Gradients};
use kiln_ir::graph::TensorType;
use kiln_ir::{KernelOp, Layout, Result};
use smallvec::{SmallVec, smallvec};

/// Concatenates tensors along an axis. They have one dtype, and equal lengths along every other axis.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cat {
    /// The axis.
    pub axis: usize,
}

impl Cat {
    /// Maximum inputs of a GPU kernel. More inputs are concatenated in several steps.
    pub const MAX_GPU_INPUTS: usize = 7;
}

impl KernelOp for Cat {
    fn name(&self) -> &str {
        "cat"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.axis as u64]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let Some(first) = types.first() else {
            return Err(invalid(String::from("cat expected at least 1 input, found none")));
        };
        check_axis(self.name(), self.axis, first)?;
        let mut length = 0usize;
        for (number, ty) in types.iter().enumerate() {
            let described = || format!("found {} as input {number} after {}", text(ty), text(first));
            if ty.dtype != first.dtype {
                return Err(invalid(format!("cat expected inputs of one dtype, {}", described())));
            }
            let same =
                ty.shape.rank() == first.shape.rank() && ty.shape.with(self.axis, 0) == first.shape.with(self.axis, 0);
            if !same {
                let message =
                    format!("cat along axis {} expected equal lengths along all others, {}", self.axis, described());
                return Err(mismatch(message));
            }
            length = length.saturating_add(ty.shape[self.axis]);
        }
        Ok(TensorType { shape: first.shape.with(self.axis, length).checked()?, dtype: first.dtype })
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn takes_wide(&self) -> bool {
        true
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let mut start = 0;
        let part = |input: &Expr<'a>| {
            let length = input.shape()[self.axis];
            start += length;
            Some(gradient.slice(self.axis, start - length, length))
        };
        Some(inputs.iter().map(part).collect())
    }

    kernel_code!(cpu::run, gpu::wgsl);
}
