//! `resource_cache!`: declares a struct with one method per kernel type.

/// Declares a wrapper around a [`CacheRegistry`](crate::CacheRegistry) with one method per kernel type, so that code
/// can call `caches.twiddles(&1024)` instead of `registry.get_or_create::<Twiddles>(&1024, None)`.
///
/// The wrapper uses the device of the registry. `registry()` gives access to everything else.
///
/// ```
/// # use kiln_resource_cache::{CacheError, CacheRegistry, CacheableKernel, resource_cache};
/// # struct Twiddles;
/// # impl CacheableKernel for Twiddles {
/// #     type Key = u32;
/// #     type CachedResource = Vec<f32>;
/// #     type Params = u32;
/// #     type Device = ();
/// #     type Error = CacheError;
/// #     const CACHE_NAME: &'static str = "twiddles";
/// #     fn create_cache_key(len: &u32) -> u32 { *len }
/// #     fn create_cached_resource(len: &u32, _: Option<&()>) -> Result<Vec<f32>, CacheError> { Ok(vec![0.0; *len as usize]) }
/// # }
/// resource_cache! {
///     /// The caches of this program.
///     pub struct ResourceCache<()> {
///         /// Twiddle factors of a transform of this length.
///         pub fn twiddles -> Twiddles;
///     }
/// }
///
/// let caches = ResourceCache::new(CacheRegistry::new());
/// assert_eq!(caches.twiddles(&1024)?.len(), 1024);
/// assert_eq!(caches.registry().metrics::<Twiddles>().unwrap().size, 1);
/// # Ok::<(), CacheError>(())
/// ```
#[macro_export]
macro_rules! resource_cache {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<$device:ty> {
            $($(#[$method_meta:meta])* $method_vis:vis fn $method:ident -> $kernel:ty;)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            registry: $crate::CacheRegistry<$device>,
        }

        impl $name {
            /// Creates a wrapper around a registry.
            $vis fn new(registry: $crate::CacheRegistry<$device>) -> Self {
                Self { registry }
            }

            /// Returns the registry.
            $vis fn registry(&self) -> &$crate::CacheRegistry<$device> {
                &self.registry
            }

            $(
                $(#[$method_meta])*
                $method_vis fn $method(
                    &self,
                    params: &<$kernel as $crate::CacheableKernel>::Params,
                ) -> ::std::result::Result<
                    ::std::sync::Arc<<$kernel as $crate::CacheableKernel>::CachedResource>,
                    <$kernel as $crate::CacheableKernel>::Error,
                > {
                    self.registry.get_or_create::<$kernel>(params, ::std::option::Option::None)
                }
            )*
        }
    };
}
