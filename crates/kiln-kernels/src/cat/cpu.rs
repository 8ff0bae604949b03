//! Concatenation on the CPU: contiguous runs are copied at once.

use super::Cat;
use crate::memory::{Target, by_width, copy_run, elements};
use crate::strided::{StridedIter, parallel_for};
use bytemuck::Pod;
use kiln_ir::Result;
use kiln_ir::host::HostCall;

pub(super) fn run(op: &Cat, call: &HostCall<'_>) -> Result<()> {
    by_width!(call.operands[0].dtype, join(op, call))
}

/// An input, with the index of its first element among those of all inputs.
struct Part<'a, T> {
    from: &'a [T],
    first: usize,
    /// Walks over the offsets in the input and in the output.
    iter: StridedIter<2>,
}

fn join<T: Pod + Send + Sync>(op: &Cat, call: &HostCall<'_>) -> Result<()> {
    let to = Target::<T>::of(call.output);
    let length = call.operands.iter().map(|input| input.layout.shape()[op.axis]).sum();
    let strides = call.operands[0].layout.shape().with(op.axis, length).strides();
    let (mut elements_before, mut length_before) = (0, 0);
    let mut parts = Vec::with_capacity(call.operands.len());
    for input in call.operands {
        let shape = input.layout.shape();
        let starts = [input.layout.offset() as isize, length_before * strides[op.axis]];
        let iter = StridedIter::new(shape, [input.layout.strides(), &strides], starts);
        parts.push(Part { from: elements::<T>(input), first: elements_before, iter });
        elements_before += shape.elem_count();
        length_before += shape[op.axis] as isize;
    }
    parallel_for(call.workers, elements_before, 1, |range| {
        // Ranges are over the elements of all inputs, one input after the other. A range may begin and end within an input, and span several.
        for Part { from, first, iter } in &parts {
            let [source, target] = iter.inner();
            let (start, end) = (range.start.max(*first), range.end.min(first + iter.items()));
            if start >= end {
                continue;
            }
            iter.runs(start - first..end - first, |_, [offset, to_offset], length| {
                // SAFETY: every element of the output belongs to one input element, and the ranges of the tasks are disjoint.
                unsafe {
                    if target == 1 {
                        copy_run(to.slice(to_offset as usize, length), from, offset, source);
                    } else {
                        for item in 0..length as isize {
                            to.slice((to_offset + item * target) as usize, 1)[0] =
                                from[(offset + item * source) as usize];
                        }
                    }
                }
            });
        }
    })
}
