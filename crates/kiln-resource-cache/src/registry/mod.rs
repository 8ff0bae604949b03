//! `CacheRegistry`: one cache per kind of resource, one byte budget, one report.

mod builder;
mod facade;
mod report;
mod slot;
mod type_map;

pub use builder::CacheRegistryBuilder;
pub use report::{CacheUsage, RegistryReport, SlotUsage, TrimReport, WarmFailure, WarmReport};
pub use slot::{CacheRegistrySlot, SlotMut};

use crate::advice::Advice;
use crate::cache::{Cache, Found, Shared};
use crate::clock::TimeSource;
use crate::error::{CacheError, CacheErrorKind};
use crate::events::EventHub;
use crate::kernel::CacheableKernel;
use crate::metrics::CacheMetrics;
use crate::policy::{EvictionOrder, EvictionPolicy, EvictionReason};
use crate::sync::{Mutex, Ordering};
use slot::{ErasedSlot, KeepsBudget, SlotCell};
use std::any::{Any, TypeId, type_name};
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use type_map::TypeMap;

/// The caches of a program or of a device: one for each [`CacheableKernel`] type, made when it is first used.
///
/// Finding the cache of a type takes no lock. All caches share one byte budget, one set of event sinks and one clock;
/// two registries share nothing.
pub struct CacheRegistry<D = ()> {
    device: Option<D>,
    caches: TypeMap<Registered>,
    /// Held while a cache is added, so that two types cannot take one name at once.
    registration: Mutex<()>,
    slots: TypeMap<Box<dyn ErasedSlot>>,
    time: TimeSource,
    hub: Option<Arc<EventHub>>,
    byte_budget: Option<u64>,
    shared: Shared,
}

struct Registered {
    id: TypeId,
    name: &'static str,
    kernel: &'static str,
    cache: Box<dyn ErasedCache>,
}

/// The cache of a kernel type.
type KernelCache<K> = Cache<<K as CacheableKernel>::Key, <K as CacheableKernel>::CachedResource>;

impl<D: Send + Sync + 'static> CacheRegistry<D> {
    /// A registry without device, budget or sinks.
    pub fn new() -> Self {
        Self::assemble(None, TimeSource::system(), None, None)
    }

    /// A registry whose creations get `device`, unless the caller passes another.
    pub fn with_device(device: D) -> Self {
        Self::assemble(Some(device), TimeSource::system(), None, None)
    }

    /// Begins a registry with a clock, event sinks, a byte budget or another summary interval.
    pub fn builder() -> CacheRegistryBuilder<D> {
        CacheRegistryBuilder::new()
    }

    fn assemble(device: Option<D>, time: TimeSource, hub: Option<Arc<EventHub>>, byte_budget: Option<u64>) -> Self {
        Self {
            device,
            caches: TypeMap::new(),
            registration: Mutex::new(()),
            slots: TypeMap::new(),
            time,
            hub,
            byte_budget,
            shared: Shared::new(byte_budget.unwrap_or(u64::MAX)),
        }
    }

    /// The device given at the start.
    pub fn device(&self) -> Option<&D> {
        self.device.as_ref()
    }

    /// The resource for these parameters; created on a miss, once for all threads that ask.
    ///
    /// Creation gets `device`, or else the registry's own. See
    /// [`Cache::get_or_try_insert_with`] for what happens when creation fails, panics or asks for its own key.
    #[inline]
    pub fn get_or_create<K>(&self, params: &K::Params, device: Option<&D>) -> Result<Arc<K::CachedResource>, K::Error>
    where
        K: CacheableKernel<Device = D>,
    {
        self.find_or_create::<K>(&K::create_cache_key(params), device, true).map(|(resource, _)| resource)
    }

    /// The resource for these parameters if it is there. Counts as a hit or a miss.
    #[inline]
    pub fn get<K>(&self, params: &K::Params) -> Option<Arc<K::CachedResource>>
    where
        K: CacheableKernel<Device = D>,
    {
        self.cache::<K>().ok()?.get(&K::create_cache_key(params))
    }

    /// Creates what is missing of a list of parameters, so that later lookups hit. Goes on after a failure. Counts
    /// neither hits nor misses: nobody asked for the resources yet.
    pub fn warm<K>(&self, params: impl IntoIterator<Item: Borrow<K::Params>>) -> WarmReport
    where
        K: CacheableKernel<Device = D>,
    {
        let mut report = WarmReport::default();
        for (index, params) in params.into_iter().enumerate() {
            let key = K::create_cache_key(params.borrow());
            match self.find_or_create::<K>(&key, None, false) {
                Ok((_, Found::Created)) => report.created += 1,
                Ok((_, Found::Hit | Found::Joined)) => report.already_cached += 1,
                Err(error) => report.failed.push(WarmFailure::new(index, &key, &error)),
            }
        }
        report
    }

    /// Changes the policy of a cache, at once. May come before the cache's first use.
    pub fn set_eviction_policy<K>(&self, policy: EvictionPolicy) -> Result<(), CacheError>
    where
        K: CacheableKernel<Device = D>,
    {
        self.cache::<K>()?.set_policy(policy)
    }

    /// Counters and ages of a cache; `None` before its first use.
    pub fn metrics<K>(&self) -> Option<CacheMetrics>
    where
        K: CacheableKernel<Device = D>,
    {
        self.existing::<K>().map(Cache::metrics)
    }

    /// Counters and ages of all caches, by name.
    pub fn metrics_by_name(&self) -> Vec<(&'static str, CacheMetrics)> {
        let mut all: Vec<_> = self.caches.values().map(|entry| (entry.name, entry.cache.metrics())).collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }

    /// What to change about caches whose hit rate is low or whose limits are too tight, by name.
    pub fn advice(&self) -> Vec<Advice> {
        let mut all: Vec<_> = self.caches.values().flat_map(|entry| entry.cache.advice()).collect();
        all.sort_by(|a, b| a.cache.cmp(&b.cache));
        all
    }

    /// Empties every cache and every slot. A slot that is in use is cleared when its user lets go of it.
    pub fn clear(&self) {
        for entry in self.caches.values() {
            entry.cache.clear();
        }
        for slot in self.slots.values() {
            slot.clear();
        }
    }

    /// Empties the cache of a kernel type.
    pub fn clear_cache<K>(&self)
    where
        K: CacheableKernel<Device = D>,
    {
        if let Some(cache) = self.existing::<K>() {
            cache.clear();
        }
    }

    /// The slot of a type, filled by `init` on first use. Waits while another thread has it.
    ///
    /// A slot is a lock: a thread that holds one must not wait for a creation that wants the same slot.
    ///
    /// # Panics
    /// If this thread holds the same slot already: waiting for itself would never end.
    ///
    /// ```
    /// use kiln_resource_cache::{CacheRegistry, CacheRegistrySlot};
    ///
    /// #[derive(Default)]
    /// struct Tokens(Vec<u32>);
    ///
    /// impl CacheRegistrySlot for Tokens {
    ///     fn clear_slot(&mut self) {
    ///         self.0 = Vec::new();
    ///     }
    ///     fn bytes(&self) -> u64 {
    ///         (self.0.capacity() * size_of::<u32>()) as u64
    ///     }
    /// }
    ///
    /// let registry: CacheRegistry = CacheRegistry::new();
    /// registry.slot_mut(Tokens::default).0.push(7);
    /// assert_eq!(registry.slot_mut(Tokens::default).0, [7]);
    /// registry.clear();
    /// assert!(registry.slot_mut(Tokens::default).0.is_empty());
    /// ```
    pub fn slot_mut<T: CacheRegistrySlot>(&self, init: impl FnOnce() -> T) -> SlotMut<'_, T> {
        let id = TypeId::of::<T>();
        let slot: &dyn Any = match self.slots.get(id) {
            Some(slot) => &**slot,
            None => &**self.slots.get_or_insert(id, Box::new(SlotCell::<T>::new(Arc::clone(&self.shared.ledger)))),
        };
        let cell: &SlotCell<T> = slot.downcast_ref().expect("a slot is stored under its own type");
        cell.lock(self, init)
    }

    /// Clears the slot of a type; now or, if it is in use, when its user lets go of it. False if there is no such slot.
    pub fn clear_slot<T: CacheRegistrySlot>(&self) -> bool {
        self.slots.get(TypeId::of::<T>()).map(|slot| slot.clear()).is_some()
    }

    /// Bytes of all caches and slots.
    pub fn bytes(&self) -> u64 {
        self.shared.ledger.load(Ordering::Relaxed)
    }

    /// Gives memory back until at most `target_bytes` are left.
    ///
    /// The least recently used entries of all caches go first, whatever their policies, down to their floors
    /// (`min_entries`). If that is not enough, slots are cleared, largest first; `trim(0)` clears all of them. A resource
    /// that someone still holds leaves the cache, and its memory goes when the last holder drops it.
    pub fn trim(&self, target_bytes: u64) -> TrimReport {
        let bytes_before = self.bytes();
        let entries_evicted = self.evict_to(target_bytes, EvictionReason::Trim);
        let (mut slots_cleared, mut slots_deferred) = (0, 0);
        for slot in self.slots_by_size() {
            // To nothing at all: then also slots that tell no bytes, or are in use and have not told them yet.
            if self.bytes() <= target_bytes && target_bytes > 0 {
                break;
            }
            let counter = if slot.clear() { &mut slots_cleared } else { &mut slots_deferred };
            *counter += 1;
        }
        let bytes_after = self.bytes();
        TrimReport { target_bytes, bytes_before, bytes_after, entries_evicted, slots_cleared, slots_deferred }
    }

    /// Who holds how many bytes.
    pub fn report(&self) -> RegistryReport {
        let usage = |entry: &Registered| CacheUsage {
            cache: entry.name,
            bytes: entry.cache.bytes(),
            entries: entry.cache.len(),
        };
        let mut caches: Vec<_> = self.caches.values().map(usage).collect();
        caches.sort_by_key(|usage| (Reverse(usage.bytes), usage.cache));
        let slot_usage = |slot: &dyn ErasedSlot| SlotUsage { slot: slot.type_name(), bytes: slot.bytes() };
        RegistryReport {
            byte_budget: self.byte_budget,
            bytes: self.bytes(),
            caches,
            slots: self.slots_by_size().into_iter().map(slot_usage).collect(),
            sink_failures: self.hub.as_ref().map_or(0, |hub| hub.failures()),
        }
    }

    #[inline]
    fn existing<K: CacheableKernel<Device = D>>(&self) -> Option<&KernelCache<K>> {
        self.caches.get(TypeId::of::<K>()).map(Registered::of::<K>)
    }

    /// The cache of a kernel type, made if it is not there yet. Not public: what is inserted past the registry would
    /// escape the byte budget.
    #[inline]
    fn cache<K: CacheableKernel<Device = D>>(&self) -> Result<&KernelCache<K>, CacheError> {
        match self.existing::<K>() {
            Some(cache) => Ok(cache),
            None => self.register::<K>(),
        }
    }

    #[cold]
    fn register<K: CacheableKernel<Device = D>>(&self) -> Result<&KernelCache<K>, CacheError> {
        let _registration = self.registration.lock();
        let (id, name, kernel) = (TypeId::of::<K>(), K::CACHE_NAME, type_name::<K>());
        let twin = self.caches.values().find(|entry| entry.name == name && entry.id != id);
        if let Some(twin) = twin {
            return Err(CacheError::new(
                CacheErrorKind::DuplicateName,
                format!("CACHE_NAME `{name}` of `{kernel}` is taken by `{}`, expected a name of its own", twin.kernel),
            ));
        }
        let cache: KernelCache<K> = Cache::builder(name)
            .weigher(|_, resource| K::resource_bytes(resource))
            .joined(self.time.clone(), self.shared.clone(), self.hub.clone())
            .build()?;
        let entry = Registered { id, name, kernel, cache: Box::new(cache) };
        Ok(self.caches.get_or_insert(id, entry).of::<K>())
    }

    #[inline]
    fn find_or_create<K: CacheableKernel<Device = D>>(
        &self,
        key: &K::Key,
        device: Option<&D>,
        counted: bool,
    ) -> Result<(Arc<K::CachedResource>, Found), K::Error> {
        let cache = self.cache::<K>().map_err(K::Error::from)?;
        let device = device.or(self.device.as_ref());
        let (resource, found) = cache.find_or_create(key, counted, || K::create_cached_resource(key, device))?;
        if found == Found::Created {
            self.enforce_budget();
        }
        Ok((resource, found))
    }

    /// Evicts the least recently used entries of all caches until `target_bytes` are left or every floor is reached.
    /// What is stale goes first. Returns how many went.
    ///
    /// A merge: the cache with the oldest entry gives entries until its oldest is newer than that of the next cache.
    /// If other threads keep using what is about to go, the ranking is made anew a few times, then ignored.
    fn evict_to(&self, target_bytes: u64, reason: EvictionReason) -> usize {
        let mut evicted = self.caches.values().map(|entry| entry.cache.expire()).sum();
        let mut patience = 8;
        while self.bytes() > target_bytes {
            let oldest = |entry: &'_ Registered| entry.cache.oldest_evictable();
            let mut ranked: Vec<_> = self.caches.values().filter_map(|entry| Some((oldest(entry)?, entry))).collect();
            ranked.sort_by_key(|(stamp, _)| *stamp);
            let Some((_, first)) = ranked.first() else {
                break;
            };
            let next = ranked.get(1).map_or(u64::MAX, |(stamp, _)| *stamp);
            let up_to = if patience > 0 { next } else { u64::MAX };
            let count = first.cache.evict_lru(reason, up_to, &|| self.bytes() > target_bytes);
            evicted += count;
            if count == 0 && patience == 0 {
                break;
            }
            patience = if count == 0 { patience - 1 } else { 8 };
        }
        for entry in self.caches.values() {
            entry.cache.end_trim();
        }
        evicted
    }

    fn slots_by_size(&self) -> Vec<&dyn ErasedSlot> {
        let mut slots: Vec<&dyn ErasedSlot> = self.slots.values().map(|slot| &**slot).collect();
        slots.sort_by_key(|slot| (Reverse(slot.bytes()), slot.type_name()));
        slots
    }
}

impl<D: Send + Sync + 'static> KeepsBudget for CacheRegistry<D> {
    fn enforce_budget(&self) {
        if let Some(budget) = self.byte_budget
            && self.bytes() > budget
        {
            self.evict_to(budget, EvictionReason::Budget);
        }
    }
}

impl<D: Send + Sync + 'static> Default for CacheRegistry<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D> Debug for CacheRegistry<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: Vec<_> = self.caches.values().map(|entry| entry.name).collect();
        names.sort_unstable();
        f.debug_struct("CacheRegistry").field("caches", &names).finish_non_exhaustive()
    }
}

impl Registered {
    #[inline]
    fn of<K: CacheableKernel>(&self) -> &KernelCache<K> {
        let cache: &dyn Any = &*self.cache;
        cache.downcast_ref().expect("a cache is stored under its own kernel type")
    }
}

/// A cache without its types.
trait ErasedCache: Any + Send + Sync {
    fn len(&self) -> usize;
    fn bytes(&self) -> u64;
    fn metrics(&self) -> CacheMetrics;
    fn advice(&self) -> Vec<Advice>;
    fn clear(&self);
    fn expire(&self) -> usize;
    fn end_trim(&self);
    fn oldest_evictable(&self) -> Option<u64>;
    fn evict_lru(&self, reason: EvictionReason, up_to_stamp: u64, wanted: &dyn Fn() -> bool) -> usize;
}

impl<K, V> ErasedCache for Cache<K, V>
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn len(&self) -> usize {
        self.len()
    }
    fn bytes(&self) -> u64 {
        self.bytes()
    }
    fn metrics(&self) -> CacheMetrics {
        self.metrics()
    }
    fn advice(&self) -> Vec<Advice> {
        self.advice()
    }
    fn clear(&self) {
        self.clear();
    }
    fn expire(&self) -> usize {
        self.expire()
    }
    fn end_trim(&self) {
        self.end_trim();
    }
    fn oldest_evictable(&self) -> Option<u64> {
        self.oldest_evictable()
    }
    fn evict_lru(&self, reason: EvictionReason, up_to_stamp: u64, wanted: &dyn Fn() -> bool) -> usize {
        self.evict_while(EvictionOrder::Lru, reason, up_to_stamp, wanted)
    }
}
