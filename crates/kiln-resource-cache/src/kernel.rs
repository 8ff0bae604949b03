//! The contract between a kind of resource and the registry that caches it.

use crate::error::CacheError;
use std::fmt::Debug;
use std::hash::Hash;

/// Keys of a cache. Implemented for all types with these bounds.
pub trait CacheKey: Clone + Debug + Eq + Hash + Send + Sync + 'static {}

impl<T: Clone + Debug + Eq + Hash + Send + Sync + 'static> CacheKey for T {}

/// Errors of a creation. Implemented for all types with these bounds.
pub trait CreationError: From<CacheError> + Clone + Send + Sync + 'static {}

impl<T: From<CacheError> + Clone + Send + Sync + 'static> CreationError for T {}

/// A kind of resource that is expensive to create: a compiled kernel, a pipeline, a plan.
///
/// The type that implements this is a name only; it is never built. The registry keeps one cache for each such type.
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
    /// What tells two resources apart. Everything that changes the resource belongs in it.
    type Key: CacheKey;
    /// What is cached; handed out as `Arc<CachedResource>`.
    type CachedResource: Send + Sync + 'static;
    /// What a caller passes in.
    type Params;
    /// What creation may need besides the key.
    type Device: Send + Sync + 'static;
    /// The error of creation. All who wait for one failed creation get a clone of it.
    type Error: CreationError;

    /// The name of the cache in metrics and events; unique among the types of a registry.
    const CACHE_NAME: &'static str;

    /// The key of a call. Runs on every lookup: cheap, and without allocation.
    fn create_cache_key(params: &Self::Params) -> Self::Key;

    /// Creates the resource. Runs only on a miss, with no lock held; may look up other resources.
    fn create_cached_resource(
        key: &Self::Key,
        device: Option<&Self::Device>,
    ) -> Result<Self::CachedResource, Self::Error>;

    /// Bytes that a resource stands for in limits, budgets and metrics.
    ///
    /// The default is the size of the type itself. Override it for anything that owns memory elsewhere.
    fn resource_bytes(resource: &Self::CachedResource) -> u64 {
        size_of_val(resource) as u64
    }
}
