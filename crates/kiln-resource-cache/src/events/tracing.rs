//! A sink that forwards events to `tracing`.

use super::{CacheEvent, EventSink};
use std::io;
use tracing::{Level, event};

/// Forwards events to `tracing` with the target `kiln_resource_cache`: accesses at trace level, evictions and summaries
/// at debug level.
///
/// ```
/// use kiln_resource_cache::{Cache, events::TracingSink};
///
/// let cache: Cache<u32, u32> = Cache::builder("squares").sink(TracingSink).build()?;
/// cache.get_or_insert_with(&3, || 9)?;
/// assert_eq!(cache.sink_failures(), 0);
/// # Ok::<(), kiln_resource_cache::CacheError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSink;

impl EventSink for TracingSink {
    fn record(&self, happened: &CacheEvent) -> io::Result<()> {
        match happened {
            CacheEvent::ResourceCacheAccess { cache_key, hit, bytes } => {
                event!(target: "kiln_resource_cache", Level::TRACE, cache_key, hit, bytes, "ResourceCacheAccess");
            }
            CacheEvent::ResourceCacheSummary { cache, hits, misses, hit_rate, size } => {
                event!(target: "kiln_resource_cache", Level::DEBUG, %cache, hits, misses, hit_rate, size, "ResourceCacheSummary");
            }
            CacheEvent::CacheEviction { cache, strategy, count, reason, size_after } => {
                event!(target: "kiln_resource_cache", Level::DEBUG, %cache, %strategy, count, ?reason, size_after, "CacheEviction");
            }
        }
        Ok(())
    }
}
