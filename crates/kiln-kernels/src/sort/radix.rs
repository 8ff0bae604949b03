//! Least-significant-digit radix sort of words, on one thread or on all together.

use crate::memory::Target;
use bytemuck::Pod;
use kiln_ir::Result;
use kiln_ir::host::Workers;

/// Rows of at most this many words are sorted by comparison: the histograms of a radix sort cost more. Comparing whole `u64` items is stable too,
/// because the index is their lower half.
const SHORT: usize = 96;

/// Bits per digit. Each pass sorts by one digit.
const BITS: usize = 8;
const DIGITS: usize = 1 << BITS;
const PASSES: usize = 32 / BITS;

/// A word to sort: a code (`u16`, `u32`), or a key in the upper half with an index in the lower half (`u64`), whose index is not a digit.
pub(super) trait Item: Pod + Ord + Send + Sync {
    /// Returns the digit that a pass sorts by, the lowest one for pass 0.
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

impl Item for u16 {
    #[inline(always)]
    fn digit(self, pass: usize) -> usize {
        u32::from(self).digit(pass)
    }
}

/// Sorts items stably, with the second slice of the same length as scratch memory. Returns the one of the two slices that holds the result.
pub(super) fn sort<I: Item>([mut items, mut other]: [&mut [I]; 2]) -> &[I] {
    let length = items.len();
    if length <= SHORT {
        items.sort_unstable();
        return items;
    }
    let mut counts = [[0u32; DIGITS]; PASSES];
    for item in &*items {
        for (pass, counts) in counts.iter_mut().enumerate() {
            counts[item.digit(pass)] += 1;
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

/// Like [`sort`], on all threads; `pack` returns the item at an index. In each pass a thread counts the digits in its part of the row, then moves
/// these items after those of earlier parts.
pub(super) fn sort_together<'a, I: Item>(
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
                for (index, to) in range.zip(&mut *items) {
                    *to = pack(index);
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
        // As in `sort`, skips a digit that is equal for all items: that digit starts at 0, and all later ones at the end.
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
                // SAFETY: every item has a distinct destination, because the start positions are those of the counts of the same items.
                unsafe { to.slice(*next as usize, 1)[0] = item };
                *next += 1;
            }
        })?;
        is_swapped = !is_swapped;
    }
    // SAFETY: all tasks have ended, so nothing writes the items any more; they are borrowed for `'a`.
    Ok(unsafe { both[usize::from(is_swapped)].whole() })
}
