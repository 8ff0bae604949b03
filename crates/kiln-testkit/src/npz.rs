//! Reads `.npz` files: zip archives of `.npy` arrays, as `numpy.savez` writes them.
//!
//! Only stored entries: `numpy.savez_compressed` is refused. What the file says about itself is checked: no input panics.

use kiln_ir::{Error, ErrorKind, Result};

/// One array of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NpyArray {
    /// The name that `savez` was given.
    pub name: String,
    /// NumPy's name of the element type: `<f4`, `|u1`.
    pub descr: String,
    /// The lengths along the axes.
    pub shape: Vec<usize>,
    /// The elements, row by row, little-endian.
    pub bytes: Vec<u8>,
}

const END: [u8; 4] = *b"PK\x05\x06";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";

/// Every array of a file.
///
/// # Errors
/// `Corrupt` where the file is cut or contradicts itself, `Unsupported` where an entry is compressed or not in C order.
pub fn read(file: &[u8]) -> Result<Vec<NpyArray>> {
    // The end record is the last thing in an archive; only a comment of at most 64 KiB may follow its 22 bytes.
    let tail = file.len().saturating_sub(22 + 0xffff);
    let end = (tail..file.len().saturating_sub(21)).rev().find(|&at| file[at..].starts_with(&END));
    let end = end.ok_or_else(|| corrupt("expected the end record of a zip archive, found none"))?;
    let (entries, mut at) = (short(file, end + 10)?, long(file, end + 16)?);
    let mut arrays = Vec::new();
    for _ in 0..entries {
        expect(file, at, ENTRY, "directory entry")?;
        let (method, size, stored) = (short(file, at + 10)?, long(file, at + 24)?, long(file, at + 20)?);
        let lengths = [short(file, at + 28)?, short(file, at + 30)?, short(file, at + 32)?];
        let name = String::from_utf8_lossy(slice(file, at + 46, lengths[0])?).into_owned();
        if method != 0 || size != stored {
            let message = format!("expected stored entries, found method {method} of `{name}`");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let local = long(file, at + 42)?;
        expect(file, local, LOCAL, "header of an entry")?;
        let data = local + 30 + short(file, local + 26)? + short(file, local + 28)?;
        let array = npy(&name, slice(file, data, size)?).map_err(|error| error.context(format!("entry `{name}`")))?;
        arrays.push(array);
        at += 46 + lengths.iter().sum::<usize>();
    }
    Ok(arrays)
}

fn npy(name: &str, file: &[u8]) -> Result<NpyArray> {
    if !file.starts_with(b"\x93NUMPY") {
        return Err(corrupt("expected the mark of a `.npy` file, found another"));
    }
    let (start, length) = match file.get(6) {
        Some(1) => (10, short(file, 8)?),
        Some(2 | 3) => (12, long(file, 8)?),
        version => return Err(corrupt(format!("expected version 1, 2 or 3, found {version:?}"))),
    };
    let header = String::from_utf8_lossy(slice(file, start, length)?).into_owned();
    let value = |key: &str| -> Result<&str> {
        let found = header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
        found.ok_or_else(|| corrupt(format!("expected `{key}` in the header, found {header:?}")))
    };
    if value("fortran_order")?.starts_with("True") {
        return Err(Error::new(ErrorKind::Unsupported, "expected elements in C order, found Fortran order"));
    }
    let quoted = value("descr")?.split('\'').nth(1);
    let descr = quoted.ok_or_else(|| corrupt("expected a simple element type, found a record"))?.to_string();
    let inside = value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (lengths, _) = inside.ok_or_else(|| corrupt("expected a tuple as shape, found none"))?;
    let lengths = lengths.split(',').map(str::trim).filter(|text| !text.is_empty());
    let shape: Vec<usize> =
        lengths.map(str::parse).collect::<Result<_, _>>().map_err(|error| corrupt(format!("shape: {error}")))?;
    let element: Option<usize> = descr.get(2..).and_then(|digits| digits.parse().ok());
    let wanted = shape.iter().try_fold(element.unwrap_or(0), |bytes, &length| bytes.checked_mul(length));
    let bytes = &file[start + length..];
    if descr.starts_with('>') || element.is_none() || wanted != Some(bytes.len()) {
        let found = format!("found {} bytes of `{descr}` for {shape:?}", bytes.len());
        return Err(corrupt(format!("expected whole little-endian elements of the shape, {found}")));
    }
    let name = name.strip_suffix(".npy").unwrap_or(name).to_string();
    Ok(NpyArray { name, descr, shape, bytes: bytes.to_vec() })
}

fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

fn slice(file: &[u8], at: usize, length: usize) -> Result<&[u8]> {
    let end = at.checked_add(length);
    let found = end.and_then(|end| file.get(at..end));
    found.ok_or_else(|| corrupt(format!("expected {length} bytes at {at}, found a file of {}", file.len())))
}

fn short(file: &[u8], at: usize) -> Result<usize> {
    slice(file, at, 2).map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

fn long(file: &[u8], at: usize) -> Result<usize> {
    slice(file, at, 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
}

fn expect(file: &[u8], at: usize, mark: [u8; 4], what: &str) -> Result<()> {
    match slice(file, at, 4)? {
        found if found == mark => Ok(()),
        found => Err(corrupt(format!("expected a {what} at {at}, found {found:02x?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `np.savez(file, a=np.arange(3, dtype=np.int32), b=np.float32(2.5))`, with the fields that readers use.
    fn archive() -> Vec<u8> {
        let array = |descr: &str, shape: &str, bytes: &[u8]| {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
            let length = (header.len() as u16).to_le_bytes();
            [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), bytes].concat()
        };
        let integers: Vec<u8> = (0..3i32).flat_map(i32::to_le_bytes).collect();
        let entries =
            [("a.npy", array("<i4", "(3,)", &integers)), ("b.npy", array("<f4", "()", &2.5f32.to_le_bytes()))];
        let (mut file, mut directory) = (Vec::new(), Vec::new());
        for (name, data) in &entries {
            let size = (data.len() as u32).to_le_bytes();
            let at = (file.len() as u32).to_le_bytes();
            let length = (name.len() as u16).to_le_bytes();
            file.extend([&LOCAL[..], &[0; 14], &size, &size, &length, &[0; 2], name.as_bytes(), data].concat());
            let fields = [&ENTRY[..], &[0; 16], &size, &size, &length, &[0; 12], &at, name.as_bytes()];
            directory.extend(fields.concat());
        }
        let place = (file.len() as u32).to_le_bytes();
        let size = (directory.len() as u32).to_le_bytes();
        file.extend(directory);
        file.extend([&END[..], &[0; 4], &[2, 0, 2, 0], &size, &place, &[0; 2]].concat());
        file
    }

    #[test]
    fn arrays_are_read_with_name_type_shape_and_elements() {
        let arrays = read(&archive()).unwrap();
        let found: Vec<_> = arrays.iter().map(|array| (&array.name[..], &array.descr[..], &array.shape[..])).collect();
        assert_eq!(found, [("a", "<i4", &[3][..]), ("b", "<f4", &[][..])]);
        assert_eq!(arrays[0].bytes, [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    }

    /// Every cut and every changed byte is an error or another array, never a panic.
    #[test]
    fn damaged_files_are_refused() {
        let file = archive();
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err(), "cut to {length}");
        }
        for place in 0..file.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = file.clone();
                damaged[place] = byte;
                let _ = read(&damaged);
            }
        }
        let mut compressed = file.clone();
        let entry = file.windows(4).position(|bytes| bytes == ENTRY).unwrap();
        compressed[entry + 10] = 8;
        let error = read(&compressed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("method 8 of `a.npy`"), "{error}");
    }
}
