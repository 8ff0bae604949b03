//! The two-tier kernel cache: loaded kernels in memory, translated kernels on disk.

use super::artifact::Artifact;
use super::key::{KernelHash, KernelKey};
use super::module::KernelModule;
use super::options::{DiskTier, KernelCacheOptions};
use super::statistics::{DiskTierState, KernelCacheStatistics};
use super::{LoadedKernel, Origin};
use crate::device::{Device, DeviceApi};
use crate::observe::{EventKind, nanos, span};
use kiln_ir::{Error, ErrorKind, Result, error};
use kiln_resource_cache::store::{DiskStore, Lookup, StoreError};
use kiln_resource_cache::{Cache, CacheError, CacheRegistry, EvictionPolicy, MeanTime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The kernel cache of a device.
pub(crate) struct KernelCache {
    /// A cache of the device's registry.
    memory: Arc<Cache<KernelHash, LoadedKernel>>,
    disk: Option<DiskTier>,
    /// Opened when a kernel is first requested.
    store: OnceLock<Result<DiskStore, StoreError>>,
    compiles: MeanTime,
    disk_hits: MeanTime,
    failures: AtomicU64,
    unusable: AtomicU64,
}

impl KernelCache {
    /// The name of the memory tier among the caches of a device.
    pub(crate) const NAME: &str = "kernels";

    pub(crate) fn new(options: KernelCacheOptions, caches: &CacheRegistry<Device>) -> Result<Self> {
        let policy =
            EvictionPolicy::hybrid(options.max_entries, options.max_idle).with_eviction_batch(options.eviction_batch);
        let memory = Cache::builder(Self::NAME).policy(policy).weigher(|_, kernel: &LoadedKernel| kernel.bytes);
        let memory = caches
            .register(memory)
            .map_err(|error| error!(InvalidArgument, "kernel cache: {error}").with_source(error))?;
        Ok(Self {
            memory,
            disk: options.into_disk(),
            store: OnceLock::new(),
            compiles: MeanTime::default(),
            disk_hits: MeanTime::default(),
            failures: AtomicU64::new(0),
            unusable: AtomicU64::new(0),
        })
    }

    /// Returns the kernel of a key: from memory, from disk, or compiled. Concurrent requests for one kernel compile it
    /// once.
    #[inline]
    pub(crate) fn get(&self, device: &Device, hash: KernelHash, key: &Arc<KernelKey>) -> Result<Arc<LoadedKernel>> {
        let found = self.memory.get_or_try_insert_with(&hash, || self.create(device.api(), hash, key));
        found.map_err(|Failure(error)| {
            // Counted here and not in `create`, so that waiting threads count as well.
            self.failures.fetch_add(1, Ordering::Relaxed);
            error
        })
    }

    pub(super) fn is_in_memory(&self, hash: KernelHash) -> bool {
        self.memory.contains(&hash)
    }

    pub(crate) fn clear_memory(&self) {
        self.memory.clear();
    }

    /// Returns the disk tier, or `None` if there is none or it cannot be used.
    pub(crate) fn store(&self) -> Option<&DiskStore> {
        let disk = self.disk.as_ref()?;
        let opened = self.store.get_or_init(|| {
            DiskStore::open(&disk.directory, disk.store.clone()).inspect_err(|error| {
                tracing::warn!(%error, "compiled kernels are kept in memory only");
            })
        });
        opened.as_ref().ok()
    }

    pub(crate) fn statistics(&self) -> KernelCacheStatistics {
        let memory = self.memory.metrics();
        let disk = match (&self.disk, self.store.get()) {
            (None, _) => DiskTierState::None,
            (Some(_), None) => DiskTierState::Unopened,
            (Some(_), Some(Ok(store))) => DiskTierState::Open { statistics: store.statistics() },
            (Some(_), Some(Err(error))) => DiskTierState::Off { reason: error.to_string() },
        };
        KernelCacheStatistics {
            memory_hits: memory.hits,
            disk_hits: self.disk_hits.count(),
            compiles: self.compiles.count(),
            failures: self.failures.load(Ordering::Relaxed),
            disk_entries_unusable: self.unusable.load(Ordering::Relaxed),
            mean_memory_hit: memory.mean_lookup_time,
            mean_disk_hit: self.disk_hits.mean(),
            mean_compile: self.compiles.mean(),
            entries: memory.size,
            bytes: memory.bytes,
            evictions: memory.evictions,
            disk,
        }
    }

    fn create(
        &self,
        api: &Arc<dyn DeviceApi>,
        hash: KernelHash,
        key: &Arc<KernelKey>,
    ) -> Result<LoadedKernel, Failure> {
        let began = Instant::now();
        let _span = span(
            api.recorder(),
            |device| tracing::debug_span!(target: "kiln", "kernel_ready", device, kernel = key.name()),
        );
        let created = self.load_or_compile(api, hash, key);
        if let Ok(kernel) = &created {
            let took = began.elapsed();
            let times = if kernel.origin == Origin::Disk { &self.disk_hits } else { &self.compiles };
            times.record(took);
            if let Some(recorder) = api.recorder() {
                recorder.emit(|| EventKind::KernelReady {
                    kernel: key.name().to_string(),
                    origin: kernel.origin,
                    start_ns: recorder.unix_ns(began),
                    duration_ns: nanos(took),
                });
            }
        }
        created.map_err(Failure)
    }

    fn load_or_compile(
        &self,
        api: &Arc<dyn DeviceApi>,
        hash: KernelHash,
        key: &Arc<KernelKey>,
    ) -> Result<LoadedKernel> {
        api.fault().map_or(Ok(()), Err)?;
        let store = self.store();
        // Encoding is only needed for the disk tier.
        let stored_key = if store.is_some() { key.encode() } else { Vec::new() };
        if let Some(store) = store
            && let Lookup::Hit(payload) = store.get(&stored_key)
            && let Some(kernel) = self.load(api, hash, key, store, &stored_key, &payload)?
        {
            return Ok(kernel);
        }
        // Parsing and validation only happen on a miss of both tiers.
        let program = KernelModule::new(key, api.info())?;
        let mut artifact = api.translate(&program)?;
        let loaded = api.load(&artifact).map_err(|error| error.context(key.name.clone()))?;
        artifact.driver_blob = loaded.driver_blob;
        // After the load, which adds the driver's blob, and fails for code that the driver rejects.
        if let Some(store) = store {
            // The store counts and logs a failed write; the kernel works without it.
            let _ = store.put(&stored_key, &artifact.encode()?);
        }
        Ok(LoadedKernel::new(api, hash, key, artifact, loaded.kernel, Origin::Compiled))
    }

    /// Loads a kernel from a stored payload. If that fails, removes the entry and returns `None`.
    fn load(
        &self,
        api: &Arc<dyn DeviceApi>,
        hash: KernelHash,
        key: &Arc<KernelKey>,
        store: &DiskStore,
        stored_key: &[u8],
        payload: &[u8],
    ) -> Result<Option<LoadedKernel>> {
        let loaded = Artifact::decode(payload).and_then(|artifact| Ok((api.load(&artifact)?, artifact)));
        match loaded {
            Ok((loaded, artifact)) => {
                Ok(Some(LoadedKernel::new(api, hash, key, artifact, loaded.kernel, Origin::Disk)))
            }
            // Running out of memory says nothing about the entry.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(error),
            Err(error) => {
                tracing::warn!(kernel = key.name, %error, "a stored kernel cannot be loaded; compiling it again");
                self.unusable.fetch_add(1, Ordering::Relaxed);
                // An entry that cannot be removed is found and counted again.
                let _ = store.remove(stored_key);
                // Invalid code can lose the device. The entry is already removed, so the next start does not load it
                // again.
                api.fault().map_or(Ok(None), Err)
            }
        }
    }
}

/// The error of a creation, as the memory tier requires it.
#[derive(Clone)]
struct Failure(Error);

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        Self(error!(Internal, "kernel cache: {error}").with_source(error))
    }
}
