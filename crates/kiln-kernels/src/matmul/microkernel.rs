//! The microkernel: tiles of 6 rows and 16 columns, which fill the vector registers of AVX2 and of NEON.

use super::matrix::Matrix;
use super::vector::{LANES, Stored, Vector, Work, prefetch};
use std::hint::black_box;
use std::marker::PhantomData;

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;

/// Columns of a tile.
pub(crate) const COLUMNS: usize = 2 * LANES;

/// Part of a product: `rows` rows and `panels` times 16 columns, over some steps along the reduction axis.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) steps: usize,
    pub(crate) rows: usize,
    pub(crate) panels: usize,
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// The initial values of the sums; 0 if `None`.
    pub(crate) before: Option<Rows>,
    /// A factor for each column of `before`.
    pub(crate) scale: Option<*const f32>,
    /// Where the results go.
    pub(crate) c: Rows,
}

/// Rows of results.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) first: *mut f32,
    /// Elements from one row to the next.
    pub(crate) row: usize,
}

impl Rows {
    #[inline(always)]
    fn at(self, row: usize, column: usize) -> *mut f32 {
        self.first.wrapping_add(row * self.row + column)
    }
}

/// An operand of a block, in panels of 6 rows or 16 columns.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) first: *const f32,
    /// Elements from one row to the next within a panel. Columns are always contiguous.
    pub(crate) lane: isize,
    /// Elements from one step to the next.
    pub(crate) step: isize,
    /// Elements from one panel to the next.
    pub(crate) panel: isize,
}

/// The caller of [`at`](super::vector::at) promises that all memory of a block is valid to read and write.
impl Work for Block {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let lanes = self.lanes();
        // Panels are the outer loop: the strips of rows reuse a panel of columns while it is in the cache.
        for panel in 0..self.panels {
            for strip in 0..self.rows.div_ceil(ROWS) {
                // SAFETY: promised by the caller of `at`.
                unsafe { self.tile::<V, _>((strip, panel), lanes, self.panel(panel)) };
            }
        }
    }
}

/// A block of one strip of rows that also packs its right operand, at nearly no extra cost.
pub(crate) struct PackingBlock<'a, E> {
    pub(crate) block: Block,
    /// The steps of whole panels, with contiguous columns.
    pub(crate) from: Matrix<'a>,
    pub(crate) element: PhantomData<E>,
}

impl<E: Stored> Work for PackingBlock<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let lanes = self.block.lanes();
        for panel in 0..self.block.panels {
            let from = self.from.pointer::<E>().wrapping_add(panel * COLUMNS);
            let right = PackedOnRead { from, step: self.from.row, to: self.block.panel(panel).from.cast_mut() };
            // SAFETY: promised by the caller of `at`.
            unsafe { self.block.tile::<V, _>((0, panel), lanes, right) };
        }
    }
}

/// Sixteen columns of the right operand, step by step.
trait Right {
    /// Returns the columns of the next step.
    ///
    /// # Safety
    /// There must be another step.
    unsafe fn next<V: Vector>(&mut self) -> [V; 2];
}

/// A packed panel, or columns read in place.
struct Panel {
    from: *const f32,
    step: isize,
}

impl Right for Panel {
    #[inline(always)]
    unsafe fn next<V: Vector>(&mut self) -> [V; 2] {
        // SAFETY: promised by the caller.
        let columns = unsafe { [V::load(self.from), V::load(self.from.add(LANES))] };
        self.from = self.from.wrapping_offset(self.step);
        columns
    }
}

/// Prefetch distance in steps.
const AHEAD: isize = 16;

/// The operand in place, copied to a panel on the way.
struct PackedOnRead<E> {
    from: *const E,
    step: isize,
    to: *mut f32,
}

impl<E: Stored> Right for PackedOnRead<E> {
    #[inline(always)]
    unsafe fn next<V: Vector>(&mut self) -> [V; 2] {
        // Rows are far apart, and hardware prefetchers do not cross page boundaries.
        prefetch(self.from.wrapping_offset(AHEAD * self.step));
        // SAFETY: promised by the caller; the panel has room for the step.
        let columns: [V; 2] = unsafe { [E::load_from(self.from), E::load_from(self.from.add(LANES))] };
        for (half, columns) in columns.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { columns.store(self.to.add(half * LANES)) };
        }
        self.from = self.from.wrapping_offset(self.step);
        self.to = self.to.wrapping_add(COLUMNS);
        columns
    }
}

/// The offset of each row of the left operand from the first row of its strip.
type Lanes = [isize; ROWS];

impl Block {
    /// Splits off the first strip of rows.
    pub(crate) fn split(self) -> [Self; 2] {
        // The second block is empty if there is one strip. Its pointers may then be past the end, so they are computed with wrapping arithmetic.
        let rest = self.rows.saturating_sub(ROWS);
        let after = |rows: Rows| Rows { first: rows.at(ROWS, 0), ..rows };
        let a = Side { first: self.a.first.wrapping_offset(self.a.panel), ..self.a };
        [
            Self { rows: self.rows - rest, ..self },
            Self { rows: rest, a, before: self.before.map(after), c: after(self.c), ..self },
        ]
    }

    /// Returns the row offsets. `black_box` hides that they are multiples of one number: the compiler would otherwise compute them as a chain of
    /// dependent additions that takes as long as the loop over the steps.
    #[inline(always)]
    fn lanes(&self) -> Lanes {
        std::array::from_fn(|row| black_box(row as isize * self.a.lane))
    }

    #[inline(always)]
    fn panel(&self, panel: usize) -> Panel {
        Panel { from: self.b.first.wrapping_offset(panel as isize * self.b.panel), step: self.b.step }
    }

    #[inline(always)]
    unsafe fn tile<V: Vector, R: Right>(&self, tile: (usize, usize), lanes: Lanes, right: R) {
        // SAFETY: promised by the caller.
        unsafe {
            // The number of rows is a constant, so that the sums are registers instead of an array in memory. Rows past the last are not read:
            // they do not exist if the operand is read in place.
            match self.rows - tile.0 * ROWS {
                1 => self.sum::<V, R, 1>(tile, lanes, right),
                2 => self.sum::<V, R, 2>(tile, lanes, right),
                3 => self.sum::<V, R, 3>(tile, lanes, right),
                4 => self.sum::<V, R, 4>(tile, lanes, right),
                5 => self.sum::<V, R, 5>(tile, lanes, right),
                _ => self.sum::<V, R, ROWS>(tile, lanes, right),
            }
        }
    }

    #[inline(always)]
    unsafe fn sum<V: Vector, R: Right, const M: usize>(
        &self,
        (strip, panel): (usize, usize),
        lanes: Lanes,
        mut right: R,
    ) {
        let mut a = self.a.first.wrapping_offset(strip as isize * self.a.panel);
        // With six rows: 12 sums, two vectors of columns and one factor, 15 of the 16 vector registers of AVX2.
        let mut sums = [[V::splat(0.0); 2]; M];
        for _ in 0..self.steps {
            // SAFETY: the caller promises that each step of both operands can be read.
            unsafe {
                let columns: [V; 2] = right.next();
                for (sum, lane) in sums.iter_mut().zip(lanes) {
                    let factor = V::splat(a.offset(lane).read());
                    *sum = std::array::from_fn(|half| factor.mul_add(columns[half], sum[half]));
                }
            }
            a = a.wrapping_offset(self.a.step);
        }
        for (row, sum) in sums.into_iter().enumerate() {
            for (half, mut sum) in sum.into_iter().enumerate() {
                let (row, column) = (strip * ROWS + row, panel * COLUMNS + half * LANES);
                // SAFETY: the caller promises that the tile of results can be read and written.
                unsafe {
                    if let Some(before) = self.before {
                        // Loaded before the store below, so `before` and `c` may be the same memory.
                        let before = V::load(before.at(row, column));
                        sum = match self.scale {
                            Some(scale) => before.mul_add(V::load(scale.add(column)), sum),
                            None => before.add(sum),
                        };
                    }
                    sum.store(self.c.at(row, column));
                }
            }
        }
    }
}
