//! A bitonic sorting network for short rows.
//!
//! The words of a row fill vectors, called *slots*. Lane `lane` of slot `slot` has the sorted position `lane * slots + slot`, where `slots` is
//! the number of vectors. Comparisons between positions closer than `slots` are then minima and maxima of whole vectors, without shuffles; only
//! the few others permute lanes. Every comparison puts the smaller word at the lower position. [`store`] restores the order of memory.

use crate::matmul::vector::{LANES, Vector};
use crate::unsigned::{Unsigned, Word};

/// Size of a vector in bytes, at every SIMD level.
const BYTES: usize = LANES * size_of::<f32>();

/// Returns the number of words of a row of `length` words with its padding: the vectors that it fills, rounded up to a power of two.
pub(super) fn words<W: Word>(length: usize) -> usize {
    let lanes = BYTES / size_of::<W>();
    length.div_ceil(lanes).next_power_of_two() * lanes
}

/// Sorts a padded row of [`words`] words into the positions that the module documentation describes. Panics unless they are aligned to
/// vectors.
#[inline(always)]
pub(super) fn sort<U: Unsigned>(words: &mut [U::Word]) {
    let start = words.as_mut_ptr().cast::<U>();
    assert!(start.is_aligned() && size_of::<U>() == BYTES, "words are aligned to vectors of {BYTES} bytes");
    // SAFETY: `U` is an array of words or a register of them, so every bit pattern is valid; size and alignment are asserted above.
    let x = unsafe { std::slice::from_raw_parts_mut(start, size_of_val(words) / BYTES) };
    sort_lanes(x);
    merge_lanes::<U, 1, 1>(x);
    merge_lanes::<U, 2, 3>(x);
    merge_lanes::<U, 4, 7>(x);
    if size_of::<U::Word>() == 2 {
        merge_lanes::<U, 8, 15>(x);
    }
}

/// Copies the result of [`sort`] to consecutive positions. `to` is at most as long as `x`; if there are at least [`LANES`] slots, as long.
#[inline(always)]
pub(super) fn store<V: Vector, W: Word>(x: &[W], to: &mut [W]) {
    let lanes = BYTES / size_of::<W>();
    let slots = x.len() / lanes;
    if slots < LANES {
        for (position, to) in to.iter_mut().enumerate() {
            *to = x[position % slots * lanes + position / slots];
        }
        return;
    }
    // Transposes 8 by 8 units of 32 bits. A unit holds one lane of `u32`, or two neighbouring lanes of `u16`, of which the first is in the low
    // bits (little endian). The units pass through `f32` lanes, which only loads, shuffles and stores touch: their bits do not change.
    for slot in (0..slots).step_by(LANES) {
        let mut rows = [V::splat(0.0); LANES];
        for (row, words) in rows.iter_mut().zip(x[slot * lanes..].chunks_exact(lanes)) {
            // SAFETY: `words` has as many bytes as a vector.
            *row = unsafe { V::load(words.as_ptr().cast()) };
        }
        for (column, units) in V::transpose(rows).into_iter().enumerate() {
            let units = units.lanes();
            for part in 0..lanes / LANES {
                let start = (column * (lanes / LANES) + part) * slots + slot;
                for (to, unit) in to[start..][..LANES].iter_mut().zip(units) {
                    *to = W::truncate(unit.to_bits() >> (16 * part));
                }
            }
        }
    }
}

/// Compares and exchanges: returns the smaller words and the larger ones.
#[inline(always)]
fn exchange<U: Unsigned>(a: U, b: U) -> (U, U) {
    (a.min(b), a.max(b))
}

/// Compares and exchanges elements of an array. The indices are literals: the compiler does not unroll a loop over a table of them.
macro_rules! exchange_all {
    ($x:ident: $($i:literal $j:literal),*) => {
        $(($x[$i], $x[$j]) = exchange($x[$i], $x[$j]);)*
    };
}

/// Sorts eight vectors lane by lane, with 19 comparisons, the minimum of any sorting network of eight.
#[inline(always)]
fn sort_eight<U: Unsigned>(x: &mut [U; 8]) {
    exchange_all!(x: 0 2, 1 3, 4 6, 5 7, 0 4, 1 5, 2 6, 3 7, 0 1, 2 3, 4 5, 6 7, 2 4, 3 5, 1 4, 3 6, 1 2, 3 4, 5 6);
}

/// Sorts eight vectors lane by lane, if those of each lane are a bitonic sequence.
#[inline(always)]
fn merge_eight<U: Unsigned>(x: &mut [U; 8]) {
    exchange_all!(x: 0 4, 1 5, 2 6, 3 7, 0 2, 1 3, 4 6, 5 7, 0 1, 2 3, 4 5, 6 7);
}

/// Sorts each lane across the slots, whose number is a power of two.
#[inline(always)]
fn sort_lanes<U: Unsigned>(x: &mut [U]) {
    let mut run = 1;
    let (blocks, _) = x.as_chunks_mut::<8>();
    for block in blocks {
        sort_eight(block);
        run = 8;
    }
    while run < x.len() {
        for block in x.chunks_exact_mut(2 * run) {
            // Two sorted runs, one of them reversed, are a bitonic sequence. This compares its halves; `merge_slots` does the rest.
            let (low, high) = block.split_at_mut(run);
            for (a, b) in low.iter_mut().zip(high.iter_mut().rev()) {
                (*a, *b) = exchange(*a, *b);
            }
        }
        merge_slots(x, run / 2);
        run *= 2;
    }
}

/// Merges sorted groups of `BIT` lanes into groups of twice as many. `MASK` is `2 * BIT - 1`, and reverses the lanes of such a group.
#[inline(always)]
fn merge_lanes<U: Unsigned, const BIT: usize, const MASK: usize>(x: &mut [U]) {
    // Compares each position with its mirror image in the group: lanes are reversed by `MASK`, slots by pairing first and last.
    if let [x] = x {
        let (a, b) = exchange(*x, x.permute::<MASK>());
        *x = a.blend::<BIT>(b);
    } else {
        let (low, high) = x.split_at_mut(x.len() / 2);
        for (x, y) in low.iter_mut().zip(high.iter_mut().rev()) {
            let (a, b) = exchange(*x, y.permute::<MASK>());
            *x = a.blend::<BIT>(b);
            *y = b.blend::<BIT>(a).permute::<MASK>();
        }
    }
    for x in &mut *x {
        if BIT > 4 {
            *x = exchange_lanes::<U, 4>(*x);
        }
        if BIT > 2 {
            *x = exchange_lanes::<U, 2>(*x);
        }
        if BIT > 1 {
            *x = exchange_lanes::<U, 1>(*x);
        }
    }
    merge_slots(x, x.len() / 2);
}

/// Compares lanes whose indices differ only in the bit `BIT`.
#[inline(always)]
fn exchange_lanes<U: Unsigned, const BIT: usize>(x: U) -> U {
    let (a, b) = exchange(x, x.permute::<BIT>());
    a.blend::<BIT>(b)
}

/// Sorts the bitonic sequences of `2 * distance` slots: compares slots at this distance, at half of it, and so on.
#[inline(always)]
fn merge_slots<U: Unsigned>(x: &mut [U], mut distance: usize) {
    // Three distances at a time, with eight vectors in registers.
    while distance >= 4 {
        let step = distance / 4;
        for block in x.chunks_exact_mut(2 * distance) {
            for first in 0..step {
                let mut eight = [block[first]; 8];
                // Pointers, because the compiler keeps the bounds checks of strided indices.
                let slots = block[first..].as_mut_ptr();
                for (i, x) in eight.iter_mut().enumerate() {
                    // SAFETY: a block has `8 * step` vectors, and `first` is less than `step`.
                    *x = unsafe { slots.add(i * step).read() };
                }
                merge_eight(&mut eight);
                for (i, x) in eight.into_iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { slots.add(i * step).write(x) };
                }
            }
        }
        distance /= 8;
    }
    while distance > 0 {
        for block in x.chunks_exact_mut(2 * distance) {
            let (low, high) = block.split_at_mut(distance);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = exchange(*a, *b);
            }
        }
        distance /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::vector::{Work, at};
    use crate::testing::Numbers;
    use kiln_ir::SimdLevel;

    /// Sorts a padded row.
    struct Sort<'a, W>(&'a [W]);

    /// Words that are aligned to vectors.
    #[repr(align(32))]
    struct Aligned<W>([W; 256]);

    macro_rules! sort_work {
        ($($word:ty, $vector:ident);*) => {
            $(impl Work for Sort<'_, $word> {
                type Output = Vec<$word>;

                #[inline(always)]
                fn run<V: Vector>(self) -> Vec<$word> {
                    let mut memory = Aligned([0; 256]);
                    let words = &mut memory.0[..self.0.len()];
                    words.copy_from_slice(self.0);
                    sort::<V::$vector>(words);
                    let mut sorted = vec![0; words.len()];
                    store::<V, _>(words, &mut sorted);
                    sorted
                }
            })*
        };
    }

    sort_work!(u16, U16; u32, U32);

    /// By the zero-one principle, a network that sorts all sequences of zeros and ones sorts everything.
    #[test]
    fn all_sequences_of_sixteen_zeros_and_ones() {
        for simd in [SimdLevel::Scalar, SimdLevel::detect()] {
            for bits in 0..=u16::MAX {
                let row: [u16; 16] = std::array::from_fn(|i| bits >> i & 1);
                assert!(at(simd, Sort(&row)).is_sorted(), "{bits:b}");
                assert!(at(simd, Sort(&row.map(u32::from))).is_sorted(), "{bits:b}");
            }
        }
    }

    #[test]
    fn shuffled_zeros_and_ones_of_every_count() {
        let mut numbers = Numbers::new(3);
        let levels = [SimdLevel::Scalar, SimdLevel::detect()];
        for (simd, words) in levels.into_iter().flat_map(|simd| [64, 128, 256].map(|words| (simd, words))) {
            for ones in 0..=words {
                let mut row: Vec<u32> = (0..words).map(|i| u32::from(i < ones)).collect();
                for last in (1..words).rev() {
                    row.swap(last, numbers.below(last + 1));
                }
                assert!(at(simd, Sort(&row)).is_sorted(), "{words} {ones}");
                let row: Vec<u16> = row.iter().map(|&word| word as u16).collect();
                assert!(at(simd, Sort(&row)).is_sorted(), "{words} {ones}");
            }
        }
    }
}
