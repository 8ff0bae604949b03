//! Strided matrices of any float dtype, and their packing into panels of `f32`.

use super::vector::{self, LANES, Stored, Vector, Work, widen_bf16, widen_f16};
use half::{bf16, f16};
use kiln_ir::host::HostOperand;
use kiln_ir::{DType, SimdLevel};
use std::marker::PhantomData;

/// A matrix within an operand.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) dtype: DType,
    /// The element at row 0 and column 0.
    first: *const u8,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Elements from one row to the next.
    pub(crate) row: isize,
    /// Elements from one column to the next.
    pub(crate) column: isize,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: it is a read-only view.
unsafe impl Send for Matrix<'_> {}
// SAFETY: as above.
unsafe impl Sync for Matrix<'_> {}

impl<'a> Matrix<'a> {
    /// Returns the matrix of the last two axes, at a row-major index along the others.
    pub(crate) fn of(operand: &HostOperand<'a>, mut index: usize) -> Self {
        let (lengths, strides) = (operand.layout.shape(), operand.layout.strides());
        let batch = lengths.rank() - 2;
        let mut offset = operand.layout.offset() as isize;
        for axis in (0..batch).rev() {
            offset += (index % lengths[axis]) as isize * strides[axis];
            index /= lengths[axis];
        }
        Self {
            dtype: operand.dtype,
            // Wrapping, because an empty operand has no first element that would be in bounds.
            first: operand.bytes.as_ptr().wrapping_offset(offset * operand.dtype.bytes() as isize),
            rows: lengths[batch],
            columns: lengths[batch + 1],
            row: strides[batch],
            column: strides[batch + 1],
            memory: PhantomData,
        }
    }

    /// Returns the transpose.
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row: self.column, column: self.row, ..self }
    }

    /// Returns the submatrix that starts at a row and a column and has this many rows and columns.
    pub(crate) fn part(self, row: usize, rows: usize, column: usize, columns: usize) -> Self {
        debug_assert!(row + rows <= self.rows && column + columns <= self.columns, "the part is within the matrix");
        let offset = row as isize * self.row + column as isize * self.column;
        Self { first: self.first.wrapping_offset(offset * self.dtype.bytes() as isize), rows, columns, ..self }
    }

    /// Returns a pointer to the first element. The caller has checked the dtype.
    pub(crate) fn pointer<E>(self) -> *const E {
        debug_assert_eq!(self.dtype.bytes(), size_of::<E>(), "elements of {}", self.dtype);
        self.first.cast()
    }

    /// Copies the matrix to contiguous row-major `f32`.
    ///
    /// # Safety
    /// `out` must have room for it, and nothing else may use that memory.
    pub(crate) unsafe fn widen(self, out: *mut f32) {
        for row in 0..self.rows {
            for column in 0..self.columns {
                let part = self.part(row, 1, column, 1);
                // SAFETY: the element is within the operand, and there is room for it.
                unsafe {
                    let value = match self.dtype {
                        DType::F16 => widen_f16(part.pointer::<u16>().read()),
                        DType::BF16 => widen_bf16(part.pointer::<u16>().read()),
                        _ => part.pointer::<f32>().read(),
                    };
                    out.add(row * self.columns + column).write(value);
                }
            }
        }
    }

    /// Packs the matrix into panels of `W` rows: element `(row, column)` goes to `row / W * panel + column * W + row % W`. The last panel is padded
    /// with 0.
    ///
    /// # Safety
    /// `out` must have `panel` elements for each panel, of which `columns * W` are written, and nothing else may use them.
    pub(crate) unsafe fn pack<const W: usize>(self, level: SimdLevel, out: *mut f32, panel: usize) {
        // SAFETY: promised by the caller; the element type is that of the dtype.
        match self.dtype {
            DType::F16 => vector::at(level, Pack::<f16, W> { from: self, out, panel, element: PhantomData }),
            DType::BF16 => vector::at(level, Pack::<bf16, W> { from: self, out, panel, element: PhantomData }),
            _ => vector::at(level, Pack::<f32, W> { from: self, out, panel, element: PhantomData }),
        }
    }
}

struct Pack<'a, E, const W: usize> {
    from: Matrix<'a>,
    out: *mut f32,
    panel: usize,
    element: PhantomData<E>,
}

impl<E: Stored, const W: usize> Work for Pack<'_, E, W> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let whole = self.from.rows / W;
        // SAFETY: the panels are within `out`, and the elements within the operand.
        unsafe {
            // A panel is stored column by column. If the rows of a column are contiguous, that is a copy; otherwise 8 x 8 blocks are transposed.
            if self.from.row == 1 {
                self.copy_rows::<V>(whole);
            } else {
                for panel in 0..whole {
                    self.transpose_panel::<V>(panel, W);
                }
            }
            if whole * W < self.from.rows {
                self.transpose_panel::<V>(whole, self.from.rows - whole * W);
            }
        }
    }
}

impl<E: Stored, const W: usize> Pack<'_, E, W> {
    /// Packs all whole panels if the rows of a column are contiguous.
    #[inline(always)]
    unsafe fn copy_rows<V: Vector>(&self, panels: usize) {
        let from: *const E = self.from.pointer();
        // Neighbouring panels are contiguous in a column, so the inner loop reads whole cache lines.
        for column in 0..self.from.columns {
            for panel in 0..panels {
                // SAFETY: `W` rows from this one on exist, and the panel has room for this column.
                unsafe {
                    let from = from.offset(column as isize * self.from.column).add(panel * W);
                    let to = self.out.add(panel * self.panel + column * W);
                    for lane in (0..W / LANES * LANES).step_by(LANES) {
                        E::load_from::<V>(from.add(lane)).store(to.add(lane));
                    }
                    // A whole vector would read past the last row of the matrix.
                    let rest = W % LANES;
                    if rest > 0 {
                        let mut raw = [E::zeroed(); LANES];
                        raw[..rest].copy_from_slice(std::slice::from_raw_parts(from.add(W - rest), rest));
                        let lanes = E::load_from::<V>(raw.as_ptr()).lanes();
                        std::slice::from_raw_parts_mut(to.add(W - rest), rest).copy_from_slice(&lanes[..rest]);
                    }
                }
            }
        }
    }

    /// Packs one panel of `rows` rows, eight columns at a time.
    #[inline(always)]
    unsafe fn transpose_panel<V: Vector>(&self, panel: usize, rows: usize) {
        let Matrix { columns, row, column: step, .. } = self.from;
        let from: *const E = self.from.pointer::<E>().wrapping_offset((panel * W) as isize * row);
        let out = self.out.wrapping_add(panel * self.panel);
        for column in (0..columns).step_by(LANES) {
            let count = LANES.min(columns - column);
            for lane in (0..W).step_by(LANES) {
                let mut loaded = [V::splat(0.0); LANES];
                for (index, values) in loaded.iter_mut().enumerate().take(rows.saturating_sub(lane)) {
                    let from = from.wrapping_offset((lane + index) as isize * row + column as isize * step);
                    // SAFETY: the row exists, and `count` columns of it from this one on.
                    *values = unsafe { gather::<V, E>(from, step, count) };
                }
                let transposed = V::transpose(loaded);
                let width = LANES.min(W - lane);
                for (index, values) in transposed.into_iter().enumerate().take(count) {
                    // SAFETY: the panel has room for `W` elements of this column. A vector that reaches beyond them ends in the next column,
                    // which is written later.
                    unsafe {
                        let to = out.add((column + index) * W + lane);
                        if width == LANES || column + index + 1 < columns {
                            values.store(to);
                        } else {
                            std::slice::from_raw_parts_mut(to, width).copy_from_slice(&values.lanes()[..width]);
                        }
                    }
                }
            }
        }
    }
}

/// Loads `count` elements at a stride. The remaining lanes are 0.
///
/// # Safety
/// The elements must be readable.
#[inline(always)]
pub(crate) unsafe fn gather<V: Vector, E: Stored>(from: *const E, step: isize, count: usize) -> V {
    // SAFETY: promised by the caller.
    unsafe {
        if step == 1 && count == LANES {
            return E::load_from::<V>(from);
        }
        // Zero bytes are 0.0 in every float dtype.
        let mut raw = [E::zeroed(); LANES];
        for (index, raw) in raw.iter_mut().enumerate().take(count) {
            *raw = from.offset(index as isize * step).read();
        }
        E::load_from::<V>(raw.as_ptr())
    }
}
