//! The error of the store: a kind named for what the caller can do about it, and a message.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

/// What went wrong in a [`DiskStore`](super::DiskStore). Cheap to clone.
///
/// ```
/// use kiln_resource_cache::store::{DiskStore, StoreErrorKind, StoreOptions};
///
/// let error = DiskStore::open("anywhere", StoreOptions::new().with_max_entries(0)).unwrap_err();
/// assert_eq!(error.kind(), StoreErrorKind::InvalidArgument);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Arc<str>,
}

/// The kinds of [`StoreError`], each with its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// A setting is zero or cannot be met: fix the call. Nothing was changed.
    InvalidArgument,
    /// Somebody else could change what is in the directory: run the command that the message names.
    Untrusted,
    /// The directory or file system refuses writes: change its permissions, or use another directory.
    NotWritable,
    /// There is no space left, or a quota or file size limit is reached: free some.
    DiskFull,
    /// Another process holds the store's lock for too long: try again, or look what it does.
    Busy,
    /// An archive is not one, or one of an unknown version: get another.
    Corrupt,
    /// Anything else the file system says: look at it.
    Io,
}

impl StoreError {
    pub(super) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into() }
    }

    /// The error of an attempt (`write`, `list`) at a path.
    pub(super) fn of_io(attempt: &str, path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreErrorKind::DiskFull
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::NotWritable,
            _ => StoreErrorKind::Io,
        };
        Self::new(kind, format!("cannot {attempt} {}: {error}", path.display()))
    }

    /// The kind of the error, for code that reacts to it.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl std::error::Error for StoreError {}
