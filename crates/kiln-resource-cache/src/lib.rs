//! Typed, bounded, observable caches for resources that are expensive to create: compiled kernels, pipelines, plans,
//! lookup tables.
//!
//! The crate contains caches with eviction policies, byte budgets, metrics, events and advice, and a crash-safe
//! [`store`] of bytes on disk. It knows nothing of GPUs, starts no threads, reads no environment variables and prints
//! nothing.
//!
//! The types to know:
//!
//! - [`Cache<K, V>`](Cache): a standalone cache.
//! - [`CacheRegistry`]: one cache for each kind of resource, under a common byte budget. A kind is a type
//!   ([`CacheableKernel`]) or a cache that was [registered](CacheRegistry::register).
//! - [`EvictionPolicy`]: the limits of a cache and its eviction order.
//!
//! # Example
//!
//! ```
//! use kiln_resource_cache::events::ChannelSink;
//! use kiln_resource_cache::{CacheError, CacheRegistry, CacheableKernel, EvictionPolicy};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! // 1. Define the resource. The key contains everything that changes the resource, and nothing else: a missing
//! //    field returns the wrong resource, a superfluous one causes misses.
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
//! struct Fft; // identifies the kind of resource; never constructed
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
//!     // Runs on a miss, once for all threads.
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
//! // 2. Create a registry with a byte budget for all of its caches and an event sink.
//! let (sink, events) = ChannelSink::new(1024);
//! let registry = CacheRegistry::<()>::builder().byte_budget(64 << 20).sink(sink).build()?;
//!
//! // 3. Set the limits of this cache: at most 100 plans, none idle for two hours, and at least 4.
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
//! // 5. Monitor it. All numbers are current.
//! let metrics = registry.metrics::<Fft>().expect("the cache is in use");
//! assert_eq!((metrics.size, metrics.hits, metrics.bytes), (2, 2, 2 * 256 * 16));
//! println!("fft_plans: {metrics}");
//! println!("{}", registry.report());
//! for advice in registry.advice() {
//!     println!("{advice}"); // a hit rate below 80 %, limits that are too tight
//! }
//! assert_eq!(events.try_iter().count(), 2);
//!
//! // 6. Release memory when the machine needs it. A trim reaches every cache and slot, down to `min_entries`.
//! registry.set_eviction_policy::<Fft>(policy.with_min_entries(1))?;
//! registry.set_byte_budget(32 << 20)?;
//! let trimmed = registry.trim(0);
//! assert_eq!((trimmed.entries_evicted, trimmed.bytes_after), (1, 256 * 16));
//! # Ok::<(), CacheError>(())
//! ```
//!
//! # Guarantees
//!
//! - **Threads.** All methods take `&self`. Concurrent misses on one key run one creation. If a creation fails or
//!   panics, all waiting threads receive an error, nothing is cached, and the next call runs the creation again. A
//!   creation may look up other resources. A cycle of creations, also across threads and caches, is an error and not a
//!   deadlock. User code (creation, weigher, `Clone`, `Drop`, sinks) runs with no lock held except that of a slot; only
//!   `Eq` and `Hash` of keys, and rankings, run under a lock.
//! - **Limits.** The limits of a policy hold at every moment; the byte budget holds after every creation and every use
//!   of a slot. `min_entries` takes precedence over both. A stale entry is never returned.
//! - **Order.** The evicted entry is exactly the least recently used one, the first inserted one, or the one with the
//!   lowest score in a [ranking](EvictionPolicy::ranked), with two exceptions that keep hits cheap. Uses by different
//!   threads between two insertions may be ordered either way. And in a cache with more than 256 entries and no idle
//!   limit, if one of its 32 shards has more than 64 hits in 4 ms, uses of an entry that was already used since the
//!   last insertion are sampled, about one hit in 64: their order, their time and
//!   [`CacheMetrics::max_entry_reuse_count`] are then those of the sample, also for up to 94 hits of the shard after
//!   that burst. Hits and misses are always counted exactly.
//! - **Cost.** A hit takes one uncontended lock and does not allocate; `cargo bench -p kiln-resource-cache` compares it
//!   with `quick_cache` and `moka`. Without a sink nothing is formatted. The order is updated by evictions and not by
//!   hits: after a hit on each of a million entries, the next eviction takes a third of a second, once.
//! - **Memory.** An evicted resource no longer counts at once; its memory is freed when its last holder drops it.
//!
//! # Disk store
//!
//! [`store::DiskStore`] stores bytes by key in a directory that several processes share, so that they are available at
//! the next start. A lookup returns the stored bytes or a miss: each entry is a file that contains its whole key and a
//! checksum, and is put in place by a rename. The store is bounded in bytes and entries, and refuses a directory that
//! other users can change. It is not connected to [`Cache`]: for two tiers, look up the store in the creation function
//! of the cache.
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
//!         // The store reports and counts a failed write; the result is valid anyway.
//!         let _ = store.put(b"saxpy", &bytes);
//!         bytes
//!     })
//! })?;
//! assert_eq!(store.get(b"saxpy").into_payload().as_ref(), Some(&*translated));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Module map
//!
//! `policy`: eviction policies. `builder`: settings that caches and registries share. `cache`: one cache, with lookup
//! (`shard`), creation (`create`, `flight`) and eviction (`evict`, `queue`, `stamp`, `ghost`). `kernel`: the trait of
//! resources. `registry`: many caches, slots, budget, reports. [`events`]: events and sinks. `metrics`, `advice`.
//! [`store`]: entry files (`entry`, `file`), the directory and its lock (`directory`, `lock`), writing and limits
//! (`write`, `evict`), use counts (`usage`), whole stores (`listing`, `verify`, `archive`). [`new_file`]: atomic
//! replacement of files. `clock`: time sources, also for tests. `sync`: locks and atomics, replaced by loom's under the
//! model checker.
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
