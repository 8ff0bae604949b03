//! Reductions along columns: kept elements are adjacent in memory.

use super::fold::{Accumulator, Fold, Folding};
use super::lanes::{LANES, Stored, Vector};
use bytemuck::Zeroable;
use smallvec::SmallVec;

/// Rows that are summed in registers before columns are read and written.
const TOGETHER: usize = 8;
/// Maximum rows of one loop, and additions to a column in `f32` before the sum is added in `f64`.
const ROWS_AT_ONCE: usize = 256;
const MAX_ADDITIONS: usize = 64;

/// A block of rows to accumulate into columns.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) from: *const u8,
    /// Element size.
    pub(super) bytes: usize,
    /// Row stride in elements.
    pub(super) pitch: usize,
    /// Number of columns.
    pub(super) width: usize,
    pub(super) count: usize,
    /// Index of the first row.
    pub(super) index: usize,
}

impl Rows {
    /// Skips the first `count` rows. After the last row the pointer may be past the end of the memory.
    fn skip(self, count: usize) -> Self {
        let from = self.from.wrapping_add(count * self.pitch * self.bytes);
        Self { from, count: self.count - count, index: self.index + count, ..self }
    }
}

/// Column sums in vector form, before they are merged into the accumulators.
pub(super) struct Columns {
    sums: Lane,
    words: Lane,
    indices: Lane,
    width: usize,
    /// Additions to `sums` since they were last merged into the accumulators.
    additions: usize,
}

/// One word per column, padded to whole vectors.
type Lane = SmallVec<[u32; 4 * LANES]>;

/// The accumulators of adjacent columns.
pub(super) struct Lanes<'a> {
    pub(super) sums: &'a mut [u32; LANES],
    pub(super) words: &'a mut [u32; LANES],
    pub(super) indices: &'a mut [u32; LANES],
}

impl Columns {
    pub(super) fn new(width: usize, start: Accumulator) -> Self {
        let len = width.next_multiple_of(LANES);
        let [sums, words, indices] = [0, start.word, 0].map(|word| Lane::from_elem(word, len));
        Self { sums, words, indices, width, additions: 0 }
    }

    /// Accumulates rows. If there are several times as many columns as the rows are wide, that many rows are
    /// processed side by side, which requires that they are contiguous.
    ///
    /// # Safety
    /// As [`Folding::columns`].
    pub(super) unsafe fn add(&mut self, folding: &Folding, rows: Rows, accumulators: &mut [Accumulator]) {
        let together = self.width / rows.width;
        let (pitch, width, count) = (rows.pitch * together, rows.width * together, rows.count / together);
        // SAFETY: these are the caller's rows.
        unsafe {
            self.add_some(folding, Rows { pitch, width, count, ..rows }, accumulators);
            // The rows that do not fill a wide row go to the first columns; `fold` merges all columns of an accumulator.
            self.add_some(folding, rows.skip(count * together), accumulators);
        }
    }

    /// # Safety
    /// As [`Folding::columns`].
    unsafe fn add_some(&mut self, folding: &Folding, mut rows: Rows, accumulators: &mut [Accumulator]) {
        while rows.count > 0 {
            let count = rows.count.min(ROWS_AT_ONCE);
            // SAFETY: these are a subset of the caller's rows.
            unsafe { (folding.columns)(Rows { count, ..rows }, self) };
            rows = rows.skip(count);
            // Rows are added in groups of `TOGETHER`, then one at a time; each group adds to a column once. The limit keeps
            // the rounding error of the `f32` sums independent of the number of rows.
            self.additions += count / TOGETHER + count % TOGETHER;
            if self.additions >= MAX_ADDITIONS {
                self.fold_sums(accumulators);
            }
        }
    }

    /// Merges everything into the accumulators. If there are more columns than accumulators, several columns share
    /// one.
    pub(super) fn fold(mut self, folding: &Folding, accumulators: &mut [Accumulator]) {
        self.fold_sums(accumulators);
        for (words, indices) in
            self.words[..self.width].chunks(accumulators.len()).zip(self.indices.chunks(accumulators.len()))
        {
            for ((accumulator, &word), &index) in accumulators.iter_mut().zip(words).zip(indices) {
                // The sum is 0 because `fold_sums` has already added it.
                (folding.join)(accumulator, &Accumulator { sum: 0.0, word, index });
            }
        }
    }

    fn fold_sums(&mut self, accumulators: &mut [Accumulator]) {
        for sums in self.sums[..self.width].chunks(accumulators.len()) {
            accumulators
                .iter_mut()
                .zip(sums)
                .for_each(|(accumulator, &sum)| accumulator.sum += f64::from(f32::from_bits(sum)));
        }
        self.sums.fill(0);
        self.additions = 0;
    }
}

/// # Safety
/// As [`Folding::columns`].
#[inline(always)]
pub(super) unsafe fn add_columns<F: Fold, V: Vector, S: Stored>(rows: Rows, columns: &mut Columns) {
    let mut rest = rows;
    // SAFETY: these are a subset of the caller's rows.
    unsafe {
        while rest.count >= TOGETHER {
            add_together::<F, V, S, TOGETHER>(rest, columns);
            rest = rest.skip(TOGETHER);
        }
        while rest.count > 0 {
            add_together::<F, V, S, 1>(rest, columns);
            rest = rest.skip(1);
        }
    }
}

/// Accumulates the first `N` rows.
///
/// # Safety
/// As [`Folding::columns`]; there must be at least `N` rows.
#[inline(always)]
unsafe fn add_together<F: Fold, V: Vector, S: Stored, const N: usize>(rows: Rows, columns: &mut Columns) {
    let from: *const S::Bits = rows.from.cast();
    let (vectors, rest) = (rows.width / LANES, rows.width % LANES);
    // Columns are padded to whole vectors, so a partial vector of the row still has a whole vector of accumulators.
    let sums = columns.sums.as_chunks_mut().0[..rows.width.div_ceil(LANES)].iter_mut();
    let lanes = sums.zip(columns.words.as_chunks_mut().0).zip(columns.indices.as_chunks_mut().0);
    for (vector, ((sums, words), indices)) in lanes.enumerate() {
        let lanes = Lanes { sums, words, indices };
        // SAFETY: the caller upholds the contract.
        let at = |row: usize| unsafe { from.add(row * rows.pitch + vector * LANES) };
        if vector < vectors {
            // SAFETY: the row has another whole vector.
            let read = |row| S::load::<V>(unsafe { &*at(row).cast() });
            F::add_to_columns::<V, N>(read, rows.index, lanes);
        } else {
            let read = |row| {
                let mut last = [S::Bits::zeroed(); LANES];
                // SAFETY: the row has `rest` more elements.
                last[..rest].copy_from_slice(unsafe { std::slice::from_raw_parts(at(row), rest) });
                let mut words = S::load::<V>(&last).words();
                // If several rows are accumulated side by side, the lanes after a narrow row are columns too: the
                // identity leaves them unchanged, while a zero can be a maximum.
                words[rest..].fill(F::START.word);
                V::load(&words)
            };
            F::add_to_columns::<V, N>(read, rows.index, lanes);
        }
    }
}
