//! Sorting on the CPU: a radix sort of words that hold an element's key and its place. Rows are shared between threads; all threads sort a long row
//! together.

use super::Argsort;
use crate::matmul::scratch;
use crate::matmul::vector::{Vector, Work, at};
use crate::memory::{Target, elements};
use crate::walk::share;
use half::{bf16, f16};
use kiln_ir::host::{HostCall, Workers};
use kiln_ir::{DType, Element, Result};

/// An element that can be sorted.
trait Key: Element {
    /// A word that is ordered as the elements are: NaN after all numbers, negative zero as zero.
    fn key(self) -> u32;
}

impl Key for f32 {
    #[inline(always)]
    fn key(self) -> u32 {
        let bits = self.to_bits();
        let size = bits & !SIGN;
        let key = if bits > SIGN { !bits } else { bits | SIGN };
        if size > f32::INFINITY.to_bits() { u32::MAX } else { key }
    }
}

impl Key for f16 {
    #[inline(always)]
    fn key(self) -> u32 {
        self.to_f32().key()
    }
}

impl Key for bf16 {
    #[inline(always)]
    fn key(self) -> u32 {
        self.to_f32().key()
    }
}

impl Key for i32 {
    #[inline(always)]
    fn key(self) -> u32 {
        self as u32 ^ SIGN
    }
}

impl Key for u32 {
    #[inline(always)]
    fn key(self) -> u32 {
        self
    }
}

impl Key for u8 {
    #[inline(always)]
    fn key(self) -> u32 {
        u32::from(self)
    }
}

const SIGN: u32 = 1 << 31;

/// Rows of at most so many elements are sorted by comparison: the counters of a radix sort cost more.
const SHORT: usize = 96;
/// Rows of at least so many elements are sorted by all threads together, where there are fewer rows than threads.
const LONG: usize = 1 << 15;
/// A selection of at most this part of a row compares with the worst one selected so far instead of sorting.
const SELECTED: usize = 8;

pub(super) fn run(op: &Argsort, call: &HostCall<'_>) -> Result<()> {
    match call.operands[0].dtype {
        DType::F16 => rows::<f16>(op, call),
        DType::BF16 => rows::<bf16>(op, call),
        DType::F32 => rows::<f32>(op, call),
        DType::I32 => rows::<i32>(op, call),
        DType::U32 => rows::<u32>(op, call),
        DType::U8 => rows::<u8>(op, call),
    }
}

fn rows<T: Key>(op: &Argsort, call: &HostCall<'_>) -> Result<()> {
    let layout = call.operands[0].layout;
    let x = &elements::<T>(&call.operands[0])[layout.offset()..][..layout.shape().elements()];
    let length = layout.shape().last().copied().unwrap_or(0);
    let count = op.count.unwrap_or(length);
    if length == 0 || count == 0 {
        return Ok(());
    }
    let (to, flip) = (Target::<u32>::of(call.output), if op.descending { u32::MAX } else { 0 });
    let (rows, is_selection) = (x.len() / length, count <= length / SELECTED);
    if rows < call.workers.count() && length >= LONG && !is_selection {
        for (row, x) in x.chunks_exact(length).enumerate() {
            // SAFETY: the rows have no elements in common.
            let out = unsafe { to.slice(row * count, count) };
            scratch::with([2 * length, 2 * length], |[items, other]| {
                // SAFETY: the memory is as long as two words for each element, aligned for more, and its words are initialised.
                let [items, other] =
                    [items, other].map(|part| unsafe { std::slice::from_raw_parts_mut(part.cast::<u64>(), length) });
                sort_together(call.workers, x, flip, out, [items, other])
            })?;
        }
        return Ok(());
    }
    let level = call.workers.simd();
    let cost = length * if is_selection { 1 } else { 8 };
    share(call.workers, rows, cost, |range| {
        let words = if is_selection { 0 } else { 2 * length };
        scratch::with([words, words], |[items, other]| {
            // SAFETY: as above.
            let [items, other] =
                [items, other].map(|part| unsafe { std::slice::from_raw_parts_mut(part.cast::<u64>(), words / 2) });
            for row in range {
                // SAFETY: the parts of the loop have no rows in common.
                let out = unsafe { to.slice(row * count, count) };
                let x = &x[row * length..][..length];
                if is_selection {
                    at(level, Select { x, flip, out });
                } else {
                    sort(x, flip, out, [&mut *items, &mut *other]);
                }
            }
        });
    })
}

/// A key above a place: as numbers, these words are ordered as a stable sort orders the elements.
#[inline(always)]
fn item<T: Key>(x: T, flip: u32, place: usize) -> u64 {
    u64::from(x.key() ^ flip) << 32 | place as u64
}

/// Bits of a key that one pass of the radix sort orders by.
const BITS: usize = 8;
const DIGITS: usize = 1 << BITS;
const PASSES: usize = 32 / BITS;

#[inline(always)]
fn digit(item: u64, pass: usize) -> usize {
    (item >> (32 + pass * BITS)) as usize & (DIGITS - 1)
}

/// The places of the first elements of a row in order.
fn sort<T: Key>(x: &[T], flip: u32, out: &mut [u32], [mut items, mut other]: [&mut [u64]; 2]) {
    if x.len() <= SHORT {
        for (place, (to, &x)) in items.iter_mut().zip(x).enumerate() {
            *to = item(x, flip, place);
        }
        items.sort_unstable();
        return write_places(items, out);
    }
    let mut counts = [[0u32; DIGITS]; PASSES];
    for (place, (to, &x)) in items.iter_mut().zip(x).enumerate() {
        *to = item(x, flip, place);
        for (pass, counts) in counts.iter_mut().enumerate() {
            counts[digit(*to, pass)] += 1;
        }
    }
    for (pass, counts) in counts.iter_mut().enumerate() {
        // Keys of 16 bits and of bytes have digits that are the same for all.
        if counts[digit(items[0], pass)] as usize == x.len() {
            continue;
        }
        let mut start = 0;
        for count in counts.iter_mut() {
            start += std::mem::replace(count, start);
        }
        for &item in &*items {
            let next = &mut counts[digit(item, pass)];
            other[*next as usize] = item;
            *next += 1;
        }
        std::mem::swap(&mut items, &mut other);
    }
    write_places(items, out);
}

fn write_places(items: &[u64], out: &mut [u32]) {
    for (to, &item) in out.iter_mut().zip(items) {
        *to = item as u32;
    }
}

/// [`sort`] on all threads: each counts the digits in its part of the row, and moves those items behind those of the parts before it.
fn sort_together<T: Key>(
    workers: &dyn Workers,
    x: &[T],
    flip: u32,
    out: &mut [u32],
    [items, other]: [&mut [u64]; 2],
) -> Result<()> {
    let (length, parts) = (x.len(), workers.count());
    let part = |number: usize| length * number / parts..length * (number + 1) / parts;
    let mut counts = vec![[0u32; DIGITS]; parts];
    let [mut from, mut to] = [Target::over(items), Target::over(other)];
    for pass in 0..PASSES {
        let table = Target::over(&mut counts);
        workers.run(parts, &|number| {
            let range = part(number);
            // SAFETY: the parts have no counters and no items in common.
            let (counts, items) = unsafe { (&mut table.slice(number, 1)[0], from.slice(range.start, range.len())) };
            if pass == 0 {
                for (place, to) in range.zip(&mut *items) {
                    *to = item(x[place], flip, place);
                }
            }
            counts.fill(0);
            for &item in &*items {
                counts[digit(item, pass)] += 1;
            }
        })?;
        let mut start = 0;
        for digit in 0..DIGITS {
            for counts in &mut counts {
                start += std::mem::replace(&mut counts[digit], start);
            }
        }
        // As in `sort`: a digit that is the same for all. Its items start at the first place, and all others behind the last.
        if counts[0].iter().all(|&start| start == 0 || start as usize == length) {
            continue;
        }
        let table = Target::over(&mut counts);
        workers.run(parts, &|number| {
            let range = part(number);
            // SAFETY: the parts have no counters and no items in common, and items of two parts never go to one place.
            let (counts, items) = unsafe { (&mut table.slice(number, 1)[0], from.slice(range.start, range.len())) };
            for &item in &*items {
                let next = &mut counts[digit(item, pass)];
                // SAFETY: as above.
                unsafe { to.slice(*next as usize, 1)[0] = item };
                *next += 1;
            }
        })?;
        std::mem::swap(&mut from, &mut to);
    }
    // SAFETY: no thread uses the items any more.
    write_places(unsafe { from.slice(0, length) }, out);
    Ok(())
}

/// Elements that are compared with the worst selected one at a time.
const CHUNK: usize = 64;

/// The places of the few first elements of a row in order.
struct Select<'a, T> {
    x: &'a [T],
    flip: u32,
    out: &'a mut [u32],
}

impl<T: Key> Work for Select<'_, T> {
    type Output = ();

    /// Most elements are only compared with the worst one that is selected so far.
    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { x, flip, out } = self;
        let count = out.len();
        let (first, rest) = x.split_at(x.len().min(2 * count + CHUNK));
        let mut best: Vec<u64> = Vec::with_capacity(first.len() + CHUNK);
        best.extend(first.iter().enumerate().map(|(place, &x)| item(x, flip, place)));
        let mut worst = keep_first(&mut best, count);
        for (number, chunk) in rest.chunks(CHUNK).enumerate() {
            // One with an equal key is after those that are selected.
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
        write_places(&best, out);
    }
}

/// Keeps the first items in order, and returns the key of the last one of them.
fn keep_first(items: &mut Vec<u64>, count: usize) -> u32 {
    let (_, last, _) = items.select_nth_unstable(count - 1);
    let key = (*last >> 32) as u32;
    items.truncate(count);
    key
}
