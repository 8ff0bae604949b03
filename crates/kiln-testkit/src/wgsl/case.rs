//! A program and its inputs as text: WGSL with directives in lines of `//:`.

use crate::Rng;
use half::f16;
use std::fmt;

/// A program and its inputs. [`parse`](Self::parse) reads it from the lines that begin with `//:`:
///
/// ```
/// use kiln_testkit::wgsl::Case;
///
/// let text = "
/// //: seed 7
/// //: grid 2 1 1
/// //: constant scale 3
/// //: buffer x fff__ 64
/// //: value n u 1
/// @group(0) @binding(0) var<storage, read_write> x: array<vec3<f32>>; // and so on
/// ";
/// let case = Case::parse(text).unwrap();
/// assert_eq!(case.bindings[0].contents(case.seed).len(), 64 * 16);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The seed of the buffer contents.
    pub seed: u64,
    /// The workgroups along each axis.
    pub grid: [u32; 3],
    /// Values of `override` constants.
    pub constants: Vec<(String, f64)>,
    /// Buffers and uniforms.
    pub bindings: Vec<Binding>,
    /// The whole text.
    pub text: String,
}

/// A buffer or uniform of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// The name of the variable.
    pub name: String,
    /// Whether it is a uniform.
    pub is_value: bool,
    /// The memory layout of one element: `i` and `u` are integers, `f` (`f32`) and `h` (`f16`) are compared bit by bit, `a` (`f32`)
    /// and `g` (`f16`) with a tolerance, `_` is two bytes of padding.
    pub pattern: String,
    /// The number of elements.
    pub len: usize,
}

impl Case {
    /// Parses a case.
    ///
    /// # Errors
    /// Returns a message with the invalid line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut case =
            Self { seed: 0, grid: [1; 3], constants: Vec::new(), bindings: Vec::new(), text: text.to_string() };
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("//:")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            case.read(&words).ok_or_else(|| {
                format!(
                    "expected `seed N`, `grid X Y Z`, `constant NAME VALUE`, `buffer NAME PATTERN LEN` or `value NAME PATTERN LEN`, \
                     found `{line}`"
                )
            })?;
        }
        Ok(case)
    }

    fn read(&mut self, words: &[&str]) -> Option<()> {
        match *words {
            ["seed", seed] => self.seed = seed.parse().ok()?,
            ["grid", x, y, z] => self.grid = [x.parse().ok()?, y.parse().ok()?, z.parse().ok()?],
            ["constant", name, value] => self.constants.push((name.to_string(), value.parse().ok()?)),
            [kind @ ("buffer" | "value"), name, pattern, len] => {
                let is_known = !pattern.is_empty() && pattern.chars().all(|letter| "iufhag_".contains(letter));
                let binding = Binding {
                    name: name.to_string(),
                    is_value: kind == "value",
                    pattern: pattern.to_string(),
                    len: len.parse().ok()?,
                };
                self.bindings.push(is_known.then_some(binding)?);
            }
            _ => return None,
        }
        Some(())
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_value { "value" } else { "buffer" };
        write!(f, "//: {kind} {} {} {}", self.name, self.pattern, self.len)
    }
}

impl Binding {
    /// Returns the initial bytes: integers of all magnitudes; small floats with few bits, so that their sums and products are
    /// exact.
    pub fn contents(&self, seed: u64) -> Vec<u8> {
        let name = self.name.bytes().fold(seed, |hash, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        let mut rng = Rng::new(name);
        let mut bytes = Vec::new();
        for letter in (0..self.len).flat_map(|_| self.pattern.chars()) {
            match letter {
                '_' => bytes.extend([0; 2]),
                'h' | 'g' => bytes.extend(f16::from_f32((rng.below(17) as f32 - 8.0) / 4.0).to_le_bytes()),
                'f' | 'a' => bytes.extend(((rng.below(513) as f32 - 256.0) / 16.0).to_le_bytes()),
                _ => bytes.extend(integer(&mut rng).to_le_bytes()),
            }
        }
        bytes
    }
}

/// Returns a random integer: half of them are small, one in eight is an extreme.
fn integer(rng: &mut Rng) -> u32 {
    const ENDS: [u32; 7] = [0, 1, u32::MAX, 1 << 31, i32::MAX as u32, 0xffff, 0x8000_0001];
    match rng.below(8) {
        0..4 => (rng.below(41) as u32).wrapping_sub(20),
        4 => ENDS[rng.below(ENDS.len())],
        5 => rng.below(1 << 16) as u32,
        _ => rng.bits() as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_round_trip() {
        let binding = Binding { name: "x".into(), is_value: true, pattern: "fh_i".into(), len: 3 };
        let text = format!("//: seed 9\n//: grid 1 2 3\n//: constant k -0.5\n{binding}\nfn main() {{}}");
        let case = Case::parse(&text).unwrap();
        assert_eq!((case.seed, case.grid), (9, [1, 2, 3]));
        assert_eq!((&case.constants[..], &case.bindings[..]), (&[("k".to_string(), -0.5)][..], &[binding][..]));
        assert_eq!(case.bindings[0].contents(9).len(), 36);
        assert_eq!(case.bindings[0].contents(9), case.bindings[0].contents(9));
        assert_ne!(case.bindings[0].contents(9), case.bindings[0].contents(10));
        for line in ["//: sed 1", "//: grid 1", "//: buffer x q 1", "//: buffer x f"] {
            assert!(Case::parse(line).unwrap_err().contains(&line[4..]), "{line}");
        }
    }
}
