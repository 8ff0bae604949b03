//! The gradient of attention. Unlike the forward kernel, it stores the whole matrix of weights.

use super::Attention;
use crate::matmul::Matmul;
use crate::softmax::Softmax;
use kiln_ir::gradient::{Expr, Gradients};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, Shape, op};

/// Replaces masked scores. It is finite, so that a fully masked row gets weights, not NaN; they are then set to 0.
const NO_SCORE: f64 = -1e30;

pub(super) fn gradients<'a>(attention: &Attention, inputs: &[Expr<'a>], gradient: Expr<'a>) -> Option<Gradients<'a>> {
    let &[q, k, v, ref mask @ ..] = inputs else { return None };
    let dtype = q.dtype();
    let [q, k, v, g] = [q, k, v, gradient].map(|operand| operand.cast(DType::F32));
    let scale = f64::from(attention.scale);
    let attends = attended(attention, q, k, mask.first().copied());
    let scores = q.kernel(Matmul, &[k.transpose()]) * scale;
    let masked =
        |yes: Expr<'a>, no: f64| attends.map_or(yes, |attends| attends.apply(&op::WHERE, &[yes, yes.like(no)]));
    let weights = masked(masked(scores, NO_SCORE).kernel(Softmax { log: false }, &[]), 0.0);
    let of_weights = g.kernel(Matmul, &[v.transpose()]);
    let last = [weights.shape().rank() - 1];
    // The gradient of softmax along the last axis: w * (g - sum(g * w)).
    let of_scores = (of_weights - (of_weights * weights).sum(&last)) * weights * scale;
    let all = [
        of_scores.kernel(Matmul, &[k]),
        of_scores.transpose().kernel(Matmul, &[q]),
        weights.transpose().kernel(Matmul, &[g]),
    ];
    let all = all.into_iter().map(|gradient| Some(gradient.cast(dtype)));
    Some(all.chain(mask.iter().map(|_| None)).collect())
}

/// Returns a mask of the keys that each query attends to, as `U8` of the shape of the scores; `None` if all do.
fn attended<'a>(attention: &Attention, q: Expr<'a>, k: Expr<'a>, mask: Option<Expr<'a>>) -> Option<Expr<'a>> {
    if !attention.causal {
        return mask;
    }
    let [batch, heads, queries, keys] = [q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]];
    // `U32`, so the division truncates. The sums below avoid negative numbers: the last query attends to the last key.
    let number = q.iota(Shape::from((queries, keys)));
    let query = number / keys as f64;
    let key = number - query * keys as f64;
    let early = (key + queries as f64).apply(&op::LE, &[query + keys as f64]);
    let early = early.broadcast_to(&Shape::from([batch, heads, queries, keys]));
    let Some(mask) = mask else { return Some(early) };
    let none = mask.filled(0.0, TensorType { shape: mask.shape(), dtype: DType::U8 });
    Some(mask.apply(&op::WHERE, &[early, none]))
}
