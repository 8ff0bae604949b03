//! Parses numbers on the command line for the uniforms of a kernel.

use half::f16;
use kiln::kernel::{Binding, Member, Scalar, Value, ValueLayout};
use std::fmt::Display;
use std::str::FromStr;

/// A target of `--value`: a uniform, or a member of one.
#[derive(Debug)]
pub(super) struct Uniform<'a> {
    /// `n`, `params.scale`.
    pub(super) name: String,
    pub(super) type_name: &'a str,
    bytes: u64,
    numbers: Option<&'a ValueLayout>,
}

#[derive(Debug)]
struct Number {
    scalar: Scalar,
    offset: u64,
    /// The last component of its path.
    name: String,
    /// Index within a vector; 0 outside vectors.
    place: usize,
    in_vector: bool,
}

impl<'a> Uniform<'a> {
    /// Returns everything in a binding that can be set by name.
    pub(super) fn all(binding: &'a Binding) -> Vec<Self> {
        match &binding.members[..] {
            [] => vec![Self {
                name: binding.name.clone(),
                type_name: &binding.type_name,
                bytes: binding.min_bytes,
                numbers: binding.layout.as_ref(),
            }],
            members => {
                let of_member = |member: &'a Member| Self {
                    name: format!("{}.{}", binding.name, member.name),
                    type_name: &member.type_name,
                    bytes: member.bytes.into(),
                    numbers: member.layout.as_ref(),
                };
                members.iter().map(of_member).collect()
            }
        }
    }

    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        let (numbers, type_name) = (self.numbers(), self.type_name);
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.len() != numbers.len() {
            let wanted = match numbers.len() {
                0 => return Err(format!("expected a type of numbers, found {type_name}")),
                1 => "1 number".to_string(),
                count => format!("{count} numbers separated by commas"),
            };
            return Err(format!("expected {wanted} for {type_name}, found {} in `{text}`", parts.len()));
        }
        // Padding between numbers is never read.
        let mut bytes = vec![0; usize::try_from(self.bytes).unwrap_or(usize::MAX)];
        for (number, part) in numbers.iter().zip(parts) {
            let (found, begin) = (bytes_of(part, number.scalar)?, number.offset as usize);
            bytes[begin..begin + found.len()].copy_from_slice(&found);
        }
        Ok(Value::slice(&bytes))
    }

    /// Returns a placeholder for messages: `NUMBER`, or as many as it takes.
    pub(super) fn placeholder(&self) -> String {
        match self.numbers().len() {
            count @ 0..=4 => vec!["NUMBER"; count].join(","),
            count => format!("NUMBER,NUMBER,… ({count} numbers)"),
        }
    }

    /// Makes up missing numbers: the length of the problem along x, y and z for integers, 1 for floats. The name of a single
    /// number selects the axis.
    pub(super) fn generate(&self, extent: [u64; 3]) -> String {
        let number = |number: &Number| {
            let name = number.name.to_ascii_lowercase();
            let first = match number.in_vector {
                // Guesses from the name which axis of the problem a length belongs to: a height that is too large
                // would let the kernel read out of bounds, and the finding would be about the generated input.
                false if name == "h" || name.contains("height") || name.contains("row") || name.ends_with('y') => 1,
                false if name.contains("depth") || name.contains("layer") || name.ends_with('z') => 2,
                _ => 0,
            };
            match number.scalar {
                Scalar::I32 | Scalar::U32 => {
                    extent.get(first + number.place).copied().unwrap_or(1).min(i32::MAX as u64).to_string()
                }
                Scalar::F16 | Scalar::F32 => "1".to_string(),
            }
        };
        self.numbers().iter().map(number).collect::<Vec<_>>().join(",")
    }

    /// Returns its numbers in memory order.
    fn numbers(&self) -> Vec<Number> {
        let mut all = Vec::new();
        if let Some(numbers) = self.numbers {
            let name = self.name.rsplit('.').next().unwrap_or(&self.name);
            add(&mut all, numbers, 0, name);
        }
        all
    }
}

fn add(all: &mut Vec<Number>, numbers: &ValueLayout, offset: u64, name: &str) {
    match numbers {
        ValueLayout::One(scalar) => {
            all.push(Number { scalar: *scalar, offset, name: name.to_string(), place: 0, in_vector: false });
        }
        ValueLayout::Repeated { count, stride_bytes, of } => {
            for place in 0..*count {
                add(all, of, offset + u64::from(place) * u64::from(*stride_bytes), name);
                // Array elements in a uniform have a larger stride, which distinguishes arrays from vectors.
                if let (ValueLayout::One(scalar), Some(last)) = (&**of, all.last_mut())
                    && scalar.bytes() == u64::from(*stride_bytes)
                {
                    (last.place, last.in_vector) = (place as usize, true);
                }
            }
        }
        ValueLayout::Struct(members) => {
            for member in members {
                if let Some(numbers) = &member.layout {
                    add(all, numbers, offset + u64::from(member.offset), &member.name);
                }
            }
        }
    }
}

/// Formats numbers for a message: a few in full, many abbreviated.
pub(super) fn in_short(text: &str) -> String {
    let numbers: Vec<&str> = text.split(',').collect();
    match numbers[..] {
        [first, _, _, _, _, ..] if numbers.iter().all(|number| *number == first) => {
            format!("{first} ({} times)", numbers.len())
        }
        [a, b, c, d, _, ..] => format!("{a},{b},{c},{d},… ({} numbers)", numbers.len()),
        _ => text.to_string(),
    }
}

fn bytes_of(text: &str, scalar: Scalar) -> Result<Vec<u8>, String> {
    fn number<T: FromStr<Err: Display>>(text: &str, scalar: Scalar) -> Result<T, String> {
        text.parse().map_err(|error| format!("expected {scalar}, found `{text}`: {error}"))
    }
    Ok(match scalar {
        Scalar::F16 => number::<f16>(text, scalar)?.to_le_bytes().to_vec(),
        Scalar::F32 => number::<f32>(text, scalar)?.to_le_bytes().to_vec(),
        Scalar::I32 => number::<i32>(text, scalar)?.to_le_bytes().to_vec(),
        Scalar::U32 => number::<u32>(text, scalar)?.to_le_bytes().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scalar::{F16, F32, I32, U32};
    use ValueLayout::One;

    fn repeated(count: u32, stride_bytes: u32, of: ValueLayout) -> ValueLayout {
        ValueLayout::Repeated { count, stride_bytes, of: Box::new(of) }
    }

    fn vector(count: u32, scalar: Scalar) -> ValueLayout {
        repeated(count, scalar.bytes() as u32, One(scalar))
    }

    fn uniform<'a>(name: &str, type_name: &'a str, bytes: u64, numbers: &'a ValueLayout) -> Uniform<'a> {
        Uniform { name: name.to_string(), type_name, bytes, numbers: Some(numbers) }
    }

    /// `struct Inner { a: f32, size: vec2<u32> }`
    fn inner() -> ValueLayout {
        let member = |name: &str, offset, numbers| Member {
            name: name.to_string(),
            type_name: String::new(),
            offset,
            bytes: 4,
            layout: Some(numbers),
        };
        ValueLayout::Struct(vec![member("a", 0, One(F32)), member("size", 8, vector(2, U32))])
    }

    #[test]
    fn text_becomes_the_type_that_the_kernel_wants() {
        let words = |words: &[u32]| Value::slice(words);
        let table = [
            ("0.5", One(F32), 4, words(&[0.5f32.to_bits()])),
            ("-3", One(I32), 4, words(&[-3i32 as u32])),
            ("4294967295", One(U32), 4, words(&[u32::MAX])),
            ("1.5", One(F16), 2, Value::slice(&f16::from_f32(1.5).to_le_bytes())),
            ("1, 2, 3", vector(3, U32), 12, words(&[1, 2, 3])),
            ("inf", One(F32), 4, words(&[f32::INFINITY.to_bits()])),
            // A three-component column, and an array element, are padded to four.
            ("1,2,3,4,5,6", repeated(2, 16, vector(3, U32)), 32, words(&[1, 2, 3, 0, 4, 5, 6, 0])),
            ("7,8", repeated(2, 16, One(I32)), 32, words(&[7, 0, 0, 0, 8, 0, 0, 0])),
            ("0.5,1,2", inner(), 16, words(&[0.5f32.to_bits(), 0, 1, 2])),
        ];
        for (text, numbers, bytes, expected) in table {
            let uniform = uniform("x", "T", bytes, &numbers);
            assert_eq!(uniform.parse(text).as_ref(), Ok(&expected), "{text} as {numbers:?}");
        }
    }

    #[test]
    fn text_that_is_no_such_value_says_why() {
        let table = [
            ("1.5", One(U32), "expected u32, found `1.5`: invalid digit found in string"),
            ("-1", One(U32), "expected u32, found `-1`: invalid digit found in string"),
            ("4294967296", One(U32), "expected u32, found `4294967296`: number too large to fit in target type"),
            ("1,2", One(F32), "expected 1 number for T, found 2 in `1,2`"),
            ("1,2", vector(3, F32), "expected 3 numbers separated by commas for T, found 2 in `1,2`"),
            ("1,x,2", inner(), "expected u32, found `x`: invalid digit found in string"),
        ];
        for (text, numbers, error) in table {
            assert_eq!(uniform("x", "T", 16, &numbers).parse(text), Err(error.to_string()), "{text}");
        }
        let placeholder = |numbers: ValueLayout| uniform("x", "T", 64, &numbers).placeholder();
        assert_eq!(placeholder(One(U32)), "NUMBER");
        assert_eq!(placeholder(vector(2, F32)), "NUMBER,NUMBER");
        assert_eq!(placeholder(repeated(4, 16, vector(4, F32))), "NUMBER,NUMBER,… (16 numbers)");
    }

    #[test]
    fn generated_numbers_are_those_of_the_problem() {
        let table = [
            ("n", One(U32), "8"),
            ("params.width", One(U32), "8"),
            ("params.height", One(I32), "4"),
            ("image.size", vector(2, U32), "8,4"),
            ("rows", vector(2, U32), "8,4"),
            ("size_z", One(U32), "2"),
            ("v", vector(4, I32), "8,4,2,1"),
            ("height", One(F32), "1"),
            ("v", vector(2, F32), "1,1"),
            ("inner", inner(), "1,8,4"),
            ("steps", repeated(3, 16, One(U32)), "8,8,8"),
            ("m", repeated(2, 8, vector(2, F32)), "1,1,1,1"),
        ];
        for (name, numbers, expected) in table {
            assert_eq!(uniform(name, "T", 64, &numbers).generate([8, 4, 2]), expected, "{name}");
        }
        for (text, short) in
            [("1,2,3,4", "1,2,3,4"), ("1,1,1,1,1", "1 (5 times)"), ("1,2,3,4,5", "1,2,3,4,… (5 numbers)")]
        {
            assert_eq!(in_short(text), short);
        }
    }
}
