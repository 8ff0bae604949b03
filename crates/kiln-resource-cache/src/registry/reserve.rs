//! Reserves: unused memory outside of a registry that a trim releases first.

/// Unused memory that a registry does not own, such as the free blocks of a memory pool.
///
/// A [trim](crate::CacheRegistry::trim) counts it and releases it before it evicts entries, and again after entries and
/// slots returned memory to it. It does not count towards the byte budget, because a reserve has its own limit.
pub trait CacheReserve: Send + Sync + 'static {
    /// Returns the bytes that can be released now.
    fn bytes(&self) -> u64;

    /// Releases at least this many bytes, or all there are. Does not wait for memory that is in use.
    fn release(&self, bytes: u64);
}
