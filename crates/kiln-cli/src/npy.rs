//! `.npy`, NumPy's file of one array: reading and writing what a kernel can hold.
//!
//! Versions 1 to 3, C order, `f16`, `f32`, `i32` and `u32` in little-endian order. The header of a plain array has
//! three keys, so reading it takes no crate.

use kiln::Scalar;

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself refuses headers beyond 10,000 bytes, unless told otherwise.
const MAX_HEADER_BYTES: usize = 1 << 16;
/// NumPy lets the data begin at multiples of this.
const ALIGNMENT: usize = 64;

/// The types that can be read and written, with their names in a header.
const DESCRIPTIONS: [(Scalar, &str); 4] =
    [(Scalar::F16, "<f2"), (Scalar::F32, "<f4"), (Scalar::I32, "<i4"), (Scalar::U32, "<u4")];

/// An array as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) scalar: Scalar,
    pub(crate) shape: Vec<u64>,
    /// The elements, the last axis fastest, each little-endian.
    pub(crate) data: Vec<u8>,
}

impl Array {
    /// The array of a file's bytes. An error says what was expected and what was found.
    pub(crate) fn parse(mut bytes: Vec<u8>) -> Result<Self, String> {
        let (header, start) = split(&bytes)?;
        let Header { scalar, shape } = Header::parse(header)?;
        let wanted = data_bytes(scalar, &shape)
            .ok_or_else(|| format!("expected a shape of less than 2^64 bytes, found {}", tuple(&shape)))?;
        let found = (bytes.len() - start) as u64;
        if found != wanted {
            let shape = tuple(&shape);
            return Err(format!("expected {wanted} bytes of data for shape {shape} of {scalar}, found {found}"));
        }
        bytes.drain(..start);
        Ok(Self { scalar, shape, data: bytes })
    }

    /// What comes before the data in a file.
    pub(crate) fn header(&self) -> Vec<u8> {
        let description = describe(self.scalar);
        let shape = tuple(&self.shape);
        let mut text = format!("{{'descr': '{description}', 'fortran_order': False, 'shape': {shape}, }}");
        let prefix = |length_bytes: usize| MAGIC.len() + 2 + length_bytes;
        let padded =
            |length_bytes| (prefix(length_bytes) + text.len() + 1).next_multiple_of(ALIGNMENT) - prefix(length_bytes);
        // Version 1 has two bytes for the length of the header, which is enough for every shape but an absurd one.
        let (version, length) = match u16::try_from(padded(2)) {
            Ok(length) => (1, length.to_le_bytes().to_vec()),
            Err(_) => (2, u32::try_from(padded(4)).unwrap_or(u32::MAX).to_le_bytes().to_vec()),
        };
        let spaces = padded(length.len()) - text.len() - 1;
        text.extend(std::iter::repeat_n(' ', spaces).chain(['\n']));
        [MAGIC, &[version, 0], &length, text.as_bytes()].concat()
    }
}

/// A shape as Python writes it: `()`, `(3,)`, `(2, 3)`.
pub(crate) fn tuple(shape: &[u64]) -> String {
    let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
    match &lengths[..] {
        [only] => format!("({only},)"),
        _ => format!("({})", lengths.join(", ")),
    }
}

/// Bytes of an array with this shape; `None` where no file could hold them.
pub(crate) fn data_bytes(scalar: Scalar, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(scalar.bytes(), |bytes, length| bytes.checked_mul(*length))
}

fn describe(scalar: Scalar) -> &'static str {
    DESCRIPTIONS.iter().find(|(known, _)| *known == scalar).map_or("", |(_, description)| description)
}

/// The header's text, and where the data begins.
fn split(bytes: &[u8]) -> Result<(&str, usize), String> {
    let cut = |what: &str| format!("expected {what}, found the end of the file after {} bytes", bytes.len());
    let rest = bytes.strip_prefix(MAGIC).ok_or("expected a `.npy` file, found something else")?;
    let (length, rest) = match rest.split_first_chunk().ok_or_else(|| cut("a version"))? {
        ([1, 0], rest) => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(|| cut("the length of the header"))?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        ([2 | 3, 0], rest) => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(|| cut("the length of the header"))?;
            (usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX), rest)
        }
        ([major, minor], _) => return Err(format!("expected version 1, 2 or 3 of `.npy`, found {major}.{minor}")),
    };
    if length > MAX_HEADER_BYTES {
        return Err(format!("expected a header of at most {MAX_HEADER_BYTES} bytes, found {length}"));
    }
    let header = rest.get(..length).ok_or_else(|| cut("a whole header"))?;
    let header = std::str::from_utf8(header).map_err(|_| "expected a header in UTF-8, found other bytes")?;
    Ok((header, bytes.len() - rest.len() + length))
}

struct Header {
    scalar: Scalar,
    shape: Vec<u64>,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` with its keys in any order.
    fn parse(text: &str) -> Result<Self, String> {
        let mut cursor = Cursor { rest: text };
        let (mut scalar, mut is_fortran, mut shape) = (None, None, None);
        cursor.expect('{')?;
        while !cursor.eat('}') {
            let key = cursor.string()?;
            cursor.expect(':')?;
            let is_new = match key {
                "descr" => scalar.replace(cursor.scalar()?).is_none(),
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
        cursor.end()?;
        let missing = |key: &str| format!("expected the key {key} in the header, found none");
        if is_fortran.ok_or_else(|| missing("fortran_order"))? {
            let fix = "save it with `numpy.ascontiguousarray`";
            return Err(format!("expected the last axis to be contiguous (C order), found Fortran order; {fix}"));
        }
        Ok(Self { scalar: scalar.ok_or_else(|| missing("descr"))?, shape: shape.ok_or_else(|| missing("shape"))? })
    }
}

/// The part of a header that is not read yet.
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

    fn end(&mut self) -> Result<(), String> {
        if self.peek().is_none() { Ok(()) } else { Err(self.fault("its end")) }
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

    fn scalar(&mut self) -> Result<Scalar, String> {
        let known = DESCRIPTIONS.map(|(scalar, description)| format!("{scalar} ('{description}')")).join(", ");
        if self.peek() == Some('[') {
            return Err(format!("expected elements of {known}, found records with fields"));
        }
        let found = self.string()?;
        let scalar = DESCRIPTIONS.iter().find(|(_, description)| *description == found).map(|(scalar, _)| *scalar);
        scalar.ok_or_else(|| {
            let found = found.escape_debug();
            format!("expected elements of {known}, found '{found}'; convert them, as with `a.astype('<f4')`")
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
            // `(3)` is a number in brackets, not a tuple.
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

    fn small(scalar: Scalar) -> Array {
        Array { scalar, shape: vec![2, 3], data: (1..=6 * scalar.bytes() as u8).collect() }
    }

    #[test]
    fn what_is_written_is_read_and_the_data_is_aligned() {
        for shape in [vec![], vec![0], vec![1], vec![5], vec![2, 3], vec![1, 0, 7], vec![1; 32], vec![1; 30_000]] {
            for (scalar, _) in DESCRIPTIONS {
                let data = vec![7; data_bytes(scalar, &shape).unwrap() as usize];
                let array = Array { scalar, shape: shape.clone(), data };
                if shape.len() < 10_000 {
                    assert_eq!(Array::parse(file(&array)).unwrap(), array);
                }
                assert_eq!(array.header().len() % ALIGNMENT, 0, "{} axes", shape.len());
            }
        }
    }

    #[test]
    fn headers_of_other_writers_are_read() {
        let expected = small(Scalar::F32);
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
    fn what_cannot_be_read_says_what_was_expected_and_found() {
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
            with("'<f8'", "False", "(3,)"),
            with("'>f4'", "False", "(6,)"),
            with("'|u1'", "False", "(24,)"),
            with("[('a', '<f4')]", "False", "(6,)"),
            with("'<f4'", "True", "(2, 3)"),
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

    /// Style: bytes from files use checked arithmetic; what is damaged is an error, never a panic or another array.
    #[test]
    fn truncations_and_flipped_bits_are_errors_or_the_same_array() {
        for (scalar, _) in DESCRIPTIONS {
            let array = small(scalar);
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

    /// Every byte of the header replaced by every other: an error or an array whose length is that of its shape.
    #[test]
    fn any_byte_in_any_place_is_an_error_or_a_consistent_array() {
        let array = small(Scalar::F16);
        let bytes = file(&array);
        for place in 0..array.header().len() {
            for value in 0..=u8::MAX {
                let mut bytes = bytes.clone();
                bytes[place] = value;
                if let Ok(parsed) = Array::parse(bytes) {
                    assert_eq!(data_bytes(parsed.scalar, &parsed.shape), Some(parsed.data.len() as u64));
                }
            }
        }
    }
}
