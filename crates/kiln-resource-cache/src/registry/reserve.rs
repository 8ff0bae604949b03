//! Reserves: memory that is kept at hand for the next use, and that a trim gives back first.

/// Memory that a registry does not own and that nobody uses at the moment, such as the free blocks of a memory pool.
///
/// A [trim](crate::CacheRegistry::trim) counts it and gives it back before any entry goes, and again after entries and slots
/// have returned their memory to it. The byte budget leaves it out: a reserve has a limit of its own.
pub trait CacheReserve: Send + Sync + 'static {
    /// Bytes that could be given back now.
    fn bytes(&self) -> u64;

    /// Gives back at least this many bytes, or all there are. Does not wait for memory that is still in use.
    fn release(&self, bytes: u64);
}
