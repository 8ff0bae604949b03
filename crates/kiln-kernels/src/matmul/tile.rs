//! The innermost loops: tiles of 6 rows and 16 columns, which fill the vector registers of AVX2 and of NEON.

use super::vector::{LANES, Vector, Work};

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;

/// Columns of a tile.
pub(crate) const COLUMNS: usize = 2 * LANES;

/// Part of a product: `rows` rows and `panels` times 16 columns, over some steps along the axis that is summed over.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) steps: usize,
    pub(crate) rows: usize,
    pub(crate) panels: usize,
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// Where the results go.
    pub(crate) c: *mut f32,
    /// Elements from one row of results to the next.
    pub(crate) c_row: usize,
    /// Whether they are added to what is there.
    pub(crate) add: bool,
}

/// An operand of a block, cut into panels of 6 rows or 16 columns.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) first: *const f32,
    /// Elements from one row to the next, inside of a panel. Columns always lie side by side.
    pub(crate) lane: isize,
    /// Elements from one step to the next.
    pub(crate) step: isize,
    /// Elements from one panel to the next.
    pub(crate) panel: isize,
}

/// The caller of [`at`](super::vector::at) promises that everything that a block names can be read and written.
impl Work for Block {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        for panel in 0..self.panels {
            let b = self.b.first.wrapping_offset(panel as isize * self.b.panel);
            for strip in 0..self.rows.div_ceil(ROWS) {
                let a = self.a.first.wrapping_offset(strip as isize * self.a.panel);
                let c = self.c.wrapping_add(strip * ROWS * self.c_row + panel * COLUMNS);
                // SAFETY: the tile is inside of the block.
                unsafe {
                    match self.rows - strip * ROWS {
                        1 => self.tile::<V, 1>(a, b, c),
                        2 => self.tile::<V, 2>(a, b, c),
                        3 => self.tile::<V, 3>(a, b, c),
                        4 => self.tile::<V, 4>(a, b, c),
                        5 => self.tile::<V, 5>(a, b, c),
                        _ => self.tile::<V, ROWS>(a, b, c),
                    }
                }
            }
        }
    }
}

impl Block {
    #[inline(always)]
    unsafe fn tile<V: Vector, const M: usize>(&self, mut a: *const f32, mut b: *const f32, c: *mut f32) {
        let mut sums = [[V::splat(0.0); 2]; M];
        // Rows 3 to 5 from a pointer of their own: an address with a factor of 0, 1 or 2 is part of a load, others are computed.
        let mut far = a.wrapping_offset(3 * self.a.lane);
        for _ in 0..self.steps {
            // SAFETY: the caller promises that each step of both panels can be read.
            unsafe {
                let (left, right) = (V::load(b), V::load(b.add(LANES)));
                for (row, sum) in sums.iter_mut().enumerate() {
                    let (near, row) = if row < 3 { (a, row) } else { (far, row - 3) };
                    let factor = V::splat(near.offset(row as isize * self.a.lane).read());
                    sum[0] = factor.mul_add(left, sum[0]);
                    sum[1] = factor.mul_add(right, sum[1]);
                }
            }
            a = a.wrapping_offset(self.a.step);
            far = far.wrapping_offset(self.a.step);
            b = b.wrapping_offset(self.b.step);
        }
        for (row, sum) in sums.into_iter().enumerate() {
            for (half, sum) in sum.into_iter().enumerate() {
                // SAFETY: the caller promises that the tile of results can be read and written.
                unsafe {
                    let c = c.add(row * self.c_row + half * LANES);
                    (if self.add { sum.add(V::load(c)) } else { sum }).store(c);
                }
            }
        }
    }
}
