//! One safetensors file: its bytes and its validated header.

use super::corrupt;
use crate::{Error, ErrorKind, Result, Shape};
use memmap2::{MmapOptions, MmapRaw};
use safetensors::tensor::{Dtype, Metadata};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

/// Maximum size of a header: the limit of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Size of the length field before the header.
const PREAMBLE_BYTES: u64 = 8;

/// A mapped file, or the contents of one in memory.
pub(super) struct Source {
    /// The path, for error messages.
    pub(super) name: String,
    bytes: Bytes,
}

enum Bytes {
    /// A memory map, which is only copied from through a raw pointer, never borrowed: another process may change the
    /// file.
    Mapped {
        map: MmapRaw,
        file: File,
    },
    Owned(Vec<u8>),
}

/// Location, dtype and shape of a stored tensor.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The index of its file.
    pub(super) source: usize,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Byte range in the file. Header validation guarantees that its length matches dtype and shape.
    pub(super) range: Range<u64>,
}

pub(super) struct Header {
    pub(super) entries: Vec<(String, Entry)>,
    pub(super) metadata: BTreeMap<String, String>,
}

impl Entry {
    pub(super) fn dtype_name(&self) -> String {
        self.dtype.to_string().to_lowercase()
    }

    /// Describes the tensor for error messages: `bf16 (2, 3)`.
    pub(super) fn describe(&self) -> String {
        format!("{} {}", self.dtype_name(), Shape::new(&self.shape))
    }
}

impl Source {
    /// Memory-maps a file.
    ///
    /// # Errors
    /// Returns `Io` if the path cannot be read or is not a file.
    pub(super) fn map(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let fault = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Io, format!("{}: cannot be read: {error}", path.display()))
        };
        // Opening a pipe would block until a writer appears.
        if !fs::metadata(path).map_err(|error| fault(&error))?.is_file() {
            return Err(fault(&"expected a regular file, found something else"));
        }
        let file = File::open(path).map_err(|error| fault(&error))?;
        let map = MmapOptions::new().map_raw_read_only(&file).map_err(|error| fault(&error))?;
        Ok(Self { name, bytes: Bytes::Mapped { map, file } })
    }

    pub(super) fn owned(name: String, bytes: Vec<u8>) -> Self {
        Self { name, bytes: Bytes::Owned(bytes) }
    }

    fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped { map, .. } => map.len() as u64,
            Bytes::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// Reads the header and validates it against the file length.
    ///
    /// # Errors
    /// Returns `Corrupt` if the header does not match the file.
    pub(super) fn header(&self) -> Result<Header> {
        let wrong = |what: String| corrupt(&self.name, &format!("expected a safetensors file, found {what}"));
        let mut length = [0; PREAMBLE_BYTES as usize];
        if self.len() < PREAMBLE_BYTES {
            return Err(wrong(format!("{} bytes", self.len())));
        }
        self.copy(0, &mut length)?;
        let (length, rest) = (u64::from_le_bytes(length), self.len() - PREAMBLE_BYTES);
        // The length is untrusted: without this check it would decide how much memory is allocated.
        if length > MAX_HEADER_BYTES.min(rest) {
            return Err(wrong(format!("a header of {length} bytes in a file of {}", self.len())));
        }
        let mut text = vec![0; length as usize];
        self.copy(PREAMBLE_BYTES, &mut text)?;
        // Parsing also validates offsets: in order, without gaps, and as many bytes as dtype and shape need.
        let header: Metadata = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let (start, data) = (PREAMBLE_BYTES + length, rest - length);
        if header.data_len() as u64 != data {
            return Err(wrong(format!("tensors of {} bytes in {data} bytes", header.data_len())));
        }
        let entry = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
            let (from, to) = info.data_offsets;
            let range = start + from as u64..start + to as u64;
            // Zeros are skipped: `product` multiplies in order, so the lengths before a zero must not overflow
            // either.
            let lengths = info.shape.iter().filter(|length| **length > 0);
            if lengths.copied().try_fold(1usize, usize::checked_mul).is_none() {
                return Err(wrong(format!("{name} with lengths {:?}", info.shape)));
            }
            Ok((name, Entry { source: 0, dtype: info.dtype, shape: info.shape.clone(), range }))
        };
        let entries = header.tensors().into_iter().map(entry).collect::<Result<_>>()?;
        Ok(Header { entries, metadata: header.metadata().clone().unwrap_or_default().into_iter().collect() })
    }

    /// Copies a byte range of the file.
    ///
    /// # Errors
    /// Returns `Corrupt` if the range is outside the file, or if the file was truncated.
    pub(super) fn copy(&self, at: u64, to: &mut [u8]) -> Result<()> {
        let end = at.checked_add(to.len() as u64).filter(|end| *end <= self.len());
        let end = end.ok_or_else(|| {
            corrupt(&self.name, &format!("expected {} bytes at {at}, found a file of {}", to.len(), self.len()))
        })?;
        match &self.bytes {
            Bytes::Owned(bytes) => to.copy_from_slice(&bytes[at as usize..end as usize]),
            Bytes::Mapped { map, file } => {
                // Reading a mapped page beyond the end of a truncated file raises SIGBUS. The check leaves only the
                // time between it and the copy.
                let length = file.metadata().map_or(0, |metadata| metadata.len());
                if length < end {
                    let message = format!("expected a file of {} bytes, found {length}: it was truncated", self.len());
                    return Err(corrupt(&self.name, &message));
                }
                copy_mapped(map, at as usize, to);
            }
        }
        Ok(())
    }
}

/// Copies from a map; the range must be in bounds.
#[expect(unsafe_code, reason = "a slice of mapped memory would promise that no process changes the file")]
fn copy_mapped(map: &MmapRaw, at: usize, to: &mut [u8]) {
    assert!(at.checked_add(to.len()).is_some_and(|end| end <= map.len()), "the caller checked the range");
    // SAFETY: the range is inside the map, which is readable and outlives the borrow; `to` is memory owned by this
    // process, so the two do not overlap. If another process writes to the file concurrently, each byte is old or
    // new, and every byte value is valid.
    unsafe { std::ptr::copy_nonoverlapping(map.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
}
