//! The file format of an entry. A file contains everything that is needed to verify it.
//!
//! | offset | length | content (numbers are little-endian) |
//! | --- | --- | --- |
//! | 0 | 8 | magic `KILNSTOR` |
//! | 8 | 4 | format version |
//! | 12 | 4 | length of the key |
//! | 16 | 8 | length of the payload |
//! | 24 | 8 | time of writing, in nanoseconds since the Unix epoch |
//! | 32 | 32 | BLAKE3 over bytes 0 to 31, the key and the payload |
//! | 64 | | the key, then the payload, up to the end of the file |
//!
//! The file name is BLAKE3 of the key in hexadecimal, so a listing can verify keys without reading payloads.

use super::file;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

pub(super) const MAGIC: [u8; 8] = *b"KILNSTOR";
pub(super) const VERSION: u32 = 1;
/// The length of the header, which precedes the key.
pub(super) const HEADER_BYTES: usize = 64;
/// The part of the header that the checksum covers; the checksum is the rest.
const CHECKED_BYTES: usize = 32;
/// The maximum length of a key, in bytes. A larger length in a file is damage; nothing is allocated for it.
///
/// [`DiskStore::put`](crate::store::DiskStore::put) skips longer keys; see the [module documentation](crate::store)
/// for an example of a put.
pub const MAX_KEY_BYTES: usize = 1 << 20;

/// Why an entry was rejected.
///
/// See [`VerifyReport`](crate::store::VerifyReport) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reject {
    /// A link, directory, pipe or device has the name of the entry.
    NotAFile,
    /// The file is shorter than its header says.
    Truncated,
    /// The file is longer than its header says.
    TrailingBytes,
    /// The file does not begin with the magic bytes.
    ForeignMagic,
    /// The file has another version of the format.
    Version,
    /// The entry is larger than this store allows.
    TooLarge,
    /// The checksum does not match.
    Checksum,
    /// The entry is intact but has another key.
    OtherKey,
}

impl Reject {
    /// All variants, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::NotAFile,
        Self::Truncated,
        Self::TrailingBytes,
        Self::ForeignMagic,
        Self::Version,
        Self::TooLarge,
        Self::Checksum,
        Self::OtherKey,
    ];
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAFile => "not a regular file",
            Self::Truncated => "truncated",
            Self::TrailingBytes => "trailing bytes",
            Self::ForeignMagic => "not an entry of a store",
            Self::Version => "a different format version",
            Self::TooLarge => "larger than the store allows",
            Self::Checksum => "wrong checksum",
            Self::OtherKey => "an entry of a different key",
        })
    }
}

/// Why an entry could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    Missing,
    Rejected(Reject),
    Io(io::Error),
}

impl From<Reject> for Fault {
    fn from(reject: Reject) -> Self {
        Self::Rejected(reject)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            // The file was truncated while it was read.
            io::ErrorKind::UnexpectedEof => Self::Rejected(Reject::Truncated),
            _ => Self::Io(error),
        }
    }
}

/// The id of an entry: BLAKE3 of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EntryId(pub(super) [u8; 32]);

impl EntryId {
    pub(super) fn from_key(key: &[u8]) -> Self {
        Self(blake3::hash(key).into())
    }

    /// Parses a file name. Returns `None` if it is not the name of an entry.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let id = Self(blake3::Hash::from_hex(name).ok()?.into());
        // `from_hex` also accepts upper case, which would be a second file name for the same entry.
        (id.name() == name).then_some(id)
    }

    pub(super) fn name(&self) -> String {
        blake3::Hash::from(self.0).to_hex().to_string()
    }
}

/// The header and the key of an entry, with consistent lengths.
#[derive(Debug)]
pub(super) struct Head {
    header: [u8; HEADER_BYTES],
    pub(super) key: Vec<u8>,
    pub(super) payload_bytes: u64,
}

impl Head {
    /// Creates the head of a new entry. Returns `None` if a length exceeds the format.
    pub(super) fn new(key: &[u8], payload: &[u8], written: Duration) -> Option<Self> {
        if key.len() > MAX_KEY_BYTES {
            return None;
        }
        let (key_bytes, payload_bytes) = (u32::try_from(key.len()).ok()?, u64::try_from(payload.len()).ok()?);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&key_bytes.to_le_bytes());
        header[16..24].copy_from_slice(&payload_bytes.to_le_bytes());
        header[24..32].copy_from_slice(&crate::clock::nanos(written).to_le_bytes());
        let checksum = checksum(&header, key, payload);
        header[CHECKED_BYTES..].copy_from_slice(checksum.as_bytes());
        Some(Self { header, key: key.to_vec(), payload_bytes })
    }

    /// Reads the head of an entry that is `len` bytes long, of at most `max_bytes`.
    pub(super) fn read(reader: &mut impl Read, len: u64, max_bytes: u64) -> Result<Self, Fault> {
        let mut header = [0; HEADER_BYTES];
        if len < HEADER_BYTES as u64 {
            return Err(Reject::Truncated.into());
        }
        reader.read_exact(&mut header)?;
        // Magic and version come first, so that foreign files are not reported as damaged.
        if header[..8] != MAGIC {
            return Err(Reject::ForeignMagic.into());
        }
        if header[8..12] != VERSION.to_le_bytes() {
            return Err(Reject::Version.into());
        }
        let (key_bytes, payload_bytes) = (u64::from(u32::from_le_bytes(bytes_at(&header, 12))), u64_at(&header, 16));
        let total = (HEADER_BYTES as u64).checked_add(key_bytes).and_then(|sum| sum.checked_add(payload_bytes));
        match total {
            // The lengths are compared before anything is allocated, because they come from the file.
            Some(total) if total < len => Err(Reject::TrailingBytes.into()),
            Some(total) if total > len => Err(Reject::Truncated.into()),
            // The length of the file is not a safe bound for an allocation: a sparse file can have any length.
            Some(total) if total > max_bytes || key_bytes > MAX_KEY_BYTES as u64 => Err(Reject::TooLarge.into()),
            Some(_) => {
                let key = read_vec(reader, key_bytes)?;
                Ok(Self { header, key, payload_bytes })
            }
            None => Err(Reject::Truncated.into()),
        }
    }

    /// Reads the payload that follows the head and verifies the whole entry.
    pub(super) fn read_payload(&self, reader: &mut impl Read) -> Result<Vec<u8>, Fault> {
        let payload = read_vec(reader, self.payload_bytes)?;
        self.require(&checksum(&self.header, &self.key, &payload))?;
        Ok(payload)
    }

    /// Verifies the whole entry as [`read_payload`](Self::read_payload) does, without keeping the payload.
    fn check_payload(&self, reader: &mut impl Read) -> Result<(), Fault> {
        let mut hasher = hasher(&self.header, &self.key);
        if io::copy(&mut reader.take(self.payload_bytes), &mut hasher)? < self.payload_bytes {
            return Err(Reject::Truncated.into());
        }
        self.require(&hasher.finalize())
    }

    fn require(&self, checksum: &blake3::Hash) -> Result<(), Fault> {
        // Compares plain bytes: constant time, as for `blake3::Hash`, is not needed.
        let is_right = checksum.as_bytes() == &self.header[CHECKED_BYTES..];
        if is_right { Ok(()) } else { Err(Reject::Checksum.into()) }
    }

    pub(super) fn write(&self, payload: &[u8], writer: &mut impl Write) -> io::Result<()> {
        let mut start = Vec::with_capacity(HEADER_BYTES + self.key.len());
        start.extend_from_slice(&self.header);
        start.extend_from_slice(&self.key);
        writer.write_all(&start)?;
        writer.write_all(payload)
    }

    /// Returns the length of the file. Cannot overflow: the lengths come from slices or were checked against a real
    /// file.
    pub(super) fn file_bytes(&self) -> u64 {
        (HEADER_BYTES as u64).saturating_add(self.key.len() as u64).saturating_add(self.payload_bytes)
    }

    /// Returns the time of writing since the Unix epoch.
    pub(super) fn written(&self) -> Duration {
        Duration::from_nanos(u64_at(&self.header, 24))
    }
}

/// An open file with a head whose lengths match the file.
pub(super) struct OpenEntry {
    pub(super) file: File,
    pub(super) head: Head,
    pub(super) last_used: SystemTime,
}

impl OpenEntry {
    /// Opens a file and reads its head. The key is not verified.
    pub(super) fn open(path: &Path, max_bytes: u64) -> Result<Self, Fault> {
        let (mut file, metadata) = match file::open_to_read(path) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Err(Reject::NotAFile.into()),
            Err(error) => return Err(error.into()),
        };
        let head = Head::read(&mut file, metadata.len(), max_bytes)?;
        Ok(Self { file, head, last_used: metadata.modified()? })
    }

    /// Opens a file and verifies all of it, including its key. Returns the payload as well.
    pub(super) fn read(
        path: &Path,
        max_bytes: u64,
        is_expected_key: impl Fn(&[u8]) -> bool,
    ) -> Result<(Self, Vec<u8>), Fault> {
        let mut entry = Self::open(path, max_bytes)?;
        let payload = entry.head.read_payload(&mut entry.file)?;
        if is_expected_key(&entry.head.key) { Ok((entry, payload)) } else { Err(Reject::OtherKey.into()) }
    }

    /// Verifies a file as [`read`](Self::read) does, without a limit on its length. Returns the length.
    pub(super) fn check(path: &Path, id: &EntryId) -> Result<u64, Fault> {
        let mut entry = Self::open(path, u64::MAX)?;
        entry.head.check_payload(&mut entry.file)?;
        if EntryId::from_key(&entry.head.key) == *id {
            Ok(entry.head.file_bytes())
        } else {
            Err(Reject::OtherKey.into())
        }
    }
}

fn checksum(header: &[u8; HEADER_BYTES], key: &[u8], payload: &[u8]) -> blake3::Hash {
    hasher(header, key).update(payload).finalize()
}

/// Starts the checksum of an entry.
fn hasher(header: &[u8; HEADER_BYTES], key: &[u8]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    // The header contains both lengths, so that moving bytes between key and payload changes the checksum.
    hasher.update(&header[..CHECKED_BYTES]).update(key);
    hasher
}

/// Reads exactly `len` bytes. The caller has checked that `len` is acceptable.
fn read_vec(reader: &mut impl Read, len: u64) -> Result<Vec<u8>, Fault> {
    let len = usize::try_from(len).map_err(|_| Reject::TooLarge)?;
    let mut bytes = Vec::new();
    // A failed reservation rejects the entry instead of aborting the process.
    bytes.try_reserve_exact(len).map_err(|_| Reject::TooLarge)?;
    bytes.resize(len, 0);
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Returns `N` bytes of a record. The caller has checked its length.
pub(super) fn bytes_at<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| record[at + byte])
}

pub(super) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(record, at))
}
