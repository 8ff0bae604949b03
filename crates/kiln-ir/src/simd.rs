//! SIMD levels. Kernels are compiled for several of them and selected at run time.

use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// The widest SIMD instruction set that both the processor and the operating system support.
///
/// See [`detect`](Self::detect) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimdLevel {
    /// No SIMD instruction set that Kiln has kernels for.
    Scalar,
    /// Arm NEON.
    Neon,
    /// NEON with half-precision arithmetic.
    NeonF16,
    /// x86-64 AVX2, FMA and F16C.
    Avx2,
    /// [`Avx2`](Self::Avx2) plus AVX-512 F, BW and VL.
    Avx512,
}

impl SimdLevel {
    /// All levels of all architectures.
    pub const ALL: [Self; 5] = [Self::Scalar, Self::Neon, Self::NeonF16, Self::Avx2, Self::Avx512];

    /// Returns the level of this processor.
    ///
    /// ```
    /// let level = kiln_ir::SimdLevel::detect();
    /// assert!(level.lanes().is_power_of_two());
    /// ```
    pub fn detect() -> Self {
        detect()
    }

    /// Returns the number of `f32` lanes of a vector.
    pub fn lanes(self) -> u32 {
        match self {
            Self::Scalar => 1,
            Self::Neon | Self::NeonF16 => 4,
            Self::Avx2 => 8,
            Self::Avx512 => 16,
        }
    }

    /// Returns the name used in reports and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::NeonF16 => "neon-f16",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses a [name](SimdLevel::name), for settings: `"scalar".parse()`.
impl FromStr for SimdLevel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|level| level.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(|level| format!("`{level}`")).join(", ");
            let message = format!("expected a SIMD level, one of {names}, found `{text}`");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> SimdLevel {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma") && has!("f16c");
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl");
    match (avx2, avx512) {
        (true, true) => SimdLevel::Avx512,
        (true, false) => SimdLevel::Avx2,
        (false, _) => SimdLevel::Scalar,
    }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> SimdLevel {
    use std::arch::is_aarch64_feature_detected as has;
    match (has!("neon"), has!("fp16")) {
        (true, true) => SimdLevel::NeonF16,
        (true, false) => SimdLevel::Neon,
        (false, _) => SimdLevel::Scalar,
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> SimdLevel {
    SimdLevel::Scalar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_errors_list_all_levels() {
        for level in SimdLevel::ALL {
            assert_eq!(level.name().parse::<SimdLevel>().unwrap(), level);
        }
        for text in ["", "Scalar", "sse", "avx2 "] {
            let error = text.parse::<SimdLevel>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let names = "`scalar`, `neon`, `neon-f16`, `avx2`, `avx512`";
            assert_eq!(error.message(), format!("expected a SIMD level, one of {names}, found `{text}`"));
        }
    }

    /// Compares the detected level with the flags in `/proc/cpuinfo`, an independent source.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn the_level_agrees_with_the_flags_that_linux_lists() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap();
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let has = |names: &[&str]| names.iter().all(|name| flags.contains(name));
        let avx2 = has(&["avx2", "fma", "f16c"]);
        let avx512 = avx2 && has(&["avx512f", "avx512bw", "avx512vl"]);
        let expected = if avx512 {
            SimdLevel::Avx512
        } else if avx2 {
            SimdLevel::Avx2
        } else {
            SimdLevel::Scalar
        };
        assert_eq!(SimdLevel::detect(), expected);
    }
}
