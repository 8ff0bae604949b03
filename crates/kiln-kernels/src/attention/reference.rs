//! Textbook attention in `f64`.

use super::Attention;
use crate::testing::Operand;
use kiln_ir::op::reference::softmax;

/// Returns the elements in row-major order.
pub(crate) fn attention(op: &Attention, operands: &[Operand]) -> Vec<f64> {
    let shape = |operand: usize| operands[operand].layout.shape().clone();
    let (heads, m, d) = (shape(0)[0] * shape(0)[1], shape(0)[2], shape(0)[3]);
    let (n, e) = (shape(2)[2], shape(2)[3]);
    let values: Vec<Vec<f64>> = operands.iter().map(Operand::values).collect();
    let mut results = Vec::new();
    for head in 0..heads {
        for query in 0..m {
            let attends = |key: usize| {
                (!op.causal || key as isize <= query as isize + n as isize - m as isize)
                    && (!op.has_mask || values[3][(head * m + query) * n + key] != 0.0)
            };
            let score = |key: usize| {
                let dot = |at: usize| values[0][(head * m + query) * d + at] * values[1][(head * n + key) * d + at];
                (0..d).map(dot).sum::<f64>() * f64::from(op.scale)
            };
            let keys: Vec<usize> = (0..n).filter(|&key| attends(key)).collect();
            let weights = softmax(&keys.iter().map(|&key| score(key)).collect::<Vec<_>>(), false);
            for at in 0..e {
                let weighted =
                    keys.iter().zip(&weights).map(|(key, weight)| weight * values[2][(head * n + key) * e + at]);
                results.push(weighted.sum());
            }
        }
    }
    results
}
