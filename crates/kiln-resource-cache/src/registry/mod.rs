//! [`CacheRegistry`]: one cache per kind of resource, under a common byte budget.

mod budget;
mod builder;
mod facade;
mod report;
mod reserve;
mod slot;
mod type_map;

pub(crate) use budget::Budget;
pub use builder::{CacheRegistryBuilder, RegistrySettings};
pub use report::{CacheUsage, RegistryReport, ReserveUsage, SlotUsage, TrimReport, WarmFailure, WarmReport};
pub use reserve::CacheReserve;
pub use slot::{CacheRegistrySlot, SlotMut};

use crate::advice::Advice;
use crate::builder::Builder;
use crate::cache::{Cache, CacheBuilder, Found};
use crate::clock::TimeSource;
use crate::error::{CacheError, CacheErrorKind};
use crate::events::EventHub;
use crate::kernel::{CacheKey, CacheableKernel};
use crate::metrics::CacheMetrics;
use crate::policy::{EvictionPolicy, EvictionReason};
use crate::sync::Mutex;
use budget::{ErasedCache, Member, Members};
use slot::{ErasedSlot, SlotCell};
use std::any::{Any, TypeId, type_name};
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::fmt::Debug;
use std::sync::Arc;
use type_map::TypeMap;

/// The caches of a program or of a device, under one byte budget.
///
/// A registry contains one cache for each [`CacheableKernel`] type, created at its first use, and the caches that were
/// [registered](Self::register). Finding the cache of a type takes no lock. Caches of a registry share a byte budget,
/// event sinks and a clock; registries share nothing.
///
/// See the [crate documentation](crate) for an example.
pub struct CacheRegistry<D = ()> {
    device: Option<D>,
    kernels: TypeMap<Arc<dyn ErasedCache>>,
    members: Arc<Members>,
    reserves: Mutex<Vec<(&'static str, Arc<dyn CacheReserve>)>>,
    time: TimeSource,
    hub: Option<Arc<EventHub>>,
}

type KernelCache<K> = Cache<<K as CacheableKernel>::Key, <K as CacheableKernel>::CachedResource>;

impl<D: Send + Sync + 'static> CacheRegistry<D> {
    /// Creates a registry without device, budget or sinks.
    pub fn new() -> Self {
        Self::assemble(RegistrySettings { device: None, byte_budget: None }, TimeSource::system(), None)
    }

    /// Creates a registry whose creations receive `device` unless the caller passes another.
    pub fn with_device(device: D) -> Self {
        Self::assemble(RegistrySettings { device: Some(device), byte_budget: None }, TimeSource::system(), None)
    }

    /// Starts building a registry with a clock, event sinks, a byte budget or a summary interval.
    pub fn builder() -> CacheRegistryBuilder<D> {
        Builder::new(RegistrySettings { device: None, byte_budget: None })
    }

    fn assemble(settings: RegistrySettings<D>, time: TimeSource, hub: Option<Arc<EventHub>>) -> Self {
        Self {
            device: settings.device,
            kernels: TypeMap::new(),
            members: Members::new(settings.byte_budget.unwrap_or(u64::MAX)),
            reserves: Mutex::new(Vec::new()),
            time,
            hub,
        }
    }

    /// Returns the device of the registry.
    pub fn device(&self) -> Option<&D> {
        self.device.as_ref()
    }

    /// Returns the resource for these parameters, creating it on a miss, once for all threads that request it.
    ///
    /// The creation receives `device`, or the device of the registry if it is `None`. See
    /// [`Cache::get_or_try_insert_with`] for creations that fail, panic or request their own key.
    #[inline]
    pub fn get_or_create<K: CacheableKernel<Device = D>>(
        &self,
        params: &K::Params,
        device: Option<&D>,
    ) -> Result<Arc<K::CachedResource>, K::Error> {
        self.find_or_create::<K>(&K::create_cache_key(params), device, true).map(|(resource, _)| resource)
    }

    /// Returns the resource for these parameters if it is cached. Counts as a hit or a miss.
    #[inline]
    pub fn get<K: CacheableKernel<Device = D>>(&self, params: &K::Params) -> Option<Arc<K::CachedResource>> {
        self.find_or_register::<K>().ok()?.get(&K::create_cache_key(params))
    }

    /// Creates the missing resources of a list of parameters, so that later lookups hit. Continues after a failure.
    /// Counts neither hits nor misses.
    pub fn warm<K: CacheableKernel<Device = D>>(
        &self,
        params: impl IntoIterator<Item: Borrow<K::Params>>,
    ) -> WarmReport {
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

    /// Changes the eviction policy of a cache, which need not have been used yet. The new limits hold when this
    /// returns.
    pub fn set_eviction_policy<K: CacheableKernel<Device = D>>(
        &self,
        policy: EvictionPolicy,
    ) -> Result<(), CacheError> {
        self.find_or_register::<K>()?.set_policy(policy)
    }

    /// Returns counters and ages of a cache, or `None` before its first use.
    pub fn metrics<K: CacheableKernel<Device = D>>(&self) -> Option<CacheMetrics> {
        self.existing::<K>().map(Cache::metrics)
    }

    /// Returns counters and ages of all caches, by name.
    pub fn metrics_by_name(&self) -> Vec<(&'static str, CacheMetrics)> {
        self.members.caches().into_iter().map(|member| (member.name, member.cache.metrics())).collect()
    }

    /// Returns advice on caches with a low hit rate or limits that are too tight, by name.
    pub fn advice(&self) -> Vec<Advice> {
        self.members.caches().iter().flat_map(|member| member.cache.advice()).collect()
    }

    /// Clears all caches and slots. A slot in use is cleared when its user releases it.
    pub fn clear(&self) {
        for member in self.members.caches() {
            member.cache.clear();
        }
        for slot in self.members.slots.values() {
            slot.clear();
        }
    }

    /// Clears the cache of a kernel type.
    pub fn clear_cache<K: CacheableKernel<Device = D>>(&self) {
        if let Some(cache) = self.existing::<K>() {
            cache.clear();
        }
    }

    /// Locks the slot of a type, which `init` fills on first use. Waits while another thread uses it.
    ///
    /// A slot is a lock: a thread that holds one must not wait for a creation that locks the same slot.
    ///
    /// # Panics
    /// Panics if this thread already holds the slot, where waiting would be a deadlock.
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
        let slots = &self.members.slots;
        let slot: &dyn Any = match slots.get(id) {
            Some(slot) => &**slot,
            None => &**slots.get_or_insert(id, Box::new(SlotCell::<T>::new(Arc::clone(&self.members.budget)))),
        };
        let cell: &SlotCell<T> = slot.downcast_ref().expect("a slot is stored under its own type");
        cell.lock(init)
    }

    /// Clears the slot of a type, at once or when its current user releases it. Returns false if there is no such slot.
    pub fn clear_slot<T: CacheRegistrySlot>(&self) -> bool {
        self.members.slots.get(TypeId::of::<T>()).map(|slot| slot.clear()).is_some()
    }

    /// Returns the bytes of all caches and slots.
    pub fn bytes(&self) -> u64 {
        self.members.budget.bytes()
    }

    /// Limits the total bytes of all caches and slots; `u64::MAX` means no limit.
    ///
    /// If an insertion or a growing slot exceeds the budget, the least recently used entries of all caches are evicted,
    /// whatever their policies, down to `min_entries`. Slots count, but only [`trim`](Self::trim) clears them, because
    /// their state cannot be created again. Threads that insert at the same time may exceed the budget together until
    /// they return.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if `bytes` is 0.
    pub fn set_byte_budget(&self, bytes: u64) -> Result<(), CacheError> {
        builder::validate_byte_budget(bytes)?;
        self.members.budget.set_limit(bytes);
        Ok(())
    }

    /// Adds memory outside of the registry that a [`trim`](Self::trim) releases as well.
    pub fn add_reserve(&self, name: &'static str, reserve: impl CacheReserve) {
        self.reserves.lock().push((name, Arc::new(reserve)));
    }

    /// Releases memory until at most `target_bytes` are left in caches, slots and reserves.
    ///
    /// [Reserves](CacheReserve) are released first, then the least recently used entries of all caches, whatever their
    /// policies, down to `min_entries`. If that is not enough, slots are cleared, largest first; `trim(0)` clears all
    /// of them. A resource that is still in use leaves the cache, and its memory is freed when the last holder drops
    /// it.
    pub fn trim(&self, target_bytes: u64) -> TrimReport {
        let bytes_before = self.bytes() + self.reserve_bytes();
        // Unused memory first: releasing it costs no recomputation.
        let mut reserved = self.shrink_reserves(target_bytes);
        let entries_evicted = self.members.evict_to(target_bytes.saturating_sub(reserved), EvictionReason::Trim);
        // Evicted entries may have returned memory to a reserve.
        reserved = self.shrink_reserves(target_bytes);
        let (mut slots_cleared, mut slots_deferred) = (0, 0);
        for slot in self.slots_by_size() {
            // A target of 0 also clears slots that report no bytes, or that are in use and have not reported them yet.
            if self.bytes() + reserved <= target_bytes && target_bytes > 0 {
                break;
            }
            let counter = if slot.clear() { &mut slots_cleared } else { &mut slots_deferred };
            *counter += 1;
            reserved = self.shrink_reserves(target_bytes);
        }
        let bytes_after = self.bytes() + reserved;
        TrimReport { target_bytes, bytes_before, bytes_after, entries_evicted, slots_cleared, slots_deferred }
    }

    /// Returns the bytes of each cache, slot and reserve.
    pub fn report(&self) -> RegistryReport {
        let usage = |member: &Member| {
            let (entries, bytes) = member.cache.usage();
            CacheUsage { cache: member.name, bytes, entries }
        };
        let mut caches: Vec<_> = self.members.caches().iter().map(usage).collect();
        caches.sort_by_key(|usage| (Reverse(usage.bytes), usage.cache));
        let slot_usage = |slot: &dyn ErasedSlot| SlotUsage { slot: slot.type_name(), bytes: slot.bytes() };
        let reserves = self.reserves().into_iter().map(|(name, it)| ReserveUsage { reserve: name, bytes: it.bytes() });
        RegistryReport {
            byte_budget: Some(self.members.budget.limit()).filter(|limit| *limit < u64::MAX),
            bytes: self.bytes(),
            caches,
            slots: self.slots_by_size().into_iter().map(slot_usage).collect(),
            reserves: reserves.collect(),
            sink_failures: self.hub.as_ref().map_or(0, |hub| hub.failures()),
        }
    }

    /// Returns the cache of a kernel type, creating it if needed. Keep the handle in code that looks up often.
    ///
    /// # Errors
    /// Returns `DuplicateName` if another cache has the name.
    pub fn cache<K: CacheableKernel<Device = D>>(&self) -> Result<Arc<KernelCache<K>>, CacheError> {
        let cache = self.kernels.get(TypeId::of::<K>()).map_or_else(|| self.register_kernel::<K>(), Ok)?;
        Ok(downcast(Arc::clone(cache)))
    }

    /// Adds a cache whose resources are created by closures, for resources that a key alone cannot create; see
    /// [`Cache::get_or_try_insert_with`].
    ///
    /// The cache uses the clock, sinks and byte budget of the registry. If a cache with the same name, key and value
    /// types exists, it is returned unchanged.
    ///
    /// # Errors
    /// Returns `DuplicateName` if a cache of other types has the name; `InvalidArgument` if a setting is invalid.
    ///
    /// ```
    /// use kiln_resource_cache::{Cache, CacheError, CacheRegistry, EvictionPolicy};
    ///
    /// let registry: CacheRegistry = CacheRegistry::new();
    /// let lines = registry.register(
    ///     Cache::builder("lines")
    ///         .policy(EvictionPolicy::size_limited_lru(100))
    ///         .weigher(|_, text: &String| text.capacity() as u64),
    /// )?;
    /// let text = "first\nsecond"; // borrowed, and not part of the key
    /// let line = lines.get_or_insert_with(&1, || text.lines().nth(1).unwrap_or_default().to_owned())?;
    /// assert_eq!(*line, "second");
    /// assert_eq!(registry.metrics_by_name()[0].0, "lines");
    /// # Ok::<(), CacheError>(())
    /// ```
    pub fn register<K: CacheKey, V: Send + Sync + 'static>(
        &self,
        builder: CacheBuilder<K, V>,
    ) -> Result<Arc<Cache<K, V>>, CacheError> {
        self.find_or_add(TypeId::of::<Cache<K, V>>(), type_name::<Cache<K, V>>(), builder).map(downcast)
    }

    #[inline]
    fn existing<K: CacheableKernel<Device = D>>(&self) -> Option<&KernelCache<K>> {
        self.kernels.get(TypeId::of::<K>()).map(downcast_ref)
    }

    #[inline]
    fn find_or_register<K: CacheableKernel<Device = D>>(&self) -> Result<&KernelCache<K>, CacheError> {
        match self.existing::<K>() {
            Some(cache) => Ok(cache),
            None => self.register_kernel::<K>().map(downcast_ref),
        }
    }

    #[cold]
    fn register_kernel<K: CacheableKernel<Device = D>>(&self) -> Result<&Arc<dyn ErasedCache>, CacheError> {
        let builder: CacheBuilder<K::Key, K::CachedResource> =
            Cache::builder(K::CACHE_NAME).weigher(|_, resource| K::resource_bytes(resource));
        let id = TypeId::of::<K>();
        // Two threads may get here at once. `find_or_add` returns the same cache to both, so either insertion is right.
        Ok(self.kernels.get_or_insert(id, self.find_or_add(id, type_name::<K>(), builder)?))
    }

    fn find_or_add<K: CacheKey, V: Send + Sync + 'static>(
        &self,
        id: TypeId,
        type_name: &'static str,
        builder: CacheBuilder<K, V>,
    ) -> Result<Arc<dyn ErasedCache>, CacheError> {
        let name = builder.settings.name;
        let taken = |by: &Member| {
            let message =
                format!("CACHE_NAME `{name}` of `{type_name}` is taken by `{}`, expected a unique name", by.type_name);
            CacheError::new(CacheErrorKind::DuplicateName, message)
        };
        let build = || -> Result<Arc<dyn ErasedCache>, CacheError> {
            let settings = builder.into_member_settings(name)?;
            Ok(Arc::new(settings.build(self.time.clone(), self.hub.clone(), Arc::clone(&self.members.budget))?))
        };
        self.members.find_or_add((id, name, type_name), taken, build)
    }

    #[inline]
    fn find_or_create<K: CacheableKernel<Device = D>>(
        &self,
        key: &K::Key,
        device: Option<&D>,
        counted: bool,
    ) -> Result<(Arc<K::CachedResource>, Found), K::Error> {
        let cache = self.find_or_register::<K>()?;
        let device = device.or(self.device.as_ref());
        cache.find_or_create(key, counted, || K::create_cached_resource(key, device))
    }

    fn reserves(&self) -> Vec<(&'static str, Arc<dyn CacheReserve>)> {
        // A copy, so that no lock is held while a reserve, which is user code, releases memory.
        self.reserves.lock().clone()
    }

    fn reserve_bytes(&self) -> u64 {
        self.reserves().iter().map(|(_, reserve)| reserve.bytes()).sum()
    }

    /// Releases reserves while the target is exceeded. Returns the bytes that they still have.
    fn shrink_reserves(&self, target_bytes: u64) -> u64 {
        for (_, reserve) in self.reserves() {
            // Computed again for each reserve, because the ones before may have released enough.
            let excess = (self.bytes() + self.reserve_bytes()).saturating_sub(target_bytes);
            if excess > 0 {
                reserve.release(excess);
            }
        }
        self.reserve_bytes()
    }

    fn slots_by_size(&self) -> Vec<&dyn ErasedSlot> {
        let mut slots: Vec<&dyn ErasedSlot> = self.members.slots.values().map(|slot| &**slot).collect();
        slots.sort_by_key(|slot| (Reverse(slot.bytes()), slot.type_name()));
        slots
    }
}

impl<D: Send + Sync + 'static> Default for CacheRegistry<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D> Debug for CacheRegistry<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.members.caches().iter().map(|member| member.name).collect();
        f.debug_struct("CacheRegistry").field("caches", &names).finish_non_exhaustive()
    }
}

fn downcast<T: Any + Send + Sync>(cache: Arc<dyn ErasedCache>) -> Arc<T> {
    let cache: Arc<dyn Any + Send + Sync> = cache;
    cache.downcast().unwrap_or_else(|_| unreachable!("{OWN_TYPE}"))
}

#[inline]
fn downcast_ref<T: Any>(cache: &Arc<dyn ErasedCache>) -> &T {
    let cache: &dyn Any = &**cache;
    cache.downcast_ref().expect(OWN_TYPE)
}

const OWN_TYPE: &str = "a cache is stored under its own type";
