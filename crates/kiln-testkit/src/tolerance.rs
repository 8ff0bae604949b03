//! Comparison of results with references.

use kiln_ir::DType;
use kiln_ir::op::{Tolerance, ulp};

/// Returns whether a result is within the tolerance of its reference. An exact tolerance requires the same number, or NaN for NaN.
pub fn is_close(dtype: DType, found: f64, wanted: f64, tolerance: Tolerance) -> bool {
    found == wanted
        || (found.is_nan() && wanted.is_nan())
        || (tolerance != Tolerance::EXACT && tolerance.allows(dtype, wanted, found))
}

/// Checks that all results are within the tolerance of their references.
///
/// # Errors
/// Returns a description of the first element that is not.
pub fn compare(dtype: DType, found: &[f64], wanted: &[f64], tolerance: Tolerance) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("expected {} elements, found {}", wanted.len(), found.len()));
    }
    let differs = |&(_, (&found, &wanted)): &(usize, (&f64, &f64))| !is_close(dtype, found, wanted, tolerance);
    match found.iter().zip(wanted).enumerate().find(differs) {
        None => Ok(()),
        Some((place, (found, wanted))) => {
            let (Tolerance { ulps, absolute }, off) = (tolerance, (found - wanted).abs() / ulp(dtype, *wanted));
            let allowed = format!("within {ulps} ULP of {dtype} and {absolute:e}");
            Err(format!("element {place}: expected {wanted:e} {allowed}, found {found:e}, {off:.2} ULP off"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_is_exact_and_closeness_knows_nan() {
        let loose = Tolerance { ulps: 2.0, absolute: 0.0 };
        let table = [
            (f64::NAN, f64::NAN, Tolerance::EXACT, true),
            (f64::NAN, 1.0, loose, false),
            (1.0, f64::NAN, loose, false),
            (65504.0, f64::INFINITY, Tolerance::EXACT, false),
            (f64::INFINITY, f64::INFINITY, Tolerance::EXACT, true),
            (-f64::INFINITY, f64::INFINITY, loose, false),
            (0.0, -0.0, Tolerance::EXACT, true),
            (1.0 + 2f64.powi(-10), 1.0, loose, true),
            (1.0 + 2f64.powi(-10), 1.0, Tolerance::EXACT, false),
            (1.0 + 2f64.powi(-8), 1.0, loose, false),
        ];
        for (found, wanted, tolerance, expected) in table {
            assert_eq!(is_close(DType::F16, found, wanted, tolerance), expected, "{found} for {wanted}");
        }
        let error = compare(DType::F32, &[1.0, 2.0], &[1.0, 3.0], loose).unwrap_err();
        assert!(error.contains("element 1: expected 3e0") && error.contains("found 2e0"), "{error}");
        assert!(compare(DType::F32, &[1.0], &[], loose).is_err());
    }
}
