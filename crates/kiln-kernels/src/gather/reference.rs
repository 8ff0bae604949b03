//! Gather by coordinates.

use crate::testing::Operand;
use kiln_ir::Shape;

/// Returns the coordinates of a row-major index.
pub(crate) fn coordinates(shape: &Shape, mut number: usize) -> Vec<usize> {
    let mut coordinates = vec![0; shape.rank()];
    for axis in (0..shape.rank()).rev() {
        coordinates[axis] = number % shape[axis];
        number /= shape[axis];
    }
    coordinates
}

/// Returns the row-major index of coordinates.
pub(crate) fn number(shape: &Shape, coordinates: &[usize]) -> usize {
    coordinates.iter().zip(shape.iter()).fold(0, |number, (&coordinate, &length)| number * length + coordinate)
}

pub(super) fn gather(x: &Operand, index: &Operand, axis: usize) -> Vec<f64> {
    let (from, indices) = (x.values(), index.values());
    let mut result = Vec::new();
    for (position, &index_value) in indices.iter().enumerate() {
        let mut place = coordinates(index.layout.shape(), position);
        place[axis] = index_value as usize;
        result.push(from[number(x.layout.shape(), &place)]);
    }
    result
}

pub(super) fn index_select(x: &Operand, index: &Operand, axis: usize) -> Vec<f64> {
    let (from, indices) = (x.values(), index.values());
    let shape = x.layout.shape().with(axis, indices.len());
    let mut result = Vec::new();
    for position in 0..shape.elem_count() {
        let mut place = coordinates(&shape, position);
        place[axis] = indices[place[axis]] as usize;
        result.push(from[number(x.layout.shape(), &place)]);
    }
    result
}
