//! Reserves: unused memory outside of a registry that a trim releases first.

/// Unused memory that a registry does not own, such as the free blocks of a memory pool.
///
/// A [trim](crate::CacheRegistry::trim) counts it and releases it before it evicts entries, and again after entries and
/// slots returned memory to it. It does not count towards the byte budget, because a reserve has its own limit.
///
/// ```
/// use kiln_resource_cache::{CacheRegistry, CacheReserve};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// struct Free(AtomicU64);
/// impl CacheReserve for Free {
///     fn bytes(&self) -> u64 { self.0.load(Ordering::Relaxed) }
///     fn release(&self, _bytes: u64) { self.0.store(0, Ordering::Relaxed) }
/// }
/// let registry: CacheRegistry = CacheRegistry::new();
/// registry.add_reserve("blocks", Free(AtomicU64::new(90)));
/// assert_eq!((registry.report().reserves[0].bytes, registry.trim(0).bytes_after), (90, 0));
/// ```
pub trait CacheReserve: Send + Sync + 'static {
    /// Returns the bytes that can be released now.
    fn bytes(&self) -> u64;

    /// Releases at least this many bytes, or all there are. Does not wait for memory that is in use.
    fn release(&self, bytes: u64);
}
