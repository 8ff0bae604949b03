//! SIMD levels of a device: availability, and the corresponding features.

use kiln_device::Feature;
use kiln_ir::{Error, ErrorKind, Result, SimdLevel};

/// Returns the features of a level, including those of lower levels.
pub(crate) fn features(level: SimdLevel) -> &'static [Feature] {
    match level {
        SimdLevel::Neon => &[Feature::Neon],
        SimdLevel::NeonF16 => &[Feature::Neon, Feature::NeonF16],
        SimdLevel::Avx2 => &[Feature::Avx2],
        SimdLevel::Avx512 => &[Feature::Avx2, Feature::Avx512],
        _ => &[],
    }
}

/// Checks that the processor supports a level: the detected one, or one whose features it includes.
///
/// # Errors
/// Returns `Unsupported` if it does not.
pub(crate) fn check(level: SimdLevel) -> Result<()> {
    let found = SimdLevel::detect();
    // A level missing from the table is rejected: unsafe code relies on this check.
    let is_known = level == SimdLevel::Scalar || !features(level).is_empty();
    if is_known && features(found).starts_with(features(level)) {
        return Ok(());
    }
    let message =
        format!("CPU device expected a SIMD level that the processor supports (it has {found}), found {level}");
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_features_and_lanes_grow_with_the_level() {
        use SimdLevel::{Avx2, Avx512, Neon, NeonF16, Scalar};
        for (level, lanes) in [(Scalar, 1), (Neon, 4), (NeonF16, 4), (Avx2, 8), (Avx512, 16)] {
            assert_eq!(level.lanes(), lanes, "{level}");
            let feature = features(level).last().map_or_else(|| "scalar".to_string(), ToString::to_string);
            assert_eq!(level.to_string(), feature);
        }
    }
}
