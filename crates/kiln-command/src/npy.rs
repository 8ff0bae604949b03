//! `.npy`, NumPy's file format for one array: reads and writes the element types that kernels and tensors support or convert from.
//!
//! Versions 1 to 3, C and Fortran order, the little-endian types of [`Kind`].
//!
//! Does not use the crate `npyz` (0.9.1), which fails the test `invalid_files_are_errors_with_what_was_expected_and_found`: it multiplies the
//! lengths of a shape unchecked, so that `(4294967296, 4294967296)` panics in a debug build and is an empty array in a release build; and it
//! allocates a header of 4 GiB for a file of 12 bytes that claims one.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Maximum header length. NumPy by default refuses headers beyond 10,000 bytes.
const MAX_HEADER_BYTES: usize = 1 << 16;
/// NumPy aligns the data to multiples of this.
const ALIGNMENT: usize = 64;

/// Element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U32,
    U8,
    Bool,
}

/// Each type with its name in messages, its name in a header, and its size in bytes.
const KINDS: [(Kind, &str, &str, u64); 9] = [
    (Kind::F16, "f16", "<f2", 2),
    (Kind::F32, "f32", "<f4", 4),
    (Kind::F64, "f64", "<f8", 8),
    (Kind::I8, "i8", "|i1", 1),
    (Kind::I32, "i32", "<i4", 4),
    (Kind::I64, "i64", "<i8", 8),
    (Kind::U32, "u32", "<u4", 4),
    (Kind::U8, "u8", "|u1", 1),
    (Kind::Bool, "bool", "|b1", 1),
];

impl Kind {
    /// Returns the type with this name, which dtypes and scalars share; `None` if NumPy has none.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known, ..)| *known == name).map(|(kind, ..)| *kind)
    }

    pub(crate) fn name(self) -> &'static str {
        self.entry().1
    }

    fn description(self) -> &'static str {
        self.entry().2
    }

    pub(crate) fn bytes(self) -> u64 {
        self.entry().3
    }

    /// Relies on the table being in the order of the variants, which a test checks.
    fn entry(self) -> (Self, &'static str, &'static str, u64) {
        // The table lists the types in the order of the enum.
        KINDS[self as usize]
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<u64>,
    /// The elements in C order, each little-endian.
    pub(crate) data: Vec<u8>,
}

impl Array {
    /// Reads the array in a file. An error names the file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(bytes).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub(crate) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        file.write_all(&self.header())?;
        file.write_all(&self.data)
    }

    /// Parses a file. An error says what was expected and what was found.
    fn parse(mut bytes: Vec<u8>) -> Result<Self, String> {
        let (header, start) = split(&bytes)?;
        let Header { kind, is_fortran, shape } = Header::parse(header)?;
        let wanted = data_bytes(kind, &shape)
            .ok_or_else(|| format!("expected a shape of less than 2^64 bytes, found {}", tuple(&shape)))?;
        let found = (bytes.len() - start) as u64;
        if found != wanted {
            let shape = tuple(&shape);
            return Err(format!("expected {wanted} bytes of data for shape {shape} of {kind}, found {found}"));
        }
        // Moves the data to the front of the same allocation, so a large array is never in memory twice.
        bytes.drain(..start);
        let data = if is_fortran { last_axis_fastest(&bytes, &shape, kind) } else { bytes };
        Ok(Self { kind, shape, data })
    }

    fn header(&self) -> Vec<u8> {
        let description = self.kind.description();
        let shape = tuple(&self.shape);
        let mut text = format!("{{'descr': '{description}', 'fortran_order': False, 'shape': {shape}, }}");
        let prefix = |length_bytes: usize| MAGIC.len() + 2 + length_bytes;
        // The header ends with a newline after the padding, hence the 1.
        let padded =
            |length_bytes| (prefix(length_bytes) + text.len() + 1).next_multiple_of(ALIGNMENT) - prefix(length_bytes);
        // Version 1 has two bytes for the length of the header, which is enough for every realistic shape.
        let (version, length) = match u16::try_from(padded(2)) {
            Ok(length) => (1, length.to_le_bytes().to_vec()),
            Err(_) => (2, u32::try_from(padded(4)).unwrap_or(u32::MAX).to_le_bytes().to_vec()),
        };
        let spaces = padded(length.len()) - text.len() - 1;
        text.extend(std::iter::repeat_n(' ', spaces).chain(['\n']));
        [MAGIC, &[version, 0], &length, text.as_bytes()].concat()
    }
}

/// Formats a shape as Python does: `()`, `(3,)`, `(2, 3)`.
pub(crate) fn tuple(shape: &[impl ToString]) -> String {
    let lengths: Vec<String> = shape.iter().map(ToString::to_string).collect();
    match &lengths[..] {
        [only] => format!("({only},)"),
        _ => format!("({})", lengths.join(", ")),
    }
}

/// Returns the size of an array with this shape; `None` on overflow.
pub(crate) fn data_bytes(kind: Kind, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(kind.bytes(), |bytes, length| bytes.checked_mul(*length))
}

/// Transposes the elements of a Fortran-order array to C order. `data` must match the shape.
fn last_axis_fastest(data: &[u8], shape: &[u64], kind: Kind) -> Vec<u8> {
    if data.is_empty() {
        return Vec::new();
    }
    // The data is in memory, so every length fits in `usize`.
    let axes: Vec<usize> = shape.iter().filter(|length| **length != 1).map(|length| *length as usize).collect();
    let bytes = kind.bytes() as usize;
    let mut steps = vec![bytes; axes.len()];
    for axis in 1..axes.len() {
        steps[axis] = steps[axis - 1] * axes[axis - 1];
    }
    // Counts through the row-major indices like an odometer; `at` is the byte offset of the current index in the
    // column-major data. Each carry takes back the steps of the axis that wrapped around.
    let (mut ordered, mut at, mut index) = (Vec::with_capacity(data.len()), 0, vec![0; axes.len()]);
    while ordered.len() < data.len() {
        ordered.extend_from_slice(&data[at..at + bytes]);
        for axis in (0..axes.len()).rev() {
            index[axis] += 1;
            at += steps[axis];
            if index[axis] < axes[axis] {
                break;
            }
            at -= steps[axis] * axes[axis];
            index[axis] = 0;
        }
    }
    ordered
}

/// Returns the header's text, and the offset of the data.
fn split(bytes: &[u8]) -> Result<(&str, usize), String> {
    let cut = |what: &str| format!("expected {what}, found the end of the file after {} bytes", bytes.len());
    let rest = bytes.strip_prefix(MAGIC).ok_or("expected a `.npy` file, found something else")?;
    let (length_bytes, rest) = match rest.split_first_chunk().ok_or_else(|| cut("a version"))? {
        ([1, 0], rest) => (2, rest),
        ([2 | 3, 0], rest) => (4, rest),
        ([major, minor], _) => return Err(format!("expected version 1, 2 or 3 of `.npy`, found {major}.{minor}")),
    };
    let (length, rest) = rest.split_at_checked(length_bytes).ok_or_else(|| cut("the length of the header"))?;
    // Little-endian.
    let length = length.iter().rev().fold(0, |length: usize, byte| length << 8 | usize::from(*byte));
    if length > MAX_HEADER_BYTES {
        return Err(format!("expected a header of at most {MAX_HEADER_BYTES} bytes, found {length}"));
    }
    let header = rest.get(..length).ok_or_else(|| cut("a whole header"))?;
    let header = std::str::from_utf8(header).map_err(|_| "expected a header in UTF-8, found other bytes")?;
    Ok((header, bytes.len() - rest.len() + length))
}

struct Header {
    kind: Kind,
    is_fortran: bool,
    shape: Vec<u64>,
}

impl Header {
    /// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` with its keys in any order.
    fn parse(text: &str) -> Result<Self, String> {
        let mut cursor = Cursor { rest: text };
        let (mut kind, mut is_fortran, mut shape) = (None, None, None);
        cursor.expect('{')?;
        while !cursor.eat('}') {
            let key = cursor.string()?;
            cursor.expect(':')?;
            let is_new = match key {
                // `replace` returns the earlier value, which reveals a repeated key: Python would silently keep the
                // last.
                "descr" => kind.replace(cursor.kind()?).is_none(),
                "fortran_order" => is_fortran.replace(cursor.boolean()?).is_none(),
                "shape" => shape.replace(cursor.tuple()?).is_none(),
                _ => return Err(format!("expected the keys descr, fortran_order and shape, found `{key}`")),
            };
            if !is_new {
                return Err(format!("expected the key {key} once, found it again"));
            }
            if !cursor.eat(',') {
                cursor.expect('}')?;
                break;
            }
        }
        if cursor.peek().is_some() {
            return Err(cursor.fault("its end"));
        }
        let missing = |key: &str| format!("expected the key {key} in the header, found none");
        Ok(Self {
            kind: kind.ok_or_else(|| missing("descr"))?,
            is_fortran: is_fortran.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// The unread part of a header.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start_matches([' ', '\n']);
        self.rest.chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        is_there
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.eat(wanted) { Ok(()) } else { Err(self.fault(&format!("`{wanted}`"))) }
    }

    fn fault(&self, wanted: &str) -> String {
        let found = match self.rest.chars().next() {
            Some(_) => format!("`{}`", self.rest.chars().take(20).collect::<String>().escape_debug()),
            None => "its end".to_string(),
        };
        format!("expected {wanted} in the header, found {found}")
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let Some(quote @ ('\'' | '"')) = self.peek() else { return Err(self.fault("a string")) };
        let (text, rest) = self.rest[1..].split_once(quote).ok_or_else(|| self.fault("a whole string"))?;
        self.rest = rest;
        Ok(text)
    }

    fn kind(&mut self) -> Result<Kind, String> {
        let known = KINDS.map(|(_, name, description, _)| format!("{name} ('{description}')")).join(", ");
        if self.peek() == Some('[') {
            return Err(format!("expected elements of {known}, found records with fields"));
        }
        let found = self.string()?;
        let kind = KINDS.iter().find(|(_, _, description, _)| *description == found).map(|(kind, ..)| *kind);
        kind.ok_or_else(|| {
            let found = found.escape_debug();
            format!("expected elements of {known}, found '{found}'; convert them, for example with `a.astype('<f4')`")
        })
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.fault("`True` or `False`"))
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        let mut lengths = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            lengths.push(self.number()?);
            // `(3)` is a parenthesized number, not a tuple.
            if !self.eat(',') {
                if lengths.len() == 1 {
                    return Err(self.fault("`,` after the only length of a shape"));
                }
                self.expect(')')?;
                break;
            }
        }
        Ok(lengths)
    }

    fn number(&mut self) -> Result<u64, String> {
        self.peek();
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        // Python has no leading zeros either.
        let number = digits.parse().ok().filter(|number: &u64| number.to_string() == digits);
        let number = number.ok_or_else(|| self.fault("a length of a shape"))?;
        self.rest = rest;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(array: &Array) -> Vec<u8> {
        [array.header(), array.data.clone()].concat()
    }

    fn with_header(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let length = match version {
            1 => (header.len() as u16).to_le_bytes().to_vec(),
            _ => (header.len() as u32).to_le_bytes().to_vec(),
        };
        [MAGIC, &[version, 0], &length, header.as_bytes(), data].concat()
    }

    fn small(kind: Kind) -> Array {
        Array { kind, shape: vec![2, 3], data: (1..=6 * kind.bytes() as u8).collect() }
    }

    #[test]
    fn files_round_trip_and_their_data_is_aligned() {
        for shape in [vec![], vec![0], vec![1], vec![5], vec![2, 3], vec![1, 0, 7], vec![1; 32], vec![1; 30_000]] {
            for (kind, ..) in KINDS {
                let data = vec![7; data_bytes(kind, &shape).unwrap() as usize];
                let array = Array { kind, shape: shape.clone(), data };
                if shape.len() < 10_000 {
                    assert_eq!(Array::parse(file(&array)).unwrap(), array);
                }
                assert_eq!(array.header().len() % ALIGNMENT, 0, "{} axes", shape.len());
            }
        }
    }

    #[test]
    fn kinds_are_found_in_their_table() {
        for (kind, name, description, bytes) in KINDS {
            assert_eq!((kind.name(), kind.description(), kind.bytes()), (name, description, bytes));
        }
    }

    /// The element at each index of each shape is the one that Fortran order has there.
    #[test]
    fn fortran_order_is_read_into_c_order() {
        let header = "{'descr': '<i4', 'fortran_order': True, 'shape': SHAPE, }\n";
        for shape in [vec![], vec![4], vec![2, 3], vec![3, 1, 2], vec![2, 3, 4, 1], vec![0, 3], vec![3, 0]] {
            let count = shape.iter().product::<u64>();
            let data: Vec<u8> = (0..count as u32).flat_map(u32::to_le_bytes).collect();
            let array = Array::parse(with_header(1, &header.replace("SHAPE", &tuple(&shape)), &data)).unwrap();
            let numbers = array.data.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
            let expected = (0..count).map(|mut rest| {
                // The index of this element in C order, the last axis first, then its offset in Fortran order.
                let mut index: Vec<u64> = Vec::new();
                for length in shape.iter().rev() {
                    index.push(rest % length);
                    rest /= length;
                }
                let of_axis = |axis: usize| shape[..axis].iter().product::<u64>();
                index.iter().rev().enumerate().map(|(axis, at)| at * of_axis(axis)).sum::<u64>() as u32
            });
            assert_eq!(numbers.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{shape:?}");
            assert_eq!(array.shape, shape);
        }
        let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fortran.npy")).unwrap();
        let data = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0].map(f32::to_le_bytes).concat();
        assert_eq!(Array::parse(file), Ok(Array { kind: Kind::F32, shape: vec![2, 3], data }));
    }

    #[test]
    fn headers_of_other_writers_are_read() {
        let expected = small(Kind::F32);
        let table = [
            (1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"),
            (2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    \n"),
            (3, "{\"shape\":(2,3,),\"fortran_order\":False,\"descr\":\"<f4\"}"),
        ];
        for (version, header) in table {
            assert_eq!(Array::parse(with_header(version, header, &expected.data)).as_ref(), Ok(&expected), "{header}");
        }
    }

    #[test]
    fn invalid_files_are_errors_with_what_was_expected_and_found() {
        let header = |text: &str| Array::parse(with_header(1, text, &[0; 24])).unwrap_err();
        let with = |descr: &str, order: &str, shape: &str| {
            header(&format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"))
        };
        let errors = [
            Array::parse(b"PK\x03\x04".to_vec()).unwrap_err(),
            Array::parse(MAGIC.to_vec()).unwrap_err(),
            Array::parse(with_header(4, "", b"")).unwrap_err(),
            Array::parse([MAGIC, &[2, 0, 255, 255, 255, 255]].concat()).unwrap_err(),
            Array::parse([MAGIC, &[1, 0, 255, 255]].concat()).unwrap_err(),
            with("'<c8'", "False", "(3,)"),
            with("'>f4'", "False", "(6,)"),
            with("[('a', '<f4')]", "False", "(6,)"),
            with("'<f4'", "True", "(2, 4)"),
            with("'<f4'", "0", "(2, 3)"),
            with("'<f4'", "False", "(6)"),
            with("'<f4'", "False", "(06,)"),
            with("'<f4'", "False", "(-6,)"),
            with("'<f4'", "False", "(5,)"),
            with("'<f4'", "False", "(4294967296, 4294967296)"),
            with("'<f4'", "False", "(99999999999999999999,)"),
            header("{'descr': '<f4', 'shape': (6,)}"),
            header("{'descr': '<f4', 'descr': '<f4', 'shape': (6,)}"),
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}"),
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} + {}"),
            header("{'descr': '<f4"),
        ];
        insta::assert_snapshot!("errors", errors.join("\n"));
    }

    /// A damaged file is an error, never a panic or another array: the parser uses checked arithmetic only.
    #[test]
    fn truncations_and_flipped_bits_are_errors_or_the_same_array() {
        for (kind, ..) in KINDS {
            let array = small(kind);
            let bytes = file(&array);
            for length in 0..bytes.len() {
                assert!(Array::parse(bytes[..length].to_vec()).is_err(), "cut at {length}");
            }
            assert!(Array::parse([&bytes[..], b"x"].concat()).is_err());
            for place in 0..array.header().len() {
                for bit in 0..8 {
                    let mut bytes = bytes.clone();
                    bytes[place] ^= 1 << bit;
                    let parsed = Array::parse(bytes);
                    assert!(parsed.as_ref().is_err() || parsed.as_ref() == Ok(&array), "{place}.{bit}: {parsed:?}");
                }
            }
        }
    }

    /// Every byte of the header replaced by every other: an error, or an array whose length matches its shape.
    #[test]
    fn any_byte_in_any_place_is_an_error_or_a_consistent_array() {
        let array = small(Kind::F16);
        let bytes = file(&array);
        for place in 0..array.header().len() {
            for value in 0..=u8::MAX {
                let mut bytes = bytes.clone();
                bytes[place] = value;
                if let Ok(parsed) = Array::parse(bytes) {
                    assert_eq!(data_bytes(parsed.kind, &parsed.shape), Some(parsed.data.len() as u64));
                }
            }
        }
    }
}
