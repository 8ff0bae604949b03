//! Kernels: compiled once, cached in memory and on disk, launched with checked arguments.
//!
//! In the order of data flow: `source` is the user's input, `key` contains everything that can change the code, `cache`
//! is the two-tier cache. `depth`, `text`, `module` and `split_grid` turn the text into a validated module,
//! `diagnostics` reports errors in it, `bindings` and `reflect` describe its interface. `artifact` is the stored form.
//! `launch`, `grid` and `value` build a launch. `explain` reports why a kernel is not cached, `warm` loads kernels
//! ahead of use.

mod artifact;
mod bindings;
mod cache;
mod depth;
mod diagnostics;
mod explain;
mod grid;
mod key;
mod launch;
mod module;
mod options;
mod reflect;
mod source;
mod split_grid;
mod statistics;
mod text;
mod value;
mod warm;

pub use artifact::{Artifact, Code, RuntimeChecks};
pub(crate) use cache::KernelCache;
pub(crate) use explain::explain;
pub use explain::{Change, KernelExplanation, Outcome};
pub use grid::{Extent, Grid, GridPart};
pub use key::{KernelHash, KernelKey};
pub(crate) use launch::check_bound;
pub use launch::{Argument, Launch};
pub use module::KernelModule;
pub use options::{DiskTier, KernelCacheOptions};
pub use reflect::{Binding, BindingKind, BindingName, Member, Reflection, Scalar, Tail, ValueLayout};
pub use source::{KernelFlag, KernelOptions, KernelSource, Optimisation};
pub use statistics::{DiskTierState, KernelCacheStatistics};
pub use value::Value;
pub(crate) use warm::warm;
pub use warm::{KernelWarmFailure, KernelWarmReport, Preload};

use crate::device::{Device, DeviceApi};
use kiln_ir::Result;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

/// A compiled kernel on its device. Clones refer to the same kernel, which stays usable after the cache evicts it.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{KernelSource, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let source = "
///     @group(0) @binding(0) var<storage, read> x: array<f32>;
///     @group(0) @binding(1) var<storage, read_write> y: array<f32>;
///     @group(0) @binding(2) var<uniform> alpha: f32;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if (id.x < arrayLength(&y)) { y[id.x] += alpha * x[id.x]; }
///     }";
/// let kernel = device.kernel(KernelSource::wgsl(source).named("saxpy.wgsl"))?;
/// let (x, mut y) = (device.buffer_of::<f32>(1000)?, device.buffer_of::<f32>(1000)?);
/// kernel.launch().bind("x", &x).bind("y", &mut y).value("alpha", 2.0f32).over(1000)?;
///
/// let error = kernel.launch().bind("x", &x).bind("z", &y).over(1000).unwrap_err();
/// assert!(error.to_string().contains("found `z`"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Kernel {
    device: Device,
    loaded: Arc<LoadedKernel>,
}

impl Kernel {
    pub(crate) fn new(device: Device, loaded: Arc<LoadedKernel>) -> Self {
        Self { device, loaded }
    }

    /// Starts a launch.
    pub fn launch(&self) -> Launch<'_> {
        Launch::new(self)
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        self.loaded.name()
    }

    /// Returns the interface of the kernel.
    pub fn reflection(&self) -> &Reflection {
        &self.loaded.reflection
    }

    /// Returns the key: everything that the kernel was compiled from and for.
    pub fn key(&self) -> &KernelKey {
        &self.loaded.key
    }

    /// Returns the identifier in the cache.
    pub fn hash(&self) -> KernelHash {
        self.loaded.hash
    }

    /// Returns whether the kernel was compiled in this process or loaded from disk.
    pub fn origin(&self) -> Origin {
        self.loaded.origin
    }

    /// Returns the device of the kernel.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn loaded(&self) -> &Arc<LoadedKernel> {
        &self.loaded
    }

    /// Returns the variant for grids beyond the device's limit, compiled or cached like any other kernel.
    fn for_split_grid(&self) -> Result<Self> {
        self.device.prepare_key(self.key().for_split_grid()).kernel()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.loaded.hash.short();
        f.debug_struct("Kernel").field("name", &self.name()).field("hash", &hash).field("device", &self.device).finish()
    }
}

/// A kernel with a precomputed key: getting the kernel is a lookup in the memory tier, without hashing the source
/// again.
///
/// Keep one for a kernel that is needed occasionally. A [`Kernel`] is as fast to use, but keeps the compiled code in
/// memory after the cache would have evicted it.
///
/// ```
/// use kiln_device::{KernelSource, NullDevice, Origin};
///
/// let device = NullDevice::new().into_device()?;
/// let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
/// let prepared = device.prepare(&source)?;
/// let kernel = prepared.kernel()?;
/// assert_eq!((kernel.hash(), kernel.origin()), (prepared.hash(), Origin::Compiled));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone)]
pub struct PreparedKernel {
    device: Device,
    key: Arc<KernelKey>,
    hash: KernelHash,
}

impl PreparedKernel {
    pub(crate) fn new(device: Device, key: KernelKey) -> Self {
        let hash = key.hash();
        Self { device, key: Arc::new(key), hash }
    }

    /// Returns the kernel: from memory, from disk, or compiled now.
    ///
    /// # Errors
    /// Returns `CompileFailed` if the source has an error; `Unsupported` if the device cannot run it; the device's
    /// fault.
    #[inline]
    pub fn kernel(&self) -> Result<Kernel> {
        let loaded = self.device.kernels().get(&self.device, self.hash, &self.key)?;
        Ok(Kernel::new(self.device.clone(), loaded))
    }

    /// Returns the key.
    pub fn key(&self) -> &KernelKey {
        &self.key
    }

    /// Returns the identifier in the cache.
    pub fn hash(&self) -> KernelHash {
        self.hash
    }
}

impl fmt::Debug for PreparedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedKernel").field("name", &self.key.name).field("hash", &self.hash.short()).finish()
    }
}

/// Where a kernel came from.
///
/// Returned by [`Kernel::origin`]; see [`PreparedKernel`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Compiled from its source in this process.
    Compiled,
    /// Loaded from disk as translated code.
    Disk,
}

/// A kernel in the memory tier, and in a [`Dispatch`](crate::Dispatch).
///
/// Returned by [`Dispatch::kernel`](crate::Dispatch::kernel); see [`Dispatch`](crate::Dispatch) for an example.
pub struct LoadedKernel {
    pub(crate) key: Arc<KernelKey>,
    pub(crate) hash: KernelHash,
    pub(crate) reflection: Reflection,
    pub(crate) raw: RawKernel,
    pub(crate) bytes: u64,
    pub(crate) device: Weak<dyn DeviceApi>,
    pub(crate) origin: Origin,
}

impl LoadedKernel {
    /// Combines the translated kernel with the one that the device created from it.
    fn new(
        device: &Arc<dyn DeviceApi>,
        hash: KernelHash,
        key: &Arc<KernelKey>,
        artifact: Artifact,
        raw: RawKernel,
        origin: Origin,
    ) -> Self {
        // The device keeps about as much memory as its input: machine code unchanged, or a pipeline of similar size.
        let bytes = artifact.bytes() + artifact.reflection.bytes() + key.bytes() + size_of::<Self>() as u64;
        let (key, reflection, device) = (Arc::clone(key), artifact.reflection, Arc::downgrade(device));
        Self { key, hash, reflection, raw, bytes, device, origin }
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// Returns the interface of the kernel.
    pub fn reflection(&self) -> &Reflection {
        &self.reflection
    }

    pub(crate) fn is_of(&self, device: &Arc<dyn DeviceApi>) -> bool {
        // The address is not reused by another device: the `Weak` keeps the allocation, although not the device.
        std::ptr::addr_eq(self.device.as_ptr(), Arc::as_ptr(device))
    }

    /// Returns the kernel of the device.
    pub fn raw(&self) -> &RawKernel {
        &self.raw
    }
}

impl fmt::Debug for LoadedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedKernel").field("name", &self.name()).field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// A kernel as created by its device. Its content is private to the device.
///
/// Part of a [`Loaded`](crate::Loaded); see [`DeviceApi`] for an example.
pub struct RawKernel(Box<dyn Any + Send + Sync>);

impl RawKernel {
    /// Wraps the device's representation of a kernel.
    pub fn new(kernel: impl Any + Send + Sync) -> Self {
        Self(Box::new(kernel))
    }

    /// Returns the wrapped value, or `None` if it has another type, because the kernel belongs to another device.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for RawKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawKernel")
    }
}
