//! The builder of a cache: name, policy, weigher and shards.

use super::shard::Shard;
use super::{Cache, EvictionState, KeyHasher, Weigher};
use crate::builder::Builder;
use crate::clock::TimeSource;
use crate::error::{CacheError, CacheErrorKind};
use crate::events::EventHub;
use crate::kernel::CacheKey;
use crate::metrics::MeanTime;
use crate::policy::EvictionPolicy;
use crate::registry::Budget;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex};
use std::fmt::{self, Debug};
use std::sync::Arc;

/// Enough shards that threads rarely contend, few enough that visiting all of them is cheap.
const DEFAULT_SHARDS: usize = 32;

/// Builds a [`Cache`]; see [`Cache::builder`].
///
/// See [`Cache`] for an example.
pub type CacheBuilder<K, V> = Builder<CacheSettings<K, V>>;

/// The settings that only a cache has.
///
/// [`CacheBuilder`] sets them; see [`Cache`] for an example.
pub struct CacheSettings<K, V> {
    pub(crate) name: &'static str,
    policy: EvictionPolicy,
    weigher: Weigher<K, V>,
    shards: usize,
}

impl<K, V> Debug for CacheSettings<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheSettings").field("name", &self.name).field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<K: CacheKey, V: Send + Sync + 'static> CacheSettings<K, V> {
    pub(super) fn new(name: &'static str) -> Self {
        let weigher = Box::new(|_: &K, _: &V| size_of::<V>() as u64);
        Self { name, policy: EvictionPolicy::none(), weigher, shards: DEFAULT_SHARDS }
    }

    /// Builds a cache whose bytes count in `budget`.
    pub(crate) fn build(
        self,
        time: TimeSource,
        events: Option<Arc<EventHub>>,
        budget: Arc<Budget>,
    ) -> Result<Cache<K, V>, CacheError> {
        let Self { name, policy, weigher, shards } = self;
        let invalid = |what: String| Err(CacheError::new(CacheErrorKind::InvalidArgument, what));
        if name.is_empty() {
            return invalid("the name of a cache is empty, expected one that identifies it in reports".to_owned());
        }
        // `Cache::shard` masks the hash from bit 40 on. 16 bits stay below the top 7, which hashbrown uses as tags.
        if !shards.is_power_of_two() || shards > 1 << 16 {
            return invalid(format!("cache `{name}`: shards is {shards}, expected a power of two up to 65536"));
        }
        policy.validate(name)?;
        Ok(Cache {
            name,
            hasher: KeyHasher::default(),
            shards: (0..shards).map(|_| Shard::new()).collect(),
            weigher,
            time,
            eviction: Mutex::new(EvictionState::new(policy)),
            max_idle: AtomicU64::new(policy.max_idle_nanos()),
            len: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            oversize: AtomicU64::new(0),
            lookup_times: MeanTime::default(),
            create_times: MeanTime::default(),
            events,
            can_expire: AtomicBool::new(policy.max_idle_duration().is_some()),
            // The first hit is timed, so that a cache with few lookups has a mean as well.
            sample_next: AtomicBool::new(true),
            operations: AtomicU64::new(0),
            budget,
        })
    }
}

impl<K: CacheKey, V: Send + Sync + 'static> CacheBuilder<K, V> {
    /// Sets the eviction policy. Default: [`EvictionPolicy::none`].
    pub fn policy(mut self, policy: EvictionPolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets the function that returns the bytes of an entry.
    ///
    /// The default is the size of `V` itself, without the memory that `V` points to. Called once per entry, when it is
    /// inserted. Values above 2^48 bytes count as 2^48.
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.weigher = Box::new(weigher);
        self
    }

    /// Sets the number of shards, each with its own lock: a power of two. Default: 32. Use more for dozens of threads.
    pub fn shards(mut self, shards: usize) -> Self {
        self.settings.shards = shards;
        self
    }

    /// Builds a standalone cache.
    ///
    /// [`CacheRegistry::register`](crate::CacheRegistry::register) builds a cache that shares the byte budget, the
    /// clock and the sinks of a registry.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a setting is zero or contradicts another.
    pub fn build(self) -> Result<Cache<K, V>, CacheError> {
        let (settings, time, hub) = self.split()?;
        settings.build(time, hub, Budget::unlimited())
    }
}
