//! The error of this crate: a kind named for what the caller can do about it, and a message.

use std::fmt;
use std::sync::Arc;

/// What went wrong in a cache, as opposed to inside a creation function.
///
/// Cheap to clone, because every waiter of one failed creation gets it.
///
/// ```
/// use kiln_resource_cache::{Cache, CacheErrorKind, EvictionPolicy};
///
/// let policy = EvictionPolicy::lru().with_max_entries(4).with_min_entries(8);
/// let error = Cache::<u32, u32>::builder("plans").policy(policy).build().unwrap_err();
/// assert_eq!(error.kind(), CacheErrorKind::InvalidArgument);
/// assert!(error.to_string().contains("min_entries (8)"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CacheError {
    kind: CacheErrorKind,
    message: Arc<str>,
}

/// The kinds of [`CacheError`], each with its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheErrorKind {
    /// A setting contradicts itself or is zero: fix the call. Nothing was changed.
    InvalidArgument,
    /// Two kernel types claim one `CACHE_NAME`: rename one of them.
    DuplicateName,
    /// A creation asked, on its own or through another thread, for the resource it is creating: break the cycle.
    Reentrant,
    /// The creation that this caller waited for panicked in another thread: call again to try anew.
    CreationPanicked,
    /// The creation that this caller waited for failed with an error of another type: call again to try anew.
    CreationFailed,
}

impl CacheError {
    pub(crate) fn new(kind: CacheErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into() }
    }

    /// The kind of the error, for code that reacts to it.
    pub fn kind(&self) -> CacheErrorKind {
        self.kind
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl std::error::Error for CacheError {}
