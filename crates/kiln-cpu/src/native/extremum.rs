//! Maxima and minima: comparison orders, and the search for the best element and its index.

use super::columns::Lanes;
use super::fold::{Accumulator, Fold};
use super::lanes::{LANES, Stored, Vector, Words};
use std::marker::PhantomData;

/// Independent vector accumulators of a row.
const VECTORS: usize = 4;
/// Elements of a row that are searched for the index together, while they are still in the L1 cache.
const INDEX_ELEMENTS: usize = 4096;

/// An order over numbers; the best element is the last in the order.
pub(super) trait Order {
    /// The identity: loses against or equals every element.
    const LOWEST: u32;

    /// Returns whether the first comes after the second.
    fn is_after<W: Words>(one: W, other: W) -> W;

    /// Returns whether it is NaN, which wins over every number.
    fn is_nan<W: Words>(one: W) -> W;

    /// Returns whether the first loses against or equals the second: it does not come after it, and is not NaN while
    /// the second is a number.
    #[inline(always)]
    fn loses<W: Words>(one: W, other: W) -> W {
        let wins = Self::is_after(one, other).or(Self::is_nan(other).select(W::splat(0), Self::is_nan(one)));
        wins.xor(W::splat(u32::MAX))
    }

    /// Returns the better of the two. Of two NaNs it is either, which saves an instruction.
    #[inline(always)]
    fn extremum<W: Words>(one: W, other: W) -> W {
        Self::is_after(one, other).or(Self::is_nan(one)).select(one, other)
    }

    fn word_loses(one: u32, other: u32) -> bool {
        Self::loses([one], [other]).is_all()
    }

    #[inline(always)]
    fn extremum_word(one: u32, other: u32) -> u32 {
        let [word] = Self::extremum([one], [other]);
        word
    }
}

pub(super) struct Max<T>(T);
pub(super) struct Min<T>(T);

macro_rules! orders {
    ($($ty:ty, [$lowest:expr, $highest:expr], $is_greater:expr, $is_nan:expr;)*) => {
        $(impl Order for Max<$ty> {
            const LOWEST: u32 = $lowest;

            #[inline(always)]
            fn is_after<W: Words>(one: W, other: W) -> W {
                $is_greater(one, other)
            }

            #[inline(always)]
            fn is_nan<W: Words>(one: W) -> W {
                $is_nan(one)
            }
        }

        impl Order for Min<$ty> {
            const LOWEST: u32 = $highest;

            #[inline(always)]
            fn is_after<W: Words>(one: W, other: W) -> W {
                $is_greater(other, one)
            }

            #[inline(always)]
            fn is_nan<W: Words>(one: W) -> W {
                $is_nan(one)
            }
        })*
    };
}

orders! {
    f32, [f32::NEG_INFINITY.to_bits(), f32::INFINITY.to_bits()], W::is_greater_float, W::is_nan;
    i32, [i32::MIN as u32, i32::MAX as u32], W::is_greater_int, |_| W::splat(0);
    u32, [u32::MIN, u32::MAX], is_greater_uint, |_| W::splat(0);
}

/// Compares unsigned integers: flipping the highest bit maps them to the order of signed ones.
#[inline(always)]
fn is_greater_uint<W: Words>(one: W, other: W) -> W {
    let flip = W::splat(1 << 31);
    one.xor(flip).is_greater_int(other.xor(flip))
}

/// Reduces to the best element under an order.
pub(super) struct Extremum<O>(PhantomData<O>);

impl<O: Order> Fold for Extremum<O> {
    const START: Accumulator = Accumulator { sum: 0.0, word: O::LOWEST, index: 0 };

    #[inline(always)]
    fn add_run<V: Vector, S: Stored>(values: &[S::Bits], _first: usize, accumulator: &mut Accumulator) {
        accumulator.word = O::extremum_word(extremum::<O, V, S>(values), accumulator.word);
    }

    #[inline(always)]
    fn add_to_columns<V: Vector, const N: usize>(row: impl Fn(usize) -> V, _first: usize, lanes: Lanes<'_>) {
        let mut best = V::load(lanes.words);
        for index in 0..N {
            best = O::extremum(row(index), best);
        }
        *lanes.words = best.words();
    }

    fn join(accumulator: &mut Accumulator, later: &Accumulator) {
        accumulator.word = O::extremum_word(later.word, accumulator.word);
    }
}

/// Reduces to the index of the first best element under an order.
pub(super) struct ArgExtremum<O>(PhantomData<O>);

impl<O: Order> Fold for ArgExtremum<O> {
    // Index 0 is the result if no element beats the identity: all are then equal, and the first one wins.
    const START: Accumulator = Extremum::<O>::START;

    #[inline(always)]
    fn add_run<V: Vector, S: Stored>(values: &[S::Bits], first: usize, accumulator: &mut Accumulator) {
        for (part, values) in values.chunks(INDEX_ELEMENTS).enumerate() {
            let word = extremum::<O, V, S>(values);
            // The index is searched only in a part that wins. A tie loses, so that the earlier index stays.
            if !O::word_loses(word, accumulator.word) {
                let index = first + part * INDEX_ELEMENTS + index_of::<O, V, S>(values, word);
                *accumulator = Accumulator { sum: 0.0, word, index: index as u32 };
            }
        }
    }

    #[inline(always)]
    fn add_to_columns<V: Vector, const N: usize>(row: impl Fn(usize) -> V, first: usize, lanes: Lanes<'_>) {
        let (mut words, mut indices) = (V::load(lanes.words), V::load(lanes.indices));
        for index in 0..N {
            let value = row(index);
            let loses = O::loses(value, words);
            words = loses.select(words, value);
            indices = loses.select(indices, V::splat((first + index) as u32));
        }
        (*lanes.words, *lanes.indices) = (words.words(), indices.words());
    }

    fn join(accumulator: &mut Accumulator, later: &Accumulator) {
        if !O::word_loses(later.word, accumulator.word) {
            *accumulator = *later;
        }
    }
}

#[inline(always)]
fn extremum<O: Order, V: Vector, S: Stored>(values: &[S::Bits]) -> u32 {
    let (groups, rest) = values.as_chunks::<{ VECTORS * LANES }>();
    let mut best = [V::splat(O::LOWEST); VECTORS];
    for group in groups {
        for (best, from) in best.iter_mut().zip(group.as_chunks().0) {
            *best = O::extremum(S::load(from), *best);
        }
    }
    let [a, b, c, d] = best;
    let mut best = O::extremum(O::extremum(a, b), O::extremum(c, d));
    let (vectors, rest) = rest.as_chunks();
    for from in vectors {
        best = O::extremum(S::load(from), best);
    }
    let mut last = [O::LOWEST; LANES];
    last.iter_mut().zip(rest).for_each(|(word, &from)| *word = S::word(from));
    O::extremum(V::load(&last), best).fold(O::extremum)
}

/// Returns the index of the first element that `best` does not beat: the first of zeros of either sign, or of several
/// NaNs.
#[inline(always)]
fn index_of<O: Order, V: Vector, S: Stored>(values: &[S::Bits], best: u32) -> usize {
    let (vectors, mut before) = (values.as_chunks().0, 0);
    for from in vectors {
        let is_there = O::loses(V::splat(best), S::load(from));
        if !is_there.xor(V::splat(u32::MAX)).is_all() {
            break;
        }
        before += LANES;
    }
    let index = values[before..].iter().position(|&from| O::word_loses(best, S::word(from)));
    // Always found: `best` is one of the values.
    before + index.unwrap_or(0)
}
