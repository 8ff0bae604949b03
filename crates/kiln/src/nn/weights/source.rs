//! One file: its bytes, and a header that agrees with them.

use super::corrupt;
use crate::{Error, ErrorKind, Result, Shape};
use memmap2::{MmapOptions, MmapRaw};
use safetensors::tensor::{Dtype, Metadata};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

/// Bytes of a header at most: the limit of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of the number at the beginning, which is the length of the header.
const PREAMBLE_BYTES: u64 = 8;

/// A file, or what would be in one.
pub(super) struct Source {
    /// Its path, for messages.
    pub(super) name: String,
    bytes: Bytes,
}

enum Bytes {
    /// The memory is only ever copied from, through a pointer: another process may change it.
    Mapped {
        map: MmapRaw,
        file: File,
    },
    Owned(Vec<u8>),
}

/// Where a tensor is, and what.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The number of its file.
    pub(super) source: usize,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Bytes in the file. The header's check says that they are as many as dtype and shape need.
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

    /// As messages name it: `bf16 (2, 3)`.
    pub(super) fn describe(&self) -> String {
        format!("{} {}", self.dtype_name(), Shape::new(&self.shape))
    }
}

impl Source {
    /// Maps a file.
    ///
    /// # Errors
    /// `Io` where it cannot be read, or is not a file.
    pub(super) fn map(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let fault = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Io, format!("{}: cannot be read: {error}", path.display()))
        };
        // Opening a pipe would wait for somebody to write.
        if !fs::metadata(path).map_err(|error| fault(&error))?.is_file() {
            return Err(fault(&"expected a file, found something else"));
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

    /// Reads the header, and checks it against the length of the file.
    ///
    /// # Errors
    /// `Corrupt` where it does not describe the file.
    pub(super) fn header(&self) -> Result<Header> {
        let wrong = |what: String| corrupt(&self.name, &format!("expected a file of safetensors, found {what}"));
        let mut length = [0; PREAMBLE_BYTES as usize];
        if self.len() < PREAMBLE_BYTES {
            return Err(wrong(format!("{} bytes", self.len())));
        }
        self.copy(0, &mut length)?;
        let (length, rest) = (u64::from_le_bytes(length), self.len() - PREAMBLE_BYTES);
        if length > MAX_HEADER_BYTES.min(rest) {
            return Err(wrong(format!("a header of {length} bytes in a file of {}", self.len())));
        }
        let mut text = vec![0; length as usize];
        self.copy(PREAMBLE_BYTES, &mut text)?;
        // Checks offsets, too: in order, without gaps, as many bytes as dtype and shape need.
        let header: Metadata = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let (start, data) = (PREAMBLE_BYTES + length, rest - length);
        if header.data_len() as u64 != data {
            return Err(wrong(format!("tensors of {} bytes in {data} bytes", header.data_len())));
        }
        let entry = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
            let (from, to) = info.data_offsets;
            let range = start + from as u64..start + to as u64;
            let lengths = info.shape.iter().filter(|length| **length > 0);
            if lengths.copied().try_fold(1usize, usize::checked_mul).is_none() {
                return Err(wrong(format!("{name} with lengths {:?}", info.shape)));
            }
            Ok((name, Entry { source: 0, dtype: info.dtype, shape: info.shape.clone(), range }))
        };
        let entries = header.tensors().into_iter().map(entry).collect::<Result<_>>()?;
        Ok(Header { entries, metadata: header.metadata().clone().unwrap_or_default().into_iter().collect() })
    }

    /// Copies bytes of the file.
    ///
    /// # Errors
    /// `Corrupt` where they are outside, or where the file has become shorter.
    pub(super) fn copy(&self, at: u64, to: &mut [u8]) -> Result<()> {
        let end = at.checked_add(to.len() as u64).filter(|end| *end <= self.len());
        let end = end.ok_or_else(|| {
            corrupt(&self.name, &format!("expected {} bytes at {at}, found a file of {}", to.len(), self.len()))
        })?;
        match &self.bytes {
            Bytes::Owned(bytes) => to.copy_from_slice(&bytes[at as usize..end as usize]),
            Bytes::Mapped { map, file } => {
                let length = file.metadata().map_or(0, |metadata| metadata.len());
                if length < end {
                    let message = format!("expected a file of {} bytes, found {length}: it was changed", self.len());
                    return Err(corrupt(&self.name, &message));
                }
                copy_mapped(map, at as usize, to);
            }
        }
        Ok(())
    }
}

/// Copies from a map; the range is inside of it.
#[expect(unsafe_code, reason = "a slice of mapped memory would promise that no process changes the file")]
fn copy_mapped(map: &MmapRaw, at: usize, to: &mut [u8]) {
    assert!(at.checked_add(to.len()).is_some_and(|end| end <= map.len()), "the caller checked the range");
    // SAFETY: the range is inside of the map, which is readable and lives as long as the borrow; `to` is memory of this process, so both
    // do not overlap. Where another process writes to the file, bytes are old or new: every value of a byte is valid.
    unsafe { std::ptr::copy_nonoverlapping(map.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
}
