//! Typed, bounded, observable caches for what is expensive to create: compiled kernels, pipelines, plans, lookup tables.
//!
//! The crate owns caches and everything that keeps them honest: eviction policies, byte budgets, metrics, events and
//! advice; and a crash-safe [`store`] of bytes on disk. It knows nothing of GPUs, starts no threads, reads no
//! environment and prints nothing.
//!
//! The three types to know:
//!
//! - [`Cache<K, V>`](Cache): one cache, for a program that needs one;
//! - [`CacheRegistry`]: one cache for each kind of resource, under one byte budget; a kind is a type ([`CacheableKernel`]) or a
//!   cache that was [registered](CacheRegistry::register);
//! - [`EvictionPolicy`]: when a cache lets go of what.
//!
//! # From a key to a production cache
//!
//! ```
//! use kiln_resource_cache::events::ChannelSink;
//! use kiln_resource_cache::{CacheError, CacheRegistry, CacheableKernel, EvictionPolicy};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! // 1. Say what is cached. The key holds everything that changes the resource, and nothing else: a field too few
//! //    returns the wrong resource, a field too many misses for no reason.
//! #[derive(Clone, Debug, PartialEq, Eq, Hash)]
//! struct FftKey {
//!     len: usize,
//!     inverse: bool,
//! }
//!
//! struct FftPlan {
//!     twiddles: Vec<(f64, f64)>,
//! }
//!
//! struct Fft; // the name of the kind of resource; never built
//!
//! impl CacheableKernel for Fft {
//!     type Key = FftKey;
//!     type CachedResource = FftPlan;
//!     type Params = (usize, bool);
//!     type Device = ();
//!     type Error = CacheError;
//!     const CACHE_NAME: &'static str = "fft_plans";
//!
//!     // Runs on every lookup: cheap, no allocation.
//!     fn create_cache_key(&(len, inverse): &(usize, bool)) -> FftKey {
//!         FftKey { len, inverse }
//!     }
//!
//!     // Runs on a miss, once however many threads ask.
//!     fn create_cached_resource(key: &FftKey, _device: Option<&()>) -> Result<FftPlan, CacheError> {
//!         let turn = if key.inverse { 1.0 } else { -1.0 } * std::f64::consts::TAU / key.len as f64;
//!         let twiddles = (0..key.len).map(|i| ((turn * i as f64).cos(), (turn * i as f64).sin())).collect();
//!         Ok(FftPlan { twiddles })
//!     }
//!
//!     // Without this, only the size of `FftPlan` itself would count.
//!     fn resource_bytes(plan: &FftPlan) -> u64 {
//!         size_of_val(plan.twiddles.as_slice()) as u64
//!     }
//! }
//!
//! // 2. Make a registry, with a budget for all of its caches together and someone who listens.
//! let (sink, events) = ChannelSink::new(1024);
//! let registry = CacheRegistry::<()>::builder().byte_budget(64 << 20).sink(sink).build()?;
//!
//! // 3. Bound this cache: at most 100 plans, none unused for two hours, and never fewer than 4.
//! let policy = EvictionPolicy::hybrid(100, Duration::from_secs(2 * 3600)).with_min_entries(4);
//! registry.set_eviction_policy::<Fft>(policy)?;
//!
//! // 4. Warm it up, then use it.
//! let warm = registry.warm::<Fft>([(256, false), (256, true)]);
//! assert_eq!(warm.created, 2);
//! let plan = registry.get_or_create::<Fft>(&(256, false), None)?;
//! let again = registry.get_or_create::<Fft>(&(256, false), None)?;
//! assert!(Arc::ptr_eq(&plan, &again));
//! assert_eq!(plan.twiddles.len(), 256);
//!
//! // 5. Watch it. Every number is live.
//! let metrics = registry.metrics::<Fft>().expect("the cache is in use");
//! assert_eq!((metrics.size, metrics.hits, metrics.bytes), (2, 2, 2 * 256 * 16));
//! println!("fft_plans: {metrics}");
//! println!("{}", registry.report());
//! for advice in registry.advice() {
//!     println!("{advice}"); // a hit rate below 80 %, limits that are too tight
//! }
//! assert_eq!(events.try_iter().count(), 2);
//!
//! // 6. Give memory back when the machine needs it. This reaches every cache and every slot, down to the floors.
//! registry.set_eviction_policy::<Fft>(policy.with_min_entries(1))?;
//! registry.set_byte_budget(32 << 20)?;
//! let trimmed = registry.trim(0);
//! assert_eq!((trimmed.entries_evicted, trimmed.bytes_after), (1, 256 * 16));
//! # Ok::<(), CacheError>(())
//! ```
//!
//! # What it promises
//!
//! - **Threads.** Everything takes `&self`. Concurrent misses on one key run one creation. A creation that fails or
//!   panics wakes all who wait with an error, leaves nothing behind, and the next call tries again. A creation may look
//!   up anything, except what would wait for itself: that is an error, also across threads and caches, never a hang.
//!   The user's code (creation, weights, `Clone`, `Drop`, sinks) runs with no lock held, except a slot's own; only `Eq`
//!   and `Hash` of keys, and rankings, run under one.
//! - **Limits** of a policy hold strictly, at every moment; the byte budget after every creation and every use of a
//!   slot. The floor `min_entries` wins over both. A stale entry is never returned.
//! - **Order.** The least recently used entry goes, or the first inserted, or the one of least worth in a
//!   [ranking](EvictionPolicy::ranked) of the user's, exactly; with two grains of salt, so that a
//!   hit stays cheap. Uses by different threads between two insertions may be ordered either way. And in a cache of more
//!   than 256 entries and no idle limit, in a run of hits so dense that one of its 32 shards sees more than 64 in 4 ms,
//!   uses of an entry that was already used since the last insertion are noted for about one hit in 64: their order,
//!   their time and [`CacheMetrics::max_entry_reuse_count`] are then those of the sample, also for up to 94 hits of the
//!   shard after the run. Hits and misses are always counted.
//! - **Cost.** A hit takes one uncontended lock and allocates nothing; `cargo bench -p kiln-resource-cache` shows it beside
//!   `quick_cache` and `moka`. With no sink attached nothing is formatted. Order is brought up to date by evictions, not
//!   by hits: after a hit on each of a million entries, the next eviction takes a third of a second, once.
//! - **Memory.** An evicted resource leaves the books at once and memory when its last holder drops it.
//!
//! # Disk store
//!
//! [`store::DiskStore`] keeps bytes by key in a directory that several processes share, for what is to be there at the
//! next start. It returns what was put or a miss: each entry is one file with its whole key and a checksum, put in place
//! by a rename. It is bounded in bytes and entries, and refuses a directory that somebody else could change. It is not a
//! level below [`Cache`]: who wants two levels looks into the store in the creation of the cache.
//!
//! ```
//! use kiln_resource_cache::Cache;
//! use kiln_resource_cache::store::{DiskStore, StoreOptions};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("kernels");
//! let store = DiskStore::open(&path, StoreOptions::new())?;
//! let cache: Cache<String, Vec<u8>> = Cache::builder("translated").build()?;
//! let translated = cache.get_or_insert_with(&"saxpy".to_owned(), || {
//!     store.get(b"saxpy").into_payload().unwrap_or_else(|| {
//!         let bytes = b"the result of long work".to_vec();
//!         // A store that cannot be written has said so; the work is done all the same.
//!         let _ = store.put(b"saxpy", &bytes);
//!         bytes
//!     })
//! })?;
//! assert_eq!(store.get(b"saxpy").into_payload().as_ref(), Some(&*translated));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//!
//! `policy` when to evict · `builder` the settings that caches and registries share · `cache` one cache: lookup (`shard`), creation (`create`, `flight`), eviction (`evict`,
//! `queue`, `stamp`) · `kernel` the trait · `registry` many caches, slots, budget, reports · [`events`] and their sinks ·
//! `metrics`, `advice` · [`store`]: one file per entry (`entry`, `file`), the directory and its lock (`directory`,
//! `lock`), writing and limits (`write`, `evict`), use counts (`usage`), whole stores (`listing`, `verify`, `archive`) ·
//! `clock` time, also for tests · `sync` locks, switched for the model checker.
#![forbid(unsafe_code)]

mod advice;
mod builder;
mod cache;
mod clock;
mod error;
pub mod events;
mod kernel;
mod metrics;
pub mod new_file;
mod policy;
mod registry;
pub mod store;
#[doc(hidden)]
pub mod sync;

pub use advice::{Advice, AdviceKind};
pub use builder::Builder;
pub use cache::{Cache, CacheBuilder, CacheSettings};
pub use clock::{Clock, MockClock};
pub use error::{CacheError, CacheErrorKind, ErrorOf};
pub use kernel::{CacheKey, CacheableKernel, CreationError};
pub use metrics::{CacheMetrics, LastEvent, MeanTime};
pub use policy::{EntryMetrics, EvictionOrder, EvictionPolicy, EvictionReason};
pub use registry::{
    CacheRegistry, CacheRegistryBuilder, CacheRegistrySlot, CacheReserve, CacheUsage, RegistryReport, RegistrySettings,
    ReserveUsage, SlotMut, SlotUsage, TrimReport, WarmFailure, WarmReport,
};
