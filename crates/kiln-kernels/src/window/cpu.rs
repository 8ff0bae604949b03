//! Unfold and fold on the CPU. Threads share rows of window positions, or image planes.

use super::{Fold, Sizes, Unfold};
use crate::memory::{Target, by_width, elements};
use crate::strided::parallel_for;
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Result};

pub(super) fn unfold(op: &Unfold, call: &HostCall<'_>) -> Result<()> {
    by_width!(call.operands[0].dtype, unfold_elements(op, call))
}

fn unfold_elements<T: Pod + Send + Sync>(op: &Unfold, call: &HostCall<'_>) -> Result<()> {
    let x = &call.operands[0];
    let sizes = Sizes::of_images(&op.window, x.layout.shape())?;
    let (from, to) = (&elements::<T>(x)[x.layout.offset()..], Target::<T>::of(call.output));
    let ([height, width], [down, across], row) = (sizes.image, sizes.positions, sizes.row());
    // Images without channels. `chunks_exact_mut` panics for rows of length 0.
    if row == 0 {
        return Ok(());
    }
    // A row of positions at a time: its windows read the same image rows.
    parallel_for(call.workers, sizes.batch * down, across * row, |range| {
        for item in range {
            let (batch, position) = (item / down, item % down);
            // SAFETY: the ranges of the tasks are disjoint.
            let rows = unsafe { to.slice(item * across * row, across * row) };
            for channel in 0..sizes.channels {
                for element in 0..op.window.size[0] {
                    let line = sizes.image_coordinate(0, position, element).map(|y| {
                        let start = ((batch * sizes.channels + channel) * height + y) * width;
                        &from[start..start + width]
                    });
                    let first = (channel * op.window.size[0] + element) * op.window.size[1];
                    for (position, row) in rows.chunks_exact_mut(row).enumerate() {
                        for (element, seen) in row[first..first + op.window.size[1]].iter_mut().enumerate() {
                            let at = line.zip(sizes.image_coordinate(1, position, element));
                            *seen = at.map_or_else(T::zeroed, |(line, x)| line[x]);
                        }
                    }
                }
            }
        }
    })
}

pub(super) fn fold(op: &Fold, call: &HostCall<'_>) -> Result<()> {
    match call.operands[0].dtype {
        DType::F16 => fold_elements::<f16>(op, call, f16::to_f32),
        DType::BF16 => fold_elements::<bf16>(op, call, bf16::to_f32),
        _ => fold_elements::<f32>(op, call, |element| element),
    }
}

fn fold_elements<T: Pod + Sync>(op: &Fold, call: &HostCall<'_>, widen: fn(T) -> f32) -> Result<()> {
    let x = &call.operands[0];
    let sizes = Sizes::of_rows(&op.window, op.image, x.layout.shape())?;
    // Indices below are row-major: the default `takes` admits contiguous operands only.
    let from = &elements::<T>(x)[x.layout.offset()..];
    let ([height, width], [down, across], [rows, columns]) = (sizes.image, sizes.positions, op.window.size);
    parallel_for(call.workers, sizes.batch * sizes.channels, down * across * rows * columns, |range| {
        // Windows overlap, so a plane belongs to one thread: its sums need no atomics and have a fixed order.
        let mut plane = vec![0.0f32; height * width];
        for item in range {
            let (batch, channel) = (item / sizes.channels, item % sizes.channels);
            plane.fill(0.0);
            for position in 0..down * across {
                let seen = (batch * down * across + position) * sizes.row() + channel * rows * columns;
                for element in 0..rows * columns {
                    let y = sizes.image_coordinate(0, position / across, element / columns);
                    let x = sizes.image_coordinate(1, position % across, element % columns);
                    if let Some((y, x)) = y.zip(x) {
                        plane[y * width + x] += widen(from[seen + element]);
                    }
                }
            }
            // SAFETY: the planes are disjoint.
            unsafe { call.output.store(item * height * width, &mut plane) };
        }
    })
}
