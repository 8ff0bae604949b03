//! Sorting along the last axis: argsort, top-k and sort.
//!
//! Sorting is stable. NaN is larger than every number, as in NumPy and PyTorch; negative zero equals zero, except in [`Sort`].

mod cpu;
mod gpu;
mod key;
mod network;
mod radix;
#[cfg(test)]
mod tests;
mod values;

use crate::indices::{inputs, invalid, mismatch, text};
use crate::scatter::Scatter;
use kiln_ir::gradient::{Expr, Gradients, each};
use kiln_ir::graph::TensorType;
use kiln_ir::host::HostCall;
use kiln_ir::wgsl::{WgslCall, WgslKernel};
use kiln_ir::{DType, Error, ErrorKind, KernelOp, Result};
use smallvec::{SmallVec, smallvec};

/// Returns the indices, as `u32`, of the first `count` elements of each row in ascending or descending order.
///
/// A GPU sorts runs of at most [`GPU_RUN`](Argsort::GPU_RUN) elements; [`Merge`] merges them into rows.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argsort {
    /// Whether to sort from the largest element to the smallest.
    pub descending: bool,
    /// Number of indices per row, at most its length; `None` for all.
    pub count: Option<usize>,
    /// Sorts each run of this many elements separately. Runs start at multiples of it.
    pub run: Option<usize>,
}

/// Sorts the elements of each row without their indices: half the work of an [`Argsort`]. Negative zero sorts before positive zero, after it in
/// descending order, and all NaNs get the same bits.
///
/// It has CPU code only. Elsewhere use [`Argsort`] and [`Gather`](crate::gather::Gather).
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// Whether to sort from the largest element to the smallest.
    pub descending: bool,
}

/// Merges pairs of neighbouring sorted runs of each row. Inputs: `x`, and the indices of its rows with sorted runs.
///
/// See the [crate documentation](crate) for an example of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The order of the runs.
    pub descending: bool,
    /// Elements per run; the last run of a row may be shorter.
    pub run: usize,
}

impl Argsort {
    /// Elements that a workgroup sorts in workgroup memory.
    pub const GPU_RUN: usize = 1024;

    /// Creates an op that returns all indices of each row.
    pub fn new(descending: bool) -> Self {
        Self { descending, count: None, run: None }
    }
}

fn check_rows(op: &str, x: &TensorType) -> Result<usize> {
    x.shape.last().copied().ok_or_else(|| invalid(format!("{op} expected at least one axis, found {}", text(x))))
}

impl KernelOp for Argsort {
    fn name(&self) -> &str {
        if self.count.is_some() { "topk" } else { "argsort" }
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        let number = |of: Option<usize>| of.map_or(u64::MAX, |number| number as u64);
        smallvec![u64::from(self.descending), number(self.count), number(self.run)]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x] = inputs(self.name(), types)?;
        let length = check_rows(self.name(), x)?;
        let count = self.count.unwrap_or(length);
        if count > length || self.run == Some(0) || (self.run.is_some() && self.count.is_some()) {
            return Err(invalid(format!(
                "{} expected at most {length} indices of a row, found {count} of {}",
                self.name(),
                text(x)
            )));
        }
        Ok(TensorType { shape: x.shape.with(x.shape.rank() - 1, count), dtype: DType::U32 })
    }

    fn gradient<'a>(&self, _: &[Expr<'a>], _: Expr<'a>, _: Expr<'a>) -> Option<Gradients<'a>> {
        Some(smallvec![None])
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        let length = inputs[0].shape.last().copied().unwrap_or(0);
        inputs[0].shape.elem_count() as u64 * u64::from(length.max(2).ilog2())
    }

    fn has_host_code(&self) -> bool {
        self.run.is_none()
    }

    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        cpu::argsort(self, call)
    }

    fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel> {
        gpu::argsort(self, call)
    }
}

impl KernelOp for Sort {
    fn name(&self) -> &str {
        "sort"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![u64::from(self.descending)]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x] = inputs(self.name(), types)?;
        check_rows(self.name(), x)?;
        Ok(x.clone())
    }

    fn gradient<'a>(&self, inputs: &[Expr<'a>], _: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let &[x] = inputs else { return None };
        let places = x.kernel(Argsort::new(self.descending), &[]);
        let scatter = Scatter { axis: x.shape().rank() - 1, add: true };
        Some(each([x.like(0.0).kernel(scatter, &[places, gradient])]))
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        Argsort::new(self.descending).flops(inputs)
    }

    fn has_host_code(&self) -> bool {
        true
    }

    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        cpu::sort(self, call)
    }

    fn wgsl(&self, _: &WgslCall<'_>) -> Result<WgslKernel> {
        let message = "sort expected a device that runs CPU code; use argsort and gather".to_string();
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

impl KernelOp for Merge {
    fn name(&self) -> &str {
        "merge"
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![u64::from(self.descending), self.run as u64]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let [x, index] = inputs(self.name(), types)?;
        check_rows(self.name(), x)?;
        if index.shape != x.shape || index.dtype != DType::U32 || self.run == 0 {
            return Err(mismatch(format!("merge expected indices of u32 {}, found {}", x.shape, text(index))));
        }
        Ok(index.clone())
    }

    fn gradient<'a>(&self, _: &[Expr<'a>], _: Expr<'a>, _: Expr<'a>) -> Option<Gradients<'a>> {
        Some(smallvec![None, None])
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        inputs[0].shape.elem_count() as u64
    }

    fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel> {
        gpu::merge(self, call)
    }
}
