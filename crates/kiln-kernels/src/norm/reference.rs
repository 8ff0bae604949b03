//! Norms in `f64`.

/// Subtracts the mean from each row of `length` numbers, divides by the standard deviation, multiplies by the weight and adds the bias.
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

/// Divides each row of `length` numbers by its root mean square, and multiplies by the weight.
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
