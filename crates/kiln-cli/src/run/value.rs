//! Numbers on the command line for the uniforms of a kernel.

use half::f16;
use kiln::Value;
use std::fmt::Display;
use std::str::FromStr;

/// The value that a text stands for, where a kernel wants this type.
pub(super) fn parse(text: &str, type_name: &str) -> Result<Value, String> {
    let (scalar, count) = shape_of(type_name)
        .ok_or_else(|| format!("expected a number or a vector of numbers, found the type {type_name}"))?;
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() != count {
        let wanted =
            if count == 1 { "1 number".to_string() } else { format!("{count} numbers with commas in between") };
        return Err(format!("expected {wanted} for {type_name}, found {} in `{text}`", parts.len()));
    }
    match scalar {
        "f32" => numbers::<f32>(&parts, type_name),
        "i32" => numbers::<i32>(&parts, type_name),
        "u32" => numbers::<u32>(&parts, type_name),
        _ => numbers::<f16>(&parts, type_name),
    }
}

/// What to write for a type: `NUMBER`, or as many as it takes; `None` where nothing can be written for it.
pub(super) fn placeholder(type_name: &str) -> Option<String> {
    shape_of(type_name).map(|(_, count)| vec!["NUMBER"; count].join(","))
}

/// A value for a uniform that is given none: the length of the problem along x, y and z where it is whole, and 1 where not; `None` as
/// [`placeholder`]. A single number has the axis that its name speaks of.
pub(super) fn make_up(name: &str, type_name: &str, extent: [u64; 3]) -> Option<String> {
    let (scalar, count) = shape_of(type_name)?;
    let name = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let first = match count {
        1 if name == "h" || name.contains("height") || name.contains("row") || name.ends_with('y') => 1,
        1 if name.contains("depth") || name.contains("layer") || name.ends_with('z') => 2,
        _ => 0,
    };
    let number = |place: usize| match scalar {
        "i32" | "u32" => extent.get(first + place).copied().unwrap_or(1).min(i32::MAX as u64).to_string(),
        _ => "1".to_string(),
    };
    Some((0..count).map(number).collect::<Vec<_>>().join(","))
}

/// The scalar of a type, and how many of them it is; `None` for matrices, arrays and structs.
fn shape_of(type_name: &str) -> Option<(&str, usize)> {
    let (count, scalar) = match type_name.strip_prefix("vec").and_then(|rest| rest.split_once('<')) {
        Some((count, rest)) => (count.parse().ok()?, rest.strip_suffix('>')?),
        None => (1, type_name),
    };
    ["f16", "f32", "i32", "u32"].contains(&scalar).then_some((scalar, count))
}

fn numbers<T>(parts: &[&str], type_name: &str) -> Result<Value, String>
where
    T: FromStr + Copy,
    T::Err: Display,
    Value: From<T> + From<[T; 2]> + From<[T; 3]> + From<[T; 4]>,
{
    let number =
        |part: &&str| part.parse::<T>().map_err(|error| format!("expected {type_name}, found `{part}`: {error}"));
    let numbers: Vec<T> = parts.iter().map(number).collect::<Result<_, _>>()?;
    match numbers[..] {
        [x] => Ok(x.into()),
        [x, y] => Ok([x, y].into()),
        [x, y, z] => Ok([x, y, z].into()),
        [x, y, z, w] => Ok([x, y, z, w].into()),
        _ => Err(format!("expected one to four numbers for {type_name}, found {}", numbers.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_type_that_the_kernel_wants() {
        let table = [
            ("0.5", "f32", Value::from(0.5f32)),
            ("-3", "i32", Value::from(-3i32)),
            ("4294967295", "u32", Value::from(u32::MAX)),
            ("1.5", "f16", Value::from(f16::from_f32(1.5))),
            ("1,2", "vec2<f32>", Value::from([1.0f32, 2.0])),
            ("1, 2, 3", "vec3<u32>", Value::from([1u32, 2, 3])),
            ("1,2,3,-4", "vec4<i32>", Value::from([1i32, 2, 3, -4])),
            ("inf", "f32", Value::from(f32::INFINITY)),
        ];
        for (text, type_name, expected) in table {
            assert_eq!(parse(text, type_name).as_ref(), Ok(&expected), "{text} as {type_name}");
        }
    }

    #[test]
    fn text_that_is_no_such_value_says_why() {
        let table = [
            ("1.5", "u32", "expected u32, found `1.5`: invalid digit found in string"),
            ("-1", "u32", "expected u32, found `-1`: invalid digit found in string"),
            ("4294967296", "u32", "expected u32, found `4294967296`: number too large to fit in target type"),
            ("1,2", "f32", "expected 1 number for f32, found 2 in `1,2`"),
            ("1,2", "vec3<f32>", "expected 3 numbers with commas in between for vec3<f32>, found 2 in `1,2`"),
            ("1", "mat2x2<f32>", "expected a number or a vector of numbers, found the type mat2x2<f32>"),
            ("1", "Params", "expected a number or a vector of numbers, found the type Params"),
        ];
        for (text, type_name, error) in table {
            assert_eq!(parse(text, type_name), Err(error.to_string()), "{text} as {type_name}");
        }
        assert_eq!(placeholder("u32").as_deref(), Some("NUMBER"));
        assert_eq!(placeholder("vec2<f32>").as_deref(), Some("NUMBER,NUMBER"));
        assert_eq!(placeholder("mat2x2<f32>"), None);
        let table = [
            ("n", "u32", Some("8")),
            ("params.width", "u32", Some("8")),
            ("params.height", "i32", Some("4")),
            ("image.size", "vec2<u32>", Some("8,4")),
            ("rows", "vec2<u32>", Some("8,4")),
            ("size_z", "u32", Some("2")),
            ("v", "vec4<i32>", Some("8,4,2,1")),
            ("height", "f32", Some("1")),
            ("v", "vec2<f32>", Some("1,1")),
            ("params", "Params", None),
        ];
        for (name, type_name, expected) in table {
            assert_eq!(make_up(name, type_name, [8, 4, 2]).as_deref(), expected, "{name}");
        }
    }
}
