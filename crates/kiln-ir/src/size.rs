//! Formatting of sizes in bytes.

use std::fmt;

/// Displays a number of bytes in the largest binary unit that keeps it above one: `3.5 MiB`.
///
/// ```
/// assert_eq!(kiln_ir::Bytes(3 << 19).to_string(), "1.5 MiB");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bytes(
    /// The number of bytes.
    pub u64,
);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        // At most 6, the last unit, because a `u64` is below 16 EiB.
        let power = self.0.ilog2() / 10;
        let value = self.0 as f64 / (1u64 << (10 * power)) as f64;
        let digits = usize::from(value < 100.0 && value.fract() != 0.0);
        f.pad(&format!("{value:.digits$} {}", UNITS[power as usize - 1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (3 << 19, "1.5 MiB"),
            (300 << 20, "300 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>8}", Bytes(1)), "     1 B");
    }
}
