//! The error of the store.

use crate::error::ErrorOf;
use std::io;
use std::path::Path;

/// What went wrong in a [`DiskStore`](super::DiskStore). Cheap to clone.
///
/// ```
/// use kiln_resource_cache::store::{DiskStore, StoreErrorKind, StoreOptions};
///
/// let error = DiskStore::open("anywhere", StoreOptions::new().with_max_entries(0)).unwrap_err();
/// assert_eq!(error.kind(), StoreErrorKind::InvalidArgument);
/// ```
pub type StoreError = ErrorOf<StoreErrorKind>;

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
}
