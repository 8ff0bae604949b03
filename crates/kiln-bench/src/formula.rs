//! Textbook references for ops that are not elementwise: one output element at a time, in `f64` and plain loops.

use crate::Op;
use crate::single::{Operand, broadcast_index};
use kiln::DType;
use kiln::ir::op::Interval;
use kiln::ir::op::reference::softmax;

/// A non-elementwise op called with tensors only: reductions are over all axes, the others along the last axes.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// The sum of all elements.
    Sum,
    /// The mean of all elements.
    Mean,
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
    /// Index of the first largest element.
    ArgMax,
    /// Index of the first smallest element.
    ArgMin,
    /// Softmax of each row.
    Softmax,
    /// Log-softmax of each row.
    LogSoftmax,
    /// Layer normalization of each row with [`Op::EPS`], without weight and bias.
    LayerNorm,
    /// RMS normalization of each row with [`Op::EPS`], without weight.
    RmsNorm,
    /// Matrix product; axes before the last two are batch axes, which broadcast.
    Matmul,
    /// `softmax(q @ kᵀ / sqrt(d)) @ v`, of `(b, h, m, d)`, `(b, h, n, d)` and `(b, h, n, e)`.
    Attention,
}

impl Formula {
    /// Returns the formula of the function with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "max" => Self::Max,
            "min" => Self::Min,
            "argmax" => Self::ArgMax,
            "argmin" => Self::ArgMin,
            "softmax" => Self::Softmax,
            "log_softmax" => Self::LogSoftmax,
            "layer_norm" => Self::LayerNorm,
            "rms_norm" => Self::RmsNorm,
            "matmul" => Self::Matmul,
            "attention" => Self::Attention,
            _ => return None,
        })
    }

    /// Returns the number of operands.
    pub fn operands(self) -> usize {
        match self {
            Self::Attention => 3,
            Self::Matmul => 2,
            _ => 1,
        }
    }

    /// Returns the interval from which operands are sampled.
    pub(crate) fn interval(self, dtype: DType) -> Interval {
        match self {
            _ if !dtype.is_float() => (-1e3, 1e3),
            Self::Softmax | Self::LogSoftmax => (-4.0, 4.0),
            _ => (-1.0, 1.0),
        }
    }

    /// Estimates the steps that [`element`](Self::element) takes.
    pub(crate) fn steps(self, operands: &[Operand]) -> usize {
        let last = |operand: usize| operands[operand].shape.last().copied().unwrap_or(1);
        match self {
            Self::Sum | Self::Mean | Self::Max | Self::Min | Self::ArgMax | Self::ArgMin => operands[0].numbers.len(),
            Self::Attention => last(0) * operands[1].shape.get(2).copied().unwrap_or(1),
            _ => last(0),
        }
    }

    /// Computes one output element. The operands must be valid for the op.
    pub(crate) fn element(self, operands: &[Operand], index: usize) -> f64 {
        let x = &operands[0].numbers;
        let row = |index: usize| {
            let length = operands[0].shape.last().copied().unwrap_or(1);
            (&x[index / length * length..][..length], index % length)
        };
        match self {
            Self::Sum => x.iter().sum(),
            Self::Mean => x.iter().sum::<f64>() / x.len() as f64,
            Self::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
            Self::ArgMax => first(x, |one, other| one > other),
            Self::ArgMin => first(x, |one, other| one < other),
            Self::Softmax | Self::LogSoftmax => {
                let (row, at) = row(index);
                softmax(row, self == Self::LogSoftmax)[at]
            }
            Self::LayerNorm => {
                let (row, at) = row(index);
                layer_norm(row, at)
            }
            Self::RmsNorm => {
                let (row, at) = row(index);
                row[at] / root_mean_square(row.iter().copied())
            }
            Self::Matmul => matmul(&operands[0], &operands[1], index),
            Self::Attention => {
                let [q, _, v] = operands else { return f64::NAN };
                let lengths = [q.shape[2], q.shape[3], v.shape[2], v.shape[3]];
                attention(|operand, index| operands[operand].numbers[index], lengths, index)
            }
        }
    }
}

/// Returns the index of the first element that no other is better than.
fn first(numbers: &[f64], is_better: fn(f64, f64) -> bool) -> f64 {
    let better = |best: usize, index: usize| if is_better(numbers[index], numbers[best]) { index } else { best };
    (0..numbers.len()).fold(0, better) as f64
}

/// Computes an element of a normalized row.
pub(crate) fn layer_norm(row: &[f64], at: usize) -> f64 {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    (row[at] - mean) / root_mean_square(row.iter().map(|number| number - mean))
}

fn root_mean_square(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    (numbers.map(|number| number * number).sum::<f64>() / count + f64::from(Op::EPS)).sqrt()
}

/// Computes an element of a product. A vector is a row on the left and a column on the right.
fn matmul(a: &Operand, b: &Operand, index: usize) -> f64 {
    let k = a.shape.last().copied().unwrap_or(1);
    // A left vector has one row, a right vector one column; neither has batch axes.
    let (left, m) = a.shape[..a.shape.len() - 1].split_last().map_or((&[][..], 1), |(&m, batches)| (batches, m));
    let (right, n) = match &b.shape[..] {
        [batches @ .., _, n] => (batches, *n),
        _ => (&[][..], 1),
    };
    let (batch, row, column) = (index / (m * n), index / n % m, index % n);
    let rank = left.len().max(right.len());
    let length = |batches: &[usize], axis: usize| {
        // Batch axes are aligned at the last one, as in every broadcast.
        let own = (batches.len() + axis).checked_sub(rank);
        own.map_or(1, |axis| batches[axis])
    };
    let space: Vec<usize> = (0..rank).map(|axis| length(left, axis).max(length(right, axis))).collect();
    let (of_a, of_b) = (broadcast_index(&space, batch, left) * m * k, broadcast_index(&space, batch, right) * k * n);
    (0..k).map(|step| a.numbers[of_a + row * k + step] * b.numbers[of_b + step * n + column]).sum()
}

/// Computes an element of attention: `m` queries of length `d`, `n` keys, values of length `e`. `at` returns an element of an operand.
pub(crate) fn attention(at: impl Fn(usize, usize) -> f64, [m, d, n, e]: [usize; 4], index: usize) -> f64 {
    let (query, column) = (index / e, index % e);
    // `query` counts the queries of all heads, so this is the first key of its head.
    let head = query / m * n;
    let score = |key: usize| {
        let products = (0..d).map(|step| at(0, query * d + step) * at(1, (head + key) * d + step));
        products.sum::<f64>() / (d as f64).sqrt()
    };
    let weights = softmax(&(0..n).map(score).collect::<Vec<_>>(), false);
    weights.iter().enumerate().map(|(key, weight)| weight * at(2, (head + key) * e + column)).sum()
}
