//! Gather and index-select: elements of a tensor by index along an axis.
//!
//! An index out of range, including a negative one, is an error on the CPU. A GPU kernel cannot return an error and selects 0
//! instead.

mod cpu;
mod gpu;
#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;

use crate::indices::{check_axis, check_dtype, check_extent, inputs, mismatch, text};
use crate::kernel_code;
use crate::scatter::Scatter;
use kiln_ir::gradient::{Expr, Gradients};
use kiln_ir::graph::TensorType;
use kiln_ir::{KernelOp, Layout, Result};
use smallvec::{SmallVec, smallvec};

/// Selects one element per index along an axis.
///
/// Inputs: `x`, and indices of the same rank that are longer than `x` along no axis but this one. The result has the shape of the indices:
/// `out[a, i, b] = x[a, index[a, i, b], b]`.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The axis.
    pub axis: usize,
}

/// Selects a slice of a tensor per index: `out[a, i, b] = x[a, index[i], b]`. Along axis 0 of a table it is an embedding lookup.
///
/// Inputs: `x`, and indices of rank 1. The result is as long along the axis as there are indices.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSelect {
    /// The axis.
    pub axis: usize,
}

impl KernelOp for Gather {
    fn name(&self) -> &str {
        "gather"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.axis as u64]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x, index] = inputs(self.name(), types)?;
        check_axis(self.name(), self.axis, x)?;
        check_dtype(self.name(), index)?;
        check_extent(self.name(), self.axis, x, index)?;
        Ok(TensorType { shape: index.shape.clone(), dtype: x.dtype })
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn takes_wide(&self) -> bool {
        true
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let &[x, index] = inputs else { return None };
        let added = x.like(0.0).kernel(Scatter { axis: self.axis, add: true }, &[index, gradient]);
        Some(smallvec![Some(added), None])
    }

    fn read_bytes(&self, operand: usize, inputs: &[TensorType]) -> u64 {
        read_bytes(self, operand, inputs)
    }

    kernel_code!(cpu::gather, gpu::gather);
}

impl KernelOp for IndexSelect {
    fn name(&self) -> &str {
        "index_select"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.axis as u64]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x, index] = inputs(self.name(), types)?;
        check_axis(self.name(), self.axis, x)?;
        check_dtype(self.name(), index)?;
        if index.shape.rank() != 1 {
            return Err(mismatch(format!("{} expected indices of rank 1, found {}", self.name(), text(index))));
        }
        Ok(TensorType { shape: x.shape.with(self.axis, index.shape[0]).checked()?, dtype: x.dtype })
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn takes_wide(&self) -> bool {
        true
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let &[x, index] = inputs else { return None };
        // Broadcasts the indices to the shape of the slices.
        let slices = gradient.shape();
        let line = (0..slices.rank()).map(|axis| if axis == self.axis { slices[axis] } else { 1 }).collect();
        let index = index.reshape(line).broadcast_to(&slices);
        let added = x.like(0.0).kernel(Scatter { axis: self.axis, add: true }, &[index, gradient]);
        Some(smallvec![Some(added), None])
    }

    fn read_bytes(&self, operand: usize, inputs: &[TensorType]) -> u64 {
        read_bytes(self, operand, inputs)
    }

    kernel_code!(cpu::index_select, gpu::index_select);
}

/// Returns the bytes read of an operand: of the source no more than the result has, of the indices all.
fn read_bytes(op: &dyn KernelOp, operand: usize, inputs: &[TensorType]) -> u64 {
    let all = inputs[operand].bytes();
    match (operand, op.infer(inputs)) {
        (0, Ok(result)) => all.min(result.bytes()),
        _ => all,
    }
}
