//! What a level of vector instructions is called among the features of a device.

use kiln_ir::SimdLevel;
use kiln_runtime::Feature;

/// What a device of this level has, lower levels included.
pub(crate) fn features(level: SimdLevel) -> &'static [Feature] {
    match level {
        SimdLevel::Neon => &[Feature::Neon],
        SimdLevel::NeonF16 => &[Feature::Neon, Feature::NeonF16],
        SimdLevel::Avx2 => &[Feature::Avx2],
        SimdLevel::Avx512 => &[Feature::Avx2, Feature::Avx512],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_features_and_lanes_grow_with_the_level() {
        use SimdLevel::{Avx2, Avx512, Neon, NeonF16, Scalar};
        for (level, lanes) in [(Scalar, 1), (Neon, 4), (NeonF16, 4), (Avx2, 8), (Avx512, 16)] {
            assert_eq!(level.lanes(), lanes, "{level}");
            let feature = features(level).last().map_or("scalar", |feature| feature.name());
            assert_eq!(level.to_string(), feature);
        }
    }
}
