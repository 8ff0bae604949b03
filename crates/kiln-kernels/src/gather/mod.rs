//! Elements of a tensor by their indices along an axis.
//!
//! An index out of range, which a negative one is, is an error on the CPU. A kernel on a GPU cannot return one: there it gives 0 for what
//! it would have selected.

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

/// One element for each index, from the line along the axis that the index is on.
///
/// Inputs: `x`, and indices of the same rank that are nowhere longer than `x` but along the axis. The result has the shape of the indices:
/// `out[a, i, b] = x[a, index[a, i, b], b]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The axis.
    pub axis: usize,
}

/// A slice of a tensor for each index: `out[a, i, b] = x[a, index[i], b]`. Along axis 0 of a table it is the lookup of embeddings.
///
/// Inputs: `x`, and indices of rank 1. The result is as long along the axis as there are indices.
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
        // An index for each element of the slices.
        let slices = gradient.shape();
        let line = (0..slices.rank()).map(|axis| if axis == self.axis { slices[axis] } else { 1 }).collect();
        let index = index.reshape(line).spread(&slices);
        let added = x.like(0.0).kernel(Scatter { axis: self.axis, add: true }, &[index, gradient]);
        Some(smallvec![Some(added), None])
    }

    fn read_bytes(&self, operand: usize, inputs: &[TensorType]) -> u64 {
        read_bytes(self, operand, inputs)
    }

    kernel_code!(cpu::index_select, gpu::index_select);
}

/// Of the tensor that is selected from, no more than the result has; of the indices all.
fn read_bytes(op: &dyn KernelOp, operand: usize, inputs: &[TensorType]) -> u64 {
    let all = inputs[operand].bytes();
    match (operand, op.infer(inputs)) {
        (0, Ok(result)) => all.min(result.bytes()),
        _ => all,
    }
}
