//! Operands and outputs as elements, and copies between them.

use crate::walk::{Walk, share};
use bytemuck::Pod;
use kiln_ir::Result;
use kiln_ir::host::{HostOperand, HostOutput, Workers};
use std::marker::PhantomData;

/// The elements of an operand's memory.
pub(crate) fn elements<'a, T: Pod>(operand: &HostOperand<'a>) -> &'a [T] {
    let whole = operand.bytes.len() / size_of::<T>() * size_of::<T>();
    bytemuck::cast_slice(&operand.bytes[..whole])
}

/// The elements of an output that several threads write, each its own.
#[must_use]
pub(crate) struct Target<'a, T> {
    start: *mut T,
    elements: usize,
    output: PhantomData<&'a mut T>,
}

// SAFETY: elements are only reached through `slice` and `write`, whose callers promise that nobody else touches them meanwhile.
unsafe impl<T: Send> Sync for Target<'_, T> {}

impl<'a, T: Pod> Target<'a, T> {
    /// All elements of an output.
    pub(crate) fn of(output: &'a dyn HostOutput) -> Self {
        let (start, bytes) = output.bytes();
        assert!(start.cast::<T>().is_aligned(), "an output is aligned for its elements");
        Self { start: start.cast(), elements: bytes / size_of::<T>(), output: PhantomData }
    }

    /// All elements of a slice.
    pub(crate) fn over(elements: &'a mut [T]) -> Self {
        Self { start: elements.as_mut_ptr(), elements: elements.len(), output: PhantomData }
    }

    /// Elements from `start` on.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice is alive.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that no two slices meet")]
    pub(crate) unsafe fn slice(&self, start: usize, length: usize) -> &mut [T] {
        assert!(start <= self.elements && length <= self.elements - start, "elements are inside of the output");
        // SAFETY: the range is inside of the output, and the caller is alone with it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }

    /// All elements, for as long as the memory lives.
    ///
    /// # Safety
    /// Nobody writes them any more.
    pub(crate) unsafe fn whole(&self) -> &'a [T] {
        // SAFETY: these are all elements, which the caller promises to leave.
        unsafe { std::slice::from_raw_parts(self.start, self.elements) }
    }
}

/// Calls a function that is generic over an unsigned integer with the one that is as wide as the dtype: moving an element needs no
/// more.
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

/// Copies elements, each one stride from the one before, to where they lie without gaps.
pub(crate) fn copy_run<T: Pod>(to: &mut [T], from: &[T], place: isize, stride: isize) {
    match stride {
        1 => to.copy_from_slice(&from[place as usize..place as usize + to.len()]),
        0 => to.fill(from[place as usize]),
        _ => {
            let mut place = place;
            for element in to {
                *element = from[place as usize];
                place += stride;
            }
        }
    }
}

/// Copies an operand to where it lies without gaps.
pub(crate) fn copy_all<T: Pod + Send + Sync>(
    workers: &dyn Workers,
    operand: &HostOperand<'_>,
    to: &Target<'_, T>,
) -> Result<()> {
    let (from, walk) = (elements::<T>(operand), Walk::over(operand.layout));
    let [stride] = walk.inner();
    share(workers, walk.items(), 1, |range| {
        walk.runs(range, |first, [place], length| {
            // SAFETY: the parts of the loop have no elements in common.
            copy_run(unsafe { to.slice(first, length) }, from, place, stride);
        });
    })
}
