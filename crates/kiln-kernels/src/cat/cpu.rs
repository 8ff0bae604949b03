//! Concatenation on the CPU: contiguous runs are copied at once.

use super::Cat;
use crate::memory::{Target, by_width, copy_run, elements};
use crate::walk::{Walk, share};
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
    walk: Walk<2>,
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
        let walk = Walk::new(shape, [input.layout.strides(), &strides], starts);
        parts.push(Part { from: elements::<T>(input), first: elements_before, walk });
        elements_before += shape.elem_count();
        length_before += shape[op.axis] as isize;
    }
    share(call.workers, elements_before, 1, |range| {
        for Part { from, first, walk } in &parts {
            let [source, target] = walk.inner();
            let (start, end) = (range.start.max(*first), range.end.min(first + walk.items()));
            if start >= end {
                continue;
            }
            walk.runs(start - first..end - first, |_, [place, to_place], length| {
                // SAFETY: every element of the output belongs to one input element, and the ranges of the tasks are disjoint.
                unsafe {
                    if target == 1 {
                        copy_run(to.slice(to_place as usize, length), from, place, source);
                    } else {
                        for item in 0..length as isize {
                            to.slice((to_place + item * target) as usize, 1)[0] =
                                from[(place + item * source) as usize];
                        }
                    }
                }
            });
        }
    })
}
