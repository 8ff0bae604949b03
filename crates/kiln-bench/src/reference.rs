//! Reference outputs: one element at a time, in `f64` and plain loops.

use crate::Op;
use crate::formula::{attention, layer_norm};
use kiln::ir::op::reference::softmax;

/// The expected value of an output element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Expected {
    pub(crate) value: f64,
    /// Sum of the magnitudes of its terms, which bounds the rounding error of a sum; 0 if it is not a sum.
    pub(crate) terms: f64,
}

/// Computes one output element from these inputs.
pub(crate) fn element(op: &Op, inputs: &[Vec<f32>], index: usize) -> Expected {
    let at = |input: usize, index: usize| f64::from(inputs[input][index]);
    let row = |columns: usize| -> Vec<f64> {
        let start = index / columns * columns;
        (start..start + columns).map(|index| at(0, index)).collect()
    };
    match *op {
        Op::Matmul { k, n, .. } => sum((0..k).map(|l| at(0, index / n * k + l) * at(1, l * n + index % n))),
        Op::LinearGelu { k, n, .. } => {
            let product = sum((0..k).map(|l| at(0, index / n * k + l) * at(1, l * n + index % n)));
            Expected { value: gelu(product.value + at(2, index % n)), terms: product.terms }
        }
        Op::Add { .. } => plain(at(0, index) + at(1, index)),
        Op::MulAddRelu { .. } => plain((at(0, index) * at(1, index) + at(2, index)).max(0.0)),
        Op::Chain8 { .. } => {
            let (a, b) = (at(0, index), at(1, index));
            plain(-((a * b + a) * 0.5 - b).abs().max(a).min(0.75))
        }
        Op::Gelu { .. } => plain(gelu(at(0, index))),
        Op::Sum { len } => sum((0..len).map(|i| at(0, i))),
        Op::RowSums { columns, .. } => sum((0..columns).map(|j| at(0, index * columns + j))),
        Op::Softmax { columns, .. } => plain(softmax(&row(columns), false)[index % columns]),
        Op::LayerNorm { columns, .. } => {
            plain(layer_norm(&row(columns), index % columns) * at(1, index % columns) + at(2, index % columns))
        }
        Op::Attention { len, width, .. } => plain(attention(at, [len, width, len, width], index)),
        Op::Cumsum { columns, .. } => sum((index / columns * columns..=index).map(|index| at(0, index))),
        Op::Sort { columns, .. } => plain(sorted(row(columns))[index % columns]),
        Op::Topk { columns, k, .. } => {
            let start = index / k * columns;
            let row = sorted((start..start + columns).map(|index| at(0, index)).collect());
            plain(row[columns - 1 - index % k])
        }
        Op::MaxPool { size, .. } => plain(max_pool(&at, size, index)),
        Op::TinyChain { steps, len, .. } => plain(steps as f64 * at(0, index % len)),
        Op::TinyIndependent { len, .. } => plain(at(0, index) + at(1, index % len)),
        Op::Mlp { width, .. } => mlp(&at, width, index),
    }
}

/// Returns the magnitude of intermediate values that a library may round to the dtype. The error is a few times this, times
/// [`ElementType::epsilon`](crate::ElementType::epsilon), even if the element itself is near zero.
pub(crate) fn intermediate_magnitude(op: &Op) -> f64 {
    match op {
        Op::Matmul { .. } | Op::Sum { .. } | Op::RowSums { .. } | Op::Softmax { .. } | Op::Cumsum { .. } => 0.0,
        Op::Sort { .. } | Op::Topk { .. } | Op::MaxPool { .. } => 0.0,
        Op::Attention { .. } => 0.5,
        Op::Mlp { .. } => 4.0,
        _ => 1.0,
    }
}

/// Estimates the steps, about multiply-adds, that [`element`] takes for one element.
pub(crate) fn steps_per_element(op: &Op) -> usize {
    match *op {
        Op::Matmul { k, .. } | Op::LinearGelu { k, .. } => k,
        Op::Sum { len } => len,
        Op::RowSums { columns, .. }
        | Op::Softmax { columns, .. }
        | Op::LayerNorm { columns, .. }
        | Op::Cumsum { columns, .. } => columns,
        // The whole row is sorted for one element; the factor stands for the logarithm of its length.
        Op::Sort { columns, .. } | Op::Topk { columns, .. } => 16 * columns,
        Op::MaxPool { .. } => 9,
        Op::Attention { len, width, .. } => len * width,
        Op::Mlp { width, .. } => width * width,
        _ => 1,
    }
}

fn plain(value: f64) -> Expected {
    Expected { value, terms: 0.0 }
}

fn sum(terms: impl Iterator<Item = f64>) -> Expected {
    let none = Expected { value: 0.0, terms: 0.0 };
    terms.fold(none, |so_far, term| Expected { value: so_far.value + term, terms: so_far.terms + term.abs() })
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers
}

/// Window 3, stride 2, padding 1: position `p` covers the indices from `2p - 1` to `2p + 1`.
fn max_pool(at: &impl Fn(usize, usize) -> f64, size: usize, index: usize) -> f64 {
    let positions = size.div_ceil(2);
    let (plane, down, across) = (index / (positions * positions), index / positions % positions, index % positions);
    let covered = |position: usize| (2 * position).saturating_sub(1)..(2 * position + 2).min(size);
    let all = covered(down).flat_map(|y| covered(across).map(move |x| (plane * size + y) * size + x));
    all.map(|index| at(0, index)).fold(f64::NEG_INFINITY, f64::max)
}

fn gelu(x: f64) -> f64 {
    (kiln::ir::op::GELU.reference())(&[x])
}

fn mlp(at: &impl Fn(usize, usize) -> f64, width: usize, index: usize) -> Expected {
    let (row, column) = (index / width, index % width);
    let hidden = |j: usize| {
        let product: f64 = (0..width).map(|l| at(0, row * width + l) * at(1, l * width + j)).sum();
        (product + at(2, j)).max(0.0)
    };
    let product = sum((0..width).map(|j| hidden(j) * at(3, j * width + column)));
    Expected { value: product.value + at(4, column), terms: product.terms }
}
