//! Gather on the CPU: contiguous runs are copied at once.

use super::{Gather, IndexSelect};
use crate::indices::Indices;
use crate::memory::{Target, by_width, copy_run, elements};
use crate::strided::{StridedIter, parallel_for};
use bytemuck::Pod;
use kiln_ir::host::HostCall;
use kiln_ir::{KernelOp, Result};
use smallvec::SmallVec;

pub(super) fn gather(op: &Gather, call: &HostCall<'_>) -> Result<()> {
    by_width!(call.operands[0].dtype, gather_elements(op, call))
}

fn gather_elements<T: Pod + Send + Sync>(op: &Gather, call: &HostCall<'_>) -> Result<()> {
    let [x, index] = call.operands else { unreachable!("shape inference checked the number of operands") };
    let (from, to) = (elements::<T>(x), Target::<T>::of(call.output));
    let indices = Indices::new(index, x.layout.shape()[op.axis]);
    // The index determines the position along the axis, so the iterator has stride 0 there.
    let along = x.layout.strides()[op.axis];
    let mut strides: SmallVec<[isize; 6]> = SmallVec::from_slice(x.layout.strides());
    strides[op.axis] = 0;
    let starts = [x.layout.offset() as isize, index.layout.offset() as isize];
    let iter = StridedIter::new(index.layout.shape(), [&strides, index.layout.strides()], starts);
    let steps = iter.inner();
    parallel_for(call.workers, iter.items(), 1, |range| {
        iter.runs(range, |first, [mut offset, mut index], length| {
            // SAFETY: the ranges of the tasks are disjoint.
            let run = unsafe { to.slice(first, length) };
            for (position, element) in (first..).zip(run) {
                match indices.get(index) {
                    Some(found) => *element = from[(offset + found * along) as usize],
                    // Leaves the element unwritten: `finish` returns an error.
                    None => indices.refuse(position),
                }
                offset += steps[0];
                index += steps[1];
            }
        });
    })?;
    indices.finish(op.name(), op.axis)
}

pub(super) fn index_select(op: &IndexSelect, call: &HostCall<'_>) -> Result<()> {
    by_width!(call.operands[0].dtype, select_runs(op, call))
}

fn select_runs<T: Pod + Send + Sync>(op: &IndexSelect, call: &HostCall<'_>) -> Result<()> {
    let [x, index] = call.operands else { unreachable!("shape inference checked the number of operands") };
    let (from, to) = (elements::<T>(x), Target::<T>::of(call.output));
    let (layout, axis) = (x.layout, op.axis);
    let indices = Indices::new(index, layout.shape()[axis]);
    let (along, count) = (layout.strides()[axis], index.layout.shape()[0]);
    // Walks over the axes before `axis` and the indices. Each item is a block of the axes after it.
    let lengths: SmallVec<[usize; 6]> = layout.shape()[..axis].iter().copied().chain([count]).collect();
    let outer: SmallVec<[isize; 6]> = layout.strides()[..axis].iter().copied().chain([0]).collect();
    // The indices are the same at every position of the axes before `axis`: their stride there is 0.
    let mut numbers: SmallVec<[isize; 6]> = SmallVec::from_elem(0, axis);
    numbers.push(index.layout.strides()[0]);
    let starts = [layout.offset() as isize, index.layout.offset() as isize];
    let iter = StridedIter::new(&lengths, [&outer, &numbers], starts);
    let block = StridedIter::new(&layout.shape()[axis + 1..], [&layout.strides()[axis + 1..]], [0]);
    let (block_length, [stride]) = (block.items(), block.inner());
    // About 8 ns per index, and 16 bytes per nanosecond.
    let cost = 8 + block_length * size_of::<T>() / 16;
    parallel_for(call.workers, if block_length == 0 { 0 } else { iter.items() }, cost, |range| {
        let mut item = range.start;
        iter.each(range, |[start, index]| {
            match indices.get(index) {
                Some(found) => block.runs(0..block_length, |first, [offset], length| {
                    // SAFETY: the ranges of the tasks are disjoint.
                    let run = unsafe { to.slice(item * block_length + first, length) };
                    copy_run(run, from, start + found * along + offset, stride);
                }),
                None => indices.refuse(item % count),
            }
            item += 1;
        });
    })?;
    indices.finish(op.name(), axis)
}
