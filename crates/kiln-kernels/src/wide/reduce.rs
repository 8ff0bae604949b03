//! Reductions of 64-bit elements, on the CPU.

use super::{no_wgsl, unsupported};
use crate::indices::{inputs, invalid, text};
use crate::kernel_code;
use crate::memory::{Target, elements};
use crate::strided::parallel_for;
use kiln_ir::graph::{Reduce, TensorType};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, KernelOp, Result, Shape};
use smallvec::{SmallVec, smallvec};

/// Elements that are added sequentially. Longer rows use pairwise summation of such runs, so that rounding errors grow slowly.
const RUN: usize = 256;

/// Reduces each row of a matrix of `I64` or `F64` to one element.
///
/// See the [module documentation](crate::wide) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideReduce {
    /// The reduction. A mean requires `F64`.
    pub op: Reduce,
}

impl KernelOp for WideReduce {
    fn name(&self) -> &str {
        self.op.name()
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        smallvec![self.op as u64]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let (name, [x]) = (self.name(), inputs(self.name(), types)?);
        let dtype = super::wide(name, x)?;
        let &[rows, length] = &x.shape[..] else {
            return Err(invalid(format!("{name} expected a matrix, found {}", text(x))));
        };
        let is_sum = matches!(self.op, Reduce::Sum | Reduce::Mean);
        if !is_sum && length == 0 && rows > 0 {
            return Err(invalid(format!("{name} expected rows of at least one element, found {}", text(x))));
        }
        if self.op == Reduce::Mean && dtype == DType::I64 {
            return Err(unsupported(format!("{name} expected floats, found {}; convert with to_dtype", text(x))));
        }
        let is_place = matches!(self.op, Reduce::ArgMax | Reduce::ArgMin);
        Ok(TensorType { shape: Shape::from(rows), dtype: if is_place { DType::U32 } else { dtype } })
    }

    fn takes_wide(&self) -> bool {
        true
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        inputs[0].shape.elem_count() as u64
    }

    kernel_code!(run, no_wgsl);
}

fn run(op: &WideReduce, call: &HostCall<'_>) -> Result<()> {
    let is_larger = matches!(op.op, Reduce::Max | Reduce::ArgMax);
    match (call.operands[0].dtype, op.op) {
        // Shape inference refuses the mean of integers.
        (DType::I64, Reduce::Sum | Reduce::Mean) => {
            each_row(call, |row| row.iter().fold(0i64, |a, &b| a.wrapping_add(b)))
        }
        (DType::I64, Reduce::Max | Reduce::Min) => each_row(call, |row| row[best_i64(row, is_larger)]),
        (DType::I64, _) => each_row(call, |row| best_i64(row, is_larger) as u32),
        (_, Reduce::Sum) => each_row(call, sum),
        (_, Reduce::Mean) => each_row(call, |row| sum(row) / row.len() as f64),
        (_, Reduce::Max | Reduce::Min) => each_row(call, |row| row[best_f64(row, is_larger)]),
        _ => each_row(call, |row| best_f64(row, is_larger) as u32),
    }
}

/// Stores a result for each row.
fn each_row<T: bytemuck::Pod + Sync, U: bytemuck::Pod + Send + Sync>(
    call: &HostCall<'_>,
    reduce: impl Fn(&[T]) -> U + Sync,
) -> Result<()> {
    let x = &call.operands[0];
    let &[rows, length] = &x.layout.shape()[..] else { unreachable!("shape inference checked the rank") };
    let (from, to) = (&elements::<T>(x)[x.layout.offset()..], Target::<U>::of(call.output));
    parallel_for(call.workers, rows, length, |range| {
        for row in range {
            // SAFETY: the ranges of the tasks are disjoint.
            unsafe { to.slice(row, 1)[0] = reduce(&from[row * length..][..length]) };
        }
    })
}

fn sum(row: &[f64]) -> f64 {
    if row.len() <= RUN {
        return row.iter().fold(0.0, |sum, &term| sum + term);
    }
    // Splits at a multiple of the run, so that the order of additions depends on the length alone.
    let (first, second) = row.split_at((row.len() / 2).next_multiple_of(RUN));
    sum(first) + sum(second)
}

/// Returns the index of the first largest, or smallest, integer.
fn best_i64(row: &[i64], is_larger: bool) -> usize {
    best(row, |new, old| if is_larger { new > old } else { new < old })
}

/// Returns the index of the first largest, or smallest, float; of the first NaN if there is one.
fn best_f64(row: &[f64], is_larger: bool) -> usize {
    // A NaN replaces every number, and nothing replaces a NaN, so the first one stays.
    best(row, |new, old| !old.is_nan() && (new.is_nan() || if is_larger { new > old } else { new < old }))
}

fn best<T: Copy>(row: &[T], is_better: impl Fn(T, T) -> bool) -> usize {
    (1..row.len()).fold(0, |best, place| if is_better(row[place], row[best]) { place } else { best })
}
