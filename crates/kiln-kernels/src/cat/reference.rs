//! Concatenation by coordinates.

use crate::gather::reference::{coordinates, number};
use crate::testing::Operand;

pub(super) fn cat(inputs: &[Operand], axis: usize) -> Vec<f64> {
    let length = inputs.iter().map(|input| input.layout.shape()[axis]).sum();
    let shape = inputs[0].layout.shape().with(axis, length);
    let values: Vec<Vec<f64>> = inputs.iter().map(Operand::values).collect();
    let mut result = Vec::new();
    for position in 0..shape.elem_count() {
        let mut place = coordinates(&shape, position);
        let mut input = 0;
        while place[axis] >= inputs[input].layout.shape()[axis] {
            place[axis] -= inputs[input].layout.shape()[axis];
            input += 1;
        }
        result.push(values[input][number(inputs[input].layout.shape(), &place)]);
    }
    result
}
