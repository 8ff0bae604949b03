//! Scatter by coordinates.

use crate::gather::reference::{coordinates, number};
use crate::testing::Operand;

pub(super) fn scatter(x: &Operand, index: &Operand, source: &Operand, axis: usize, add: bool) -> Vec<f64> {
    let (mut result, indices, source) = (x.values(), index.values(), source.values());
    for (position, &index_value) in indices.iter().enumerate() {
        let mut place = coordinates(index.layout.shape(), position);
        place[axis] = index_value as usize;
        let element = &mut result[number(x.layout.shape(), &place)];
        *element = source[position] + if add { *element } else { 0.0 };
    }
    result
}
