//! Attention as it is written in a book, in `f64`.

use super::Attention;
use crate::testing::Operand;

/// The elements row by row.
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
            let keys: Vec<(usize, f64)> = (0..n).filter(|&key| attends(key)).map(|key| (key, score(key))).collect();
            let largest = keys.iter().fold(f64::NEG_INFINITY, |largest, &(_, score)| largest.max(score));
            let sum: f64 = keys.iter().map(|&(_, score)| (score - largest).exp()).sum();
            for at in 0..e {
                let weighed =
                    |&(key, score): &(usize, f64)| (score - largest).exp() / sum * values[2][(head * n + key) * e + at];
                results.push(keys.iter().map(weighed).sum());
            }
        }
    }
    results
}
