//! Scatter on the CPU. Lines along the axis are disjoint, so each belongs to one thread, which goes through it in order.

use super::Scatter;
use crate::indices::Indices;
use crate::memory::{Target, by_width, copy_all, elements};
use crate::strided::{StridedIter, parallel_for};
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, KernelOp, Result};
use smallvec::SmallVec;

pub(super) fn run(op: &Scatter, call: &HostCall<'_>) -> Result<()> {
    let dtype = call.operands[0].dtype;
    match dtype {
        _ if !op.add => by_width!(dtype, replace(op, call)),
        DType::F32 => in_place(op, call, |sum: &mut f32, term| *sum += term),
        // Wrapping sums of signed and of unsigned integers have the same bits.
        DType::I32 | DType::U32 => in_place(op, call, |sum: &mut u32, term| *sum = sum.wrapping_add(term)),
        DType::I8 | DType::U8 | DType::Bool => in_place(op, call, |sum: &mut u8, term| *sum = sum.wrapping_add(term)),
        DType::F16 => add_as_f32::<f16>(op, call, f16::to_f32, f16::from_f32),
        DType::BF16 => add_as_f32::<bf16>(op, call, bf16::to_f32, bf16::from_f32),
        DType::I64 | DType::F64 => unreachable!("kernels that compute in 32 bits get no 64-bit operands"),
    }
}

fn replace<T: Pod + Send + Sync>(op: &Scatter, call: &HostCall<'_>) -> Result<()> {
    in_place(op, call, |element: &mut T, source| *element = source)
}

fn in_place<T: Pod + Send + Sync>(op: &Scatter, call: &HostCall<'_>, write: impl Fn(&mut T, T) + Sync) -> Result<()> {
    let to = Target::<T>::of(call.output);
    copy_all(call.workers, &call.operands[0], &to)?;
    scatter(op, call, &to, write)
}

/// Accumulates in `f32` and rounds once: sums of many small terms would stop growing in half precision.
fn add_as_f32<T: Pod + Send + Sync>(
    op: &Scatter,
    call: &HostCall<'_>,
    widen: fn(T) -> f32,
    round: fn(f32) -> T,
) -> Result<()> {
    let to = Target::<T>::of(call.output);
    copy_all(call.workers, &call.operands[0], &to)?;
    let count = call.operands[0].layout.shape().elem_count();
    // SAFETY: no other thread uses the output between two loops.
    let mut sums: Vec<f32> = unsafe { to.slice(0, count) }.iter().map(|&element| widen(element)).collect();
    scatter(op, call, &Target::over(&mut sums), |sum: &mut f32, source: T| *sum += widen(source))?;
    parallel_for(call.workers, count, 1, |range| {
        // SAFETY: the ranges of the tasks are disjoint.
        let rounded = unsafe { to.slice(range.start, range.len()) };
        for (element, &sum) in rounded.iter_mut().zip(&sums[range]) {
            *element = round(sum);
        }
    })
}

/// Lines that are processed together if neighbours across the axis are closer in memory than along it.
const LINES: usize = 32;

/// Calls `write` with the output element that each index selects and the element of the source.
fn scatter<T: Pod + Sync, U: Pod + Send + Sync>(
    op: &Scatter,
    call: &HostCall<'_>,
    to: &Target<'_, U>,
    write: impl Fn(&mut U, T) + Sync,
) -> Result<()> {
    let [x, index, source] = call.operands else { unreachable!("shape inference checked the number of operands") };
    let (from, shape) = (elements::<T>(source), index.layout.shape());
    let indices = Indices::new(index, x.layout.shape()[op.axis]);
    let (numbers, strides) = (shape.strides(), x.layout.shape().strides());
    let all = [index.layout.strides(), source.layout.strides(), &strides, &numbers];
    // The strides along the axis, across neighbouring lines, and of all other axes.
    let axis: [isize; 4] = all.map(|strides| strides[op.axis]);
    let last = (0..shape.rank()).rev().find(|&other| other != op.axis);
    let across: [isize; 4] = all.map(|strides| last.map_or(0, |last| strides[last]));
    let (length, lines) = (shape[op.axis] as isize, last.map_or(1, |last| shape[last]));
    let others: SmallVec<[usize; 6]> =
        (0..shape.rank()).filter(|&other| other != op.axis && Some(other) != last).collect();
    let pick = |strides: &[isize]| -> SmallVec<[isize; 6]> { others.iter().map(|&other| strides[other]).collect() };
    let picked = all.map(pick);
    let lengths: SmallVec<[usize; 6]> = others.iter().map(|&other| shape[other]).collect();
    let starts = [index.layout.offset() as isize, source.layout.offset() as isize, 0, 0];
    let iter = StridedIter::new(&lengths, [&picked[0], &picked[1], &picked[2], &picked[3]], starts);

    // If lines are interleaved in memory, a task takes some together and goes step by step across them, so that it uses whole cache lines.
    let together = if across[0].abs() <= axis[0].abs() { LINES } else { 1 };
    let blocks = lines.div_ceil(together);
    let cost = (length as usize) * lines.min(together) * 2;
    parallel_for(call.workers, iter.items() * blocks, cost, |range| {
        for item in range {
            let (outer, block) = (item / blocks, item % blocks);
            let block = (block * together) as isize..lines.min((block + 1) * together) as isize;
            iter.each(outer..outer + 1, |starts| {
                // Within each line the steps stay in order, which decides which write is last and how sums round.
                for step in 0..length {
                    for line in block.clone() {
                        let at = |tensor: usize| starts[tensor] + step * axis[tensor] + line * across[tensor];
                        let Some(found) = indices.get(at(0)) else {
                            indices.refuse(at(3) as usize);
                            continue;
                        };
                        // Along the axis, the index determines the position in the output.
                        let offset = starts[2] + found * axis[2] + line * across[2];
                        // SAFETY: the element is on this line, which no other task processes.
                        write(unsafe { &mut to.slice(offset as usize, 1)[0] }, from[at(1) as usize]);
                    }
                }
            });
        }
    })?;
    indices.finish(op.name(), op.axis)
}
