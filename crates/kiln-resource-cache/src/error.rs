//! The error type of this crate: a kind named for the caller's remedy, and a message.

use std::fmt::{self, Debug};
use std::sync::Arc;

/// An error with a kind and a message. Cheap to clone.
///
/// See [`CacheError`] for an example.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorOf<K> {
    kind: K,
    message: Arc<str>,
}

/// An error of a cache, as opposed to an error of a creation function.
///
/// Cheap to clone, because every thread that waits for a failed creation receives it.
///
/// ```
/// use kiln_resource_cache::{Cache, CacheErrorKind, EvictionPolicy};
///
/// let policy = EvictionPolicy::lru().with_max_entries(4).with_min_entries(8);
/// let error = Cache::<u32, u32>::builder("plans").policy(policy).build().unwrap_err();
/// assert_eq!(error.kind(), CacheErrorKind::InvalidArgument);
/// assert!(error.to_string().contains("min_entries (8)"));
/// ```
pub type CacheError = ErrorOf<CacheErrorKind>;

/// The kinds of [`CacheError`], each with its remedy.
///
/// See [`CacheError`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheErrorKind {
    /// A setting is zero or contradicts another: fix the call. Nothing was changed.
    InvalidArgument,
    /// Two caches of a registry have the same name, such as the `CACHE_NAME` of two types: rename one of them.
    DuplicateName,
    /// A creation requested the resource that it is creating, directly or through another thread: break the cycle.
    Reentrant,
    /// The creation that this caller waited for panicked in another thread: call again.
    CreationPanicked,
    /// The creation that this caller waited for failed in another thread, whose error type is not the caller's: call
    /// again.
    CreationFailed,
}

impl<K: Copy> ErrorOf<K> {
    pub(crate) fn new(kind: K, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into() }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> K {
        self.kind
    }
}

impl<K> fmt::Display for ErrorOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<K: Debug> Debug for ErrorOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl<K: Debug> std::error::Error for ErrorOf<K> {}
