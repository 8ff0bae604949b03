//! Softmax in double precision.

/// The softmax of each row of `length` numbers, or its logarithm.
pub(super) fn softmax(x: &[f64], length: usize, log: bool) -> Vec<f64> {
    let mut result = Vec::new();
    for row in x.chunks(length.max(1)) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        for number in row {
            sum += (number - largest).exp();
        }
        for number in row {
            result.push(if log { number - largest - sum.ln() } else { (number - largest).exp() / sum });
        }
    }
    result
}
