//! Reference arrays in `f64` with plain loops. Slow and obvious on purpose.

use crate::View;
use kiln_ir::op::reference;

/// Numbers in row-major order, with a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    shape: Vec<usize>,
    numbers: Vec<f64>,
}

impl Array {
    /// Creates an array of these numbers.
    ///
    /// # Panics
    /// Panics if the number of elements does not match the shape.
    pub fn new(shape: &[usize], numbers: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), numbers.len(), "numbers of an array of {shape:?}");
        Self { shape: shape.to_vec(), numbers }
    }

    /// Creates an array by calling `number_at` with each index, in row-major order.
    pub fn from_fn(shape: &[usize], mut number_at: impl FnMut(&[usize]) -> f64) -> Self {
        let mut numbers = Vec::with_capacity(shape.iter().product());
        for_each_index(shape, |index| numbers.push(number_at(index)));
        Self::new(shape, numbers)
    }

    /// Returns the lengths along the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the numbers in row-major order.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// Returns the number at an index.
    ///
    /// # Panics
    /// Panics if the index is out of bounds.
    pub fn at(&self, index: &[usize]) -> f64 {
        assert_eq!(index.len(), self.shape.len(), "{index:?} of {:?}", self.shape);
        let place = index.iter().zip(&self.shape).fold(0, |place, (&at, &length)| {
            assert!(at < length, "{index:?} of {:?}", self.shape);
            place * length + at
        });
        self.numbers[place]
    }

    /// Applies a function to each number.
    #[must_use]
    pub fn map(&self, function: impl FnMut(f64) -> f64) -> Self {
        Self { shape: self.shape.clone(), numbers: self.numbers.iter().copied().map(function).collect() }
    }

    /// Applies a function to pairs of numbers of two arrays, broadcast to a common shape.
    ///
    /// # Panics
    /// Panics if the shapes do not match.
    #[must_use]
    pub fn zip(&self, other: &Self, mut function: impl FnMut(f64, f64) -> f64) -> Self {
        let shape = together(&self.shape, &other.shape);
        let (a, b) = (self.broadcast(&shape), other.broadcast(&shape));
        let numbers = a.numbers.iter().zip(&b.numbers).map(|(&a, &b)| function(a, b)).collect();
        Self { shape, numbers }
    }

    /// Broadcasts the array to a shape.
    ///
    /// # Panics
    /// Panics if the shapes do not match.
    #[must_use]
    pub fn broadcast(&self, shape: &[usize]) -> Self {
        let added = shape.len().checked_sub(self.shape.len()).expect("a broadcast cannot remove axes");
        for (&own, &wanted) in self.shape.iter().zip(&shape[added..]) {
            assert!(own == wanted || own == 1, "{:?} broadcast to {shape:?}", self.shape);
        }
        Self::from_fn(shape, |index| {
            let own = self.shape.iter().zip(&index[added..]);
            self.at(&own.map(|(&length, &place)| if length == 1 { 0 } else { place }).collect::<Vec<_>>())
        })
    }

    /// Reduces some axes with a function of all numbers along them, in row-major order. The axes keep the length 1.
    #[must_use]
    pub fn reduce(&self, axes: &[usize], function: impl Fn(&[f64]) -> f64) -> Self {
        let kept: Vec<usize> = self
            .shape
            .iter()
            .enumerate()
            .map(|(axis, &length)| if axes.contains(&axis) { 1 } else { length })
            .collect();
        let inner: Vec<usize> = axes_in_order(axes).map(|axis| self.shape[axis]).collect();
        Self::from_fn(&kept, |index| {
            let mut along = Vec::new();
            for_each_index(&inner, |places| {
                let mut from = index.to_vec();
                axes_in_order(axes).zip(places).for_each(|(axis, &place)| from[axis] = place);
                along.push(self.at(&from));
            });
            function(&along)
        })
    }

    /// Multiplies matrices in the last two axes, and broadcasts the axes before them.
    ///
    /// # Panics
    /// Panics if the shapes do not match.
    #[must_use]
    pub fn matmul(&self, other: &Self) -> Self {
        let (a, b) = (&self.shape, &other.shape);
        let ([rows, inner], [inner_of_other, columns]) = (matrix(a), matrix(b));
        assert_eq!(inner, inner_of_other, "{a:?} @ {b:?}");
        let batch = together(&a[..a.len() - 2], &b[..b.len() - 2]);
        let spread = |array: &Self, lengths: [usize; 2]| array.broadcast(&[&batch[..], &lengths].concat());
        let (left, right) = (spread(self, [rows, inner]), spread(other, [inner, columns]));
        Self::from_fn(&[&batch[..], &[rows, columns]].concat(), |index| {
            let (outer, place) = index.split_at(batch.len());
            let term = |k| left.at(&[outer, &[place[0], k]].concat()) * right.at(&[outer, &[k, place[1]]].concat());
            (0..inner).map(term).sum()
        })
    }

    /// Returns the softmax along an axis, or its logarithm.
    #[must_use]
    pub fn softmax(&self, axis: usize, log: bool) -> Self {
        let swap = View::Transpose(axis, self.shape.len() - 1);
        let rows = self.view(&swap);
        let length = self.shape[axis].max(1);
        let numbers = rows.numbers.chunks(length).flat_map(|row| reference::softmax(row, log)).collect();
        Self { numbers, ..rows }.view(&swap)
    }
}

/// Calls `visit` with each index of a shape, in row-major order.
pub(crate) fn for_each_index(shape: &[usize], mut visit: impl FnMut(&[usize])) {
    let mut index = vec![0; shape.len()];
    for _ in 0..shape.iter().product() {
        visit(&index);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

fn axes_in_order(axes: &[usize]) -> impl Iterator<Item = usize> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    axes.into_iter()
}

/// Returns the shape that both broadcast to.
fn together(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let length = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let both = |axis| match (length(a, axis), length(b, axis)) {
        (1, other) | (other, 1) => other,
        (own, other) if own == other => own,
        _ => panic!("{a:?} and {b:?} do not match"),
    };
    (0..rank).map(both).collect()
}

fn matrix(shape: &[usize]) -> [usize; 2] {
    assert!(shape.len() >= 2, "a matrix has two axes, found {shape:?}");
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> Array {
        let count = shape.iter().product::<usize>();
        Array::new(shape, (0..count).map(|number| number as f64).collect())
    }

    #[test]
    fn functions_of_two_arrays_spread_both() {
        let sums = counted(&[2, 1]).zip(&counted(&[3]), |a, b| 10.0 * a + b);
        assert_eq!(sums, Array::new(&[2, 3], vec![0.0, 1.0, 2.0, 10.0, 11.0, 12.0]));
        assert_eq!(counted(&[0, 2]).zip(&counted(&[1]), |a, _| a).shape(), [0, 2]);
        assert_eq!(counted(&[]).zip(&counted(&[]), |a, b| a + b + 1.0), Array::new(&[], vec![1.0]));
    }

    #[test]
    fn reductions_see_the_numbers_of_their_axes_in_order() {
        let array = counted(&[2, 3, 2]);
        let digits = |row: &[f64]| row.iter().fold(0.0, |digits, number| 100.0 * digits + number);
        assert_eq!(array.reduce(&[1], digits).numbers(), [204.0, 10305.0, 60810.0, 70911.0]);
        assert_eq!(array.reduce(&[2, 0], digits).numbers(), [10607.0, 2030809.0, 4051011.0]);
        assert_eq!(counted(&[0, 2]).reduce(&[0], |row| row.len() as f64), Array::new(&[1, 2], vec![0.0, 0.0]));
    }

    #[test]
    fn products_and_softmax_are_those_computed_by_hand() {
        let product = counted(&[2, 1, 2]).matmul(&counted(&[2, 2]));
        assert_eq!(product, Array::new(&[2, 1, 2], vec![2.0, 3.0, 6.0, 11.0]));
        let half = Array::new(&[1, 2], vec![7.0, 7.0]).softmax(1, false);
        assert_eq!(half.numbers(), [0.5, 0.5]);
    }
}
