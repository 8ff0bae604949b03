//! The op of a workload, with its inputs and cost.

use crate::Input;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Storage type of the elements. Accumulation is in `f32` or better.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// Four bytes.
    F32,
    /// Two bytes.
    F16,
}

impl ElementType {
    /// All types.
    pub const ALL: [Self; 2] = [Self::F32, Self::F16];

    /// Returns the name: `f32` or `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }

    /// Returns the size of an element in bytes.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// Rounds to the nearest value of this type.
    pub fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::F16 => half::f16::from_f32(value).to_f32(),
        }
    }

    /// Returns the machine epsilon: the distance from 1 to the next larger number.
    pub fn epsilon(self) -> f64 {
        match self {
            Self::F32 => f64::from(f32::EPSILON),
            Self::F16 => half::f16::EPSILON.to_f64(),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The op of a workload. Every measured library computes the same on the same inputs.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "op")]
#[expect(missing_docs, reason = "the lengths are named in the sentence of their op")]
pub enum Op {
    /// `a @ b`, with `a` of `(m, k)` and `b` of `(k, n)`. A matrix-vector product has `m = 1`.
    Matmul { m: usize, k: usize, n: usize },
    /// `gelu(x @ w + b)`, with `x` of `(m, k)`, `w` of `(k, n)`, `b` of `n`; GELU in its tanh form.
    LinearGelu { m: usize, k: usize, n: usize },
    /// `a + b`.
    Add { len: usize },
    /// `relu(a * b + c)`.
    MulAddRelu { len: usize },
    /// Eight cheap ops on two inputs: `-min(max(|(a * b + a) * 0.5 - b|, a), 0.75)`.
    Chain8 { len: usize },
    /// `gelu(x)` in its tanh form.
    Gelu { len: usize },
    /// The sum of all elements.
    Sum { len: usize },
    /// The sum of each row of `(rows, columns)`.
    RowSums { rows: usize, columns: usize },
    /// The softmax of each row.
    Softmax { rows: usize, columns: usize },
    /// Layer normalization of each row with [`EPS`](Op::EPS), a weight and a bias.
    LayerNorm { rows: usize, columns: usize },
    /// The cumulative sum of each row.
    Cumsum { rows: usize, columns: usize },
    /// Each row in ascending order.
    Sort { rows: usize, columns: usize },
    /// The `k` largest elements of each row, in descending order.
    Topk { rows: usize, columns: usize, k: usize },
    /// Max pooling with a 3×3 window, stride 2 and padding 1 over `(1, planes, size, size)`.
    MaxPool { planes: usize, size: usize },
    /// `softmax(q @ kᵀ / sqrt(width)) @ v`, with `q`, `k` and `v` of `(1, heads, len, width)`.
    Attention { heads: usize, len: usize, width: usize },
    /// Dependent small adds: `chains` times, `x` starts from zeros and `x = x + y` is done `steps` times.
    ///
    /// `y` is -2⁻¹⁰, 0 or 2⁻¹⁰ and there are at most 2,000 steps, so that rounding to `f16` after each step gives the same result as
    /// keeping `f32` in between.
    TinyChain { chains: usize, steps: usize, len: usize },
    /// Independent small adds: `count` tensors `a_i`, and `count` results `a_i + b` that are all kept.
    TinyIndependent { count: usize, len: usize },
    /// `relu(x @ w1 + b1) @ w2 + b2`, with `x` of `(batch, width)`.
    Mlp { batch: usize, width: usize },
}

impl Op {
    /// The epsilon that [`LayerNorm`](Op::LayerNorm) adds to the variance.
    pub const EPS: f32 = 1e-5;

    /// Returns the inputs, in the order of the variant's description.
    pub fn inputs(&self) -> Vec<Input> {
        let shapes: Vec<(Vec<usize>, f32)> = match *self {
            Self::Matmul { m, k, n } => vec![(vec![m, k], 1.0), (vec![k, n], 1.0)],
            // The scale keeps the product in the range where GELU is nonlinear.
            Self::LinearGelu { m, k, n } => vec![(vec![m, k], 1.0), (vec![k, n], 0.0625), (vec![n], 1.0)],
            Self::Add { len } | Self::Chain8 { len } => vec![(vec![len], 1.0), (vec![len], 1.0)],
            Self::MulAddRelu { len } => vec![(vec![len], 1.0), (vec![len], 1.0), (vec![len], 1.0)],
            Self::Gelu { len } => vec![(vec![len], 4.0)],
            Self::Sum { len } => vec![(vec![len], 1.0)],
            Self::RowSums { rows, columns } => vec![(vec![rows, columns], 1.0)],
            Self::Softmax { rows, columns } => vec![(vec![rows, columns], 4.0)],
            Self::Cumsum { rows, columns } | Self::Sort { rows, columns } | Self::Topk { rows, columns, .. } => {
                vec![(vec![rows, columns], 1.0)]
            }
            Self::MaxPool { planes, size } => vec![(vec![1, planes, size, size], 1.0)],
            Self::LayerNorm { rows, columns } => {
                vec![(vec![rows, columns], 1.0), (vec![columns], 1.0), (vec![columns], 1.0)]
            }
            Self::Attention { heads, len, width } => vec![(vec![1, heads, len, width], 1.0); 3],
            Self::TinyChain { len, .. } => vec![(vec![len], 2f32.powi(-10))],
            Self::TinyIndependent { count, len } => vec![(vec![count, len], 1.0), (vec![len], 1.0)],
            Self::Mlp { batch, width } => vec![
                (vec![batch, width], 1.0),
                (vec![width, width], 0.25),
                (vec![width], 1.0),
                (vec![width, width], 0.25),
                (vec![width], 1.0),
            ],
        };
        let is_whole = matches!(self, Self::TinyChain { .. });
        let numbered = shapes.into_iter().zip(1..);
        numbered.map(|((shape, scale), seed)| Input { shape, seed, scale, is_whole }).collect()
    }

    /// Returns the elements of the inputs, rounded to the dtype.
    pub fn data(&self, dtype: ElementType) -> Vec<Vec<f32>> {
        self.inputs().iter().map(|input| input.elements_of(dtype)).collect()
    }

    /// Returns the output shape; several outputs are stacked along the first axis.
    pub fn output_shape(&self) -> Vec<usize> {
        match *self {
            Self::Matmul { m, n, .. } | Self::LinearGelu { m, n, .. } => vec![m, n],
            Self::Add { len } | Self::MulAddRelu { len } | Self::Chain8 { len } | Self::Gelu { len } => vec![len],
            Self::Sum { .. } => vec![],
            Self::RowSums { rows, .. } => vec![rows],
            Self::Softmax { rows, columns }
            | Self::LayerNorm { rows, columns }
            | Self::Cumsum { rows, columns }
            | Self::Sort { rows, columns } => vec![rows, columns],
            Self::Topk { rows, k, .. } => vec![rows, k],
            Self::MaxPool { planes, size } => vec![1, planes, size.div_ceil(2), size.div_ceil(2)],
            Self::Attention { heads, len, width } => vec![1, heads, len, width],
            Self::TinyChain { chains, len, .. } => vec![chains, len],
            Self::TinyIndependent { count, len } => vec![count, len],
            Self::Mlp { batch, width } => vec![batch, width],
        }
    }

    /// Returns the number of output elements.
    pub fn output_elem_count(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// Returns the number of ops per run for small adds, where the time per op matters. Otherwise 1.
    pub fn ops_per_run(&self) -> usize {
        match *self {
            Self::TinyChain { chains, steps, .. } => chains * steps,
            Self::TinyIndependent { count, .. } => count,
            _ => 1,
        }
    }

    /// Returns the number of FLOPs of a run. A function such as `exp` or `tanh` counts as one, so the roofline time for GELU and softmax
    /// is an underestimate.
    pub fn flops(&self) -> f64 {
        let flops = match *self {
            Self::Matmul { m, k, n } => 2 * m * k * n,
            Self::LinearGelu { m, k, n } => 2 * m * k * n + 9 * m * n,
            Self::Add { len } | Self::Sum { len } => len,
            Self::MulAddRelu { len } => 3 * len,
            Self::Chain8 { len } | Self::Gelu { len } => 8 * len,
            Self::RowSums { rows, columns } | Self::Cumsum { rows, columns } => rows * columns,
            Self::Sort { rows, columns } => rows * columns * columns.max(2).ilog2() as usize,
            Self::Topk { rows, columns, .. } => rows * columns,
            Self::MaxPool { .. } => 9 * self.output_elem_count(),
            Self::Softmax { rows, columns } => 5 * rows * columns,
            Self::LayerNorm { rows, columns } => 7 * rows * columns,
            Self::Attention { heads, len, width } => heads * len * len * (4 * width + 5),
            Self::TinyChain { len, .. } | Self::TinyIndependent { len, .. } => self.ops_per_run() * len,
            Self::Mlp { batch, width } => 4 * batch * width * width + 3 * batch * width,
        };
        flops as f64
    }

    /// Returns the minimum number of bytes that a run reads.
    pub fn bytes_read(&self, dtype: ElementType) -> f64 {
        (self.inputs().iter().map(Input::elem_count).sum::<usize>() * dtype.size_bytes()) as f64
    }

    /// Returns the minimum number of bytes that a run writes.
    pub fn bytes_written(&self, dtype: ElementType) -> f64 {
        (self.output_elem_count() * dtype.size_bytes()) as f64
    }
}

/// Small instances of every op, in both dtypes.
#[cfg(test)]
pub(crate) fn small_ops() -> Vec<(Op, ElementType)> {
    let ops = [
        Op::Matmul { m: 3, k: 40, n: 5 },
        Op::LinearGelu { m: 3, k: 40, n: 5 },
        Op::Add { len: 100 },
        Op::MulAddRelu { len: 100 },
        Op::Chain8 { len: 100 },
        Op::Gelu { len: 100 },
        Op::Sum { len: 100 },
        Op::RowSums { rows: 7, columns: 30 },
        Op::Softmax { rows: 7, columns: 30 },
        Op::LayerNorm { rows: 7, columns: 30 },
        Op::Cumsum { rows: 7, columns: 30 },
        Op::Sort { rows: 7, columns: 30 },
        Op::Topk { rows: 7, columns: 30, k: 4 },
        Op::MaxPool { planes: 3, size: 9 },
        Op::Attention { heads: 2, len: 9, width: 4 },
        Op::TinyChain { chains: 2, steps: 300, len: 3 },
        Op::TinyIndependent { count: 300, len: 4 },
        Op::Mlp { batch: 3, width: 8 },
    ];
    ops.into_iter().flat_map(|op| ElementType::ALL.map(|dtype| (op, dtype))).collect()
}
