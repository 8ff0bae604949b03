//! Norms in double precision.

/// Each row of `length` numbers without its mean, over the square root of its variance, times the weight plus the bias.
pub(super) fn layer_norm(x: &[f64], length: usize, eps: f64, weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let mut result = Vec::new();
    for row in x.chunks(length.max(1)) {
        let mean = row.iter().sum::<f64>() / length as f64;
        let variance = row.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / length as f64;
        for (index, number) in row.iter().enumerate() {
            result.push((number - mean) / (variance + eps).sqrt() * weight[index] + bias[index]);
        }
    }
    result
}

/// Each row of `length` numbers over the square root of the mean of its squares, times the weight.
pub(super) fn rms_norm(x: &[f64], length: usize, eps: f64, weight: &[f64]) -> Vec<f64> {
    let mut result = Vec::new();
    for row in x.chunks(length.max(1)) {
        let squares = row.iter().map(|number| number * number).sum::<f64>() / length as f64;
        for (index, number) in row.iter().enumerate() {
            result.push(number / (squares + eps).sqrt() * weight[index]);
        }
    }
    result
}
