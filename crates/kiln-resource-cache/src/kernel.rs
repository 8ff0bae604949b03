//! [`CacheableKernel`]: how a registry creates and identifies a kind of resource.

use crate::error::CacheError;
use std::fmt::Debug;
use std::hash::Hash;

/// The bounds of cache keys. Implemented for all types that meet them.
///
/// See [`CacheableKernel`] for an example.
pub trait CacheKey: Clone + Debug + Eq + Hash + Send + Sync + 'static {}

impl<T: Clone + Debug + Eq + Hash + Send + Sync + 'static> CacheKey for T {}

/// The bounds of creation errors. Implemented for all types that meet them.
///
/// See [`Cache::get_or_try_insert_with`](crate::Cache::get_or_try_insert_with) for an example.
pub trait CreationError: From<CacheError> + Clone + Send + Sync + 'static {}

impl<T: From<CacheError> + Clone + Send + Sync + 'static> CreationError for T {}

/// A kind of resource that is expensive to create: a compiled kernel, a pipeline, a plan.
///
/// The implementing type is only a name and is never constructed. A registry has one cache for each such type. The
/// trait is named for its first use, compiled kernels; any resource qualifies.
///
/// ```
/// use kiln_resource_cache::{CacheError, CacheRegistry, CacheableKernel};
///
/// struct Twiddles;
///
/// impl CacheableKernel for Twiddles {
///     type Key = u32;
///     type CachedResource = Vec<f32>;
///     type Params = u32;
///     type Device = ();
///     type Error = CacheError;
///     const CACHE_NAME: &'static str = "twiddles";
///
///     fn create_cache_key(len: &u32) -> u32 {
///         *len
///     }
///
///     fn create_cached_resource(len: &u32, _device: Option<&()>) -> Result<Vec<f32>, CacheError> {
///         Ok((0..*len).map(|i| (i as f32).cos()).collect())
///     }
///
///     fn resource_bytes(table: &Vec<f32>) -> u64 {
///         (table.len() * size_of::<f32>()) as u64
///     }
/// }
///
/// let registry: CacheRegistry = CacheRegistry::new();
/// let table = registry.get_or_create::<Twiddles>(&1024, None)?;
/// assert_eq!(table.len(), 1024);
/// # Ok::<(), CacheError>(())
/// ```
pub trait CacheableKernel: 'static {
    /// Identifies a resource. It must contain everything that changes the resource.
    type Key: CacheKey;
    /// The cached resource, returned as `Arc<CachedResource>`.
    type CachedResource: Send + Sync + 'static;
    /// The parameters of a lookup.
    type Params;
    /// Additional input of the creation, which is not part of the key: a hit ignores it. All lookups in one registry
    /// must therefore pass equivalent values; use one registry per device otherwise.
    type Device: Send + Sync + 'static;
    /// The error of the creation. All threads that wait for a failed creation receive a clone.
    type Error: CreationError;

    /// The name of the cache in metrics and events. Unique among the types of a registry.
    const CACHE_NAME: &'static str;

    /// Returns the key for the parameters. Runs on every lookup, so it should be cheap and not allocate.
    fn create_cache_key(params: &Self::Params) -> Self::Key;

    /// Creates the resource. Runs only on a miss, with no lock held. May look up other resources.
    fn create_cached_resource(
        key: &Self::Key,
        device: Option<&Self::Device>,
    ) -> Result<Self::CachedResource, Self::Error>;

    /// Returns the bytes of a resource, for limits, budgets and metrics.
    ///
    /// The default is the size of the type itself. Override it for a type that owns other memory.
    fn resource_bytes(resource: &Self::CachedResource) -> u64 {
        size_of_val(resource) as u64
    }
}
