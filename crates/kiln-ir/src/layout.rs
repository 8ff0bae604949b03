//! Strided memory layouts.

use crate::Shape;
use smallvec::SmallVec;

/// Maps the elements of a tensor to positions in a buffer: a shape, strides and an offset, in elements.
///
/// ```
/// use kiln_ir::{Layout, Shape};
///
/// let rows = Layout::contiguous(Shape::from((2, 3)));
/// let columns = rows.permuted(&[1, 0]);
/// assert_eq!(columns.shape(), &Shape::from((3, 2)));
/// assert_eq!(columns.strides(), [1, 3]);
/// assert!(!columns.is_contiguous());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: SmallVec<[isize; 4]>,
    offset: usize,
}

impl Layout {
    /// Creates a contiguous row-major layout with offset 0.
    pub fn contiguous(shape: Shape) -> Self {
        Self { strides: shape.strides(), shape, offset: 0 }
    }

    /// Creates a layout from strides and an offset. The caller has checked them against the buffer.
    ///
    /// # Panics
    /// Panics if the number of strides differs from the number of axes.
    pub fn strided(shape: Shape, strides: &[isize], offset: usize) -> Self {
        assert_eq!(shape.rank(), strides.len(), "a layout has a stride for each axis");
        Self { shape, strides: SmallVec::from_slice(strides), offset }
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the stride of each axis, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Returns the offset of the first element, in elements.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns whether the elements are row-major without gaps, at any offset.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape.elem_count() == 0
            || self.shape.iter().zip(&self.strides).rev().all(|(&length, &stride)| {
                let fits = length == 1 || stride == expected;
                expected *= length as isize;
                fits
            })
    }

    /// Returns whether all elements share one position, as after broadcasting a scalar.
    pub fn is_splat(&self) -> bool {
        self.shape.iter().zip(&self.strides).all(|(&length, &stride)| length == 1 || stride == 0)
    }

    /// Returns the range from the lowest to one past the highest position; empty if there are no elements.
    pub fn range(&self) -> std::ops::Range<usize> {
        if self.shape.elem_count() == 0 {
            return 0..0;
        }
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (&length, &stride) in self.shape.iter().zip(&self.strides) {
            let step = stride * (length as isize - 1);
            *(if step < 0 { &mut low } else { &mut high }) += step;
        }
        low as usize..high as usize + 1
    }

    /// Returns the layout relative to a buffer that begins `elements` later, which must not be past the lowest
    /// position.
    #[must_use]
    pub fn starting_at(&self, elements: usize) -> Self {
        debug_assert!(elements <= self.range().start, "the buffer begins before the first element");
        Self { offset: self.offset - elements, ..self.clone() }
    }

    /// Permutes the axes: axis `i` of the result is axis `axes[i]` of `self`.
    #[must_use]
    pub fn permuted(&self, axes: &[usize]) -> Self {
        let shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Self { shape, strides, offset: self.offset }
    }

    /// Broadcasts to a shape; repeated axes have stride 0.
    ///
    /// # Panics
    /// Panics if the layout's shape does not [broadcast](Shape::broadcast) to `shape`.
    #[must_use]
    pub fn broadcast_to(&self, shape: &Shape) -> Self {
        assert_eq!(self.shape.broadcast(shape).as_ref(), Some(shape), "{} broadcasts to {shape}", self.shape);
        let front = shape.rank() - self.shape.rank();
        let strides = (0..shape.rank()).map(|axis| match axis.checked_sub(front) {
            Some(own) if self.shape[own] == shape[axis] => self.strides[own],
            _ => 0,
        });
        Self { strides: strides.collect(), shape: shape.clone(), offset: self.offset }
    }

    /// Selects `length` elements along an axis: every `step`-th from `start`. A negative step walks backwards. The
    /// caller has checked the bounds.
    #[must_use]
    pub fn sliced(&self, axis: usize, start: usize, length: usize, step: isize) -> Self {
        let (mut strides, shape) = (self.strides.clone(), self.shape.with(axis, length));
        // An empty layout has offset 0, because `start` may be past the end of the buffer.
        let start = start as isize * strides[axis];
        let offset = if shape.elem_count() == 0 { 0 } else { self.offset.wrapping_add_signed(start) };
        strides[axis] *= step;
        Self { shape, strides, offset }
    }

    /// Drops axes of length 1 and merges adjacent axes that are contiguous in every list of strides. Returns the
    /// remaining lengths and strides.
    pub fn merge_axes(lengths: &[usize], strides: &[&[isize]]) -> (Vec<usize>, Vec<Vec<isize>>) {
        let (mut merged, mut steps): (Vec<usize>, _) = (Vec::new(), vec![Vec::new(); strides.len()]);
        for (axis, &length) in lengths.iter().enumerate().filter(|&(_, &length)| length != 1) {
            let continues = |(own, all): (&Vec<isize>, &&[isize])| {
                own.last().is_some_and(|&outer| outer == all[axis].wrapping_mul(length as isize))
            };
            match merged.last_mut() {
                Some(last) if steps.iter().zip(strides).all(continues) => {
                    *last *= length;
                    steps.iter_mut().for_each(|own| own.truncate(own.len() - 1));
                }
                _ => merged.push(length),
            }
            steps.iter_mut().zip(strides).for_each(|(own, all)| own.push(all[axis]));
        }
        (merged, steps)
    }

    /// Returns a layout with the same elements in the same order under another shape, or `None` if no strides can
    /// express it and a copy is needed.
    ///
    /// # Panics
    /// Panics if the numbers of elements differ.
    pub fn reshaped(&self, shape: &Shape) -> Option<Self> {
        assert_eq!(self.shape.elem_count(), shape.elem_count(), "{} has as many elements as {shape}", self.shape);
        if self.shape.elem_count() == 0 {
            return Some(Self::contiguous(shape.clone()));
        }
        // Axes of length 1 are ignored. The others are matched in groups of equal element count, each of which must
        // be contiguous.
        let old: SmallVec<[(usize, isize); 6]> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|&(length, _)| length != 1).collect();
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, shape.rank());
        let (mut next, mut axis) = (0, 0);
        // No index below runs past its end: both shapes have the same number of elements, so a smaller product on one
        // side means that axes are left on that side.
        while next < old.len() {
            let (mut old_elements, first) = (old[next].0, next);
            next += 1;
            let (mut new_elements, first_axis) = (shape[axis], axis);
            axis += 1;
            while old_elements != new_elements {
                if old_elements < new_elements {
                    // Two axes merge only if the outer stride equals the extent of the inner axis.
                    if old[next - 1].1 != old[next].1 * old[next].0 as isize {
                        return None;
                    }
                    old_elements *= old[next].0;
                    next += 1;
                } else {
                    new_elements *= shape[axis];
                    axis += 1;
                }
            }
            debug_assert!(first < next, "every group has an axis");
            let mut stride = old[next - 1].1;
            for axis in (first_axis..axis).rev() {
                strides[axis] = stride;
                stride *= shape[axis] as isize;
            }
        }
        Some(Self { shape: shape.clone(), strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of all elements in row-major order.
    fn offsets(layout: &Layout) -> Vec<isize> {
        let mut offsets = vec![layout.offset() as isize];
        for (&length, &stride) in layout.shape().iter().zip(layout.strides()) {
            offsets =
                offsets.iter().flat_map(|offset| (0..length as isize).map(move |i| offset + i * stride)).collect();
        }
        offsets
    }

    #[test]
    fn views_address_the_expected_elements() {
        let base = Layout::contiguous(Shape::from((2, 3, 4)));
        assert_eq!(offsets(&base), (0..24).collect::<Vec<_>>());
        assert_eq!(offsets(&base.permuted(&[2, 0, 1]))[..4], [0, 4, 8, 12]);
        assert_eq!(offsets(&base.sliced(2, 1, 2, 2).sliced(0, 1, 1, 1)), [13, 15, 17, 19, 21, 23]);
        assert_eq!(offsets(&base.sliced(1, 2, 3, -1))[..5], [8, 9, 10, 11, 4]);
        let broadcast = Layout::contiguous(Shape::from((2, 1))).broadcast_to(&Shape::from((2, 2, 2)));
        assert_eq!(offsets(&broadcast), [0, 0, 1, 1, 0, 0, 1, 1]);
        for layout in [base.permuted(&[2, 0, 1]), base.sliced(1, 2, 3, -1), base.sliced(0, 2, 0, 1), broadcast] {
            let offsets = offsets(&layout);
            let range =
                offsets.iter().min().map_or(0..0, |&low| low as usize..*offsets.iter().max().unwrap() as usize + 1);
            assert_eq!(layout.range().len(), range.len(), "{layout:?}");
        }
    }

    /// A reshape of a view either keeps the elements in order, or returns `None`, and then no strides can express it.
    #[test]
    fn a_reshape_keeps_the_order_of_the_elements() {
        let base = Layout::contiguous(Shape::from((2, 3, 4)));
        let one = Layout::contiguous(Shape::from(1)).broadcast_to(&Shape::from((2, 3, 4)));
        let views = [base.clone(), base.permuted(&[0, 2, 1]), base.permuted(&[2, 1, 0]), one, base.sliced(1, 2, 3, -1)];
        let shapes: [&[usize]; 8] =
            [&[24], &[6, 4], &[2, 12], &[2, 3, 2, 2], &[1, 24, 1], &[4, 6], &[2, 1, 3, 4], &[3, 8]];
        let mut refused = 0;
        for view in &views {
            for shape in shapes.map(Shape::new) {
                // If strides exist, they are the distances from the first element to the second along each axis.
                let (offsets_of_view, steps) = (offsets(view), shape.strides());
                let distance = |axis: usize| offsets_of_view[steps[axis] as usize % 24] - offsets_of_view[0];
                let strides: Vec<isize> =
                    (0..shape.rank()).map(|axis| if shape[axis] == 1 { 0 } else { distance(axis) }).collect();
                let is_possible = offsets(&Layout::strided(shape.clone(), &strides, view.offset())) == offsets_of_view;
                let reshaped = view.reshaped(&shape);
                assert_eq!(reshaped.is_some(), is_possible, "{view:?} {shape}");
                refused += usize::from(!is_possible);
                if let Some(reshaped) = reshaped {
                    assert_eq!(offsets(&reshaped), offsets_of_view, "{view:?} {shape}");
                }
            }
        }
        assert!((10..30).contains(&refused), "{refused} of 40 refused");
        let empty = Layout::contiguous(Shape::from((2, 0))).reshaped(&Shape::from((0, 5))).unwrap();
        assert_eq!(offsets(&empty), []);
    }
}
