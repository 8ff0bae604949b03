//! Iteration over tensors of one shape with different strides, and sharing of that work between threads.

use kiln_ir::host::Workers;
use kiln_ir::{Layout, Result};
use smallvec::SmallVec;
use std::ops::Range;

/// Iterates over the corresponding offsets in `N` tensors of one shape, in row-major order. Axes that are contiguous in all tensors are merged, so
/// iteration over contiguous tensors has one axis.
#[derive(Clone, Debug)]
pub(crate) struct StridedIter<const N: usize> {
    /// Lengths and strides, outermost first.
    axes: SmallVec<[Axis<N>; 6]>,
    start: [isize; N],
}

/// A length and the stride in each tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis<const N: usize> {
    pub(crate) length: usize,
    pub(crate) strides: [isize; N],
}

impl<const N: usize> StridedIter<N> {
    /// Creates an iterator over these lengths, with the strides of each tensor and the offset of its first element.
    pub(crate) fn new(lengths: &[usize], strides: [&[isize]; N], start: [isize; N]) -> Self {
        let mut axes: SmallVec<[Axis<N>; 6]> = SmallVec::new();
        // An axis of length 1 is never stepped along. Its stride may have any value and would prevent merging.
        for (axis, &length) in lengths.iter().enumerate().filter(|&(_, &length)| length != 1) {
            let strides = std::array::from_fn(|tensor| strides[tensor][axis]);
            match axes.last_mut() {
                // In every tensor, the end of this axis is the next item of the outer one.
                Some(outer) if (0..N).all(|tensor| outer.strides[tensor] == strides[tensor] * length as isize) => {
                    *outer = Axis { length: outer.length * length, strides };
                }
                _ => axes.push(Axis { length, strides }),
            }
        }
        Self { axes, start }
    }

    /// Returns the number of items.
    pub(crate) fn items(&self) -> usize {
        self.axes.iter().map(|axis| axis.length).product()
    }

    /// Returns the strides of the innermost axis, along which [`runs`](Self::runs) go.
    pub(crate) fn inner(&self) -> [isize; N] {
        self.axes.last().map_or([0; N], |axis| axis.strides)
    }

    /// Returns the axes, outermost first, and the offsets of the first item.
    pub(crate) fn parts(&self) -> (&[Axis<N>], [isize; N]) {
        (&self.axes, self.start)
    }

    /// Calls `visit` with the offsets of each item in the range, in order.
    pub(crate) fn each(&self, range: Range<usize>, visit: impl FnMut([isize; N])) {
        each(&self.axes, self.start, range, visit);
    }

    /// Calls `visit` for each run of items along the innermost axis, in order: with the index of its first item, the offsets of that item, and the
    /// length of the run.
    pub(crate) fn runs(&self, range: Range<usize>, mut visit: impl FnMut(usize, [isize; N], usize)) {
        if range.is_empty() {
            return;
        }
        // No length is 0 from here on, because the range would be empty: dividing by them is safe.
        let (inner, outer) = match self.axes.split_last() {
            Some((inner, outer)) => (*inner, outer),
            None => (Axis { length: 1, strides: [0; N] }, &self.axes[..]),
        };
        let (first, last) = (range.start / inner.length, (range.end - 1) / inner.length);
        let (mut from, mut row_start) = (range.start, first * inner.length);
        each(outer, self.start, first..last + 1, |mut offsets| {
            let to = range.end.min(row_start + inner.length);
            step(&mut offsets, &inner, (from - row_start) as isize);
            visit(from, offsets, to - from);
            row_start += inner.length;
            from = to;
        });
    }
}

fn each<const N: usize>(axes: &[Axis<N>], start: [isize; N], range: Range<usize>, mut visit: impl FnMut([isize; N])) {
    if range.is_empty() {
        return;
    }
    // An odometer: divides once to find the first item, then increments the innermost coordinate and carries.
    let mut coordinates: SmallVec<[usize; 6]> = SmallVec::from_elem(0, axes.len());
    let (mut offsets, mut rest) = (start, range.start);
    for (axis, coordinate) in axes.iter().zip(&mut coordinates).rev() {
        *coordinate = rest % axis.length;
        rest /= axis.length;
        step(&mut offsets, axis, *coordinate as isize);
    }
    for _ in 1..range.len() {
        visit(offsets);
        for (axis, coordinate) in axes.iter().zip(&mut coordinates).rev() {
            *coordinate += 1;
            step(&mut offsets, axis, 1);
            if *coordinate < axis.length {
                break;
            }
            // Carries to the next axis, and returns to the start of this one.
            *coordinate = 0;
            step(&mut offsets, axis, -(axis.length as isize));
        }
    }
    visit(offsets);
}

impl StridedIter<1> {
    /// Creates an iterator over the elements of one tensor.
    pub(crate) fn over(layout: &Layout) -> Self {
        Self::new(layout.shape(), [layout.strides()], [layout.offset() as isize])
    }
}

fn step<const N: usize>(offsets: &mut [isize; N], axis: &Axis<N>, steps: isize) {
    for (offset, stride) in offsets.iter_mut().zip(axis.strides) {
        *offset += stride * steps;
    }
}

/// Minimum cost of a task, in units of about a nanosecond. Waking a thread takes some microseconds.
const PART_COST: usize = 16 << 10;

/// Tasks per thread, so that others take over the share of a thread that starts late.
const PARTS_PER_THREAD: usize = 4;

/// Calls `work` with ranges that cover all items. Uses several threads if `cost` per item makes that worth it.
pub(crate) fn parallel_for(
    workers: &dyn Workers,
    items: usize,
    cost: usize,
    work: impl Fn(Range<usize>) + Sync,
) -> Result<()> {
    let worth = items.saturating_mul(cost) / PART_COST;
    let parts = worth.min(workers.count() * PARTS_PER_THREAD).min(items);
    if parts <= 1 || workers.count() == 1 {
        work(0..items);
        return Ok(());
    }
    workers.run(parts, &|part| work(items * part / parts..items * (part + 1) / parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Threads, layouts, offsets};
    use kiln_ir::{Shape, SimdLevel};
    use std::sync::Mutex;

    #[test]
    fn iteration_visits_every_offset_in_order_from_any_start() {
        let shapes: [&[usize]; 7] = [&[], &[1], &[5], &[3, 4], &[2, 1, 3], &[2, 3, 1, 4], &[2, 0, 3]];
        for layout in shapes.iter().flat_map(|&shape| layouts(&Shape::new(shape))) {
            let expected: Vec<usize> = offsets(&layout).collect();
            let iter = StridedIter::over(&layout);
            assert_eq!(iter.items(), expected.len(), "{layout:?}");
            for start in 0..=expected.len() {
                let (mut found, mut in_runs) = (Vec::new(), Vec::new());
                iter.each(start..expected.len(), |[offset]| found.push(offset as usize));
                assert_eq!(found, expected[start..], "{layout:?} from {start}");
                let end = start + (expected.len() - start) / 2;
                iter.runs(start..end, |first, [offset], length| {
                    assert_eq!(first, start + in_runs.len());
                    in_runs.extend((0..length as isize).map(|i| (offset + i * iter.inner()[0]) as usize));
                });
                assert_eq!(in_runs, expected[start..end], "{layout:?} from {start} to {end}");
            }
        }
    }

    #[test]
    fn axes_that_are_one_run_in_all_tensors_are_merged() {
        let rows = Layout::contiguous(Shape::from((2, 3, 4)));
        assert_eq!(StridedIter::over(&rows).axes.len(), 1);
        assert_eq!(StridedIter::over(&rows.permuted(&[1, 0, 2])).axes.len(), 3);
        let spread = rows.sliced(0, 0, 1, 1).broadcast_to(&Shape::from((2, 3, 4)));
        let both = StridedIter::new(&[2, 3, 4], [rows.strides(), spread.strides()], [0, 0]);
        assert_eq!(both.axes.to_vec(), [Axis { length: 2, strides: [12, 0] }, Axis { length: 12, strides: [1, 1] }]);
    }

    #[test]
    fn ranges_cover_all_items_once() {
        for (items, cost) in [(0, 1), (1, 1 << 20), (7, 1 << 20), (1000, 1), (1000, 100), (100_000, 1)] {
            for threads in Threads::all() {
                let seen = Mutex::new(vec![0; items]);
                parallel_for(&threads, items, cost, |range| {
                    seen.lock().unwrap()[range].iter_mut().for_each(|n| *n += 1);
                })
                .unwrap();
                assert!(seen.into_inner().unwrap().iter().all(|&n| n == 1), "{items} {cost} {threads:?}");
            }
        }
        let ranges = Mutex::new(Vec::new());
        let threads = Threads { count: 8, simd: SimdLevel::Scalar };
        parallel_for(&threads, 100, 10, |range| ranges.lock().unwrap().push(range)).unwrap();
        assert_eq!(ranges.into_inner().unwrap(), vec![0..100], "small work stays on the calling thread");
    }
}
