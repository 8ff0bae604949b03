//! Building a cache: name, policy, weights, clock, sinks.

use super::shard::Shard;
use super::{Cache, Gate, KeyHasher, MeanTime, Weigher};
use crate::clock::{Clock, TimeSource};
use crate::error::{CacheError, CacheErrorKind};
use crate::events::{DEFAULT_SUMMARY_INTERVAL, EventHub, EventSink};
use crate::policy::EvictionPolicy;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex};
use std::borrow::Cow;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

/// Enough that two threads rarely meet in one, few enough that looking at all of them stays cheap.
const DEFAULT_SHARDS: usize = 32;

/// Settings of a [`Cache`] to be; made by [`Cache::builder`].
pub struct CacheBuilder<K, V> {
    name: Cow<'static, str>,
    policy: EvictionPolicy,
    weigher: Weigher<K, V>,
    time: TimeSource,
    sinks: Vec<Box<dyn EventSink>>,
    summary_interval: u64,
    shards: usize,
    shared: Shared,
    hub: Option<Arc<EventHub>>,
}

/// What the caches of one registry have in common; a cache on its own has one to itself.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Bytes of all entries of all caches.
    pub(crate) ledger: Arc<AtomicU64>,
    /// Larger entries are not kept: the byte budget of the registry.
    pub(crate) max_entry_bytes: u64,
}

impl Shared {
    pub(crate) fn new(max_entry_bytes: u64) -> Self {
        Self { ledger: Arc::new(AtomicU64::new(0)), max_entry_bytes }
    }
}

impl<K, V> std::fmt::Debug for CacheBuilder<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheBuilder").field("name", &self.name).field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<K, V> CacheBuilder<K, V>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(name: Cow<'static, str>) -> Self {
        Self {
            name,
            policy: EvictionPolicy::none(),
            weigher: Box::new(|_, _| size_of::<V>() as u64),
            time: TimeSource::system(),
            sinks: Vec::new(),
            summary_interval: DEFAULT_SUMMARY_INTERVAL,
            shards: DEFAULT_SHARDS,
            shared: Shared::new(u64::MAX),
            hub: None,
        }
    }

    /// When to evict; [`EvictionPolicy::none`] unless set.
    #[must_use]
    pub fn policy(mut self, policy: EvictionPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// How many bytes an entry stands for; the size of `V` itself unless set, which leaves out what `V` points to.
    /// Called once per entry, when it is inserted. More than 2^48 bytes count as 2^48.
    #[must_use]
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Box::new(weigher);
        self
    }

    /// Where the time comes from; the system's monotonic clock unless set.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.time = TimeSource::Custom(Arc::new(clock));
        self
    }

    /// Adds a listener for events.
    #[must_use]
    pub fn sink(mut self, sink: impl EventSink) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    /// A summary event every so many operations; 100 unless set.
    #[must_use]
    pub fn summary_interval(mut self, operations: u64) -> Self {
        self.summary_interval = operations;
        self
    }

    /// How many locks the entries are spread over, a power of two; 32 unless set. More suit dozens of threads.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Joins the cache to a registry.
    pub(crate) fn joined(mut self, time: TimeSource, shared: Shared, hub: Option<Arc<EventHub>>) -> Self {
        self.time = time;
        self.shared = shared;
        self.hub = hub;
        self
    }

    /// The cache, or what is wrong with its settings.
    pub fn build(self) -> Result<Cache<K, V>, CacheError> {
        let invalid = |what: String| Err(CacheError::new(CacheErrorKind::InvalidArgument, what));
        if self.name.is_empty() {
            return invalid("the name of a cache is empty, expected one that tells it apart in reports".to_owned());
        }
        if !self.shards.is_power_of_two() || self.shards > 1 << 16 {
            return invalid(format!(
                "cache `{}`: shards is {}, expected a power of two up to 65536",
                self.name, self.shards
            ));
        }
        self.policy.validate(&self.name)?;
        let hub = match self.hub {
            Some(hub) => Some(hub),
            None => EventHub::new(self.sinks, self.summary_interval)?.map(Arc::new),
        };
        let needs_care = self.policy.max_idle_duration().is_some();
        Ok(Cache {
            name: self.name,
            hasher: KeyHasher::default(),
            shards: (0..self.shards).map(|_| Shard::new()).collect(),
            weigher: self.weigher,
            time: self.time,
            gate: Mutex::new(Gate::new(self.policy)),
            max_idle: AtomicU64::new(self.policy.max_idle_nanos()),
            len: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            oversize: AtomicU64::new(0),
            lookup_times: MeanTime::default(),
            create_times: MeanTime::default(),
            events: hub,
            needs_care: AtomicBool::new(needs_care),
            sample_next: AtomicBool::new(true),
            operations: AtomicU64::new(0),
            shared: self.shared,
        })
    }
}
