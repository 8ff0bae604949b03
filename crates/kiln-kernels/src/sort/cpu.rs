//! Sorting on the CPU: a radix sort of words that hold the key of an element and its index. Threads share the rows, or sort a long row together.

use super::{Argsort, Sort};
use crate::matmul::scratch;
use crate::matmul::vector::{Vector, Work, at};
use crate::memory::{Target, elements};
use crate::walk::share;
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::host::{HostCall, Workers};
use kiln_ir::{DType, Element, Result};

/// An element that can be sorted.
trait Key: Element + Pod {
    /// Returns a word that sorts like the element: NaN after all numbers, negative zero equal to zero.
    fn key(self) -> u32;

    /// Returns a word like [`key`](Self::key), but with distinct words for the two zeros, so that [`from_code`](Self::from_code) recovers the
    /// element. All NaNs have one code.
    fn code(self) -> u32;

    /// Returns the element of a code.
    fn from_code(code: u32) -> Self;
}

/// Implements `Key` for floats from their bits, with the sign in the top bit.
macro_rules! float_keys {
    ($($float:ty, $bits:ty, $infinity:expr, |$x:ident| $key:expr;)*) => {
        $(impl Key for $float {
            #[inline(always)]
            fn key(self) -> u32 {
                let $x = self;
                $key
            }

            #[inline(always)]
            fn code(self) -> u32 {
                let (bits, sign) = (self.to_bits(), 1 << (<$bits>::BITS - 1));
                // Inverts negative floats and sets the sign bit of the others, so that unsigned order is numeric order.
                let code = if bits & sign != 0 { !bits } else { bits | sign };
                u32::from(if bits & !sign > $infinity { <$bits>::MAX } else { code })
            }

            #[inline(always)]
            fn from_code(code: u32) -> Self {
                let (code, sign) = (code as $bits, 1 << (<$bits>::BITS - 1));
                Self::from_bits(if code & sign != 0 { code ^ sign } else { !code })
            }
        })*
    };
}

float_keys! {
    f32, u32, f32::INFINITY.to_bits(), |x| {
        let bits = x.to_bits();
        let key = if bits > SIGN { !bits } else { bits | SIGN };
        if bits & !SIGN > f32::INFINITY.to_bits() { u32::MAX } else { key }
    };
    f16, u16, f16::INFINITY.to_bits(), |x| x.to_f32().key();
    bf16, u16, bf16::INFINITY.to_bits(), |x| x.to_f32().key();
}

macro_rules! integer_keys {
    ($($integer:ty, |$x:ident| $key:expr, |$code:ident| $element:expr;)*) => {
        $(impl Key for $integer {
            #[inline(always)]
            fn key(self) -> u32 {
                let $x = self;
                $key
            }

            #[inline(always)]
            fn code(self) -> u32 {
                self.key()
            }

            #[inline(always)]
            fn from_code($code: u32) -> Self {
                $element
            }
        })*
    };
}

integer_keys! {
    i32, |x| x as u32 ^ SIGN, |code| (code ^ SIGN) as i32;
    u32, |x| x, |code| code;
    u8, |x| u32::from(x), |code| code as u8;
    i8, |x| u32::from(x as u8 ^ 0x80), |code| (code as u8 ^ 0x80) as i8;
}

const SIGN: u32 = 1 << 31;

/// Rows of at most this many elements are sorted by comparison: the histograms of a radix sort cost more.
const SHORT: usize = 96;
/// Rows of at least this many elements are sorted by all threads together if there are fewer rows than threads.
const LONG: usize = 1 << 15;
/// A selection of at most `1 / SELECTED` of a row compares with the worst element selected so far instead of sorting.
const SELECTED: usize = 8;

/// Calls a function that is generic over the element type.
macro_rules! by_dtype {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F32 => $function::<f32>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::U32 => $function::<u32>($($argument),*),
            DType::U8 | DType::Bool => $function::<u8>($($argument),*),
            DType::I8 => $function::<i8>($($argument),*),
            DType::I64 | DType::F64 => unreachable!("kernels that compute in 32 bits are not given 64"),
        }
    };
}

pub(super) fn argsort(op: &Argsort, call: &HostCall<'_>) -> Result<()> {
    by_dtype!(call.operands[0].dtype, places(op, call))
}

pub(super) fn sort(op: &Sort, call: &HostCall<'_>) -> Result<()> {
    by_dtype!(call.operands[0].dtype, values(op, call))
}

fn places<T: Key>(op: &Argsort, call: &HostCall<'_>) -> Result<()> {
    let length = call.operands[0].layout.shape().last().copied().unwrap_or(0);
    let (count, flip) = (op.count.unwrap_or(length), if op.descending { u32::MAX } else { 0 });
    if count > length / SELECTED {
        return rows(call, count, |x: T, place| item(x, flip, place), |item| item as u32);
    }
    let (x, level) = (whole::<T>(call), call.workers.simd());
    if count == 0 {
        return Ok(());
    }
    let to = Target::<u32>::of(call.output);
    share(call.workers, x.len() / length, length, |range| {
        for row in range {
            // SAFETY: the ranges of the tasks are disjoint.
            let out = unsafe { to.slice(row * count, count) };
            at(level, Select { x: &x[row * length..][..length], flip, out });
        }
    })
}

fn values<T: Key>(op: &Sort, call: &HostCall<'_>) -> Result<()> {
    let length = call.operands[0].layout.shape().last().copied().unwrap_or(0);
    let flip = if op.descending { u32::MAX } else { 0 };
    rows(call, length, |x: T, _| x.code() ^ flip, |code: u32| T::from_code(code ^ flip))
}

fn whole<'a, T: Key>(call: &HostCall<'a>) -> &'a [T] {
    let layout = call.operands[0].layout;
    &elements::<T>(&call.operands[0])[layout.offset()..][..layout.shape().elem_count()]
}

/// Sorts the items that `pack` makes of each element and its index, and stores `unpack` of the first `count` items of each row.
fn rows<T: Key, I: Item, O: Pod + Send>(
    call: &HostCall<'_>,
    count: usize,
    pack: impl Fn(T, usize) -> I + Sync,
    unpack: impl Fn(I) -> O + Sync,
) -> Result<()> {
    let (x, to) = (whole::<T>(call), Target::<O>::of(call.output));
    let length = call.operands[0].layout.shape().last().copied().unwrap_or(0);
    if x.is_empty() || count == 0 {
        return Ok(());
    }
    let (rows, words) = (x.len() / length, length * size_of::<I>() / size_of::<f32>());
    let write = |row: usize, items: &[I]| {
        // SAFETY: each row is stored once.
        let out = unsafe { to.slice(row * count, count) };
        for (out, &item) in out.iter_mut().zip(items) {
            *out = unpack(item);
        }
    };
    // SAFETY: the memory has room for an item per element, is aligned to cache lines, and its words are initialized.
    let items = |part: *mut f32| unsafe { std::slice::from_raw_parts_mut(part.cast::<I>(), length) };
    if rows < call.workers.count() && length >= LONG {
        return scratch::with([words, words], |memory| {
            for (row, x) in x.chunks_exact(length).enumerate() {
                let sorted = sort_together(call.workers, |place| pack(x[place], place), memory.map(items))?;
                write(row, sorted);
            }
            Ok(())
        });
    }
    share(call.workers, rows, length * 8, |range| {
        scratch::with([words, words], |memory| {
            for row in range {
                let x = &x[row * length..][..length];
                write(row, sort_row(|place| pack(x[place], place), memory.map(items)));
            }
        });
    })
}

/// Packs a key above an index. Sorting these words sorts the elements stably.
#[inline(always)]
fn item<T: Key>(x: T, flip: u32, place: usize) -> u64 {
    u64::from(x.key() ^ flip) << 32 | place as u64
}

/// Bits of the key per pass of the radix sort.
const BITS: usize = 8;
const DIGITS: usize = 1 << BITS;
const PASSES: usize = 32 / BITS;

/// A key, alone or above an index.
trait Item: Pod + Ord + Send + Sync {
    fn digit(self, pass: usize) -> usize;
}

impl Item for u64 {
    #[inline(always)]
    fn digit(self, pass: usize) -> usize {
        (self >> (32 + pass * BITS)) as usize & (DIGITS - 1)
    }
}

impl Item for u32 {
    #[inline(always)]
    fn digit(self, pass: usize) -> usize {
        (self >> (pass * BITS)) as usize & (DIGITS - 1)
    }
}

/// Returns the items of a row in order.
fn sort_row<I: Item>(pack: impl Fn(usize) -> I, [mut items, mut other]: [&mut [I]; 2]) -> &[I] {
    let length = items.len();
    if length <= SHORT {
        for (place, to) in items.iter_mut().enumerate() {
            *to = pack(place);
        }
        items.sort_unstable();
        return items;
    }
    let mut counts = [[0u32; DIGITS]; PASSES];
    for (place, to) in items.iter_mut().enumerate() {
        *to = pack(place);
        for (pass, counts) in counts.iter_mut().enumerate() {
            counts[to.digit(pass)] += 1;
        }
    }
    for (pass, counts) in counts.iter_mut().enumerate() {
        // Skips digits that are equal for all items, such as the upper ones of 16-bit and 8-bit keys.
        if counts[items[0].digit(pass)] as usize == length {
            continue;
        }
        let mut start = 0;
        // Exclusive prefix sum: counts become start positions.
        for count in counts.iter_mut() {
            start += std::mem::replace(count, start);
        }
        for &item in &*items {
            let next = &mut counts[item.digit(pass)];
            other[*next as usize] = item;
            *next += 1;
        }
        std::mem::swap(&mut items, &mut other);
    }
    items
}

/// Sorts like [`sort_row`] on all threads. Each counts the digits in its part of the row, and moves those items after the items of earlier parts.
fn sort_together<'a, I: Item>(
    workers: &dyn Workers,
    pack: impl Fn(usize) -> I + Sync,
    [items, other]: [&'a mut [I]; 2],
) -> Result<&'a [I]> {
    let (length, parts) = (items.len(), workers.count());
    let part = |number: usize| length * number / parts..length * (number + 1) / parts;
    let mut counts = vec![[0u32; DIGITS]; parts];
    let (mut is_swapped, both) = (false, [Target::over(items), Target::over(other)]);
    for pass in 0..PASSES {
        let (from, to) = (&both[usize::from(is_swapped)], &both[usize::from(!is_swapped)]);
        let table = Target::over(&mut counts);
        workers.run(parts, &|number| {
            let range = part(number);
            // SAFETY: the parts have disjoint counters and items.
            let (counts, items) = unsafe { (&mut table.slice(number, 1)[0], from.slice(range.start, range.len())) };
            if pass == 0 {
                for (place, to) in range.zip(&mut *items) {
                    *to = pack(place);
                }
            }
            counts.fill(0);
            for &item in &*items {
                counts[item.digit(pass)] += 1;
            }
        })?;
        let mut start = 0;
        // By digit, then by part: equal digits of earlier parts come first, which keeps the sort stable.
        for digit in 0..DIGITS {
            for counts in &mut counts {
                start += std::mem::replace(&mut counts[digit], start);
            }
        }
        // As in `sort_row`, skips a digit that is equal for all items: that digit starts at 0, and all later ones at the end.
        if counts[0].iter().all(|&start| start == 0 || start as usize == length) {
            continue;
        }
        let table = Target::over(&mut counts);
        workers.run(parts, &|number| {
            let range = part(number);
            // SAFETY: the parts have disjoint counters and items.
            let (counts, items) = unsafe { (&mut table.slice(number, 1)[0], from.slice(range.start, range.len())) };
            for &item in &*items {
                let next = &mut counts[item.digit(pass)];
                // SAFETY: every item has a distinct destination.
                unsafe { to.slice(*next as usize, 1)[0] = item };
                *next += 1;
            }
        })?;
        is_swapped = !is_swapped;
    }
    // SAFETY: no thread uses the items any more, and they live as long as the memory that was given.
    Ok(unsafe { both[usize::from(is_swapped)].whole() })
}

/// Elements that are compared at a time with the worst selected one.
const CHUNK: usize = 64;

/// Selects the indices of the first few elements of a row in order.
struct Select<'a, T> {
    x: &'a [T],
    flip: u32,
    out: &'a mut [u32],
}

impl<T: Key> Work for Select<'_, T> {
    type Output = ();

    /// Most elements are only compared with the worst one selected so far.
    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { x, flip, out } = self;
        let count = out.len();
        let (first, rest) = x.split_at(x.len().min(2 * count + CHUNK));
        let mut best: Vec<u64> = Vec::with_capacity(first.len() + CHUNK);
        best.extend(first.iter().enumerate().map(|(place, &x)| item(x, flip, place)));
        let mut worst = keep_first(&mut best, count);
        for (number, chunk) in rest.chunks(CHUNK).enumerate() {
            // An element with an equal key sorts after the selected ones.
            if !chunk.iter().fold(false, |any, x| any | (x.key() ^ flip < worst)) {
                continue;
            }
            for (place, &x) in (first.len() + number * CHUNK..).zip(chunk) {
                if x.key() ^ flip < worst {
                    best.push(item(x, flip, place));
                }
            }
            if best.len() >= first.len() {
                worst = keep_first(&mut best, count);
            }
        }
        keep_first(&mut best, count);
        best.sort_unstable();
        for (out, item) in out.iter_mut().zip(best) {
            *out = item as u32;
        }
    }
}

/// Keeps the first `count` items in order, and returns the key of the last of them.
fn keep_first(items: &mut Vec<u64>, count: usize) -> u32 {
    let (_, last, _) = items.select_nth_unstable(count - 1);
    let key = (*last >> 32) as u32;
    items.truncate(count);
    key
}
