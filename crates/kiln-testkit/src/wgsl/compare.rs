//! Comparison of the results of two devices.

use super::Binding;
use half::f16;
use std::fmt;

/// Tolerance of approximate numbers, absolute and relative: larger than the error that WGSL allows for the arguments in
/// programs, far smaller than the error of a wrong function.
const F32_TOLERANCE: f64 = 1e-3;
const F16_TOLERANCE: f64 = 2e-2;

/// Where two results differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The buffer.
    pub binding: String,
    /// The element, counted in [patterns](Binding::pattern).
    pub element: usize,
    /// The position within the element, counted in letters.
    pub letter: usize,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { binding, element, letter, expected, found } = self;
        write!(f, "`{binding}`, element {element}, part {letter}: expected {expected}, found {found}")
    }
}

/// Returns the first difference between the contents of a buffer that exceeds the tolerance.
pub fn compare(binding: &Binding, expected: &[u8], found: &[u8]) -> Option<Difference> {
    let (mut at, letters) = (0, binding.pattern.chars().count());
    for (index, letter) in (0..binding.len).flat_map(|_| binding.pattern.chars()).enumerate() {
        let bytes = if matches!(letter, 'h' | 'g' | '_') { 2 } else { 4 };
        let (Some(one), Some(other)) = (expected.get(at..at + bytes), found.get(at..at + bytes)) else { break };
        at += bytes;
        if letter != '_' && !agree(letter, one, other) {
            let (expected, found) = (show(letter, one), show(letter, other));
            let (binding, element, letter) = (binding.name.clone(), index / letters, index % letters);
            return Some(Difference { binding, element, letter, expected, found });
        }
    }
    None
}

fn agree(letter: char, one: &[u8], other: &[u8]) -> bool {
    if one == other {
        return true;
    }
    let (one, other) = (number(one), number(other));
    match letter {
        'i' | 'u' => false,
        // Zeros of different sign are equal.
        'f' | 'h' => one == other,
        _ => {
            let tolerance = if letter == 'g' { F16_TOLERANCE } else { F32_TOLERANCE };
            (one - other).abs() <= tolerance * (1.0 + one.abs().min(other.abs()))
        }
    }
}

/// Returns the float in these bytes.
fn number(bytes: &[u8]) -> f64 {
    match *bytes {
        [a, b] => f16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).into(),
        _ => f64::NAN,
    }
}

fn show(letter: char, bytes: &[u8]) -> String {
    let bits = bytes.iter().rev().fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte));
    match letter {
        'i' => format!("{} (0x{bits:08x})", bits as i32),
        'u' => format!("{bits} (0x{bits:08x})"),
        _ => format!("{} (0x{bits:x})", number(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ<const N: usize>(pattern: &str, one: [f32; N], other: [f32; N]) -> Option<usize> {
        let binding = Binding { name: "x".into(), is_value: false, pattern: pattern.into(), len: N };
        let bytes = |numbers: [f32; N]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        compare(&binding, &bytes(one), &bytes(other)).map(|difference| difference.element)
    }

    #[test]
    fn exact_numbers_have_to_agree_and_approximate_ones_nearly() {
        assert_eq!(differ("f", [1.0, 2.0], [1.0, 2.0]), None);
        assert_eq!(differ("f", [1.0, 2.0], [1.0, 2.0000002]), Some(1));
        assert_eq!(differ("a", [1.0, 2000.0], [1.0005, 2001.0]), None);
        assert_eq!(differ("a", [1.0, 2.0], [1.0, 2.01]), Some(1));
        assert_eq!(differ("f", [0.0], [-0.0]), None);
        assert_eq!(differ("i", [0.0], [-0.0]), Some(0));
        assert_eq!(differ("a", [1.0], [f32::NAN]), Some(0));
        assert_eq!(differ("a", [f32::INFINITY], [1.0]), Some(0));
        assert_eq!(differ("__", [1.0], [2.0]), None);
    }

    #[test]
    fn a_difference_names_its_element() {
        let binding = Binding { name: "x".into(), is_value: false, pattern: "ih_".into(), len: 2 };
        let (one, mut other) = ([0; 16], [0; 16]);
        other[13] = 0x3c;
        let difference = compare(&binding, &one, &other).unwrap();
        assert_eq!(difference.to_string(), "`x`, element 1, part 1: expected 0 (0x0), found 1 (0x3c00)");
    }
}
