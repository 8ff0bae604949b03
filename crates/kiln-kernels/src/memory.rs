//! Typed access to operands and outputs, and copies between them.

use crate::strided::{StridedIter, parallel_for};
use bytemuck::Pod;
use kiln_ir::Result;
use kiln_ir::host::{HostOperand, HostOutput, Workers};
use std::marker::PhantomData;

/// Returns the elements of an operand's memory. Trailing bytes that are no whole element are left out.
pub(crate) fn elements<'a, T: Pod>(operand: &HostOperand<'a>) -> &'a [T] {
    // `cast_slice` panics for a partial element or wrong alignment. Operands are aligned for their dtype (`HostOperand::bytes`).
    let whole = operand.bytes.len() / size_of::<T>() * size_of::<T>();
    bytemuck::cast_slice(&operand.bytes[..whole])
}

/// The elements of an output that several threads write, each at disjoint positions.
#[must_use]
pub(crate) struct Target<'a, T> {
    start: *mut T,
    elements: usize,
    output: PhantomData<&'a mut T>,
}

// SAFETY: elements are only reached through `slice` and `whole`, whose callers promise that there is no concurrent access.
unsafe impl<T: Send> Sync for Target<'_, T> {}

impl<'a, T: Pod> Target<'a, T> {
    /// Covers all elements of an output.
    pub(crate) fn of(output: &'a dyn HostOutput) -> Self {
        let (start, bytes) = output.bytes();
        assert!(start.cast::<T>().is_aligned(), "an output is aligned for its elements");
        Self { start: start.cast(), elements: bytes / size_of::<T>(), output: PhantomData }
    }

    /// Covers all elements of a slice.
    pub(crate) fn over(elements: &'a mut [T]) -> Self {
        Self { start: elements.as_mut_ptr(), elements: elements.len(), output: PhantomData }
    }

    /// Returns `length` elements from `start` on.
    ///
    /// # Safety
    /// Nothing else may read or write these elements while the slice is alive.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that no two slices overlap")]
    pub(crate) unsafe fn slice(&self, start: usize, length: usize) -> &mut [T] {
        assert!(start <= self.elements && length <= self.elements - start, "the elements are within the output");
        // SAFETY: the range is within the output, and the caller has exclusive access to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }

    /// Returns all elements, for as long as the memory lives.
    ///
    /// # Safety
    /// Nothing may write the elements any more.
    pub(crate) unsafe fn whole(&self) -> &'a [T] {
        // SAFETY: the range is the whole output, and the caller promises that it is no longer written.
        unsafe { std::slice::from_raw_parts(self.start, self.elements) }
    }
}

/// Calls a function that is generic over an unsigned integer, with the one as wide as the dtype. Copies depend on the width alone.
macro_rules! by_width {
    ($dtype:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $dtype.bytes() {
            1 => $function::<u8>($($argument),*),
            2 => $function::<u16>($($argument),*),
            8 => $function::<u64>($($argument),*),
            _ => $function::<u32>($($argument),*),
        }
    };
}
pub(crate) use by_width;

/// Copies a strided run of elements to contiguous memory.
pub(crate) fn copy_run<T: Pod>(to: &mut [T], from: &[T], offset: isize, stride: isize) {
    match stride {
        1 => to.copy_from_slice(&from[offset as usize..offset as usize + to.len()]),
        0 => to.fill(from[offset as usize]),
        _ => {
            let mut offset = offset;
            for element in to {
                *element = from[offset as usize];
                offset += stride;
            }
        }
    }
}

/// Copies an operand to contiguous memory.
pub(crate) fn copy_all<T: Pod + Send + Sync>(
    workers: &dyn Workers,
    operand: &HostOperand<'_>,
    to: &Target<'_, T>,
) -> Result<()> {
    let (from, iter) = (elements::<T>(operand), StridedIter::over(operand.layout));
    let [stride] = iter.inner();
    parallel_for(workers, iter.items(), 1, |range| {
        iter.runs(range, |first, [offset], length| {
            // SAFETY: the ranges passed to the tasks are disjoint.
            copy_run(unsafe { to.slice(first, length) }, from, offset, stride);
        });
    })
}
