//! The textbook product in `f64`.

use crate::testing::Operand;

/// Returns the elements in row-major order, each with the sum of the magnitudes of its terms, which scales the error bound.
pub(crate) fn matmul(a: &Operand, b: &Operand) -> Vec<(f64, f64)> {
    let rank = a.layout.shape().rank();
    let (m, k) = (a.layout.shape()[rank - 2], a.layout.shape()[rank - 1]);
    let n = b.layout.shape()[rank - 1];
    let batches: usize = a.layout.shape()[..rank - 2].iter().product();
    let (a, b) = (a.values(), b.values());
    let mut results = Vec::with_capacity(batches * m * n);
    for batch in 0..batches {
        for row in 0..m {
            for column in 0..n {
                let products = (0..k).map(|step| a[(batch * m + row) * k + step] * b[(batch * k + step) * n + column]);
                results.push(products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs())));
            }
        }
    }
    results
}
