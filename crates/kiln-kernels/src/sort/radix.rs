//! Radix sort of words, by one thread or by all together.

use crate::memory::Target;
use bytemuck::Pod;
use kiln_ir::Result;
use kiln_ir::host::Workers;

/// Rows of at most this many words are sorted by comparison: the histograms of a radix sort cost more.
const SHORT: usize = 96;

/// Bits of the key per pass of the radix sort.
const BITS: usize = 8;
const DIGITS: usize = 1 << BITS;
const PASSES: usize = 32 / BITS;

/// A code, or a key above an index.
pub(super) trait Item: Pod + Ord + Send + Sync {
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

/// Sorts items, and returns the memory that holds them then.
pub(super) fn sort<'a, I: Item>([mut items, mut other]: [&'a mut [I]; 2]) -> &'a [I] {
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

/// Packs items and sorts them like [`sort`], on all threads. Each counts the digits in its part of the row, and moves those items after the items of earlier parts.
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
