//! Elementwise ops on 64-bit elements, on the CPU.

use super::{CHUNK, no_wgsl, unsupported};
use crate::indices::{invalid, mismatch, text};
use crate::kernel_code;
use crate::memory::{Target, elements};
use crate::strided::{StridedIter, parallel_for};
use bytemuck::Pod;
use kiln_ir::graph::TensorType;
use kiln_ir::host::{HostCall, HostOperand};
use kiln_ir::op::{ElementOp, Signature};
use kiln_ir::{DType, KernelOp, Layout, Result};
use smallvec::{SmallVec, smallvec};

/// An elementwise op on tensors of `I64` or `F64`, all of one shape. A condition is `U8` or `Bool`; the result of a comparison
/// is `U8`.
///
/// See the [module documentation](crate::wide) for an example.
#[derive(Clone, Copy, Debug)]
pub struct WideElement {
    /// The op.
    pub op: &'static ElementOp,
}

impl WideElement {
    /// Returns the index of the first 64-bit operand: only a condition is not one.
    fn first_wide(&self) -> usize {
        usize::from(self.op.signature == Signature::Select)
    }
}

impl KernelOp for WideElement {
    fn name(&self) -> &str {
        self.op.name
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        // User-defined ops may share a name, so the address of the `'static` entry is the identity.
        smallvec![std::ptr::from_ref(self.op) as u64]
    }

    fn infer(&self, types: &[TensorType]) -> Result<TensorType> {
        let (name, arity) = (self.name(), self.op.arity());
        if types.len() != arity {
            return Err(invalid(format!("{name} expected {arity} inputs, found {}", types.len())));
        }
        let (conditions, numbers) = types.split_at(self.first_wide());
        let dtype = super::wide(name, &numbers[0])?;
        if !self.op.takes_dtype(dtype) {
            return Err(unsupported(format!("{name} does not support {dtype}; convert with to_dtype")));
        }
        if let Some(other) = numbers.iter().find(|ty| ty.dtype != dtype) {
            return Err(invalid(format!("{name} expected tensors of {dtype}, found {}", text(other))));
        }
        if let Some(other) = conditions.iter().find(|ty| !matches!(ty.dtype, DType::U8 | DType::Bool)) {
            return Err(unsupported(format!("{name} expected a condition of u8 or bool, found {}", text(other))));
        }
        if let Some(other) = types.iter().find(|ty| ty.shape != types[0].shape) {
            return Err(mismatch(format!("{name} expected one shape, found {} and {}", text(&types[0]), text(other))));
        }
        let dtype = if self.op.signature == Signature::Compare { DType::U8 } else { dtype };
        Ok(TensorType { shape: types[0].shape.clone(), dtype })
    }

    fn takes(&self, _operand: usize, _layout: &Layout) -> bool {
        true
    }

    fn takes_wide(&self) -> bool {
        true
    }

    fn flops(&self, inputs: &[TensorType]) -> u64 {
        inputs[0].shape.elem_count() as u64
    }

    kernel_code!(run, no_wgsl);
}

fn run(op: &WideElement, call: &HostCall<'_>) -> Result<()> {
    match call.operands[op.first_wide()].dtype {
        DType::I64 => run_chunks(op, call, i64::from, |x| x != 0, |out, args| op.op.eval_i64(out, args)),
        _ => run_chunks(op, call, f64::from, |x| x != 0.0, |out, args| op.op.eval_f64(out, args)),
    }
}

/// Runs the op over chunks of operands that are gathered to contiguous memory.
fn run_chunks<T: Pod + Default + Send + Sync>(
    op: &WideElement,
    call: &HostCall<'_>,
    of_byte: impl Fn(u8) -> T + Sync,
    is_true: impl Fn(T) -> bool + Sync,
    eval: impl Fn(&mut [T], [&[T]; 3]) -> bool + Sync,
) -> Result<()> {
    let items = call.operands[0].layout.shape().elem_count();
    let (is_compare, conditions) = (op.op.signature == Signature::Compare, op.first_wide());
    let operands: SmallVec<[(&HostOperand<'_>, StridedIter<1>); 3]> =
        call.operands.iter().map(|operand| (operand, StridedIter::over(operand.layout))).collect();
    // Comparisons are computed in the 64-bit type, as 1 or 0, and stored as `U8`.
    let (words, bytes) = if is_compare {
        (None, Some(Target::<u8>::of(call.output)))
    } else {
        (Some(Target::<T>::of(call.output)), None)
    };
    let chunks = items.div_ceil(CHUNK);
    parallel_for(call.workers, chunks, 4 * CHUNK, |range| {
        // Three operands are the maximum; ops with fewer ignore the rest.
        let mut gathered = [[T::default(); CHUNK]; 3];
        let mut results = [T::default(); CHUNK];
        for start in range.map(|chunk| chunk * CHUNK) {
            let length = CHUNK.min(items - start);
            for (index, (operand, iter)) in operands.iter().enumerate() {
                let to = &mut gathered[index][..length];
                if index < conditions {
                    gather::<u8, T>(operand, iter, start, to, |byte| of_byte(u8::from(byte != 0)));
                } else {
                    gather::<T, T>(operand, iter, start, to, |number| number);
                }
            }
            let results = &mut results[..length];
            let is_computed = eval(results, [&gathered[0][..length], &gathered[1][..length], &gathered[2][..length]]);
            assert!(is_computed, "shape inference checked that the op supports the dtype");
            // SAFETY: the ranges of the tasks are disjoint.
            unsafe {
                if let Some(words) = &words {
                    words.slice(start, length).copy_from_slice(results);
                }
                if let Some(bytes) = &bytes {
                    let to = bytes.slice(start, length).iter_mut();
                    to.zip(results.iter()).for_each(|(to, &result)| *to = u8::from(is_true(result)));
                }
            }
        }
    })
}

/// Copies elements from row-major index `start` on.
fn gather<T: Pod, U: Pod>(
    operand: &HostOperand<'_>,
    iter: &StridedIter<1>,
    start: usize,
    to: &mut [U],
    value: impl Fn(T) -> U,
) {
    let (from, [stride]) = (elements::<T>(operand), iter.inner());
    iter.runs(start..start + to.len(), |first, [mut offset], length| {
        for to in &mut to[first - start..][..length] {
            *to = value(from[offset as usize]);
            offset += stride;
        }
    });
}
