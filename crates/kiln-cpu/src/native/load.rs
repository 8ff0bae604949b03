//! Loads of operands into tiles.

use super::blocks::{Block, Blocks};
use super::loops::Loops;
use kiln_ir::kernel::Operand;
use kiln_ir::{DType, Layout};
use smallvec::SmallVec;

/// The load of an operand, chosen once.
#[derive(Debug)]
pub(crate) struct Load {
    dtype: DType,
    /// Offset of the first element, in elements.
    offset: usize,
    pub(crate) access: Access,
    /// Row and column strides, if the space is iterated in blocks.
    block_strides: Option<[isize; 2]>,
}

#[derive(Debug)]
pub(crate) enum Access {
    /// Contiguous words in the order of the space: used in place.
    Direct,
    /// A single broadcast element.
    Splat,
    /// Contiguous narrow elements, which are converted.
    Contiguous,
    /// Any other layout: axes from the innermost, without those of length 1, merged where contiguous.
    Strided(SmallVec<[Axis; 4]>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    length: usize,
    stride: isize,
}

impl Load {
    pub(crate) fn new(operand: &Operand, blocks: Option<Blocks>) -> Self {
        let (dtype, layout) = (operand.dtype, &operand.layout);
        // A single element is both a splat and contiguous; as a splat it is read once instead of for each tile.
        let access = if layout.is_splat() {
            Access::Splat
        } else if !layout.is_contiguous() {
            Access::Strided(merged(layout))
        } else if dtype.bytes() == 4 {
            Access::Direct
        } else {
            Access::Contiguous
        };
        let block_strides = blocks.map(|blocks| blocks.strides(operand));
        Self { dtype, offset: layout.offset(), access, block_strides }
    }

    /// Returns whether elements are gathered before they are converted.
    pub(crate) fn needs_narrow_tile(&self) -> bool {
        let is_gathered = matches!(self.access, Access::Strided(_)) || self.block_strides.is_some();
        is_gathered && self.dtype.bytes() < 4
    }

    /// Returns a pointer to the operand's first element.
    ///
    /// # Safety
    /// The operand must be within the memory at `memory`.
    pub(crate) unsafe fn first(&self, memory: *const u8) -> *const u8 {
        // SAFETY: the operand's first element is within its memory.
        unsafe { memory.add(self.offset * self.dtype.bytes()) }
    }

    /// Returns the single element of a splat, as a word.
    ///
    /// # Safety
    /// The operand must be within the memory at `memory` and have an element.
    pub(crate) unsafe fn splat(&self, memory: *const u8, loops: &Loops) -> u32 {
        let mut word = [0];
        // SAFETY: the operand has an element.
        unsafe { self.convert(self.first(memory), &mut word, loops) };
        word[0]
    }

    /// Loads the elements of the space from index `start`, as words.
    ///
    /// # Safety
    /// The operand must be within the memory at `memory`, and the range within the space. If
    /// [`needs_narrow_tile`](Self::needs_narrow_tile), `narrow` must be as long as `out`.
    pub(crate) unsafe fn fill(
        &self,
        memory: *const u8,
        start: usize,
        out: &mut [u32],
        narrow: *mut u32,
        loops: &Loops,
    ) {
        // SAFETY: the caller upholds the contract.
        unsafe {
            let Access::Strided(_) = &self.access else {
                return self.convert(self.first(memory).add(start * self.dtype.bytes()), out, loops);
            };
            let len = out.len();
            self.widen(out, narrow, loops, |to| self.gather(memory, start, len, to));
        }
    }

    /// Loads the elements of a block as words, row by row.
    ///
    /// # Safety
    /// As [`fill`](Self::fill), for the block.
    pub(crate) unsafe fn fill_block(
        &self,
        memory: *const u8,
        block: Block,
        out: &mut [u32],
        narrow: *mut u32,
        loops: &Loops,
    ) {
        // SAFETY: the caller upholds the contract.
        unsafe { self.widen(out, narrow, loops, |to| self.gather_block(memory, block, to)) };
    }

    /// Converts the elements that `gather` writes to its argument to words.
    ///
    /// # Safety
    /// `gather` must write as many elements as `out` has, and `narrow` must be as long if they are not words.
    unsafe fn widen(&self, out: &mut [u32], narrow: *mut u32, loops: &Loops, gather: impl Fn(*mut u32)) {
        if self.dtype.bytes() == 4 {
            return gather(out.as_mut_ptr());
        }
        gather(narrow);
        // SAFETY: `gather` wrote the elements.
        unsafe { self.convert(narrow.cast(), out, loops) };
    }

    /// Copies `len` elements of the space from index `start`, unconverted.
    ///
    /// # Safety
    /// The operand must be within the memory at `memory`, and the range within the space; `to` must be large enough.
    pub(crate) unsafe fn gather(&self, memory: *const u8, start: usize, len: usize, to: *mut u32) {
        let bytes = self.dtype.bytes();
        // SAFETY: the elements of the range are within the operand's memory, by the layout that the axes came from.
        unsafe {
            let first = self.first(memory);
            match (&self.access, bytes) {
                (Access::Strided(axes), 4) => gather(first.cast::<u32>(), axes, start, to, len),
                (Access::Strided(axes), 2) => gather(first.cast::<u16>(), axes, start, to.cast(), len),
                (Access::Strided(axes), _) => gather(first, axes, start, to.cast(), len),
                _ => first.add(start * bytes).copy_to_nonoverlapping(to.cast(), len * bytes),
            }
        }
    }

    /// Copies the elements of a block, unconverted, row by row.
    ///
    /// # Safety
    /// As [`gather`](Self::gather), for the block.
    pub(crate) unsafe fn gather_block(&self, memory: *const u8, block: Block, to: *mut u32) {
        let position = match &self.access {
            Access::Strided(axes) => decompose(axes, block.start, |_| {}),
            // Contiguous: a splat is a constant or a parameter, and is never gathered.
            _ => block.start as isize,
        };
        let strides = self.block_strides.unwrap_or_default();
        // SAFETY: the elements of the block are within the operand's memory, by the layout that the strides came
        // from.
        unsafe {
            let first = self.first(memory);
            match self.dtype.bytes() {
                4 => gather_block(first.cast::<u32>().offset(position), strides, block, to),
                2 => gather_block(first.cast::<u16>().offset(position), strides, block, to.cast()),
                _ => gather_block(first.offset(position), strides, block, to.cast()),
            }
        }
    }

    /// Converts contiguous elements to words.
    ///
    /// # Safety
    /// `from` must be aligned and point to as many elements as `out` has.
    unsafe fn convert(&self, from: *const u8, out: &mut [u32], loops: &Loops) {
        let len = out.len();
        // SAFETY: the caller guarantees the elements; the processor supports the SIMD level of the loops.
        unsafe {
            match self.dtype {
                DType::F32 | DType::I32 | DType::U32 => {
                    from.cast::<u32>().copy_to_nonoverlapping(out.as_mut_ptr(), len);
                }
                DType::F16 => (loops.from_f16)(std::slice::from_raw_parts(from.cast(), len), out),
                DType::BF16 => (loops.from_bf16)(std::slice::from_raw_parts(from.cast(), len), out),
                DType::U8 | DType::Bool => (loops.from_u8)(std::slice::from_raw_parts(from, len), out),
                DType::I8 => (loops.from_i8)(std::slice::from_raw_parts(from, len), out),
                DType::I64 | DType::F64 => unreachable!("64-bit elements are copied as words"),
            }
        }
    }
}

/// Returns the axes of a layout from the innermost, merged where contiguous.
fn merged(layout: &Layout) -> SmallVec<[Axis; 4]> {
    let (lengths, strides) = Layout::merge_axes(layout.shape(), &[layout.strides()]);
    lengths.into_iter().zip(strides.concat()).rev().map(|(length, stride)| Axis { length, stride }).collect()
}

/// Returns the position of the element with this index, and passes its coordinate along each axis to `along_axis`.
fn decompose(axes: &[Axis], element: usize, mut along_axis: impl FnMut(usize)) -> isize {
    let (mut rest, mut position) = (element, 0);
    for axis in axes {
        let along = rest % axis.length;
        rest /= axis.length;
        position += along as isize * axis.stride;
        along_axis(along);
    }
    position
}

/// Copies a block to contiguous rows, in the order of the cache lines that it is read from.
///
/// # Safety
/// Its elements must be readable, and `to` must be large enough.
unsafe fn gather_block<T: Copy>(first: *const T, [down, across]: [isize; 2], block: Block, to: *mut T) {
    let Block { rows, columns, .. } = block;
    // SAFETY: the caller upholds the contract.
    unsafe {
        // The inner loop follows the smaller stride, so that each cache line is read once. The scattered accesses are
        // the writes, to a tile in the L1 cache.
        if down.unsigned_abs() >= across.unsigned_abs() {
            for row in 0..rows {
                copy_run(first.offset(row as isize * down), across, to.add(row * columns), columns);
            }
            return;
        }
        for column in 0..columns {
            let from = first.offset(column as isize * across);
            for row in 0..rows {
                to.add(row * columns + column).write(from.offset(row as isize * down).read());
            }
        }
    }
}

/// Copies `len` elements from index `start`, in row-major order.
///
/// # Safety
/// The elements that the axes reach from `first` must be readable, the range must be within the axes, and `to` must
/// be large enough.
unsafe fn gather<T: Copy>(first: *const T, axes: &[Axis], start: usize, to: *mut T, len: usize) {
    let mut index: SmallVec<[usize; 8]> = SmallVec::new();
    // An odometer: coordinates and position are advanced by additions, because a division per row would be slow.
    let mut position = decompose(axes, start, |along| index.push(along));
    let Some((&inner, outer)) = axes.split_first() else { return };
    let mut done = 0;
    while done < len {
        let run = (inner.length - index[0]).min(len - done);
        // SAFETY: the run is part of one row, which the axes reach, and `to` has room for the remaining elements.
        unsafe { copy_run(first.offset(position), inner.stride, to.add(done), run) };
        done += run;
        // Back to the start of the row, since a first run may begin inside it; then carry into the outer axes.
        position -= index[0] as isize * inner.stride;
        index[0] = 0;
        for (axis, along) in outer.iter().zip(&mut index[1..]) {
            *along += 1;
            position += axis.stride;
            if *along < axis.length {
                break;
            }
            position -= axis.length as isize * axis.stride;
            *along = 0;
        }
    }
}

/// Copies a run of elements with a stride.
///
/// # Safety
/// They must be readable, and `to` must be large enough.
#[inline(always)]
unsafe fn copy_run<T: Copy>(from: *const T, stride: isize, to: *mut T, len: usize) {
    // SAFETY: the caller upholds the contract.
    unsafe {
        match stride {
            1 => from.copy_to_nonoverlapping(to, len),
            0 => std::slice::from_raw_parts_mut(to, len).fill(*from),
            _ => (0..len).for_each(|i| to.add(i).write(from.offset(i as isize * stride).read())),
        }
    }
}
