//! The error type of the store.

use crate::error::ErrorOf;
use std::io;
use std::path::Path;

/// An error of a [`DiskStore`](super::DiskStore). Cheap to clone.
///
/// ```
/// use kiln_resource_cache::store::{DiskStore, StoreErrorKind, StoreOptions};
///
/// let error = DiskStore::open("anywhere", StoreOptions::new().with_max_entries(0)).unwrap_err();
/// assert_eq!(error.kind(), StoreErrorKind::InvalidArgument);
/// ```
pub type StoreError = ErrorOf<StoreErrorKind>;

/// The kinds of [`StoreError`], each with its remedy.
///
/// See [`StoreError`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// A setting is zero or cannot be met: fix the call. Nothing was changed.
    InvalidArgument,
    /// Other users can change the directory: run the command in the message.
    Untrusted,
    /// The directory or file system refuses writes: change its permissions, or use another directory.
    NotWritable,
    /// No space is left, or a quota or file size limit is reached: free some space.
    DiskFull,
    /// Another process held the lock of the store for too long: try again, or find out what it does.
    Busy,
    /// The file is not an archive, or has an unknown version: use another file.
    Corrupt,
    /// Any other error of the file system.
    Io,
}

impl StoreError {
    /// Creates the error of an operation (`write`, `list`) on a path.
    pub(super) fn from_io(attempt: &str, path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreErrorKind::DiskFull
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::NotWritable,
            _ => StoreErrorKind::Io,
        };
        Self::new(kind, format!("cannot {attempt} {}: {error}", path.display()))
    }
}
