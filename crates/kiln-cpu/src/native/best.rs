//! Maxima and minima: which of two numbers wins, and the loops that find winners.

use kiln_ir::graph::Reduce;
use kiln_ir::{Class, SimdLevel};

/// The loops that find winners under one order, for one level. Words are the bits of the class.
///
/// # Safety
/// Each wants a processor that has the level, and slices of equal length.
#[derive(Clone, Copy)]
pub(crate) struct Best {
    /// What loses against everything, or equals it.
    pub(crate) lowest: u32,
    /// Whether the first wins over the second: it comes after it, or it is the first NaN.
    pub(crate) wins: fn(u32, u32) -> bool,
    /// The winner of a tile.
    pub(crate) of_tile: unsafe fn(&[u32]) -> u32,
    /// Where the winner of a tile is first.
    pub(crate) place: unsafe fn(&[u32], u32) -> usize,
    /// The winners of each element and the one in its place.
    pub(crate) of_rows: unsafe fn(&mut [u32], &[u32]),
    /// The same, where the winner's row is wanted too.
    pub(crate) rows: unsafe fn(&mut [u32], &mut [u32], &[u32], u32),
}

impl Best {
    /// The loops of a reduction; `None` where it is a sum.
    pub(crate) fn of(op: Reduce, class: Class, level: SimdLevel) -> Option<Self> {
        Some(match (op, class) {
            (Reduce::Sum | Reduce::Mean, _) => return None,
            (Reduce::Max | Reduce::ArgMax, Class::Float) => loops::<Max<f32>>(level),
            (Reduce::Max | Reduce::ArgMax, Class::Int) => loops::<Max<i32>>(level),
            (Reduce::Max | Reduce::ArgMax, Class::Uint) => loops::<Max<u32>>(level),
            (Reduce::Min | Reduce::ArgMin, Class::Float) => loops::<Min<f32>>(level),
            (Reduce::Min | Reduce::ArgMin, Class::Int) => loops::<Min<i32>>(level),
            (Reduce::Min | Reduce::ArgMin, Class::Uint) => loops::<Min<u32>>(level),
        })
    }
}

/// An order over words.
trait Order {
    const LOWEST: u32;
    fn wins(one: u32, other: u32) -> bool;
}

struct Max<T>(T);
struct Min<T>(T);

impl Order for Max<f32> {
    const LOWEST: u32 = f32::NEG_INFINITY.to_bits();

    #[inline(always)]
    fn wins(one: u32, other: u32) -> bool {
        let (one, other) = (f32::from_bits(one), f32::from_bits(other));
        (one > other) | (one.is_nan() & !other.is_nan())
    }
}

impl Order for Min<f32> {
    const LOWEST: u32 = f32::INFINITY.to_bits();

    #[inline(always)]
    fn wins(one: u32, other: u32) -> bool {
        let (one, other) = (f32::from_bits(one), f32::from_bits(other));
        (one < other) | (one.is_nan() & !other.is_nan())
    }
}

macro_rules! integer_orders {
    ($($ty:ty),*) => {
        $(impl Order for Max<$ty> {
            const LOWEST: u32 = <$ty>::MIN as u32;

            #[inline(always)]
            fn wins(one: u32, other: u32) -> bool {
                one as $ty > other as $ty
            }
        }

        impl Order for Min<$ty> {
            const LOWEST: u32 = <$ty>::MAX as u32;

            #[inline(always)]
            fn wins(one: u32, other: u32) -> bool {
                (one as $ty) < other as $ty
            }
        })*
    };
}

integer_orders!(i32, u32);

fn loops<O: Order>(level: SimdLevel) -> Best {
    let plain = Best {
        lowest: O::LOWEST,
        wins: O::wins,
        of_tile: of_tile::<O>,
        place: place::<O>,
        of_rows: of_rows::<O>,
        rows: rows::<O>,
    };
    match level {
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 | SimdLevel::Avx512 => Best {
            of_tile: avx2::of_tile::<O>,
            place: avx2::place::<O>,
            of_rows: avx2::of_rows::<O>,
            rows: avx2::rows::<O>,
            ..plain
        },
        _ => plain,
    }
}

#[inline(always)]
fn of_tile<O: Order>(values: &[u32]) -> u32 {
    let (chunks, rest) = values.as_chunks::<32>();
    let mut lanes = [O::LOWEST; 32];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if O::wins(value, *lane) { value } else { *lane };
        }
    }
    let winner = |best, &value| if O::wins(value, best) { value } else { best };
    rest.iter().fold(lanes.iter().fold(O::LOWEST, winner), winner)
}

/// The first that the winner does not win over: of zeros of both signs, and of several NaN, the first.
#[inline(always)]
fn place<O: Order>(values: &[u32], best: u32) -> usize {
    values.iter().position(|&value| !O::wins(best, value)).unwrap_or(0)
}

#[inline(always)]
fn of_rows<O: Order>(best: &mut [u32], values: &[u32]) {
    best.iter_mut().zip(values).for_each(|(best, &value)| *best = if O::wins(value, *best) { value } else { *best });
}

#[inline(always)]
fn rows<O: Order>(best: &mut [u32], rows: &mut [u32], values: &[u32], row: u32) {
    for ((best, best_row), &value) in best.iter_mut().zip(rows).zip(values) {
        let wins = O::wins(value, *best);
        *best = if wins { value } else { *best };
        *best_row = if wins { row } else { *best_row };
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Order;

    #[target_feature(enable = "avx2")]
    pub(super) fn of_tile<O: Order>(values: &[u32]) -> u32 {
        super::of_tile::<O>(values)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn place<O: Order>(values: &[u32], best: u32) -> usize {
        super::place::<O>(values, best)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn of_rows<O: Order>(best: &mut [u32], values: &[u32]) {
        super::of_rows::<O>(best, values);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn rows<O: Order>(best: &mut [u32], rows: &mut [u32], values: &[u32], row: u32) {
        super::rows::<O>(best, rows, values, row);
    }
}
